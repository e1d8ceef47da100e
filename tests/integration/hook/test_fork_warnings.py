"""The warning of Python 3.12 and later about forks of a process with threads.

Interpreters are searched in pyenv's directory, and on demand in directories made by debootstrap(8),
whose distributions have other patch releases:

    MPWATCH_CHROOTS=/srv/trixie python -m pytest tests/integration/hook/test_fork_warnings.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import mpwatch
from tests import interpreters
from tests.conftest import PROGRAMS

# One worker of xdist runs all tests of chroots: they mount file systems there.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chroots")]

INTERPRETERS = interpreters.installed()
CHROOTS = [path for path in os.environ.get("MPWATCH_CHROOTS", "").split(":") if path]
QUIET = "thread is back True\n" * 6
PROGRAM = PROGRAMS / "hook_fork_warnings.py"


def said(command: list[str], **env: str) -> str:
    """All that a program prints on both streams."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )
    return done.stdout


@pytest.mark.skipif(not INTERPRETERS, reason="pyenv has no interpreters here")
@pytest.mark.parametrize("python", INTERPRETERS, ids=interpreters.version_of)
@pytest.mark.parametrize("action", ["always", "error"])
def test_forks_of_a_process_whose_only_other_thread_is_the_hooks_raise_no_warning(
    action: str, python: Path
) -> None:
    folder = str(Path(mpwatch.__file__).parents[1])

    assert said([str(python), "-B", str(PROGRAM), action], PYTHONPATH=folder) == QUIET


@pytest.fixture(params=CHROOTS)
def chroot(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A root directory with a copy of the hook; procfs is mounted where it is not yet."""
    folder = Path(request.param)
    inside = folder / "mpwatch-fork-test"
    shutil.rmtree(inside, ignore_errors=True)
    shutil.copytree(Path(mpwatch.__file__).parent, inside / "mpwatch")
    shutil.copy(PROGRAM, inside)
    is_mounted = (folder / "proc/self").exists()
    if not is_mounted:
        subprocess.run(["mount", "-t", "proc", "proc", str(folder / "proc")], check=True)
    yield folder
    if not is_mounted:
        subprocess.run(["umount", str(folder / "proc")], check=True)
    shutil.rmtree(inside)


@pytest.mark.skipif(not CHROOTS, reason="MPWATCH_CHROOTS names no directories")
def test_forks_in_another_distribution_raise_no_warning_either(chroot: Path) -> None:
    command = ["chroot", str(chroot), "python3", f"/mpwatch-fork-test/{PROGRAM.name}", "error"]

    assert said(command, XDG_RUNTIME_DIR="", PYTHONDONTWRITEBYTECODE="1") == QUIET
