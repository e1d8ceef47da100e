"""The summary of a whole recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.engine import Engine, Rule
from mpwatch.model.events import Input
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.recording.timeline import POINTS_LIMIT, Curve
from mpwatch.observe.sources.replay import replay_course, replay_to_end
from tests.builders.samples import MAIN, START_S, WORKER_0, small_job
from tests.unit.observe.recording.conftest import Recorded

When = Callable[[Snapshot], ProcessId | None]


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> Callable[[When], None]:
    """Make this the only rule: it finds something whenever it gets a process."""

    def use(when: When) -> None:
        def check(index: Index) -> Iterator[Finding]:
            process = when(index.snapshot)
            if process is not None:
                yield Finding("odd", Severity.WARNING, "odd", ("seen",), "why", "do", process)

        monkeypatch.setattr(
            "mpwatch.observe.recording.timeline.Engine", lambda: Engine([Rule("odd", check)])
        )

    return use


def seconds(count: int) -> list[Input]:
    return [small_job(START_S + second) for second in range(count)]


def test_a_finding_that_ended_long_before_the_end_is_marked_resolved(
    recorded: Recorded, rule: Callable[[When], None]
) -> None:
    rule(lambda snapshot: MAIN if snapshot.at_s < START_S + 10 else None)

    (finding,) = replay_to_end(recorded(seconds(200))).findings

    assert finding.resolved_s is not None
    assert START_S + 9 <= finding.resolved_s <= START_S + 14


def test_a_finding_that_lasted_until_its_process_exited_is_not_resolved(
    recorded: Recorded, rule: Callable[[When], None]
) -> None:
    def while_the_worker_lives(snapshot: Snapshot) -> ProcessId | None:
        worker = snapshot.get(WORKER_0)
        return WORKER_0 if worker is not None and worker.ended is None else None

    rule(while_the_worker_lives)
    alone = [
        replace(each, processes=each.processes[:1])
        for each in (small_job(START_S + second) for second in range(20, 200))
    ]

    (finding,) = replay_to_end(
        recorded([*seconds(20), Ended(WORKER_0, START_S + 19.5, signal=9), *alone])
    ).findings

    assert (finding.rule, finding.resolved_s) == ("odd", None)


def test_a_lasting_finding_is_reported_once(
    recorded: Recorded, rule: Callable[[When], None]
) -> None:
    rule(lambda _: MAIN)

    (finding,) = replay_to_end(recorded(seconds(10))).findings

    assert finding.resolved_s is None


def test_numbers_are_kept_over_the_whole_length(recorded: Recorded) -> None:
    _, course = replay_course(recorded(seconds(20)))

    assert set(course.host) == {"/dev/shm bytes", "cgroup memory bytes"}
    assert (MAIN, "fds") in course.processes


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    curve = Curve()
    for second in range(10_000):
        curve.add(float(second), float(second))
        curve.add(float(second), None)

    assert POINTS_LIMIT / 3 < len(curve.points) <= POINTS_LIMIT
    assert curve.points[0].at_s == 0.0
    assert curve.points[-1].at_s > 9_900
    assert [point.at_s for point in curve.points] == sorted(point.at_s for point in curve.points)
