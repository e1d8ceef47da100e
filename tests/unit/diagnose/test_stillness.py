from __future__ import annotations

from collections.abc import Iterable

from mpwatch.diagnose.stillness import STANDING_S, quiet_s, stands
from mpwatch.model.history import History, Point
from tests.unit.diagnose.worlds import MAIN, NOW_S, history, line, main, thread

STANDING = main(threads=[thread(MAIN, still_s=60.0)])


def past(switches: Iterable[float], looks: Iterable[float] = ()) -> History:
    """A process that uses no cpu, with its switches at each of the last seconds."""
    counts = list(switches)
    return history(
        {
            (MAIN, "cpu_percent"): line(0.0, seconds=60),
            (MAIN, "voluntary_switches"): [
                Point(NOW_S - len(counts) + 1 + i, count) for i, count in enumerate(counts)
            ],
            (MAIN, "looks"): [Point(NOW_S - ago_s, 1) for ago_s in looks],
        }
    )


def bursts(every_s: int, of: int, seconds: int = 31) -> list[float]:
    return [float(of * (second // every_s)) for second in range(seconds)]


def test_who_never_wakes_up_stands() -> None:
    assert stands(STANDING, past([40.0] * 31))


def test_a_poll_every_five_seconds_is_standing() -> None:
    assert stands(STANDING, past(bursts(5, of=2)))


def test_who_wakes_up_often_works_though_it_uses_no_cpu() -> None:
    assert quiet_s(STANDING, past(bursts(1, of=2))) == 2


def test_that_somebody_looked_at_it_does_not_wake_a_standing_process() -> None:
    woken_by_looks = bursts(3, of=10)
    looked_at = [0.5 + 3 * n for n in range(10)]

    assert not stands(STANDING, past(woken_by_looks))
    assert stands(STANDING, past(woken_by_looks, sorted(looked_at, reverse=True)))


def test_looks_do_not_hide_that_it_works_between_them() -> None:
    quiet = quiet_s(STANDING, past(bursts(1, of=3), looks=(25.5, 19.5, 13.5, 7.5, 1.5)))

    assert quiet is not None
    assert quiet < STANDING_S


def test_one_reading_of_the_switches_says_nothing() -> None:
    assert quiet_s(STANDING, past([7.0])) == 60


def test_who_works_is_seen_to_although_somebody_looks_at_it_all_the_time() -> None:
    looks = [ago_s / 2 for ago_s in range(60, 0, -1)]

    quiet = quiet_s(STANDING, past(bursts(1, of=24), looks))

    assert quiet is not None
    assert quiet < 2
    assert stands(STANDING, past(bursts(1, of=8), looks))


def test_who_went_over_to_another_wait_has_moved_though_it_took_no_cpu() -> None:
    moved = main(threads=[thread(MAIN, still_s=60.0, waits_s=2.0)])

    assert quiet_s(moved, past([40.0] * 31)) == 2.0
