from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpwatch.diagnose.analysis.growth import forecast as module
from mpwatch.diagnose.analysis.growth.forecast import forecast, growth, slope
from mpwatch.model.findings import Severity
from mpwatch.model.history import Point, Series
from tests.builders.snapshots import line

steps = st.floats(0.1, 30)
rates = st.floats(0.01, 1e6)


def series(*values: float, step_s: float = 1.0) -> Series:
    return [Point(100 + i * step_s, value) for i, value in enumerate(values)]


def test_a_straight_line_reaches_its_limit_at_the_computed_time() -> None:
    ahead = forecast(line(642, per_s=24), 1024)

    assert ahead is not None
    assert ahead.eta_s == pytest.approx((1024 - 642) / 24)
    assert ahead.confidence == pytest.approx(1)
    assert ahead.severity is Severity.CRITICAL


def test_four_points_are_too_few() -> None:
    assert forecast(series(1, 2, 3, 4), 10) is None


def test_points_within_one_second_are_too_close() -> None:
    assert forecast(series(1, 2, 3, 4, 5, 6, step_s=0.1), 10) is None


def test_a_limit_already_reached_has_no_forecast() -> None:
    assert forecast(line(1024, per_s=24), 1024) is None


def test_a_ramp_that_became_a_plateau_is_quiet() -> None:
    assert forecast(series(10, 60, 110, 150, 150, 150, 150, 150), 200) is None


def test_a_rise_that_slows_down_below_the_limit_is_quiet() -> None:
    values = [500 * (1 - math.exp(-i / 10)) for i in range(20)]

    assert forecast(series(*values), 1000) is None


def test_a_rise_that_slows_down_a_little_is_still_a_rise() -> None:
    values = [1000 * math.log(2 + i / 40) for i in range(40)]

    assert forecast(series(*values), 1300) is not None


def test_a_rise_after_a_long_plateau_is_not_yet_a_line() -> None:
    assert forecast(series(*[10] * 20, 20, 30, 40), 100) is None


def test_a_sawtooth_is_quiet_while_it_rises_again() -> None:
    teeth = [100 + 10 * (i % 20) for i in range(55)]

    assert forecast(series(*teeth), 500) is None


def test_a_leak_beyond_an_old_peak_has_a_forecast() -> None:
    values = [*range(0, 100, 10), *range(0, 400, 10)]

    assert forecast(series(*values), 500, window_s=30) is not None


def test_a_distant_limit_has_no_forecast() -> None:
    assert forecast(line(1000, per_s=0.001, seconds=100), 1_000_000) is None


def test_a_limit_days_away_has_no_forecast_even_if_near_in_value() -> None:
    assert forecast(line(1000, per_s=0.001, seconds=100), 1300) is None


def test_noise_without_a_trend_is_quiet() -> None:
    chance = random.Random(7)
    values = [500 + chance.uniform(-50, 50) for _ in range(60)]

    assert forecast(series(*values), 600) is None


