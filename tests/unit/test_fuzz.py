"""The runner of `tests.endurance.fuzz`, with a fuzzer in place of atheris that reads samples."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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


@pytest.mark.slow
@pytest.mark.parametrize("is_one", [False, True])
def test_a_runner_that_is_ended_leaves_no_folder(tmp_path: Path, *, is_one: bool) -> None:
    """Also of a target that is run alone, which libFuzzer ends."""
    (tmp_path / "atheris.py").write_text(ATHERIS)
    temporary, given, blocks = (tmp_path / name for name in ("temporary", "given", "input"))
    for folder in (temporary, given, given / "corpus"):
        folder.mkdir()
    os.mkfifo(blocks)
    what = ["--one", "procfs", str(given)] if is_one else ["--again", str(blocks), "procfs"]
    runner = subprocess.Popen(
        [sys.executable, "-m", "tests.endurance.fuzz", *what],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "TMPDIR": str(temporary),
            "FUZZ_CODE": "0",
        },
    )
    try:
        while not is_one and runner.poll() is None and not any(temporary.iterdir()):
            time.sleep(0.05)
        if not is_one:
            runner.send_signal(signal.SIGTERM)
        assert runner.wait(120) == (0 if is_one else 128 + signal.SIGTERM)
    finally:
        runner.kill()
        runner.wait()
    assert [*temporary.iterdir()] == []
