"""Which series count as steady growth, and which do not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpwatch.diagnose.analysis.growth.forecast import Steadiness, steady_growth
from mpwatch.diagnose.analysis.growth.growing import DESCRIPTORS
from mpwatch.diagnose.analysis.growth.growing import MEMORY as MEMORY_BYTES
from mpwatch.model.history import Point, Series

COUNT = DESCRIPTORS.required
MEMORY = Steadiness(MEMORY_BYTES.required.span_s, gain=32, grain=2)
"""In MiB."""


def series(value_at: Callable[[float], float], seconds: float, step_s: float = 1.0) -> Series:
    count = round(seconds / step_s)
    return [Point(100 + n * step_s, value_at(n * step_s)) for n in range(count + 1)]


def test_a_straight_line_is_steady_once_it_lasted_long_enough() -> None:
    assert steady_growth(series(lambda t: 10 + 2 * t, 19), COUNT) is None

    found = steady_growth(series(lambda t: 10 + 2 * t, 30), COUNT)

    assert found is not None
    assert found.per_s == pytest.approx(2)
    assert (found.gained, found.span_s) == pytest.approx((60, 30))


def test_the_growth_began_with_the_line_and_not_with_the_watch() -> None:
    found = steady_growth(series(lambda t: 10 + 2 * max(0.0, t - 100), 160), COUNT)

    assert found is not None
    assert 20 <= found.span_s <= 60
    assert found.per_s == pytest.approx(2, rel=0.1)


def test_the_loading_of_libraries_before_the_growth_does_not_hide_it() -> None:
    found = steady_growth(series(lambda t: min(300.0, 100 * t) + 5 * t, 60), MEMORY)

    assert found is not None
    assert found.per_s == pytest.approx(5, rel=0.15)


def test_noise_does_not_hide_a_growth() -> None:
    chance = random.Random(3)
    found = steady_growth(series(lambda t: 50 + 2 * t + chance.choice((0, 0, 8)), 60), COUNT)

    assert found is not None
    assert found.per_s == pytest.approx(2, rel=0.2)


def test_a_count_that_rises_twice_a_minute_is_found_in_time() -> None:
    found = steady_growth(series(lambda t: 20 + t // 30, 460), COUNT)

    assert found is not None
    assert 60 * found.per_s == pytest.approx(2, rel=0.2)


HEALTHY: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 500,
    "plateau after a ramp": lambda t: min(300.0, 20 * t),
    "cache that fills in a minute": lambda t: 1000 * (1 - math.exp(-t / 20)),
    "cache that fills in minutes": lambda t: 1000 * (1 - math.exp(-t / 80)),
    "sawtooth": lambda t: 20 * (t % 10),
    "slow sawtooth": lambda t: 20 * (t % 70),
    "one jump": lambda t: 100 if t < 50 else 400,
    "two jumps": lambda t: 100 + 300 * (t >= 40) + 300 * (t >= 60),
    "falling": lambda t: 1000 - t,
    "wave": lambda t: 500 + 200 * math.sin(t / 15),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_series_that_only_look_like_growth_are_not_steady_after_a_minute_and_a_half(
    name: str,
) -> None:
    points = series(HEALTHY[name], 240)

    seen = [
        points[n].at_s - 100
        for n in range(90, len(points))
        if steady_growth(points[: n + 1], COUNT) or steady_growth(points[: n + 1], MEMORY)
    ]

    assert seen == []


@pytest.mark.parametrize("name", [name for name in HEALTHY if "slow" not in name])
def test_series_that_only_look_like_growth_are_never_steady(name: str) -> None:
    points = series(HEALTHY[name], 240)

    assert not [
        points[n].at_s - 100
        for n in range(len(points))
        if steady_growth(points[: n + 1], MEMORY) and "minutes" not in name
    ]


@given(st.integers(0, 10_000), st.floats(1, 100))
def test_noise_without_a_trend_is_never_steady(seed: int, height: float) -> None:
    chance = random.Random(seed)
    points = series(lambda _: 500 + chance.uniform(-height, height), 240)

    assert steady_growth(points, Steadiness(24, height / 4, 0)) is None


@given(st.integers(0, 10_000), st.integers(12, 90), st.floats(50, 500))
def test_a_sawtooth_seen_twice_is_never_steady(seed: int, period: int, height: float) -> None:
    phase = seed % period
    points = series(lambda t: height * ((t + phase) % period) / period, 2 * period + seed % period)

    assert steady_growth(points, Steadiness(24, 12, 2)) is None


@given(st.floats(0.2, 1000), st.floats(0, 1e6), st.sampled_from((0.5, 1.0, 2.5)))
def test_every_straight_line_is_steady(per_s: float, base: float, step_s: float) -> None:
    found = steady_growth(series(lambda t: base + per_s * t, 90, step_s), COUNT)

    assert found is not None
    assert found.per_s == pytest.approx(per_s, rel=0.05)


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0, 1e9)), max_size=60))
def test_points_in_any_order_raise_nothing(points: list[tuple[float, float]]) -> None:
    found = steady_growth([Point(*point) for point in points], COUNT)

    assert found is None or found.per_s > 0
