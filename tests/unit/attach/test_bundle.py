from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpwatch.attach import bundle, hook_copy, packing, payload
from tests.unit.attach.test_parcel import TARGET

HOOK = hook_copy.installed()
PAYLOAD = Path(payload.__file__).read_text()
OTHERS = sorted(
    str(path)
    for path in Path.home().glob(".pyenv/versions/3.1[0-9]*/bin/python3.[0-9][0-9]")
    if f"python{sys.version_info[0]}.{sys.version_info[1]}" != path.name
)

# Brings the hook in as a payload does, and counts the files of its package that are opened.
COUNT = """
import json, runpy, sys
payload, hook, parcel = sys.argv[1:]
load = runpy.run_path(payload)["load"]
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
finders = list(sys.meta_path)
said = load(hook, parcel)
late = [name for name in list(sys.modules) if name.startswith("_mpwatch_hook")]
sources = [sys.modules[name].__file__ for name in late]
ours = [path for path in opened if path.startswith(hook)]
assert not said, said
package = sys.modules["_mpwatch_hook"]
package.uninstrument()
print(json.dumps([said, ours, len(late), sources, [f for f in sys.meta_path] == finders]))
"""


def bring_in(tmp_path: Path, content: bytes | None) -> tuple[str, list[str], int, list[str], bool]:
    if content is not None:
        (tmp_path / "hook").write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", COUNT, payload.__file__, HOOK, str(tmp_path)],
        env={"XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    said, ours, modules, sources, is_clean = json.loads(done.stdout)
    return said, ours, modules, sources, is_clean


def test_a_hook_that_came_compiled_opens_none_of_its_files(tmp_path: Path) -> None:
    said, ours, modules, sources, is_clean = bring_in(tmp_path, packing.pack(HOOK, HOOK, PAYLOAD))
    assert said == ""
    assert ours == []
    assert modules > 30
    assert is_clean
    assert all(Path(path).exists() for path in sources)


@pytest.mark.parametrize("content", [None, b"", b"another Python", b"cut"])
def test_without_a_sound_bundle_its_own_files_do(tmp_path: Path, content: bytes | None) -> None:
    if content == b"cut":
        content = packing.pack(HOOK, HOOK, PAYLOAD)[:50_000]
    said, ours, modules, _, is_clean = bring_in(tmp_path, content)
    assert said == ""
    assert len(ours) >= modules - 1
    assert is_clean


def test_a_copy_elsewhere_is_named_in_the_code(tmp_path: Path) -> None:
    (tmp_path / "hook").write_bytes(packing.pack(HOOK, "/run/mpwatch/hook-1", PAYLOAD))
    modules = payload.unpack(str(tmp_path / "hook"))
    assert modules["points.loader"][0] == "/run/mpwatch/hook-1/points/loader.py"
    assert modules["points.loader"][2].co_filename == "/run/mpwatch/hook-1/points/loader.py"
    assert modules["points"][1] is modules[""][1] is True
    assert "run" not in modules


def test_for_its_own_version_this_interpreter_packs_and_only_once() -> None:
    packed = bundle.compiled_for(TARGET, sys.version_info[:2], HOOK)
    assert packed is not None
    assert packed.startswith(importlib.util.MAGIC_NUMBER)
    assert bundle.compiled_for(TARGET, sys.version_info[:2], HOOK) is packed


@pytest.mark.parametrize("python", OTHERS)
def test_for_another_version_the_targets_own_interpreter_packs(python: str) -> None:
    version = (3, int(python.rpartition(".")[2]))
    target = replace(TARGET, exe=python, shares_files=True, shares_pids=True)
    packed = bundle.compiled_for(target, version, HOOK)
    assert packed is not None
    show = "import importlib.util as u, sys; sys.stdout.buffer.write(u.MAGIC_NUMBER)"
    magic = subprocess.run([python, "-c", show], capture_output=True, check=True).stdout
    assert packed.startswith(magic)
    assert bundle.compiled_for(target, version, HOOK) is packed


@pytest.mark.parametrize(
    "changes",
    [
        {"shares_files": False, "shares_pids": True, "exe": sys.executable},
        {"shares_files": True, "shares_pids": True, "exe": "/bin/false"},
        {"shares_files": True, "shares_pids": True, "exe": "/nowhere/python3"},
    ],
)
def test_where_that_interpreter_cannot_be_run_nothing_is_packed(changes: dict[str, Any]) -> None:
    target = replace(TARGET, **changes)
    assert bundle.compiled_for(target, (3, 4), "/hook") is None


def test_what_an_interpreter_prints_instead_is_not_taken(tmp_path: Path) -> None:
    for name, line in (("python-fails", "exit 1"), ("python-silent", "exit 0")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
        target = replace(TARGET, exe=str(program), shares_files=True, shares_pids=True)
        assert bundle.compiled_for(target, (3, 4), "/hook") is None
