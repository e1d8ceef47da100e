from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from mpwatch.hook import wire
from mpwatch.hook.safe.unpatched import System
from mpwatch.hook.transport import runtime_dir
from mpwatch.hook.transport.runtime_dir import KEEP_DEAD_S, SWEEP_EVERY, StaleFiles, sweep

PAGE = 4096


def leave(folder: Path, pid: int, age_s: float = 0.0, suffix: str = wire.RING_SUFFIX) -> Path:
    """A file of a process that cannot be alive: its pid is above the largest there can be."""
    path = folder / (wire.stem(5_000_000 + pid, 7) + suffix)
    path.write_bytes(b"x" * PAGE)
    moment = time.time() - age_s
    os.utime(path, (moment, moment))
    return path


def sweep_all(folder: Path) -> set[str]:
    """The files that are left after all are searched."""
    for _ in sweep(System(), str(folder)):
        continue
    return {path.name for path in folder.iterdir()}


def test_old_files_are_removed_and_recent_ones_stay(tmp_path: Path) -> None:
    leave(tmp_path, 1, KEEP_DEAD_S + 60)
    leave(tmp_path, 2, KEEP_DEAD_S + 60, wire.NOTES_SUFFIX)
    recent = leave(tmp_path, 3, KEEP_DEAD_S - 60)

    assert sweep_all(tmp_path) == {recent.name}


def test_a_process_is_looked_at_once_for_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand processes with the hook have four thousand files there."""
    for pid in range(5):
        for suffix in wire.FILE_SUFFIXES:
            leave(tmp_path, pid, suffix=suffix)
    seen: list[int] = []
    monkeypatch.setattr(runtime_dir, "start_ticks", lambda _system, pid: seen.append(pid))

    sweep_all(tmp_path)
    assert sorted(seen) == [5_000_000 + pid for pid in range(5)]


def test_above_the_size_limit_the_oldest_files_are_removed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_dir, "KEEP_DEAD_BYTES", 3 * PAGE)
    files = [leave(tmp_path, number, age_s=number) for number in range(10)]

    assert sweep_all(tmp_path) == {path.name for path in files[:3]}


def test_files_of_running_processes_other_containers_and_other_programs_stay(
    tmp_path: Path,
) -> None:
    old = KEEP_DEAD_S + 60
    mine = tmp_path / (
        wire.stem(os.getpid(), runtime_dir.start_ticks(System()) or 0) + wire.RING_SUFFIX
    )
    mine.write_bytes(b"")
    os.utime(mine, (0, 0))
    strangers = [tmp_path / "5000009-7.ring.bak", tmp_path / "data.ring", tmp_path / "7.sock"]
    for path in strangers:
        path.write_bytes(b"")
        os.utime(path, (0, 0))
    elsewhere = leave(tmp_path, 4, old)
    door = elsewhere.with_suffix(wire.SOCKET_SUFFIX)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(door))
        listener.listen()

        assert sweep_all(tmp_path) == {mine.name, elsewhere.name, door.name} | {
            path.name for path in strangers
        }


def test_a_socket_without_a_listener_is_removed_at_once(tmp_path: Path) -> None:
    door = tmp_path / (wire.stem(5_000_001, 7) + wire.SOCKET_SUFFIX)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(door))
    ring = leave(tmp_path, 1)

    assert sweep_all(tmp_path) == {ring.name}


def test_a_search_is_interrupted_by_a_fork_and_continued_after_it(tmp_path: Path) -> None:
    for number in range(5):
        leave(tmp_path, number, KEEP_DEAD_S + 60)
    sweeper = StaleFiles(System())
    sweeper.directory = str(tmp_path)
    sweeper.begin()

    rounds = 0
    while list(tmp_path.iterdir()):
        sweeper.work(lambda: True)
        rounds += 1

    assert rounds > 5


@pytest.mark.parametrize("limit_s", [60.0, 0.0])
def test_a_program_of_one_thread_searches_itself_for_a_bounded_time(
    limit_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_dir, "BEGIN_S", limit_s)
    for number in range(5):
        leave(tmp_path, number, KEEP_DEAD_S + 60)
    sweeper = StaleFiles(System())
    sweeper.directory, sweeper.may_block = str(tmp_path), False
    sweeper._system.count_threads = lambda: 0

    sweeper.begin()
    assert sweeper.is_due() is (limit_s == 0)
    assert bool(list(tmp_path.iterdir())) is sweeper.is_due()
    sweeper.work(lambda: False)
    assert not list(tmp_path.iterdir())


def test_without_ctypes_the_thread_leaves_a_search_in_memory_to_the_next_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not close its files without letting the program run in between."""
    monkeypatch.setitem(sys.modules, "ctypes", None)
    monkeypatch.setattr(runtime_dir, "BEGIN_S", 0.0)
    for number in range(5):
        leave(tmp_path, number, KEEP_DEAD_S + 60)
    sweeper = StaleFiles(System())
    sweeper.directory, sweeper.may_block = str(tmp_path), False
    sweeper._system.count_threads = lambda: 0

    sweeper.begin()
    assert not sweeper.is_due()
    sweeper.work(lambda: False)
    assert len(list(tmp_path.iterdir())) == 5
    for _ in range(12):  # one step each
        sweeper.begin()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("started_by", "pid", "looks"),
    [
        ("run", 1, True),
        ("attach", 1, True),
        ("fork", SWEEP_EVERY, False),
        ("spawn", SWEEP_EVERY, True),
        ("forkserver", SWEEP_EVERY + 1, False),
    ],
)
def test_attached_processes_and_some_spawned_children_begin_a_search(
    started_by: str, pid: int, looks: bool, tmp_path: Path
) -> None:
    leave(tmp_path, 1, KEEP_DEAD_S + 60)
    sweeper = StaleFiles(System())
    sweeper.directory = str(tmp_path)

    sweeper.begin_as(started_by, pid)
    sweeper.work(lambda: False)

    assert bool(list(tmp_path.iterdir())) is not looks


def test_one_fork_in_many_begins_a_search(tmp_path: Path) -> None:
    leave(tmp_path, 1, KEEP_DEAD_S + 60)
    sweeper = StaleFiles(System())
    sweeper.directory = str(tmp_path)

    for _ in range(SWEEP_EVERY - 1):
        sweeper.count_fork()
    sweeper.work(lambda: False)
    assert list(tmp_path.iterdir())

    sweeper.count_fork()
    sweeper.work(lambda: False)
    assert not list(tmp_path.iterdir())
