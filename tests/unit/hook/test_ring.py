from __future__ import annotations

import dis
import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpwatch.collect.ring import read_ring
from mpwatch.hook import wire
from mpwatch.hook.pristine import System
from mpwatch.hook.ring import Ring, _get, _put, make_record
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


def test_a_ring_says_whose_child_it_is_and_how_that_is_called(ring: Ring, tmp_path: Path) -> None:
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


def test_what_other_threads_write_during_a_fork_is_kept(ring: Ring, tmp_path: Path) -> None:
    ring.open_file(str(tmp_path / "r"), 1, 1)
    record, _ = make_record(ring, System())
    record(wire.QUEUE_PUT, 0)
    place, number = ring.step_aside()
    record(wire.QUEUE_GET, 0)
    assert wire.LOST.unpack_from(place[2], wire.HEADER_BYTES + 64)[0] == 0

    ring.step_back(place, number)

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
    assert [row[2] for row in rows(ring, 0, 2)] == [wire.QUEUE_GET, wire.QUEUE_PUT]


@pytest.mark.parametrize("size", [0, wire.HEADER_BYTES])
def test_a_record_for_a_file_cut_short_is_in_private_memory_and_the_loss_told_once(
    ring: Ring, tmp_path: Path, size: int
) -> None:
    told: list[str] = []
    ring.on_lost = told.append
    record, _ = make_record(ring, System())
    path = tmp_path / "r"
    ring.open_file(str(path), 1, 1)
    record(wire.QUEUE_PUT, 0)
    path.chmod(0o600)
    os.truncate(path, size)

    record(wire.QUEUE_GET, 0)
    os.truncate(path, 0)
    record(wire.SHARE, 0)

    assert [row[2] for row in rows(ring, 0, 3)] == [0, wire.QUEUE_GET, wire.SHARE]
    assert ring.path is None
    assert told == ["the ring file was cut short by somebody else"]


def test_what_cannot_be_read_of_a_file_cut_short_is_empty(ring: Ring, tmp_path: Path) -> None:
    record, _ = make_record(ring, System())
    path = tmp_path / "r"
    ring.open_file(str(path), 1, 1)
    record(wire.QUEUE_PUT, 0)
    path.chmod(0o600)
    os.truncate(path, 0)

    assert rows(ring, 0, 1) == [(0,) * 10]
    assert ring.path is None
    assert not ring.is_written(0)


class Seen(mmap.mmap):
    """A mapping that keeps what was done to it: looks and whatever touches it, by page."""

    steps: list[tuple[str, int]]

    def madvise(self, advice: int, begin: int = 0, length: int = 0) -> None:
        if advice == POPULATE_WRITE:
            vars(self).setdefault("steps", []).append(("look", begin // mmap.PAGESIZE))
            super().madvise(advice, begin, length)

    def __setitem__(self, place: Any, data: Any) -> None:
        self.steps.append(("touch", place.start // mmap.PAGESIZE))
        super().__setitem__(place, data)

    def __getitem__(self, place: Any) -> Any:
        self.steps.append(("touch", place.start // mmap.PAGESIZE))
        return super().__getitem__(place)


POPULATE_WRITE = 23


def seen(tmp_path: Path, slots: int) -> tuple[Ring, Callable[..., None]]:
    """A ring in a file that is a `Seen`, and what records in it; two records are there."""
    system = System()
    ring = Ring(system, slots)
    record, _ = make_record(ring, system)
    record(wire.QUEUE_PUT, 0)
    system.mmap = Seen
    ring.open_file(str(tmp_path / "r"), 1, 1)
    record(wire.QUEUE_PUT, 0)
    return ring, record


def test_whatever_touches_the_file_is_preceded_by_a_look_at_the_same_page(tmp_path: Path) -> None:
    ring, record = seen(tmp_path, 4 * SLOTS)
    for _ in range(3 * SLOTS):
        record(wire.QUEUE_PUT, 0)
    record(wire.SHARE, 0, 0, -1)
    ring.slice_of(0, 3 * SLOTS)
    ring.is_written(2 * SLOTS)
    place = ring.step_aside()
    record(wire.QUEUE_PUT, 0)
    ring.step_back(*place)

    _, *steps = ring.place[2].steps  # the first asks whether the kernel knows the question
    looks, touches = steps[::2], steps[1::2]
    assert {what for what, _ in looks} == {"look"}
    assert touches == [("touch", page) for _, page in looks]
    assert {page for _, page in touches} >= {0, (wire.HEADER_BYTES + 3 * 4096) // mmap.PAGESIZE}


TOUCHES = ("STORE_SUBSCR", "STORE_SLICE", "BINARY_SUBSCR", "BINARY_SLICE")
SWITCHES = ("CALL", "JUMP", "RESUME", "YIELD", "SEND")
"""Where an interpreter may give the GIL away, by the names of Python 3.10 to 3.15."""


@pytest.mark.parametrize("function", [make_record(Ring(System()), System())[0], _put, _get])
def test_no_other_thread_can_have_its_turn_between_the_look_and_what_touches_the_memory(
    function: Callable[..., Any],
) -> None:
    names = [each.opname for each in dis.get_instructions(function)]
    look = names.index("FOR_ITER")
    aimed = max(index for index in range(look) if names[index] == "STORE_SUBSCR")
    touch = next(index for index in range(look, len(names)) if names[index] in TOUCHES)

    between = names[aimed + 1 : touch]
    assert not [name for name in between if any(word in name for word in SWITCHES)]


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
    memory = ring.place[2]

    ring.close()
    record(wire.QUEUE_PUT, 0)

    assert memory.closed
    assert "/r" not in mapped(tmp_path)


def mapped(folder: Path) -> str:
    """The files of a folder that this process maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return "\n".join(line for line in lines if str(folder) in line)


class OldKernel(mmap.mmap):
    """Memory as Linux before 5.14 gives it: what it does not know it calls invalid."""

    def madvise(self, advice: int, *_: int) -> None:
        if advice == POPULATE_WRITE:
            raise OSError(errno.EINVAL, "Invalid argument")


def test_where_the_kernel_cannot_tell_whether_a_file_is_whole_it_is_taken_to_be(
    tmp_path: Path,
) -> None:
    system = System()
    system.mmap = OldKernel
    ring = Ring(system, SLOTS)
    record, _ = make_record(ring, system)
    ring.open_file(str(tmp_path / "r"), 1, 1)

    record(wire.QUEUE_PUT, 0)

    assert ring.path is not None
    assert [row[2] for row in rows(ring, 0, 1)] == [wire.QUEUE_PUT]
    ring.close()
