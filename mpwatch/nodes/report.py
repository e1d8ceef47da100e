"""A job on several machines as JSON, text, a page of HTML, and metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import msgspec

from mpwatch import __version__
from mpwatch.describe.findings import CAUSE, EVIDENCE, FIX, FORECAST, severity_word
from mpwatch.describe.processes import names_text
from mpwatch.describe.progress import MENTIONED_S
from mpwatch.model.findings import JobFinding, Severity
from mpwatch.model.samples import Frame
from mpwatch.model.units import numbers_text, seconds_text
from mpwatch.nodes.across.judge import STANDSTILLS, job_findings
from mpwatch.nodes.across.ranks import PlacedRank
from mpwatch.nodes.agent.documents import EMPTY_DUMP, Document
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.summary import FindingRow
from mpwatch.report.html import page, table
from mpwatch.report.json import SCHEMA, utc_text
from mpwatch.report.prometheus import Metric
from mpwatch.report.table import TextStyle
from mpwatch.report.text import frame_lines, heading

SERIES_LIMIT = 20_000
"""Most series of one node that are served."""
_NAME = re.compile(r"mpwatch_[a-z_]{1,80}")
_LABEL = re.compile(r"[a-z_]{1,40}")


def job_json(
    views: Sequence[NodeView],
    documents: Mapping[str, Document],
    findings: Sequence[JobFinding],
    *,
    wall_s: float,
    problems: Mapping[str, str],
    empty: Document = EMPTY_DUMP,
    at_s: float = 0.0,
) -> Document:
    """A job, schema 1.

    Args:
        views: All nodes.
        documents: What each node has answered, by name.
        findings: Of the job as a whole.
        wall_s: The time of the document, seconds since 1970.
        problems: Why nodes have not answered, by name.
        empty: The document of a node that has not answered.
        at_s: Of a recording: the time of the document, seconds since it began.
    """
    return {
        "schema": SCHEMA,
        "at": utc_text(wall_s),
        "nodes": [
            node_json(view, {**empty, **documents.get(view.name, {})}, problems.get(view.name, ""))
            for view in views
        ],
        "findings": [job_finding_json(each, at_s) for each in findings],
    }


def node_json(view: NodeView, document: Document, problem: str = "") -> Document:
    """One node; what it has not answered is empty.

    `last_seen_s` is seconds before the time of the document. `clock_offset_s` is the clock of the
    node minus the clock here, known to `clock_error_s`, which grows until it is estimated again;
    `clock_problem` says why it is unknown. `unread` is a sentence about what the agent may not read
    of the job, with what is missing and what mends it.
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
        "clock_problem": view.clock_problem or None,
    }
    return own | {key: value for key, value in document.items() if key not in own}


def job_finding_json(finding: JobFinding, at_s: float = 0.0) -> Document:
    """A finding of the job: the keys of a finding, and the node and rank that it is about.

    `resolved_s` is seconds before the time of the document. Only recordings have such findings.

    Args:
        finding: The finding.
        at_s: The time of the document, seconds since the recording began.
    """
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
        "resolved": finding.resolved_s is not None,
        "resolved_s": None if finding.resolved_s is None else _rounded(at_s - finding.resolved_s),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


RESOLVED_SHOWN = 20
NO_FINDINGS = "No findings about the job as a whole."


def job_text(
    views: Sequence[NodeView],
    findings: Sequence[JobFinding],
    *,
    style: TextStyle,
    without: str = NO_FINDINGS,
) -> str:
    """A job as text: its own findings, then a line for each node with those of the node.

    Args:
        views: All nodes.
        findings: Those of the job as a whole.
        style: Width and colours.
        without: What is said where there are none.
    """
    lines: list[str] = []
    resolved = [each for each in findings if each.resolved_s is not None]
    present = [each for each in findings if each.resolved_s is None]
    for finding in present:
        lines += _finding_lines(finding, style)
    if not present:
        lines += [*style.wrap(without, "", "    "), ""]
    if resolved:
        lines += heading("resolved", "findings that no longer hold", style)[1:]
        for finding in resolved[:RESOLVED_SHOWN]:
            lines += style.wrap(_resolved_words(finding), "  ", "      ")
        if len(resolved) > RESOLVED_SHOWN:
            lines.append(f"  and {len(resolved) - RESOLVED_SHOWN} more")
        lines.append("")
    for view in views:
        lines += _node_lines(view, present, style)
    return "\n".join(lines).rstrip()


