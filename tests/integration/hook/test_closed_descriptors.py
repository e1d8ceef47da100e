"""The program closes the hook's descriptors; numbers that it reuses are not closed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import PROGRAMS
from tests.integration.hook.guest import Guest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("runtime_in_memory")]
"""On a disk the hook's thread lists the runtime directory, and `listdir` closes its descriptor even
if the program has closed it and reused the number."""


def test_a_program_that_closed_all_descriptors_exits_without_a_message() -> None:
    with Guest("exit", program="hook_closed.py") as guest:
        assert guest.finish() == (0, "")


def test_a_descriptor_that_the_program_opened_with_the_same_number_stays_open() -> None:
    with Guest("fork", program="hook_closed.py") as guest:
        code, said = guest.finish()

    assert code == 0
    assert said.splitlines() == ["fd 3", *["exit code 0 threads 1"] * 3, "hello"]


@pytest.mark.parametrize("how", ["early", "early_each", "between"])
def test_files_that_the_program_opens_while_the_hook_starts_stay_open(how: str) -> None:
    """The hook's thread reads files then, and closes what it has opened itself only."""
    for _ in range(4):
        assert said_by("hook_closed.py", how) == (0, "", "")


def test_the_hook_s_thread_opens_no_file_when_it_starts() -> None:
    """The program may close unknown descriptors then, or rely on the number of its next one."""
    assert said_by("hook_opens.py") == (0, "mpwatch-hook\n[]\n", "")


def said_by(program: str, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("when", ["first", "last"])
def test_a_program_that_becomes_a_daemon_works_as_without_the_hook(when: str) -> None:
    """Two forks, setsid, all descriptors closed: its output has nothing but what it prints."""
    said = {}
    for how in ("without", "with"):
        with Guest(f"{how} {when}", program="hook_daemon.py") as guest:
            said[how] = guest.finish()  # until the daemon has exited

    assert said["with"] == said["without"] == (0, "[0, 1, 2] 42 exit code 0, leader False\n")
