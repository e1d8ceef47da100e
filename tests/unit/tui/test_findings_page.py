"""Findings as a list and in words."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.model.findings import Finding, Severity
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import drawn, text_of
from mpwatch.tui.pages import findings
from tests.tui import scripted
from tests.tui.scripted import loader_job


def finding(rule: str, severity: Severity = Severity.WARNING, **changes: object) -> Finding:
    values = {"summary": rule, "evidence": ("seen",), "cause": "c", "advice": "a"}
    return Finding(rule=rule, severity=severity, **{**values, **changes})  # type: ignore[arg-type]


def test_resolved_findings_are_not_on_the_overview() -> None:
    job = replace(loader_job(), findings=(finding("x", resolved_s=5.0),))

    assert findings.finding_lines(job, 9, 120) == []


def test_the_fix_is_shown_where_there_is_room() -> None:
    job = loader_job()

    assert [finding_line.is_advice for finding_line in findings.finding_lines(job, 2, 120)] == [
        False,
        False,
    ]
    assert [finding_line.is_advice for finding_line in findings.finding_lines(job, 3, 120)] == [
        False,
        True,
        False,
    ]


def test_a_summary_that_is_longer_than_a_line_goes_on_below_where_there_is_room() -> None:
    summary = "worker 0 (10814) has waited 29 s for a lock that was locked when it was forked"
    long = finding("x", Severity.CRITICAL, summary=summary)
    job = replace(loader_job(), findings=(long, finding("y")))

    lines = findings.finding_lines(job, 4, 80)

    view = SnapshotView(job)
    rows = [findings.finding_line_row(each, view) for each in lines]
    words = [" ".join(text_of(drawn(cell, 68)) for cell in row.cells) for row in rows]
    assert words == [
        "CRITICAL worker 0 (10814) has waited 29 s for a lock that was locked when it",
        " was forked",
        " fix  a",
        "warning y",
    ]
    assert len({row.key for row in rows}) == 4


def test_the_first_summary_is_readable_in_full_however_little_room_there_is() -> None:
    summary = "worker 0 (10814) has waited 29 s for a lock that was locked when it was forked"
    first, second = (finding(rule, Severity.INFO, summary=summary) for rule in "xy")
    job = replace(loader_job(), findings=(first, second))

    lines = findings.finding_lines(job, 2, 80)

    assert [each.text for each in lines] == [summary[:-11], "was forked", summary]
    assert findings.lines_of_first(lines) == 2
    endless = replace(first, summary=" ".join([summary] * 9))
    lines = findings.finding_lines(replace(job, findings=(endless,)), 2, 80)
    assert findings.lines_of_first(lines) == findings.FIRST_LINES
    assert " ".join(each.text for each in lines) == endless.summary


def test_the_fix_of_the_first_finding_is_there_whatever_its_severity_and_wraps() -> None:
    advice = "Empty the queue while tasks are submitted, or give it no limit at all, at the line"
    first = replace(finding("x"), advice=advice)
    job = replace(loader_job(), findings=(first, finding("y")))

    lines = findings.finding_lines(job, 6, 80)

    fixes = [each.text for each in lines if each.is_advice]
    assert " ".join(fixes) == advice
    assert max(map(len, fixes)) <= 80 - len("  CRITICAL fix  ")
    assert [each.finding.rule for each in lines] == ["x", "x", "x", "y"]


def test_the_fix_comes_before_long_evidence_on_the_page() -> None:
    long = replace(finding("x"), evidence=tuple(f"evidence {n}" for n in range(40)))
    view = SnapshotView(replace(loader_job(), findings=(long,)))

    page = [text_of(each) for each in findings.PAGE.details(long, view, 80)]
    whole = [text_of(each) for each in findings.in_full(long, view, 80)]

    assert page[2].split() == ["fix", "a"]
    assert sorted(page) == sorted(whole)
    assert whole[-1].split() == ["fix", "a"]


def test_without_a_hook_the_health_line_says_so() -> None:
    words = text_of(findings.health(SnapshotView(scripted.without_hook())))

    assert "no hook ready" in words
    assert len(words) <= 80
