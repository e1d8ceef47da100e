"""Whether the threads of a process show that a tracer has woken all of them."""

from __future__ import annotations

from mpwatch.collect.process.threads import ThreadReading, tracer_wakes
from mpwatch.model.samples import ThreadSample

PID = 100


def threads(*scheduled: int | None) -> dict[int, ThreadReading]:
    """Threads that were scheduled so often, the main one first; `None`: not counted."""
    return {
        PID + place: ThreadReading(
            b"" if count is None else b"5000 0 %d\n" % count,
            b"202 0x1",
            ThreadSample(tid=PID + place, name="python", state="S", cpu_ticks=0),
        )
        for place, count in enumerate(scheduled)
    }


def test_all_threads_that_wake_up_at_once_are_woken_by_a_tracer() -> None:
    assert tracer_wakes(PID, threads(7, 5, 9, 70), threads(9, 7, 11, 76)) == 2


def test_one_switch_may_be_counted_while_the_threads_are_stopped() -> None:
    assert tracer_wakes(PID, threads(7, 5, 9), threads(9, 6, 11)) == 1


def test_a_thread_that_stays_asleep_shows_that_the_others_work() -> None:
    before = threads(7, 5, 9, 70)
    now = {**threads(9, 7, 11, 70), PID + 3: before[PID + 3]}

    assert tracer_wakes(PID, before, now) == 0


def test_threads_that_wake_up_differently_often_are_not_woken_by_a_tracer() -> None:
    assert tracer_wakes(PID, threads(7, 5, 9), threads(13, 9, 15)) == 0


def test_one_thread_besides_the_main_one_is_not_enough() -> None:
    assert tracer_wakes(PID, threads(7, 5), threads(9, 7)) == 0
    assert tracer_wakes(PID, threads(7, 5), threads(9, 7, 2)) == 0


def test_a_kernel_that_does_not_count_says_nothing() -> None:
    assert tracer_wakes(PID, threads(7, 5, None), threads(9, 7, None)) == 0
