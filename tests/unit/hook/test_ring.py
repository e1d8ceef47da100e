from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.hook.pristine import System
from mpwatch.hook.ring import Ring, make_record

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


def test_a_value_out_of_range_costs_its_record_and_raises_nothing(ring: Ring) -> None:
    record, _ = make_record(ring, System())

    record(wire.SHARE, 0, 0, -1)
    record(wire.SHARE, 0, 0, 1)

    assert [row[0] for row in rows(ring, 0, 2)] == [0, 2]
    assert not ring.is_written(0)
    assert ring.is_written(1)


def test_what_was_recorded_before_the_file_is_in_the_file(ring: Ring, tmp_path: Path) -> None:
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


def test_what_other_threads_write_during_a_fork_is_kept(ring: Ring, tmp_path: Path) -> None:
    ring.open_file(str(tmp_path / "r"), 1, 1)
    record, _ = make_record(ring, System())
    record(wire.QUEUE_PUT, 0)
    memory, number = ring.step_aside()
    record(wire.QUEUE_GET, 0)
    assert wire.LOST.unpack_from(memory, wire.HEADER_BYTES + 64)[0] == 0

    ring.step_back(memory, number)

    assert [row[2] for row in rows(ring, 0, 2)] == [wire.QUEUE_PUT, wire.QUEUE_GET]


def test_what_was_written_during_a_fork_stays_away_from_a_file_cut_short_meanwhile(
    ring: Ring, tmp_path: Path
) -> None:
    path = tmp_path / "r"
    ring.open_file(str(path), 1, 1)
    record, _ = make_record(ring, System())
    place = ring.step_aside()
    record(wire.QUEUE_GET, 0)
    path.chmod(0o600)
    os.truncate(path, 0)

    ring.step_back(*place)
    record(wire.QUEUE_PUT, 0)

    assert ring.path is None
    assert ring.is_written(1)


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


def no_memory(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


def test_closing_lets_the_file_go_at_once(ring: Ring, tmp_path: Path) -> None:
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


class OldKernel:
    """Memory as Linux before 5.14 gives it: what it does not know it calls invalid."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def madvise(self, advice: int, *_: int) -> None:
        if advice == 23:
            raise OSError(errno.EINVAL, "Invalid argument")

    def __len__(self) -> int:
        return len(self.memory)


def test_where_the_kernel_cannot_tell_whether_a_file_is_whole_it_is_taken_to_be(
    ring: Ring, tmp_path: Path
) -> None:
    ring.open_file(str(tmp_path / "r"), 1, 1)
    record, _ = make_record(ring, System())
    record(wire.QUEUE_PUT, 0)
    whole, ring.memory = ring.memory, OldKernel(ring.memory)

    assert ring.is_whole(0, 64)

    ring.memory = whole
