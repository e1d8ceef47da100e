from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from mpwatch.model.account import (
    ACTIVITIES_LIMIT,
    BUCKETS,
    NO_CORE,
    NO_PLACE,
    NOTHING,
    OTHER,
    UNSEEN,
    WHOLE_LIMIT,
    Activity,
    Tally,
    ThreadAccount,
    together,
)
from mpwatch.model.progress import BUCKET_S

LOCK = Activity("waiting", "a lock", "lock")
BATCHES = Activity("waiting", "batches", "batch")
TRAINS = Activity("computing", place="train.py:57 step")
SLEEPS = Activity("sleeping")

KINDS = ("computing", "spinning", "waiting", "idle", "sleeping", "stopped", "unknown")
ACTIVITIES = some.builds(
    Activity, some.sampled_from(KINDS), some.sampled_from(["", *map(str, range(40))])
)
SECONDS = some.just(0.0) | some.floats(0.001, 90.0)
READINGS = some.lists(some.tuples(ACTIVITIES, SECONDS, SECONDS), min_size=1, max_size=25)


def tally(*readings: tuple[Activity, float, float]) -> Tally:
    found = NOTHING
    for activity, elapsed_s, cpu_s in readings:
        found = found.plus(activity, elapsed_s, cpu_s)
    return found


def shares(tally: Tally) -> dict[Activity, Any]:
    return {each.activity: pytest.approx(each.share, abs=0.005) for each in tally.shares()}


def account(*readings: tuple[Activity, float]) -> ThreadAccount:
    """Of a thread that used no cpu: what each reading found, and when."""
    first, at_s = readings[0]
    found = ThreadAccount(7, "python", first, at_s, 0, 0)
    for number, (activity, at_s) in enumerate(readings, start=1):
        found = found._replace(now=activity).counted(at_s, number, 0, 100)
    return found


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(READINGS)
def test_the_shares_of_any_readings_sum_to_one(
    readings: list[tuple[Activity, float, float]],
) -> None:
    found = tally(*readings).shares()

    assert sum(each.share for each in found) == pytest.approx(1.0)
    assert all(0 < each.share <= 1 + 1e-9 for each in found)
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(READINGS)
def test_an_account_of_any_readings_is_bounded_and_complete(
    readings: list[tuple[Activity, float, float]],
) -> None:
    at_s, ticks = 1000.0, 0
    found = ThreadAccount(7, "python", readings[0][0], at_s, 0, ticks)
    for number, (activity, elapsed_s, cpu_s) in enumerate(readings, start=1):
        at_s, ticks = at_s + elapsed_s, ticks + int(100 * cpu_s)
        found = found._replace(now=activity).counted(at_s, number, ticks, 100)

    whole = found.whole()
    assert whole.observed_s == pytest.approx(at_s - 1000.0)
    assert whole.readings == pytest.approx(len(readings))
    assert whole.cpu_s <= whole.observed_s + 1e-6
    assert len(found.buckets) <= BUCKETS + 1
    assert all(len(each.tally.seen) <= ACTIVITIES_LIMIT + len(KINDS) for each in found.buckets)
    assert len(found.older.seen) <= WHOLE_LIMIT + len(KINDS)
    assert sum(each.share for each in found.last_minute().shares()) == pytest.approx(1.0)


def test_cpu_time_is_exact_and_the_rest_is_divided_by_what_readings_found() -> None:
    found = tally((TRAINS, 1, 0.4), (LOCK, 1, 0.3), (BATCHES, 1, 0.2), (BATCHES, 1, 0.1))

    assert shares(found) == {BATCHES: 0.5, TRAINS: 0.25, LOCK: 0.25}


def test_cpu_time_without_a_stack_has_no_place() -> None:
    assert shares(tally(*[(LOCK, 1, 0.1)] * 10)) == {LOCK: 0.9, NO_PLACE: 0.1}


def test_a_wait_that_no_reading_sampled_is_unknown_with_the_reason() -> None:
    assert shares(tally((TRAINS, 1, 0.9), (TRAINS, 1, 0.9))) == {TRAINS: 0.9, UNSEEN: 0.1}


def test_a_thread_that_is_always_ready_and_rarely_runs_waits_for_a_core() -> None:
    found = shares(tally(*[(TRAINS, 1, 0.25)] * 20))

    assert found[TRAINS] == 0.25
    assert dict(tally(*[(TRAINS, 1, 0.25)] * 20).shares())[NO_CORE] > 0.65


def test_too_few_readings_do_not_show_that_a_core_is_missing() -> None:
    found = tally((TRAINS, 1, 0.25), (LOCK, 1, 0.25), (TRAINS, 1, 0.25))

    assert NO_CORE not in shares(found)


def test_a_single_reading_is_what_the_thread_did_then() -> None:
    assert shares(tally((LOCK, 0, 0))) == {LOCK: 1.0}


def test_more_activities_than_the_limit_are_summed_by_kind() -> None:
    found = tally(*[(Activity("waiting", f"lock {n}"), 1, 0) for n in range(40)])

    assert shares(found)[Activity("waiting", OTHER)] == (40 - ACTIVITIES_LIMIT) / 40


def test_the_sum_of_tallies_keeps_the_largest_by_name() -> None:
    many = [tally((Activity("waiting", f"lock {n}"), 1 + n, 0)) for n in range(WHOLE_LIMIT + 3)]

    found = together(many)

    assert len(found.seen) == WHOLE_LIMIT + 1
    assert found.seen[Activity("waiting", OTHER)] == 1 + 2 + 3
    assert found.observed_s == sum(1 + n for n in range(WHOLE_LIMIT + 3))


def test_the_last_minute_drops_earlier_time_and_the_whole_keeps_it() -> None:
    found = account((LOCK, 0.0), *[(LOCK, float(n)) for n in range(1, 61)])
    found = found._replace(now=BATCHES).counted(180.0, 62, 0, 100)

    assert shares(found.last_minute()) == {BATCHES: 1.0}
    assert shares(found.whole()) == {BATCHES: 120 / 180, LOCK: 60 / 180}
    assert found.last_minute().observed_s <= BUCKETS * BUCKET_S + BUCKET_S


def test_a_stretch_over_several_buckets_is_divided_among_them() -> None:
    found = account((LOCK, 1.0))._replace(now=SLEEPS).counted(12.0, 2, 550, 100)

    assert [bucket.number for bucket in found.buckets] == [0, 1, 2]
    seconds = [bucket.tally.observed_s for bucket in found.buckets]
    assert seconds == pytest.approx([4.0, 5.0, 2.0])
    assert [bucket.tally.cpu_s for bucket in found.buckets] == pytest.approx([2.0, 2.5, 1.0])


def test_counting_again_at_the_same_reading_changes_nothing() -> None:
    found = account((LOCK, 0.0), (LOCK, 1.0))

    assert found.counted(1.0, 2, 0, 100) is found


def test_the_error_of_a_share_shrinks_with_the_readings() -> None:
    assert tally((LOCK, 1, 0)).error == pytest.approx(0.98)
    assert tally(*[(LOCK, 1, 0)] * 100).error == pytest.approx(0.098)