def _resolved_words(finding: JobFinding) -> str:
    """A finding that no longer holds, in one line."""
    until = seconds_text(finding.resolved_s or 0.0)
    return f"{finding.severity.word}  {finding.rule}  {finding.summary} (last seen at {until})"


def _finding_lines(finding: JobFinding, style: TextStyle) -> Iterator[str]:
    yield from style.wrap(f"{finding.severity.word.upper()} {finding.summary}", "", "    ")
    fields = [*(("evidence", each) for each in finding.evidence)]
    fields += [("cause", finding.cause), ("fix", finding.advice)]
    for label, words in fields:
        yield from style.wrap(words, f"    {label:<9}", " " * 13)
    yield f"    {'rule':<9}{finding.rule}"
    yield ""


def own_findings(view: NodeView, findings: Sequence[JobFinding]) -> Iterator[FindingRow]:
    """The findings of a node, without those about its ranks that one of the job repeats.

    A node sees some of the ranks that wait, the job all of them. Where the node has several jobs, a
    finding about the ranks of another one stays.
    """
    if view.summary is None:
        return
    job_of = {row.pid: row.job for row in view.summary.ranks}
    repeated: dict[str, set[str | None]] = {}
    for each in findings:
        if each.node == view.name and each.rule in STANDSTILLS:
            job = job_of.get(each.pid) if each.pid is not None else None
            repeated.setdefault(each.rule, set()).add(job)
    for row in view.summary.findings:
        jobs = repeated.get(row.rule, set())
        own = job_of.get(row.pid) if row.pid is not None else None
        if not jobs or (None not in jobs and own is not None and own not in jobs):
            yield row


def _node_lines(view: NodeView, findings: Sequence[JobFinding], style: TextStyle) -> Iterator[str]:
    """One line about the node, then its ranks and its findings."""
    words = [view.name, view.state]
    if view.state != "live" and view.last_seen_s is not None:
        words.append(f"last seen {seconds_text(view.last_seen_s)} ago")
    if view.problem:
        words.append(view.problem)
    if view.summary is None:
        yield from style.wrap("  ".join(words), "", "    ")
        return
    node = view.summary.node
    words += [node_words(view), clock_words(view)]
    yield from style.wrap("  ".join(words), "", "    ")
    if node.unread:
        yield from style.wrap(node.unread, "    ", "      ")
    for stacks in node.stacks:
        yield from style.wrap(stacks, "    ", "      ")
    for row in view.summary.ranks:
        name = row.label if row.rank is None else f"rank {row.rank}"
        since_s = PlacedRank(view, row).quiet_s
        since = f", no progress for {seconds_text(since_s)}" if since_s >= MENTIONED_S else ""
        state = f"ended: {row.ended}" if row.is_ended else f"{row.state}: {row.doing}"
        yield from style.wrap(f"{name} ({row.pid})  {state}{since}", "    ", "      ")
    for each in own_findings(view, findings):
        label = f"{each.label}: " if each.label else ""
        yield from style.wrap(f"{each.severity}  {label}{finding_words(each)}", "    ", "      ")


class _DumpedFrame(msgspec.Struct):
    function: str
    file: str
    line: int
    locals: dict[str, str] = {}


class _DumpedThread(msgspec.Struct):
    name: str
    stack: list[_DumpedFrame]


class _DumpedProcess(msgspec.Struct):
    pid: int
    label: str
    threads: list[_DumpedThread]


class _Dump(msgspec.Struct):
    processes: list[_DumpedProcess]


