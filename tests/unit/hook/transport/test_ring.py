from __future__ import annotations

import errno
import gc
import mmap
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mpwatch.collect.hook.decode import read_descriptor, read_ring
from mpwatch.hook import wire
from mpwatch.hook.safe.unpatched import System
from mpwatch.hook.transport.ring import Ring, make_record
from mpwatch.model.ids import ProcessId

SLOTS = 64


@pytest.fixture
def ring() -> Ring:
    return Ring(System(), slots=SLOTS)


def rows(ring: Ring, first: int, last: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    while first < last:
        data, first = ring.slice_of(first, last)
        found += wire.RECORD.iter_unpack(data)
    return found


def test_a_record_holds_what_was_given(ring: Ring) -> None:
    record, _ = make_record(ring, System())

    record(wire.SHARE, 0, wire.FLAG_COPIED, 10, 20, 30, 40)

    ((number, at_ns, kind, flags, tid, duration_ns, *rest),) = rows(ring, 0, 1)
    assert (number, kind, flags, rest) == (1, wire.SHARE, wire.FLAG_COPIED, [10, 20, 30, 40])
    assert at_ns == duration_ns > 0
    assert tid == os.getpid()


def test_a_value_out_of_range_loses_its_record_and_raises_nothing(ring: Ring) -> None:
    record, _ = make_record(ring, System())

    record(wire.SHARE, 0, 0, -1)
    record(wire.SHARE, 0, 0, 1)

    assert [row[0] for row in rows(ring, 0, 2)] == [0, 2]
    assert not ring.is_written(0)
    assert ring.is_written(1)


def test_records_made_before_the_file_are_in_the_file(ring: Ring, tmp_path: Path) -> None:
    record, _ = make_record(ring, System())
    for _ in range(SLOTS + 5):
        record(wire.QUEUE_PUT, 0)

    ring.open_file(str(tmp_path / "r"), 7, 9)
    record(wire.QUEUE_GET, 0)

    data = (tmp_path / "r").read_bytes()
    assert wire.HEADER.unpack_from(data)[:7] == (
        wire.MAGIC,
        wire.PROTOCOL,
        wire.HEADER_BYTES,
        wire.RECORD_BYTES,
        SLOTS,
        7,
        9,
    )
    numbers = [row[0] for row in wire.RECORD.iter_unpack(data[wire.HEADER_BYTES :])]
    assert sorted(numbers) == list(range(7, SLOTS + 7))


def test_a_ring_has_its_parent_and_its_own_name(ring: Ring, tmp_path: Path) -> None:
    path = tmp_path / "r"

    ring.open_file(str(path), 7, 9, (5, 3, b"ForkPoolWorker-2" + b"-" * 99))

    header = read_ring(str(path)).header
    assert header is not None
    assert header.parent == ProcessId(5, 3)
    assert header.name == ("ForkPoolWorker-2" + "-" * 99)[:64]


def test_a_full_disk_leaves_no_file_and_a_working_ring(ring: Ring, tmp_path: Path) -> None:
    system = System()

    class FullDisk:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def posix_fallocate(self, *_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    system.os = FullDisk()
    full = Ring(system, slots=SLOTS)
    record, _ = make_record(full, system)
    with pytest.raises(OSError, match="No space"):
        full.open_file(str(tmp_path / "r"), 1, 1)
    record(wire.QUEUE_PUT, 0)

    assert list(tmp_path.iterdir()) == []
    assert full.path is None
    assert full.is_written(0)


def test_records_of_other_threads_during_a_fork_are_kept(ring: Ring, tmp_path: Path) -> None:
    ring.open_file(str(tmp_path / "r"), 1, 1)
    record, _ = make_record(ring, System())
    record(wire.QUEUE_PUT, 0)
    memory, number = ring.step_aside()
    record(wire.QUEUE_GET, 0)
    assert wire.LOST.unpack_from(memory, wire.HEADER_BYTES + 64)[0] == 0

    ring.step_back(memory, number)

    assert [row[2] for row in rows(ring, 0, 2)] == [wire.QUEUE_PUT, wire.QUEUE_GET]


def test_no_record_is_lost_while_the_ring_moves_from_memory_to_memory(tmp_path: Path) -> None:
    system = System()
    ring = Ring(system, slots=1 << 14)
    record, _ = make_record(ring, system)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set() and ring.handed_out() < ring.slots - 10:
            record(wire.QUEUE_PUT, 0)

    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    writers = [threading.Thread(target=write) for _ in range(3)]
    try:
        for writer in writers:
            writer.start()
        ring.open_memory(1, 1)
        for number in range(10):
            ring.open_file(str(tmp_path / f"{number}"), 1, 1)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
        sys.setswitchinterval(before_s)

    last = ring.handed_out()
    assert last > 100
    assert [row[0] for row in rows(ring, 0, last)] == list(range(1, last + 1))
    ring.close()


def test_a_record_is_stored_where_the_ring_is_after_the_clock_was_read(tmp_path: Path) -> None:
    """Another thread may move the ring in any call; here the clock moves it."""
    system = System()
    read_clock = system.monotonic_ns
    ring = Ring(system, slots=SLOTS)
    moves = iter(range(5))

    def now() -> int:
        system.monotonic_ns = read_clock  # moving the ring reads the clock too
        for number in moves:
            ring.open_file(str(tmp_path / f"{number}"), 1, 1)
            break
        return read_clock()

    system.monotonic_ns = now
    record, _ = make_record(ring, system)
    for _ in range(5):
        record(wire.QUEUE_PUT, 0)

    assert [row[0] for row in rows(ring, 0, 5)] == [1, 2, 3, 4, 5]
    ring.close()


def test_a_ring_in_memory_has_one_descriptor_and_its_size_and_content_are_sealed(
    ring: Ring,
) -> None:
    record, _ = make_record(ring, System())
    record(wire.QUEUE_PUT, 0)

    ring.open_memory(7, 9, (5, 3, b"name"))
    record(wire.QUEUE_GET, 0)

    fd = ring.descriptor()
    assert fd is not None
    assert _opened_for(os.fstat(fd)) == [fd]
    assert not os.get_inheritable(fd)
    for change in (
        lambda: os.ftruncate(fd, 0),
        lambda: os.ftruncate(fd, 1 << 20),
        lambda: os.pwrite(fd, b"x", 0),
        lambda: mmap.mmap(fd, 4096),
    ):
        with pytest.raises(PermissionError):
            change()
    found = read_descriptor(fd, "ring")
    assert found.header is not None
    assert (found.header.pid_inside, found.header.start_ticks) == (7, 9)
    assert (found.header.parent, found.header.name) == (ProcessId(5, 3), "name")
    assert [event.kind for event in found.events] == [wire.QUEUE_PUT, wire.QUEUE_GET]
    ring.close()
    assert not is_open(fd)


def is_open(fd: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_a_descriptor_closed_by_the_program_is_neither_sent_nor_closed_again(
    ring: Ring, tmp_path: Path
) -> None:
    ring.open_memory(1, 1)
    fd = ring.descriptor()
    assert fd is not None
    # Opened before the number is free, so that it gets another one.
    with open(tmp_path / "other", "wb") as other:
        os.close(fd)
        assert ring.descriptor() is None
        os.dup2(other.fileno(), fd)
    assert ring.descriptor() is None
    ring.close()

    assert os.readlink(f"/proc/self/fd/{fd}") == str(tmp_path / "other")
    os.close(fd)


def test_without_memory_files_the_ring_stays_private_and_the_reason_is_raised(
    ring: Ring,
) -> None:
    class Forbidden:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def memfd_create(self, *_: Any) -> int:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    system = System()
    system.os = Forbidden()
    private = Ring(system, slots=SLOTS)
    record, _ = make_record(private, system)
    with pytest.raises(PermissionError):
        private.open_memory(1, 1)
    record(wire.QUEUE_PUT, 0)

    assert private.descriptor() is None
    assert private.is_written(0)


def test_a_file_that_is_on_another_file_system_is_removed(ring: Ring, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not on the file system expected"):
        ring.open_file(str(tmp_path / "r"), 1, 1, device=tmp_path.stat().st_dev + 1)

    assert list(tmp_path.iterdir()) == []
    assert ring.path is None


def test_a_child_has_a_ring_of_its_own_when_no_memory_can_be_had(tmp_path: Path) -> None:
    system = System()
    ring = Ring(system, slots=SLOTS)
    ring.open_file(str(tmp_path / "r"), 1, 1)
    record, restart = make_record(ring, system)
    record(wire.QUEUE_PUT, 0)
    system.mmap = no_memory

    ring.step_aside()
    ring.restart()
    restart()
    record(wire.QUEUE_GET, 0)

    assert [row[2] for row in rows(ring, 0, 1)] == [wire.QUEUE_GET]
    assert not ring.is_written(1)
    data = (tmp_path / "r").read_bytes()[wire.HEADER_BYTES :]
    assert [row[2] for row in wire.RECORD.iter_unpack(data) if row[0]] == [wire.QUEUE_PUT]


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_forked_child_does_not_close_a_descriptor_number_that_the_program_reused(
    kind: str, ring: Ring, tmp_path: Path
) -> None:
    if kind == "file":
        ring.open_file(str(tmp_path / "r"), 1, 1)
        own = _opened_for(os.stat(tmp_path / "r"))
    else:
        ring.open_memory(1, 1)
        own = _opened_for(os.fstat(ring.descriptor() or -1))
    for fd in own:
        with open("/dev/null", "rb") as file:
            os.dup2(file.fileno(), fd)
    try:
        place = ring.step_aside()
        ring.restart()
        del place
        gc.collect()
        assert [_is_open(fd) for fd in own] == [True] * len(own)
        assert len(own) == (kind == "memory" or sys.version_info < (3, 13))
    finally:
        for fd in filter(_is_open, own):
            os.close(fd)


def _opened_for(file: os.stat_result) -> list[int]:
    """The descriptors of this process that are open on `file`.

    By the file and not by what was open before: threads of earlier tests open and close others.
    """
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            opened = os.fstat(fd)
        except OSError:
            continue
        if (opened.st_dev, opened.st_ino) == (file.st_dev, file.st_ino):
            found.append(fd)
    return found


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def no_memory(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


def test_closing_a_ring_closes_its_file_at_once(ring: Ring, tmp_path: Path) -> None:
    ring.open_file(str(tmp_path / "r"), 1, 1)
    record, _ = make_record(ring, System())
    memory = ring.memory

    ring.close()
    record(wire.QUEUE_PUT, 0)

    assert memory.closed
    assert "/r" not in mapped(tmp_path)


def mapped(folder: Path) -> str:
    """The files of a folder that this process maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return "\n".join(line for line in lines if str(folder) in line)
