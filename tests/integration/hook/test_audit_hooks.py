"""An audit hook of the program takes a lock of it, as one that writes a log does, or refuses.

What the hook does at the end of the program may not wait for that lock, and nothing of what is
refused to the hook reaches the program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import procfs
from tests.conftest import PROGRAMS
from tests.procfs import eventually

pytestmark = pytest.mark.slow

WITHIN_S = 60.0
FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]  # asm/unistd.h


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "hook_audited.py"), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended(*arguments: str) -> tuple[int, str]:
    with program(*arguments) as process:
        output, _ = process.communicate(timeout=WITHIN_S)
    return process.returncode, output


@pytest.fixture(params=["disk", "memory"])
def directory(request: pytest.FixtureRequest) -> Path:
    """The runtime directory, on a disk if that of tests is on one, and on tmpfs."""
    name = "runtime" if request.param == "disk" else "runtime_in_memory"
    found: Path = request.getfixturevalue(name)
    return found


@pytest.mark.parametrize("ending", ["end", "at_once"])
@pytest.mark.usefixtures("directory")
def test_a_program_ends_although_a_thread_never_releases_the_lock(ending: str) -> None:
    assert ended("held", "bare", ending) == (0, "ends\n")
    assert ended("held", "hook", ending) == (0, "ends\n")


@pytest.mark.parametrize("ending", ["end", "at_once"])
def test_a_program_ends_although_its_audit_hook_is_slow(ending: str, directory: Path) -> None:
    """A thread that is killed with the interpreter would keep the lock."""
    assert ended("slow", "hook", ending) == (0, "ends\n")
    if ending == "end":
        assert list((directory / "mpwatch").iterdir()) == []


def test_without_the_hook_a_program_hangs_whose_audit_hook_waits_for_a_killed_thread() -> None:
    """For all events: the interpreter raises some itself when it ends. Nothing can be mended."""
    with program("killed", "bare", "end") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ends\n"
        assert process.stdout.readline().startswith("event ")
        assert eventually(lambda: procfs.call(process.pid) == FUTEX)
        assert process.poll() is None


@pytest.mark.parametrize("kind", ["own", "base", "RuntimeError", "PermissionError", "SystemExit"])
@pytest.mark.parametrize(
    "event",
    ["open", "socket.", "os.m", "os.r", "os.l", "sys.", "marshal."]
    + ["_thread."] * (sys.version_info >= (3, 12)),
)
@pytest.mark.usefixtures("directory")
def test_what_is_refused_to_the_hook_does_not_reach_the_program(event: str, kind: str) -> None:
    def run(way: str) -> tuple[int, str, str]:
        program = str(PROGRAMS / "hook_audit_refuses.py")
        done = subprocess.run(
            [sys.executable, program, way, event, kind],
            capture_output=True, text=True, timeout=WITHIN_S, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    bare, hooked = run("bare"), run("hook")
    assert bare[0] == 0, bare
    assert hooked == bare
