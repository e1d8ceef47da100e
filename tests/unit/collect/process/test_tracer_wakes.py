"""Whether the threads of a process show that a tracer has woken all of them."""

from __future__ import annotations

from mpwatch.collect.process.threads import ThreadReading, tracer_wakes
from mpwatch.model.samples import ThreadSample, WaitedOn

PID = 100


def threads(
    *scheduled: int | None, us: int = 7, address: int = 1, timeout_s: float | None = None
) -> dict[int, ThreadReading]:
    """Threads that wait and were scheduled so often, the main one first; `None`: not counted.

    Args:
        scheduled: How often each one was given a cpu.
        us: For how long each time.
        address: What they wait for.
        timeout_s: When their waits end by themselves.
    """
    wait = WaitedOn("futex", "futex", address=address, timeout_s=timeout_s)
    return {
        PID + place: ThreadReading(
            b"" if count is None else b"%d 0 %d\n" % (count * us * 1000, count),
            b"202 %d" % address,
            ThreadSample(tid=PID + place, name="python", state="S", cpu_ticks=0, waits_on=wait),
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


def test_threads_that_poll_equally_often_are_not_woken_by_a_tracer() -> None:
    before = threads(7, 5, 9, timeout_s=1.0)
    assert tracer_wakes(PID, before, threads(9, 7, 11, timeout_s=1.0)) == 0


def test_threads_of_a_pool_that_get_their_work_together_are_not_woken_by_a_tracer() -> None:
    assert tracer_wakes(PID, threads(7, 5, 9, us=60), threads(9, 7, 11, us=60)) == 0


def test_threads_that_go_on_to_another_wait_are_not_woken_by_a_tracer() -> None:
    assert tracer_wakes(PID, threads(7, 5, 9), threads(9, 7, 11, address=2)) == 0