def test_a_growth_in_steps_has_a_forecast() -> None:
    values = [50 * (i // 3) for i in range(31)]

    ahead = forecast(series(*values), 1000)

    assert ahead is not None
    assert ahead.per_s == pytest.approx(50 / 3, rel=0.15)


@pytest.mark.parametrize(
    ("per_s", "severity"),
    [(10.0, Severity.CRITICAL), (1.0, Severity.WARNING), (0.1, Severity.INFO), (0.02, None)],
)
def test_urgency_follows_the_time_left(per_s: float, severity: Severity | None) -> None:
    ahead = forecast(line(1000, per_s=per_s), 1500)

    assert ahead is not None
    assert ahead.severity is severity


def test_a_steady_rise_is_growth_without_any_limit() -> None:
    rise = growth(line(100, per_s=2))

    assert rise is not None
    assert (rise.per_s, rise.gained, rise.span_s) == pytest.approx((2, 60, 30))


def test_a_rise_below_the_least_reported_is_not_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(module, "pair_slopes", None)
        assert growth(line(100, per_s=2), at_least=61) is None
    assert growth(line(100, per_s=2), at_least=60) == growth(line(100, per_s=2))


def test_plateaus_teeth_and_ramps_that_end_are_no_growth() -> None:
    ramp = [min(100.0, 10.0 * i) for i in range(30)]
    slowing = [500 * (1 - math.exp(-i / 5)) for i in range(20)]
    teeth = [10.0 * (i % 20) for i in range(55)]
    noise = [float(i % 2) * 50 + i * 0.01 for i in range(40)]

    for values in (ramp, slowing, teeth, noise, [1.0] * 9, [3.0, 2.0], [1, 2, 3, 4, 5, 4.5, 3]):
        assert growth(series(*values)) is None


def test_the_slope_of_a_falling_line_is_negative() -> None:
    assert slope(line(10, per_s=-2)) == pytest.approx(-2)


def test_the_slope_over_one_moment_is_unknown() -> None:
    assert slope(series(1, 2)) is None
    assert slope(series(1, 2, 3, 4, 5, 6, step_s=0.1)) is None


def test_points_at_one_moment_have_no_slope() -> None:
    stuck = [Point(1.0, 1), Point(1.0, 2), Point(1.0, 3), Point(1.0, 4), Point(9.0, 1)]

    assert slope(stuck) == pytest.approx(-0.1875)


@given(rates, steps, st.integers(8, 200), st.floats(0.01, 1000))
def test_any_straight_line_is_forecast_exactly(
    per_s: float, step_s: float, count: int, rest_s: float
) -> None:
    span_s = (count - 1) * step_s
    points = [Point(i * step_s, per_s * i * step_s) for i in range(count)]
    limit = per_s * (span_s + rest_s)

    ahead = forecast(points, limit, window_s=span_s)

    if span_s < 2:
        assert ahead is None
    else:
        assert ahead is not None
        assert ahead.eta_s == pytest.approx(rest_s, rel=0.01)


@given(st.lists(st.floats(0, 1000), max_size=60), st.floats(1, 2000), steps)
def test_a_forecast_of_any_series_is_positive_and_finite(
    values: list[float], limit: float, step_s: float
) -> None:
    ahead = forecast(series(*values, step_s=step_s), limit)

    if ahead is not None:
        assert 0 < ahead.eta_s < math.inf
        assert ahead.per_s > 0
        assert 0.6 <= ahead.confidence <= 1
        assert ahead.value < limit


@given(st.floats(1, 1000), st.integers(5, 100))
def test_a_constant_never_has_a_forecast(value: float, count: int) -> None:
    assert forecast(series(*[value] * count), value + 1) is None


@given(st.integers(4, 40), st.floats(1, 100), st.integers(0, 39))
def test_a_sawtooth_seen_twice_is_quiet_at_every_phase(
    period: int, height: float, phase: int
) -> None:
    teeth = [height * (i % period) for i in range(2 * period + phase % period)]

    assert forecast(series(*teeth), height * period * 1.5) is None


@given(st.lists(st.integers(0, 1), min_size=5, max_size=100))
def test_falling_numbers_never_have_a_forecast(drops: list[int]) -> None:
    values = [1000 - sum(drops[:i]) for i in range(len(drops))]

    assert forecast(series(*values), 2000) is None


@given(st.randoms(use_true_random=False), st.floats(1, 100))
def test_a_few_outliers_do_not_change_the_slope(chance: random.Random, per_s: float) -> None:
    values = [per_s * i for i in range(24)]
    for index in chance.sample(range(8, 22), 2):
        values[index] += chance.uniform(-2, 2) * per_s

    ahead = forecast(series(*values), per_s * 100)

    assert ahead is not None
    assert ahead.per_s == pytest.approx(per_s, rel=0.1)
