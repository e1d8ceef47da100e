from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.idle_time import (
    STALLED_S,
    gets_before_limit,
    is_stalled,
    mean_cpu_percent,
    quiet_s,
    watched_s,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.model.history import History, Point
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    cpu,
    history,
    line,
    main,
    process,
    snapshot_of,
    thread,
)

STANDING = main(threads=[thread(MAIN, still_s=60.0)])


def past(
    switches: Iterable[float], looks: Iterable[float] = (), traced: Iterable[float] = ()
) -> History:
    """A process that uses no cpu, with its switches at each of the last seconds."""
    counts, by_tracers = list(switches), list(traced)
    return history(
        {
            (MAIN, "cpu_percent"): line(0.0, seconds=60),
            (MAIN, "voluntary_switches"): [
                Point(NOW_S - len(counts) + 1 + i, count) for i, count in enumerate(counts)
            ],
            (MAIN, "tracer_wakes"): [
                Point(NOW_S - len(by_tracers) + 1 + i, count) for i, count in enumerate(by_tracers)
            ],
            (MAIN, "stack_stops"): [Point(NOW_S - ago_s, 1) for ago_s in looks],
        }
    )


def bursts(every_s: int, of: int, seconds: int = 31) -> list[float]:
    return [float(of * (second // every_s)) for second in range(seconds)]


def seen(process: Process, past: History) -> tuple[Process, Index]:
    return process, Index(snapshot_of(process), past)


def test_a_process_that_never_wakes_up_is_stalled() -> None:
    assert is_stalled(*seen(STANDING, past([40.0] * 31)))


def test_a_process_that_polls_every_five_seconds_is_stalled() -> None:
    assert is_stalled(*seen(STANDING, past(bursts(5, of=2))))


def test_a_process_that_wakes_up_often_is_not_stalled_though_it_uses_no_cpu() -> None:
    assert quiet_s(*seen(STANDING, past(bursts(1, of=2)))) == 2


def test_context_switches_by_taking_stacks_do_not_count_as_progress() -> None:
    woken_by_looks = bursts(3, of=10)
    looked_at = [0.5 + 3 * n for n in range(10)]

    assert not is_stalled(*seen(STANDING, past(woken_by_looks)))
    assert is_stalled(*seen(STANDING, past(woken_by_looks, sorted(looked_at, reverse=True))))


def test_context_switches_by_the_tracer_of_another_observer_do_not_count_as_progress() -> None:
    woken = bursts(1, of=8)

    assert not is_stalled(*seen(STANDING, past(woken)))
    assert is_stalled(*seen(STANDING, past(woken, traced=woken)))
    assert not is_stalled(*seen(STANDING, past(woken, traced=bursts(1, of=6))))


@pytest.mark.parametrize("later_s", [0, 1, 2, 3])
def test_context_switches_by_taking_stacks_may_be_counted_some_seconds_later(later_s: int) -> None:
    looks = [25.5, 19.5, 13.5, 7.5]
    counted = [30.0 - ago_s + later_s for ago_s in looks]
    switches = [8.0 * sum(second >= each for each in counted) for second in range(31)]

    assert quiet_s(*seen(STANDING, past(switches, looks))) == 30
    assert quiet_s(*seen(STANDING, past(switches, looks[:-1]))) == 6.0 - later_s + 1


def test_taking_stacks_does_not_hide_that_a_process_works_in_between() -> None:
    quiet = quiet_s(*seen(STANDING, past(bursts(1, of=3), looks=(25.5, 19.5, 13.5, 7.5, 1.5))))

    assert quiet is not None
    assert quiet < STALLED_S


def test_one_reading_of_the_switches_says_nothing() -> None:
    assert quiet_s(*seen(STANDING, past([7.0]))) == 60


def test_a_process_that_works_is_not_stalled_though_its_stack_is_taken_all_the_time() -> None:
    looks = [ago_s / 2 for ago_s in range(60, 0, -1)]

    quiet = quiet_s(*seen(STANDING, past(bursts(1, of=24), looks)))

    assert quiet is not None
    assert quiet < 2
    assert is_stalled(*seen(STANDING, past(bursts(1, of=8), looks)))


def test_a_process_that_changed_to_another_wait_made_progress_though_it_used_no_cpu() -> None:
    moved = main(threads=[thread(MAIN, still_s=60.0, waits_s=2.0)])

    assert quiet_s(*seen(moved, past([40.0] * 31))) == 2.0


def test_a_tick_of_cpu_now_and_then_is_no_progress() -> None:
    ticks = list(line(0.0))
    ticks[15] = ticks[15]._replace(value=1.0)
    past = history({(200, "cpu_percent"): ticks})

    assert quiet_s(*seen(process(200), past)) == pytest.approx(30)


def test_work_ends_a_quiet_time() -> None:
    worked = list(line(0.0))
    worked[15] = worked[15]._replace(value=40.0)
    past = history({(200, "cpu_percent"): worked})

    assert quiet_s(*seen(process(200), past)) == pytest.approx(15)


def test_a_thread_that_often_wakes_up_makes_progress_whatever_cpu_it_uses() -> None:
    past = history(
        {
            (200, "cpu_percent"): line(0.0),
            (200, "voluntary_switches"): line(900, per_s=3),
            (201, "cpu_percent"): line(0.0),
            (201, "voluntary_switches"): line(900, per_s=0.2),
        }
    )

    assert quiet_s(*seen(process(200), past)) == 1
    assert quiet_s(*seen(process(201), past)) == 30


def test_a_process_that_reads_an_item_now_and_then_makes_progress() -> None:
    """Whoever gets an item of a queue every ten seconds hardly wakes up and uses no cpu."""
    job = snapshot_of(STANDING)

    def quiet(*moments: float) -> float | None:
        reads = [Point(at_s, at_s) for at_s in moments]
        known = past([5.0] * 60).processes
        seen = History({**known, (STANDING.process, "main_read_bytes"): reads})
        return quiet_s(STANDING, Index(job, seen))

    assert quiet(NOW_S - 50, NOW_S - 4) == 4.0
    assert quiet(NOW_S - 4) == 59.0  # the first reading shows what it had read before


def test_without_a_history_the_idle_time_is_that_of_the_thread() -> None:
    assert quiet_s(*seen(process(200, threads=[thread(200, still_s=7.0)]), history())) == 7.0
    assert quiet_s(*seen(process(200), history())) is None


def test_a_mean_needs_half_of_its_time() -> None:
    short = history({(200, "cpu_percent"): line(50.0, seconds=3)})

    assert mean_cpu_percent(process(200), short) is None
    assert mean_cpu_percent(process(200), cpu(w200=50)) == pytest.approx(50)


def test_the_start_of_the_watch_is_known_or_none() -> None:
    assert watched_s(Index(snapshot_of(main()), history(started_at_s=NOW_S - 9))) == 9
    assert watched_s(Index(snapshot_of(main()), History())) == 0


def starved(percent: float, state: str = "S", name: str = "python") -> float | None:
    """A process that is read twice a second, and gets so much of a core."""
    threads = [thread(MAIN, still_s=0.2), thread(MAIN + 1, name=name, state=state, still_s=None)]
    used = history({(MAIN, "cpu_percent"): line(percent, step_s=0.5)})
    return quiet_s(*seen(main(threads=threads), used))


def test_a_thread_that_can_run_and_gets_little_of_a_core_makes_progress() -> None:
    assert starved(0.1, state="R") == 0
    assert (starved(0.1, state="R", name="mpwatch-hook") or 0) >= STALLED_S
    assert (starved(0.1) or 0) >= STALLED_S


def test_little_cpu_time_in_each_reading_adds_up_to_progress() -> None:
    quiet = starved(3.9)

    assert quiet is not None
    assert quiet < STALLED_S


def test_a_process_whose_threads_have_not_run_since_before_the_watch_is_as_long_stalled() -> None:
    """The kernel tells when threads last ran, also of the time before the first reading."""
    stands = main(threads=[thread(MAIN, still_s=600.0), thread(MAIN + 1, still_s=300.0)])
    watched = replace(past([40.0] * 31), started_at_s=NOW_S - 60)
    woken = replace(past(bursts(5, of=20)), started_at_s=NOW_S - 60)

    assert quiet_s(*seen(stands, watched)) == 300.0
    assert quiet_s(stands, Index(snapshot_of(stands), History(started_at_s=NOW_S))) == 300.0
    assert (quiet_s(*seen(stands, woken)) or 0.0) < STALLED_S


@pytest.mark.parametrize("ran_s", [None, 5.0])
def test_of_what_a_process_did_before_its_main_thread_says_nothing(ran_s: float | None) -> None:
    """Another thread has run since, or it is not known when it did."""
    works = main(threads=[thread(MAIN, still_s=600.0), thread(MAIN + 1, still_s=ran_s)])

    assert quiet_s(works, Index(snapshot_of(works), History(started_at_s=NOW_S))) == (ran_s or 0.0)
    assert quiet_s(*seen(works, replace(past([40.0] * 61), started_at_s=NOW_S - 60))) == 60.0


RECEIVES = WaitedOn("socket-read", "recvfrom")


@pytest.mark.parametrize(
    ("wait", "per_s", "is_given"),
    [
        (RECEIVES, 2.0, True),
        (RECEIVES, 1.0, False),
        (replace(RECEIVES, timeout_s=3.0), 2.0, True),
        (replace(RECEIVES, timeout_s=0.25), 8.0, False),
        (replace(RECEIVES, timeout_s=0.25), 24.0, True),
        (None, 8.0, False),
        (None, 24.0, True),
    ],
)
def test_a_wait_that_ends_far_more_often_than_by_its_time_limit_gets_something(
    wait: WaitedOn | None, per_s: float, is_given: bool
) -> None:
    waiting = main(threads=[thread(MAIN, waits=wait)])
    woken = history({(MAIN, "voluntary_switches"): line(500.0, per_s)})

    assert gets_before_limit(Index(snapshot_of(waiting), woken), waiting) is is_given


def test_wake_ups_that_were_not_watched_show_nothing() -> None:
    waiting = main(threads=[thread(MAIN, waits=RECEIVES)])

    assert not gets_before_limit(Index(snapshot_of(waiting)), waiting)
