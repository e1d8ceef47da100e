"""What `doctor` says of the files that hooks of exited processes have left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mpwatch.collect.host import doctor
from mpwatch.collect.host.doctor import KEPT_BYTES, KEPT_S, left_by_hooks
from mpwatch.hook import wire
from mpwatch.hook.transport import runtime_dir

GONE = 2_000_000_000
"""A pid of no process: above the largest pid_max."""
HERE = os.stat("/proc/self/ns/pid").st_ino
"""These tests may themselves run in a container."""


@pytest.fixture
def proc(tmp_path: Path) -> str:
    """A procfs with this process alone."""
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    (folder / "self").symlink_to("/proc/self")
    (folder / "1").mkdir()
    return str(folder)


def leave(tmp_path: Path, count: int) -> tuple[str]:
    folder = tmp_path / "run"
    folder.mkdir()
    for number in range(count):
        (folder / (wire.stem(GONE + number, 7) + wire.RING_SUFFIX)).write_bytes(b"x" * 4096)
    return (str(folder),)


def in_the_future(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now_s = time.time()
    monkeypatch.setattr("mpwatch.collect.host.orphans.time.time", lambda: now_s + seconds)


def test_without_any_nothing_is_to_be_done(tmp_path: Path, proc: str) -> None:
    check = left_by_hooks(leave(tmp_path, 0), proc, HERE)

    assert (check.state, check.value) == ("ok", "none")


def test_what_hooks_keep_for_the_autopsy_is_no_fault(
    tmp_path: Path, proc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_future(monkeypatch, 7200)
    check = left_by_hooks(leave(tmp_path, 3), proc, HERE)

    assert (check.state, check.fix) == ("ok", "")
    assert check.value.startswith("3 of exited processes, 12.0K")


@pytest.mark.parametrize("is_old", [True, False])
def test_what_no_hook_has_removed_is_named_with_the_command_that_does(
    tmp_path: Path, proc: str, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    in_the_future(monkeypatch, 2 * KEPT_S if is_old else 7200)
    if not is_old:
        monkeypatch.setattr(doctor, "KEPT_BYTES", 4096)
    check = left_by_hooks(leave(tmp_path, 3), proc, HERE)

    assert (check.state, check.fix) == ("note", "mpwatch clean --yes")
    assert "several threads without ctypes" in check.meaning


def test_where_other_processes_are_hidden_it_is_unknown(
    tmp_path: Path, proc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_future(monkeypatch, 7200)
    check = left_by_hooks(leave(tmp_path, 3), proc, HERE + 1)

    assert (check.state, check.value) == ("note", "unknown")
    assert "files of hooks" in check.meaning


def test_the_limits_are_those_of_the_hook() -> None:
    assert (KEPT_S, KEPT_BYTES) == (runtime_dir.KEEP_DEAD_S, runtime_dir.KEEP_DEAD_BYTES)
