"""Findings over time, whatever the rules find in each reading."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpwatch.diagnose.engine import CALM_S, LINGER_LIMIT_S, LINGER_S, RETURNS_S
from mpwatch.model.findings import Finding, Severity
from tests.unit.diagnose.test_engine import engine, finding, look

SEVERITIES = st.none() | st.sampled_from(Severity)
"""Severity that a rule finds in one reading; `None` for no finding."""
STEPS_S = st.sampled_from([0.1, 0.5, 1.0, 2.0])


def shown(found: list[Severity | None], step_s: float) -> list[tuple[float, Finding | None]]:
    """The findings shown after each reading, with the time."""
    watched = engine(*([] if each is None else [finding("a", each)] for each in found))
    out: list[tuple[float, Finding | None]] = []
    for number in range(len(found)):
        at_s = round(number * step_s, 3)
        seen = look(watched, at_s)
        assert len(seen) <= 1
        out.append((at_s, seen[0] if seen else None))
    return out


def is_present(one: Finding | None) -> bool:
    return one is not None and one.resolved_s is None


@given(st.lists(SEVERITIES, max_size=60), STEPS_S)
def test_a_finding_is_shown_at_once_and_at_least_as_severe_as_the_rule_says(
    found: list[Severity | None], step_s: float
) -> None:
    for said, (_, one) in zip(found, shown(found, step_s), strict=True):
        if said is not None:
            assert one is not None
            assert one.resolved_s is None
            assert one.severity >= said


@given(st.lists(SEVERITIES, max_size=60), STEPS_S)
def test_a_finding_is_resolved_only_after_it_was_missing_for_long_enough(
    found: list[Severity | None], step_s: float
) -> None:
    last_seen_s = 0.0
    for said, (at_s, one) in zip(found, shown(found, step_s), strict=True):
        last_seen_s = at_s if said is not None else last_seen_s
        if one is not None and one.resolved_s is not None:
            assert at_s - last_seen_s >= LINGER_S


@given(st.lists(SEVERITIES, max_size=60), STEPS_S)
def test_the_first_time_is_kept_while_a_finding_lasts_and_severity_falls_slowly(
    found: list[Severity | None], step_s: float
) -> None:
    worst_at_s = 0.0
    for (_, before), (at_s, now) in pairwise(shown(found, step_s)):
        if before is None or now is None or not (is_present(before) and is_present(now)):
            worst_at_s = at_s
            continue
        assert now.first_seen_s == before.first_seen_s
        if now.severity < before.severity:
            assert at_s - worst_at_s >= CALM_S - step_s
        if now.severity != before.severity:
            worst_at_s = at_s


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(2, 25), STEPS_S)
def test_a_finding_that_comes_and_goes_is_held(gap: int, step_s: float) -> None:
    every = [Severity.WARNING, *[None] * (gap - 1)]
    found = (every * 400)[: int(200 / step_s)]
    if gap * step_s > LINGER_LIMIT_S:
        return

    states = [is_present(one) for _, one in shown(found, step_s)]

    changes = [index for index, (a, b) in enumerate(pairwise(states)) if a != b]
    assert len(changes) <= 6  # at most three times, then it is held


def test_a_finding_that_comes_back_at_once_is_the_same() -> None:
    found = [Severity.INFO, None, None, None, Severity.INFO]

    times = [one.first_seen_s for _, one in shown(found, 1.0) if one is not None]

    assert len(set(times)) == 1
    assert RETURNS_S > 1.0
