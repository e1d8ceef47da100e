"""The runner of `tests.endurance.fuzz`, with a fuzzer in place of atheris that reads samples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# libFuzzer ends the process without Python's handlers of the exit.
ATHERIS = """
import contextlib, os, pathlib
instrument_imports = lambda **_: contextlib.nullcontext()
def Setup(arguments, read):
    for sample in pathlib.Path(arguments[-1]).iterdir(): read(sample.read_bytes())
    options = dict(each.split("=") for each in arguments[1:-1])
    if code := int(os.environ["FUZZ_CODE"]):
        pathlib.Path(options["-artifact_prefix"] + "crash-1").write_bytes(b"x")
    print(f"Done {options['-runs']} runs", flush=True)
    os._exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("code", "kept"), [(0, []), (77, ["crash-1"])])
def test_only_an_input_that_failed_is_kept(tmp_path: Path, code: int, kept: list[str]) -> None:
    (tmp_path / "atheris.py").write_text(ATHERIS)
    folder = tmp_path / "temporary"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.endurance.fuzz", "--inputs", "3", "procfs"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "TMPDIR": str(folder),
            "FUZZ_CODE": str(code),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == bool(code), done.stdout + done.stderr
    assert done.stderr == ""
    assert [path.name for path in folder.glob("*/*")] == kept
    assert [f"kept in {path};" in done.stdout for path in folder.iterdir()] == [True] * len(kept)