def job_stack_lines(documents: Mapping[str, Document], style: TextStyle) -> list[str]:
    """Every distinct stack of all nodes once, below the threads that have it; common ones first.

    Args:
        documents: The dump of each node by its name, not trusted: one of other types is left out.
        style: Width and colours.
    """
    same: dict[tuple[tuple[str, str, int], ...], tuple[list[str], list[_DumpedFrame]]] = {}
    for node, document in documents.items():
        try:
            dump = msgspec.convert(document, _Dump)
        except msgspec.ValidationError:
            continue
        for process in dump.processes:
            for thread in process.threads:
                key = tuple((each.function, each.file, each.line) for each in thread.stack)
                name = f"{process.label} ({process.pid}) on {node} {thread.name}".rstrip()
                if key:
                    same.setdefault(key, ([], thread.stack))[0].append(name)
    lines: list[str] = []
    for names, frames in sorted(same.values(), key=lambda pair: -len(pair[0])):
        count = f"{len(names)} threads: " if len(names) > 1 else ""
        lines += style.wrap(f"{count}{names_text(names)}", "", "    ")
        for each in frames:
            variables = tuple(each.locals.items())
            lines += frame_lines(Frame(each.function, each.file, each.line, variables), style)
        lines.append("")
    return lines[:-1]


def clock_words(view: NodeView) -> str:
    """The clock of a node minus the clock here, with its error; why it is unknown."""
    if view.clock_offset_s is None:
        return f"clock unknown: {view.clock_problem}"
    error = "" if view.clock_error_s is None else f" (± {view.clock_error_s:.3f})"
    return f"clock {view.clock_offset_s:+.3f} s{error}"


def node_words(view: NodeView) -> str:
    """What a node runs, in a few words: `18 processes (ranks 0, 3)`."""
    summary = view.summary
    if summary is None:
        return ""
    if summary.node.state == "starting":
        return "reading its processes"
    if not summary.node.processes and not summary.ranks:
        return "no torch process of the job"
    numbers = [row.rank for row in summary.ranks if row.rank is not None and not row.is_ended]
    count = summary.node.processes
    ranks = f" (rank{'s' if len(numbers) > 1 else ''} {numbers_text(numbers)})"
    return f"{count} process{'es' if count != 1 else ''}{ranks if numbers else ''}"


def finding_words(finding: FindingRow) -> str:
    """What a node has found, and in which time a limit is reached."""
    if finding.eta_s is None:
        return finding.summary
    return f"{finding.summary}, {FORECAST} {seconds_text(finding.eta_s)}"


# --- HTML ----------------------------------------------------------------------------------------


def job_html(
    spec: str,
    facts: Sequence[str],
    views: Sequence[NodeView],
    findings: Sequence[JobFinding],
    problems: Sequence[str] = (),
) -> str:
    """A job as one page of HTML that loads nothing; all of its text is escaped.

    Args:
        spec: The name of the job.
        facts: When and where it was recorded.
        views: All nodes.
        findings: Of the job as a whole.
        problems: What could not be read.
    """
    title = f"mpwatch: {spec}"
    shown = "".join(f"<span>{escape(fact)}</span>" for fact in facts)
    body = [f"<h1>{escape(title)}</h1>", f'<p class="facts">{shown}</p>', "<h2>Findings</h2>"]
    present = [each for each in findings if each.resolved_s is None]
    body += map(_finding_html, present)
    if not present:
        body.append(f"<p>{NO_FINDINGS}</p>")
    resolved = [each for each in findings if each.resolved_s is not None]
    if resolved:
        body.append("<h2>Findings that no longer hold</h2>")
        body += map(_finding_html, resolved[:RESOLVED_SHOWN])
        if len(resolved) > RESOLVED_SHOWN:
            body.append(f"<p>and {len(resolved) - RESOLVED_SHOWN} more</p>")
    body.append("<h2>Nodes</h2>")
    body += table(("Node", "State", "#Last heard of", "~What it runs"), map(_node_cells, views))
    body.append("<h2>Ranks</h2>")
    ranks = [PlacedRank(view, row) for view in views if view.summary for row in view.summary.ranks]
    body += table(("Rank", "Node", "#Pid", "State", "#Still", "~Doing"), map(_rank_cells, ranks))
    of_nodes = [
        (False, (view.name, each.label, each.severity, finding_words(each)))
        for view in views
        for each in own_findings(view, present)
    ]
    if of_nodes:
        body.append("<h2>Findings of the nodes</h2>")
        body += table(("Node", "Process", "Severity", "~Finding"), of_nodes)
    if problems:
        items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
        body.append(f"<h2>Could not be read</h2><ul>{items}</ul>")
    body.append(f'<p class="note">Written by mpwatch {escape(__version__)}.</p>')
    return page(title, body)


