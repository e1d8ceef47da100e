"""Findings as a list and in words."""

from __future__ import annotations

from dataclasses import replace

from mpwatch.model.findings import Finding, Severity
from mpwatch.tui.elements.snapshot_view import SnapshotView
from mpwatch.tui.elements.styled_text import text_of
from mpwatch.tui.pages import findings
from tests.tui import scripted
from tests.tui.scripted import loader_job


def finding(rule: str, severity: Severity = Severity.WARNING, **changes: object) -> Finding:
    values = {"summary": rule, "evidence": ("seen",), "cause": "c", "advice": "a"}
    return Finding(rule=rule, severity=severity, **{**values, **changes})  # type: ignore[arg-type]


def test_effects_are_listed_below_their_cause_and_resolved_findings_last() -> None:
    cause = finding("fd-exhaustion-receiver", Severity.CRITICAL)
    effect = finding("worker-exited-unexpectedly", effect_of="fd-exhaustion-receiver")
    resolved = finding("straggler-worker", resolved_s=5.0)

    found = findings.with_effects([resolved, effect, cause])

    assert [f.rule for f in found] == [cause.rule, effect.rule, resolved.rule]


def test_an_effect_without_its_cause_is_listed_by_itself() -> None:
    effect = finding("worker-exited-unexpectedly", effect_of="fd-exhaustion-receiver")

    assert findings.with_effects([effect]) == [effect]


def test_resolved_findings_are_not_on_the_overview() -> None:
    job = replace(loader_job(), findings=(finding("x", resolved_s=5.0),))

    assert findings.unresolved(job) == []


def test_the_fix_is_shown_where_there_is_room() -> None:
    job = loader_job()

    assert [finding_line.is_advice for finding_line in findings.finding_lines(job, 2)] == [
        False,
        False,
    ]
    assert [finding_line.is_advice for finding_line in findings.finding_lines(job, 3)] == [
        False,
        True,
        False,
    ]


def test_without_a_hook_the_health_line_says_so() -> None:
    words = text_of(findings.health(SnapshotView(scripted.without_hook())))

    assert "no hook ready" in words
    assert len(words) <= 80
