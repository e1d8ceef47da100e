"""Segments joined over processes incrementally: the same result as joining all of them, with less
work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpwatch.model.ids import ProcessId, SegmentId, SegmentUse
from mpwatch.model.samples import ProcSample
from mpwatch.model.snapshot import Segment
from mpwatch.observe.state import segments
from mpwatch.observe.state.segments import SegmentTable
from tests.builders.samples import MAIN, sample, segment_use

USE = st.builds(
    segment_use,
    st.integers(1, 5),
    size=st.sampled_from((0, 4096, 8192)),
    mapped=st.booleans(),
    allocated=st.none() | st.just(4096),
)
HELD = st.none() | st.lists(USE, max_size=4, unique_by=lambda use: use.segment).map(tuple)
READING = st.dictionaries(st.integers(100, 103), HELD, min_size=1)


def samples(held: dict[int, tuple[SegmentUse, ...] | None]) -> list[ProcSample]:
    return [sample(ProcessId(pid, 10 * pid), 1.0, segments=uses) for pid, uses in held.items()]


def joined(table: SegmentTable, reading: Sequence[ProcSample]) -> tuple[Segment, ...]:
    return table.join(reading, {101: MAIN}, {})


def test_the_size_of_a_segment_comes_from_a_process_that_could_read_it() -> None:
    held = {101: (segment_use(5),), 102: (segment_use(5, allocated=4096),)}

    (found,) = joined(SegmentTable(), samples(dict(held)))

    assert found.allocated_bytes == 4096
    assert found.creator == MAIN
    assert [process.pid for process in found.mappers] == [101, 102]


def test_the_later_of_two_samples_of_a_growing_file_gives_its_allocated_size() -> None:
    held = {101: (segment_use(5, allocated=4096),), 102: (segment_use(5, allocated=8192),)}

    (found,) = joined(SegmentTable(), samples(dict(held)))

    assert found.allocated_bytes == 8192


@pytest.mark.slow
@given(st.lists(READING, min_size=1, max_size=6))
def test_segments_joined_incrementally_equal_those_joined_at_once(
    readings: list[dict[int, tuple[SegmentUse, ...] | None]],
) -> None:
    table = SegmentTable()
    for reading in readings:
        now = samples(reading)

        assert joined(table, now) == joined(SegmentTable(), now)


def test_a_segment_that_a_process_lists_twice_can_disappear() -> None:
    table = SegmentTable()
    use = segment_use(5)
    joined(table, samples({MAIN.pid: (use, use)}))

    assert joined(table, samples({MAIN.pid: ()})) == ()


def test_only_files_whose_users_changed_are_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SegmentId] = []
    really = segments.join_uses

    def note(uses: Sequence[tuple[ProcessId, SegmentUse]]) -> Any:
        made.append(uses[0][1].segment)
        return really(uses)

    monkeypatch.setattr(segments, "join_uses", note)
    semaphores = tuple(segment_use(n, allocated=32) for n in range(1000, 1100))
    held = dict.fromkeys(range(100, 164), semaphores)
    table = SegmentTable()
    joined(table, samples(dict(held)))
    assert len(made) == 100

    made.clear()
    joined(table, samples(dict(held)))
    assert made == []

    batch = segment_use(7, allocated=4096)
    found = joined(table, samples({**held, 130: (*semaphores, batch), 100: (*semaphores, batch)}))
    assert made == [batch.segment]
    assert [process.pid for process in found[0].mappers] == [100, 130]

    joined(table, samples(dict(held)))
    assert made == [batch.segment]


def test_files_of_which_nothing_has_changed_are_the_same_objects_at_the_next_reading() -> None:
    table = SegmentTable()
    first = joined(table, samples({101: (segment_use(1), segment_use(2)), 102: None}))
    again = joined(table, samples({101: (segment_use(1), segment_use(2)), 102: None}))
    moved = joined(table, samples({101: (segment_use(1), segment_use(2, size=8192)), 102: None}))

    assert again is first
    assert [segment in map(id, first) for segment in map(id, moved)] == [False, True]


def test_a_call_site_reported_later_is_shown() -> None:
    table, held = SegmentTable(), samples({101: (segment_use(1),)})
    before = table.join(held, {}, {})
    site = {before[0].segment: "train.py:3"}

    assert [each.call_site for each in table.join(held, {}, site)] == ["train.py:3"]
    assert [each.creator for each in table.join(held, {101: MAIN}, site)] == [MAIN]
