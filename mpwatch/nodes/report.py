"""A job on several machines as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mpwatch.model.units import seconds_text
from mpwatch.nodes.across import JobFinding, PlacedRank, numbers_text
from mpwatch.nodes.documents import EMPTY_DUMP, Document
from mpwatch.nodes.head import NodeView
from mpwatch.report.json import SCHEMA, utc_text
from mpwatch.report.table import TextStyle

MOVED_S = 3.0
"""Shorter times without progress are not mentioned."""


def job_json(
    views: Sequence[NodeView],
    documents: Mapping[str, Document],
    findings: Sequence[JobFinding],
    *,
    wall_s: float,
    problems: Mapping[str, str],
    empty: Document = EMPTY_DUMP,
) -> Document:
    """A job, schema 1.

    Args:
        views: All nodes.
        documents: What each node has answered, by name.
        findings: Of the job as a whole.
        wall_s: The time of the document, seconds since 1970.
        problems: Why nodes have not answered, by name.
        empty: The document of a node that has not answered.
    """
    return {
        "schema": SCHEMA,
        "at": utc_text(wall_s),
        "nodes": [
            node_json(view, {**empty, **documents.get(view.name, {})}, problems.get(view.name, ""))
            for view in views
        ],
        "findings": [job_finding_json(each) for each in findings],
    }


def node_json(view: NodeView, document: Document, problem: str = "") -> Document:
    """One node; what it has not answered is empty.

    `last_seen_s` is seconds before the time of the document. `clock_offset_s` is the clock of the
    node minus the clock here, known to `clock_error_s`.
    """
    own: Document = {
        "name": view.name,
        "state": view.state,
        "last_seen_s": _rounded(view.last_seen_s),
        "host": document["host"],
        "processes": document["processes"],
        "findings": document["findings"],
        "problem": view.problem or problem or None,
        "hostname": view.host or None,
        "version": view.version or None,
        "clock_offset_s": _rounded(view.clock_offset_s),
        "clock_error_s": _rounded(view.clock_error_s),
    }
    return own | {key: value for key, value in document.items() if key not in own}


def job_finding_json(finding: JobFinding) -> Document:
    """A finding of the job: the keys of a finding, and the node and rank that it is about."""
    return {
        "rule": finding.rule,
        "severity": finding.severity.word,
        "pid": finding.pid,
        "tid": None,
        "summary": finding.summary,
        "evidence": list(finding.evidence),
        "cause": finding.cause,
        "advice": finding.advice,
        "eta_s": None,
        "node": finding.node,
        "rank": finding.rank,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def job_text(views: Sequence[NodeView], findings: Sequence[JobFinding], *, style: TextStyle) -> str:
    """A job as text: its own findings, then a line for each node with those of the node."""
    lines: list[str] = []
    for finding in findings:
        lines += _finding_lines(finding, style)
    if not findings:
        lines += ["No findings about the job as a whole.", ""]
    for view in views:
        lines += _node_lines(view, style)
    return "\n".join(lines).rstrip()


def _finding_lines(finding: JobFinding, style: TextStyle) -> Iterator[str]:
    yield from style.wrap(f"{finding.severity.word.upper()} {finding.summary}", "", "    ")
    fields = [*(("evidence", each) for each in finding.evidence)]
    fields += [("cause", finding.cause), ("fix", finding.advice)]
    for label, words in fields:
        yield from style.wrap(words, f"    {label:<9}", " " * 13)
    yield f"    {'rule':<9}{finding.rule}"
    yield ""


def _node_lines(view: NodeView, style: TextStyle) -> Iterator[str]:
    """One line about the node, then its ranks and its findings."""
    words = [view.name, view.state]
    if view.state != "live" and view.last_seen_s is not None:
        words.append(f"last heard of {seconds_text(view.last_seen_s)} ago")
    if view.problem:
        words.append(view.problem)
    if view.summary is None:
        yield from style.wrap("  ".join(words), "", "    ")
        return
    node = view.summary.node
    words += [node_words(view)]
    yield from style.wrap("  ".join(words), "", "    ")
    for stacks in node.stacks:
        yield from style.wrap(stacks, "    ", "      ")
    for row in view.summary.ranks:
        name = row.label if row.rank is None else f"rank {row.rank}"
        since_s = PlacedRank(view, row).quiet_s
        since = f", no progress for {seconds_text(since_s)}" if since_s >= MOVED_S else ""
        state = f"ended: {row.ended}" if row.is_ended else f"{row.state}: {row.doing}"
        yield from style.wrap(f"{name} ({row.pid})  {state}{since}", "    ", "      ")
    for each in view.summary.findings:
        label = f"{each.label}: " if each.label else ""
        yield from style.wrap(f"{each.severity}  {label}{each.summary}", "    ", "      ")


def node_words(view: NodeView) -> str:
    """What a node runs, in a few words: `2 ranks, 16 workers`."""
    summary = view.summary
    if summary is None:
        return ""
    if summary.node.state == "starting":
        return "reading its processes"
    if not summary.node.processes and not summary.ranks:
        return "no torch process of the job"
    numbers = [row.rank for row in summary.ranks if row.rank is not None and not row.is_ended]
    words = [f"rank{'s' if len(numbers) > 1 else ''} {numbers_text(numbers)}"] if numbers else []
    count = summary.node.processes
    words.append(f"{count} process{'es' if count != 1 else ''}")
    return ", ".join(words)
