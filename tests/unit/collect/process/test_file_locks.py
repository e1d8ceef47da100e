"""The holder of a file lock, from the kernel's table and from the descriptors of processes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mpwatch.collect.process.fds import LockedFiles, read_descriptors
from mpwatch.collect.process.syscall_waits import holder_for
from mpwatch.model.samples import HeldLock, LockHolder

TABLE = b"""\
1: FLOCK  ADVISORY  WRITE 708 00:13:12345 0 EOF
1: -> FLOCK  ADVISORY  WRITE 709 00:13:12345 0 EOF
2: POSIX  ADVISORY  READ  800 fd:01:77 1073741826 1073742335
3: POSIX  ADVISORY  WRITE 0 fd:01:78 0 EOF
3: -> POSIX  ADVISORY  WRITE 900 fd:01:78 0 EOF
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "locks").write_bytes(TABLE)
    (tmp_path / "708").mkdir()
    (tmp_path / "708" / "comm").write_bytes(b"pyt\x1b[31mhon\n")
    return tmp_path


def test_the_holder_has_the_number_of_the_lock_that_is_waited_for(proc: Path) -> None:
    found = holder_for(str(proc), 709)

    assert found is not None
    assert found.pid == 708
    assert found.name.startswith("pyt")
    assert "\x1b" not in found.name


def test_a_holder_that_has_exited_has_no_name(proc: Path) -> None:
    (proc / "708" / "comm").unlink()

    assert holder_for(str(proc), 709) == LockHolder(708, "")


@pytest.mark.parametrize("pid", [708, 800, 900, 1], ids=["holds", "reads", "hidden", "unknown"])
def test_without_a_visible_holder_there_is_none(proc: Path, pid: int) -> None:
    assert holder_for(str(proc), pid) is None


def test_without_a_table_there_is_none(tmp_path: Path) -> None:
    assert holder_for(str(tmp_path), 709) is None


TAKES = """
import fcntl, sys
file = open(sys.argv[1], "a")
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_the_holder_of_a_real_lock_is_found(tmp_path: Path, call: str) -> None:
    command = [sys.executable, "-c", TAKES, str(tmp_path / "lock"), call]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == b"held\n"
        with subprocess.Popen(command, **pipes) as waiter:  # type: ignore[call-overload]
            try:
                assert eventually(lambda: holder_for("/proc", waiter.pid)) == holder.pid
            finally:
                holder.kill()
                waiter.kill()


def eventually(look: Callable[[], LockHolder | None]) -> int | None:
    """The pid of a holder once there is one; `None` after a minute."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        found = look()
        if found is not None:
            return found.pid
        time.sleep(0.05)
    return None


def test_the_inodes_of_locked_files_are_those_that_are_held(proc: Path) -> None:
    assert LockedFiles(str(proc))() == {12345, 77, 78}
    assert LockedFiles(str(proc / "nothing"))() == frozenset()


def test_the_table_of_locks_is_read_anew_after_some_time(proc: Path) -> None:
    now_s = [0.0]
    locked = LockedFiles(str(proc), clock=lambda: now_s[0])
    assert locked()
    (proc / "locks").write_bytes(b"")

    now_s[0] = 1.0
    assert locked()
    now_s[0] = 5.0
    assert not locked()


def locks_of(pid: int) -> dict[str, HeldLock]:
    """The locks that a process holds, by path."""
    found = read_descriptors("/proc", pid, lambda _: None, LockedFiles("/proc")()).locks
    return {lock.path: lock for lock in found}


def test_a_lock_is_seen_at_the_process_that_has_taken_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("a") as file, path.open("a"):
        assert str(path) not in locks_of(os.getpid())
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert locks_of(os.getpid())[str(path)] == HeldLock(str(path), "fcntl", True, os.getpid())


def test_a_lock_stays_with_the_process_that_has_inherited_the_open_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        heir = subprocess.Popen(["sleep", "100"], pass_fds=(file.fileno(),))
    try:
        assert str(path) not in locks_of(os.getpid())
        assert locks_of(heir.pid)[str(path)] == HeldLock(str(path), "flock", False, os.getpid())
    finally:
        heir.kill()
        heir.wait()
