"""When each probe of a process is due."""

from __future__ import annotations

import math

import pytest

from mpwatch.collect.process.schedule import (
    CALM_AFTER_S,
    CALM_FACTOR,
    COST_LIMIT,
    LISTING_MAX_S,
    MANY,
    MARKS_KEPT,
    NEW_SHARE,
    SLACK,
    SMALL_BYTES,
    LastRun,
    Schedule,
    count_change,
    intervals,
    memory_change,
)
from mpwatch.model.ids import ProcessId

MIB = 1 << 20


def processes(count: int) -> set[ProcessId]:
    return {ProcessId(100 + n, n) for n in range(count)}


def test_a_probe_that_was_never_run_is_the_most_urgent() -> None:
    assert LastRun().urgency(0.0, 30.0, 5.0) == math.inf


def test_without_a_change_a_probe_is_due_after_its_interval() -> None:
    run = LastRun()
    run.done(100.0)

    due = [s for s in range(100, 150) if run.urgency(0.0, 30.0, float(s)) is not None]

    assert due[0] == 130


def test_a_change_makes_a_probe_due_at_once_and_a_larger_one_more_urgent() -> None:
    run = LastRun()
    run.done(100.0)
    small, large = run.urgency(4.0, 30.0, 101.0), run.urgency(40.0, 30.0, 101.0)

    assert small is not None
    assert large is not None
    assert small < large


def test_an_expensive_probe_is_run_rarely_whatever_changes() -> None:
    run = LastRun()
    run.done(0.0, cost_s=2.0)

    assert run.urgency(1000.0, 1.0, 2.0 * COST_LIMIT - 1) is None
    assert run.urgency(1000.0, 1.0, 2.0 * COST_LIMIT) is not None


def test_lists_are_read_for_a_share_of_the_job_at_a_time_whatever_its_size() -> None:
    assert intervals(2).listing_s == 2.0
    assert intervals(20).listing_s == 10.0
    assert intervals(1000).listing_s == LISTING_MAX_S


def test_all_intervals_are_stretched_by_the_same_factor() -> None:
    assert intervals(64, 5.0) == tuple(5.0 * each for each in intervals(64))


def test_a_job_is_calm_some_time_after_the_last_start_or_exit() -> None:
    schedule, job = Schedule(), processes(MANY)
    usual, calm = intervals(MANY), intervals(MANY, CALM_FACTOR)

    assert schedule.intervals(job, 0.0) == usual
    assert schedule.intervals(job, CALM_AFTER_S - 0.1) == usual
    assert schedule.intervals(job, CALM_AFTER_S) == calm
    more = processes(MANY + 1)
    assert schedule.intervals(more, 60.0) == intervals(MANY + 1)
    assert schedule.intervals(job, 61.0) == usual
    assert schedule.intervals(job, 61.0 + CALM_AFTER_S) == calm


def test_a_small_job_is_never_calm() -> None:
    schedule, job = Schedule(), processes(MANY - 1)

    assert {schedule.intervals(job, 1000.0 * n) for n in range(5)} == {intervals(MANY - 1)}


@pytest.mark.parametrize(("now", "then"), [(20 + SLACK, 20), (20, 20 + SLACK), (1010, 1000)])
def test_a_few_descriptors_that_come_and_go_are_no_change(now: int, then: int) -> None:
    assert count_change(now, then) == 0.0


def test_more_descriptors_are_a_change_by_their_number() -> None:
    assert (count_change(80, 20), count_change(20, 80)) == (60.0, 60.0)


def test_page_faults_are_a_change_from_a_share_of_the_private_memory_on() -> None:
    assert memory_change(int(NEW_SHARE * 200 * MIB), 200 * MIB) == pytest.approx(1.0)
    assert memory_change(int(NEW_SHARE * 190 * MIB), 200 * MIB) == 0.0


def test_page_faults_of_a_small_process_are_compared_with_a_larger_one() -> None:
    assert memory_change(MIB // 2, MIB) == 0.0
    assert memory_change(SMALL_BYTES, MIB) > 1.0


def test_numbers_between_those_of_the_last_runs_are_no_change() -> None:
    run = LastRun()
    for fds in (300, 340, 310, 330):
        run.mark((fds, 4))

    assert run.change((305, 4)) == run.change((338, 4)) == 0.0
    assert run.change((400, 4)) == 60.0
    assert run.change((200, 4)) == 100.0
    assert run.change((320, 40)) == 36.0


def test_a_number_that_only_rises_is_a_change_each_time() -> None:
    run = LastRun()
    seen = []
    for fds in range(300, 500, 40):
        seen.append(run.change((fds,)))
        run.mark((fds,))

    assert seen == [0.0, 40.0, 40.0, 40.0, 40.0]


def test_a_range_is_forgotten_after_a_few_runs() -> None:
    run = LastRun()
    run.mark((1000,))
    for _ in range(MARKS_KEPT):
        run.mark((100,))

    assert run.change((500,)) == 400.0
