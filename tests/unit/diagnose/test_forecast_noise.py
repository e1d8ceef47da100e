"""Realistic noise: series without a trend have no forecast, and a trend is timed well through
noise.

The numbers are drawn at random from fixed seeds, many times, so that rare errors show.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from mpwatch.diagnose.analysis.growth.forecast import approach, forecast
from mpwatch.model.findings import Severity
from mpwatch.model.history import Point

Curve: TypeAlias = Callable[[int, random.Random], float]
"""Value by second."""

SEEDS = 12
SECONDS = 150


def looks(curve: Curve, seed: int, seconds: int = SECONDS) -> Iterator[list[Point]]:
    """The series as it grows, one reading a second."""
    chance = random.Random(seed)
    series: list[Point] = []
    for second in range(seconds):
        series.append(Point(float(second), curve(second, chance)))
        if len(series) > 1:
            yield series


def plateau(height: float, noise: float) -> Curve:
    return lambda _, chance: height + chance.uniform(-noise, noise)


def teeth(low: float, per_s: float, period: int, noise: float) -> Curve:
    return lambda second, chance: low + per_s * (second % period) + chance.uniform(-noise, noise)


def is_warning(series: list[Point], limit: float) -> bool:
    found = approach(series[-1].value, limit, series)
    return found is not None and found.severity >= Severity.WARNING


@pytest.mark.parametrize(
    "curve",
    [plateau(500, 10), plateau(500, 50), plateau(100, 3), plateau(700, 14)],
    ids=["small", "large", "low", "high"],
)
def test_a_noisy_plateau_is_quiet_at_every_reading(curve: Curve) -> None:
    warned = [
        (seed, series[-1].at_s)
        for seed in range(SEEDS)
        for series in looks(curve, seed)
        if is_warning(series, 1024)
    ]

    assert warned == []


@pytest.mark.parametrize(
    ("curve", "period"),
    [
        (teeth(300, 10, 20, 10), 20),
        (teeth(300, 5, 60, 10), 60),
        (teeth(300, 5, 60, 40), 60),
        (lambda second, chance: 300 + 5 * (second % 37) * chance.uniform(0.9, 1.1), 37),
    ],
)
def test_a_noisy_sawtooth_is_quiet_after_two_teeth(curve: Curve, period: int) -> None:
    warned = [
        (seed, series[-1].at_s)
        for seed in range(SEEDS)
        for series in looks(curve, seed)
        if series[-1].at_s > 2 * period + 1 and is_warning(series, 1024)
    ]

    assert warned == []


@pytest.mark.parametrize("noise_s", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("per_s", [2.0, 50.0])
def test_the_time_left_of_a_noisy_leak_is_right_within_half_as_much_again(
    per_s: float, noise_s: float
) -> None:
    limit = 200 + per_s * 120
    noise = per_s * noise_s
    factors = [
        found.eta_s / (120 - series[-1].at_s)
        for seed in range(SEEDS)
        for series in looks(lambda s, r: 200 + per_s * s + r.uniform(-noise, noise), seed, 100)
        if series[-1].at_s >= 20 and (found := forecast(series, limit)) is not None
    ]

    assert len(factors) > 0.8 * 80 * SEEDS
    assert 1 / 1.5 < min(factors) <= max(factors) < 1.5


@pytest.mark.parametrize("period_s", [0.5, 1.0, 2.0])
def test_a_steady_leak_has_a_forecast_after_five_readings(period_s: float) -> None:
    series = [Point(n * period_s, 100.0 + 40 * n * period_s) for n in range(60)]

    first = next(n for n in range(2, 60) if forecast(series[:n], 5000) is not None)

    assert first == 5