def _finding_html(finding: JobFinding) -> str:
    rows = [*((EVIDENCE, each) for each in finding.evidence)]
    rows += [(CAUSE, finding.cause), (FIX, finding.advice)]
    fields = "".join(f"<dt>{label}</dt><dd>{escape(text)}</dd>" for label, text in rows)
    kind, note = finding.severity.word, ""
    if finding.resolved_s is not None:
        kind = f"{kind} resolved"
        note = f' <span class="note">last seen at {seconds_text(finding.resolved_s)}</span>'
    return (
        f'<article class="{kind}"><h3><span class="word">'
        f"{severity_word(finding.severity)}</span> {escape(finding.summary)}{note}</h3>"
        f'<p class="note"><code>{escape(finding.rule)}</code></p><dl>{fields}</dl></article>'
    )


def _node_cells(view: NodeView) -> tuple[bool, Sequence[str]]:
    seen = "-" if view.last_seen_s is None else f"{seconds_text(view.last_seen_s)} ago"
    if view.state == "live":
        seen = "now"
    unread = view.summary.node.unread if view.summary is not None else ""
    words = ". ".join(filter(None, (view.problem.rstrip("."), node_words(view), unread)))
    return view.state != "live", (view.name, view.state, seen, words)


def _rank_cells(rank: PlacedRank) -> tuple[bool, Sequence[str]]:
    row = rank.row
    still = seconds_text(rank.quiet_s) if rank.quiet_s >= MENTIONED_S else "-"
    doing = row.ended if row.is_ended else row.doing
    return row.is_ended, (rank.name, rank.view.name, str(row.pid), row.state, still, doing)


def job_metrics(views: Sequence[NodeView], documents: Mapping[str, dict[str, Any]]) -> list[Metric]:
    """The metrics of all nodes, each with a label `node`.

    Args:
        views: All nodes.
        documents: What each node has answered, by name; it is not trusted.
    """
    found = list(_own_metrics(views))
    merged: dict[str, Metric] = {}
    for name, document in documents.items():
        for metric in _series_of(document):
            samples = tuple(((("node", name), *labels), value) for labels, value in metric.samples)
            known = merged.get(metric.name, metric)
            before = known.samples if metric.name in merged else ()
            merged[metric.name] = Metric(metric.name, known.help, (*before, *samples), known.kind)
    return [*found, *merged.values()]


class _Sent(msgspec.Struct):
    """The answer of a node."""

    metrics: list[Metric]


def _series_of(document: dict[str, Any]) -> Iterator[Metric]:
    """The metrics of a node; none if the answer is not understood."""
    try:
        metrics = msgspec.convert(document, _Sent).metrics
    except msgspec.ValidationError:
        return
    series = 0
    for metric in metrics:
        series += len(metric.samples)
        labels = {name for labels, _ in metric.samples for name, _ in labels}
        is_plain = _NAME.fullmatch(metric.name) and all(map(_LABEL.fullmatch, labels))
        if is_plain and "node" not in labels and series <= SERIES_LIMIT:
            yield metric


def _own_metrics(views: Sequence[NodeView]) -> Iterator[Metric]:
    """What only the head knows."""
    yield Metric(
        "mpwatch_node_up",
        "1 if the node answers, else 0.",
        tuple(((("node", view.name),), float(view.state == "live")) for view in views),
    )
    yield Metric(
        "mpwatch_node_last_seen_seconds",
        "Seconds since something was received from the node.",
        tuple(((("node", view.name),), view.last_seen_s) for view in views),
    )
    found = job_findings(views)
    yield Metric(
        "mpwatch_job_findings",
        "Findings about the job as a whole.",
        tuple(
            ((("severity", each.word),), float(sum(f.severity is each for f in found)))
            for each in Severity
        ),
    )
