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


def test_what_other_threads_write_during_a_fork_is_kept(ring: Ring) -> None:
    record, _ = make_record(ring, System())
    record(wire.QUEUE_PUT, 0)
    memory, number = ring.step_aside()
    record(wire.QUEUE_GET, 0)
    assert wire.LOST.unpack_from(memory, wire.HEADER_BYTES + 64)[0] == 0

    ring.step_back(memory, number)

    assert [row[2] for row in rows(ring, 0, 2)] == [wire.QUEUE_PUT, wire.QUEUE_GET]
