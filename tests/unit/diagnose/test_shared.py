from __future__ import annotations

from dataclasses import replace

from mpwatch.diagnose.analysis.memoize import once_per_reading
from mpwatch.diagnose.analysis.process_queries import loader_owners
from mpwatch.model.snapshot import Snapshot
from tests.unit.diagnose.worlds import main, process, world


def test_a_reading_is_derived_once_and_the_next_anew() -> None:
    asked: list[int] = []

    @once_per_reading
    def count(snapshot: Snapshot) -> int:
        asked.append(len(snapshot.processes))
        return len(snapshot.processes)

    first, second = world(main()), world(main(), process(200))

    assert [count(first), count(replace(first, mode="paused")), count(second)] == [1, 1, 2]
    assert asked == [1, 2]


def test_owners_follow_the_snapshot_that_is_asked_about() -> None:
    first, second = world(main()), world(main(), process(200))

    assert [len(loader_owners(each)) for each in (first, second, first)] == [0, 1, 0]
