"""The file into which a ring in memory is copied."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from mpwatch.collect.hook.decode import read_ring
from mpwatch.hook import wire
from mpwatch.hook.safe.unpatched import System
from mpwatch.hook.transport.notes import Notes
from mpwatch.hook.transport.process_files import (
    RETRY_S,
    SAVE_EVERY_S,
    Files,
    Identity,
    RingCopy,
)
from mpwatch.hook.transport.ring import Ring, make_record
from tests import procfs
from tests.builders.replaced_os import Os

SLOTS = 128


class World:
    """A ring in memory, its copy, and a clock that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.system = System()
        self.now_ns = 10**12
        self.ring = Ring(self.system, SLOTS)
        self.ring.open_memory(7, 9)
        self.record, _ = make_record(self.ring, self.system)
        self.system.monotonic_ns = lambda: self.now_ns
        self.copy = RingCopy(self.system)
        self.path = folder / "r"
        self.copy.path = str(self.path)

    def write(self, count: int) -> None:
        for _ in range(count):
            self.record(wire.QUEUE_PUT, 0)

    def numbers(self) -> list[int]:
        found = read_ring(str(self.path))
        assert found.problems == ()
        return [event.sequence for event in found.events]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("counts", [(3,), (3, 4), (100, 100), (SLOTS, SLOTS * 3 + 5), (0, 1)])
def test_the_copy_holds_what_the_ring_holds(world: World, counts: tuple[int, ...]) -> None:
    for count in counts:
        world.write(count)
        world.copy.save(world.ring)

    last = sum(counts)
    assert world.numbers() == list(range(max(0, last - SLOTS), last))
    assert world.path.stat().st_mode & 0o777 == 0o600
    header = read_ring(str(world.path)).header
    assert header is not None
    assert (header.pid_inside, header.copied_ns) == (7, world.now_ns)


def test_the_copy_is_written_at_intervals_and_has_its_time(world: World) -> None:
    world.write(1)
    world.copy.save_if_due(world.ring)
    world.write(1)
    world.copy.save_if_due(world.ring)
    assert world.numbers() == [0]

    world.now_ns += int(SAVE_EVERY_S * 1e9)
    world.copy.save_if_due(world.ring)

    assert world.numbers() == [0, 1]
    header = read_ring(str(world.path)).header
    assert header is not None
    assert header.copied_ns == world.now_ns


def test_without_new_records_nothing_is_written(world: World) -> None:
    world.write(1)
    world.copy.save(world.ring)
    os.utime(world.path, ns=(1, 1))

    world.copy.save(world.ring)

    assert world.path.stat().st_mtime_ns == 1


def test_a_copy_that_was_removed_is_made_again_completely(world: World) -> None:
    world.write(5)
    world.copy.save(world.ring)
    world.path.unlink()
    world.write(1)

    world.copy.save(world.ring)

    assert world.numbers() == list(range(6))


def test_on_a_full_disk_the_copy_reports_it_leaves_no_file_and_is_tried_again(
    world: World,
) -> None:
    class FullDisk:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def posix_fallocate(self, *_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    world.system.os = FullDisk()
    world.write(3)
    world.copy.save_if_due(world.ring)
    assert world.copy.problems == ["copy of the ring: No space left on device"]
    assert not world.path.exists()
    assert not any(link.startswith(str(world.path)) for link in procfs.links(os.getpid()))

    world.system.os = os
    world.now_ns += int(RETRY_S * 1e9) - 1
    world.copy.save_if_due(world.ring)
    assert not world.path.exists()
    world.now_ns += 1
    world.copy.save_if_due(world.ring)

    assert world.copy.problems == []
    assert world.numbers() == [0, 1, 2]


def test_a_forked_child_leaves_the_file_of_its_parent_alone(world: World) -> None:
    world.write(1)
    world.copy.save(world.ring)
    world.copy.restart()
    world.write(1)

    world.copy.save(world.ring)

    assert world.numbers() == [0]


def test_a_file_that_another_user_put_there_is_not_written(world: World) -> None:
    world.write(1)
    world.copy.save(world.ring)
    before = world.path.read_bytes()
    world.system.os = Os(geteuid=lambda: os.geteuid() + 1)
    world.write(1)
    world.copy.save(world.ring)

    assert world.path.read_bytes() == before
    assert world.copy.problems == ["copy of the ring: a file of another user is in its place"]


def test_a_fifo_in_its_place_is_not_waited_for(world: World) -> None:
    os.mkfifo(world.path)
    world.write(1)
    thread = threading.Thread(target=world.copy.save, args=(world.ring,), daemon=True)
    thread.start()
    thread.join(30)

    assert not thread.is_alive()
    assert world.copy.problems


def test_a_fifo_that_somebody_reads_gets_nothing(world: World) -> None:
    os.mkfifo(world.path)
    reader = os.open(world.path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        world.write(1)
        world.copy.save(world.ring)

        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)
    assert world.copy.problems == ["copy of the ring: a file of another user is in its place"]


@pytest.mark.parametrize("is_crashed", [False, True])
def test_the_last_records_of_a_process_that_crashed_are_copied_and_no_others_stay(
    world: World, is_crashed: bool
) -> None:
    identity = Identity(world.system, "run", None)
    files = Files(world.system, identity, world.ring, Notes(world.system), [])  # type: ignore[arg-type]
    files.copy.path = str(world.path)
    world.write(1)
    files.copy.save(world.ring)
    world.write(2)

    files.remove(is_crashed)

    assert world.path.exists() is is_crashed
    if is_crashed:
        assert world.numbers() == [0, 1, 2]
