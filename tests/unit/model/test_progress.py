from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpwatch.model.progress import (
    BUCKET_S,
    RECENT_BUCKETS,
    SUM_BUCKETS,
    Counts,
    ProgressKind,
    ProgressSource,
    pace,
    paces,
    summed,
)
from tests.builders.progress import ONE, OTHER, source


def test_a_steady_rate_has_the_same_rate_now_and_over_the_whole_time() -> None:
    found = pace([source(12.0, 200)], 1200.0)

    assert found.now_per_s == pytest.approx(12.0)
    assert found.whole_per_s == pytest.approx(12.0, rel=0.01)
    assert (found.change, found.span_s) == (None, 200.0)
    assert [rate for _, rate in found.recent] == [pytest.approx(12.0, rel=0.05)] * 40


def test_a_rate_that_fell_is_reported_with_the_rates_before_and_since() -> None:
    found = pace([source(12.0, 100, 3.0, 60)], 1160.0)

    assert found.now_per_s == pytest.approx(3.0)
    assert found.change is not None
    assert found.change.ago_s == 60.0
    assert found.change.before_per_s == pytest.approx(12.0)
    assert found.change.since_per_s == pytest.approx(3.0)


def test_a_change_in_a_run_of_hours_is_found_in_the_last_minutes() -> None:
    found = pace([source(12.0, 8_000, 6.0, 45)], 9_045.0)

    assert found.change is not None
    assert found.change.ago_s == pytest.approx(45, abs=BUCKET_S)


@pytest.mark.parametrize(
    "parts", [(12.0, 100, 10.0, 60), (0.05, 100, 0.02, 60), (12.0, 100, 3.0, 8)]
)
def test_small_differences_and_short_ones_are_no_change(parts: Sequence[float]) -> None:
    assert pace([source(*parts)], 1000 + parts[1] + parts[3]).change is None


def test_one_that_stopped_is_zero_with_the_rate_before() -> None:
    found = pace([source(12.0, 100)], 1140.0)

    assert found.now_per_s == 0.0
    assert found.idle_s == pytest.approx(40.0, abs=0.2)
    assert found.before_per_s == pytest.approx(12.0, rel=0.01)
    assert found.change is None
    assert [rate for _, rate in found.recent][-8:] == [0.0] * 8


def test_one_that_is_usually_slow_has_not_stopped_between_two() -> None:
    slow = source(1 / 30, 300)

    assert pace([slow], 1295.0).now_per_s == pytest.approx(1 / 30, rel=0.4)


def test_after_a_single_one_there_is_no_rate() -> None:
    first = source(1.0, 1)
    assert first.total == 1

    found = pace([first], 1000.5)

    assert (found.now_per_s, found.whole_per_s, found.before_per_s) == (None, None, None)


def test_several_processes_are_added() -> None:
    found = pace([source(3.0, 100), source(4.0, 60, process=OTHER)], 1100.0)

    assert found.now_per_s == pytest.approx(3.0)
    assert found.processes == (ONE, OTHER)
    assert found.total == 540


def test_what_is_partly_unknown_is_not_part_of_the_sum() -> None:
    late = source(4.0, 60, begin_s=1040.0, process=OTHER)._replace(is_cut=True)

    found = pace([source(3.0, 100), late], 1100.0)

    assert found.whole_per_s == pytest.approx(7.0, rel=0.02)
    assert found.change is None


def test_kinds_are_in_their_order() -> None:
    kinds: list[ProgressKind] = ["tensors", "gets", "batches", "gets"]
    found = [source(1.0, 10)._replace(kind=kind) for kind in kinds]

    assert [each.kind for each in paces(found, 1010.0)] == ["batches", "gets", "tensors"]


@given(
    st.lists(st.integers(0, 50), max_size=200),
    st.integers(0, 60),
    st.integers(0, 10_000),
    st.floats(0, 2000),
)
def test_any_counts_have_rates(counts: list[int], late_s: int, first: int, more_s: float) -> None:
    whole = Counts(first, BUCKET_S, [1, *counts])
    begin_s = first * BUCKET_S
    last_s = begin_s + len(counts) * BUCKET_S
    total = 1 + sum(counts)
    made = ProgressSource("gets", None, total, begin_s, last_s, False, whole, total, whole, total)

    found = pace([made], last_s + more_s - late_s)

    for rate in (found.now_per_s, found.whole_per_s, found.before_per_s):
        assert rate is None or rate >= 0
    assert len(found.recent) <= RECENT_BUCKETS


def test_the_sum_of_processes_days_apart_is_bounded() -> None:
    found = summed([Counts(0, BUCKET_S, [1]), Counts(10**6, BUCKET_S, [2])])
    recent = summed([Counts(0, BUCKET_S, [1]), Counts(10**6, BUCKET_S, [2])], newest=3)

    assert (len(found.counts) <= SUM_BUCKETS, sum(found.counts)) == (True, 3)
    assert recent == (10**6 - 2, BUCKET_S, [0, 0, 2])


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3), st.lists(st.integers(0, 9)))))
def test_sums_keep_every_event(parts: list[tuple[int, int, list[int]]]) -> None:
    made = [Counts(first, BUCKET_S * 2**power, counts) for first, power, counts in parts]

    assert sum(summed(made).counts) == sum(sum(counts) for _, _, counts in parts)
