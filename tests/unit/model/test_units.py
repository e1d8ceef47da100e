from __future__ import annotations

import pytest

from mpwatch.model.units import bytes_text, count_text, percent_text, rate_text, seconds_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0B"), (999, "999B"), (1000, "1.0K"), (831488, "812K"), (1288490189, "1.2G")],
)
def test_bytes_have_three_significant_digits(count: float | None, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (842, "842"), (9999, "9999"), (65530, "65.5k"), (1.2e6, "1.2M")],
)
def test_counts_fit_in_five_characters(count: float | None, text: str) -> None:
    assert count_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (35e-6, "35 us"),
        (0.0014, "1.4 ms"),
        (0.9999, "1.0 s"),
        (2.34, "2.3 s"),
        (84, "84 s"),
        (360, "6 min"),
        (7500, "2 h 5 min"),
        (180_000, "2 d 2 h"),
        (-3.0, "-3.0 s"),
        (float("inf"), "-"),
        (float("nan"), "-"),
    ],
)
def test_durations_have_one_or_two_units(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text


def test_rates_carry_their_sign_and_unit() -> None:
    assert rate_text(24) == "+24/s"
    assert rate_text(-1_153_434, "B") == "-1.1M/s"
    assert rate_text(None) == "-"


def test_a_percentage_is_short() -> None:
    assert [percent_text(v) for v in (None, 0, 0.42, 31.4)] == ["-", "0", "0.4", "31"]
