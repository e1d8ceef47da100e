"""A report as one HTML file: it can be mailed, opened offline, and loads nothing from anywhere.

All text of the job is escaped, and a content policy forbids scripts and requests, so that a hostile
process name stays a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from mpwatch import __version__
from mpwatch.describe.states import STATE_WORDS
from mpwatch.model.findings import Finding
from mpwatch.model.history import Point
from mpwatch.model.snapshot import LogEntry, Process, Segment, Snapshot
from mpwatch.model.units import DASH, bytes_text, count_text, percent_text, seconds_text
from mpwatch.observe.recording.summary import Course
from mpwatch.report.json import utc_text
from mpwatch.report.stack_summary import stack_lines
from mpwatch.report.table import Paper
from mpwatch.report.text import doing_words, host_lines, name_of, program_of, segment_rows

EVENTS_SHOWN = 500
CURVES_SHOWN = 24
"""Curves of processes; those that moved most are shown."""
CURVE_WIDTH, CURVE_HEIGHT = 300, 70
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_WIDE = Paper(width=110)


def report_html(snapshot: Snapshot, course: Course | None = None) -> str:
    """The whole job in one page.

    Args:
        snapshot: Its last state, or its state now.
        course: How numbers moved, if it comes from a recording.
    """
    title = f"mpwatch: {program_of(snapshot)} {snapshot.root.pid}"
    body = (
        *_head(snapshot, title),
        *_findings(snapshot),
        *_processes(snapshot),
        *(_curves(snapshot, course) if course is not None else ()),
        *_host(snapshot),
        *_waits(snapshot),
        *_segments(snapshot),
        *_flows(snapshot),
        *_stacks(snapshot),
        *_events(snapshot),
        *_problems(snapshot),
        f'<p class="note">Written by mpwatch {escape(__version__)}.</p>',
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _head(snapshot: Snapshot, title: str) -> Iterator[str]:
    root = snapshot.get(snapshot.root)
    facts = [utc_text(snapshot.wall_s)[:19].replace("T", " ") + " UTC", snapshot.host.hostname]
    if snapshot.playback is not None:
        facts.append(f"watched for {seconds_text(snapshot.playback.length_s)}")
    if root is not None:
        python, torch = root.hook.python or root.sample.python_version, root.hook.torch
        facts += [f"python {python}"] if python else []
        facts += [f"torch {torch}"] if torch else []
        facts += [each for each in (root.start_method, root.sharing_strategy) if each]
    yield f"<h1>{escape(title)}</h1>"
    yield '<p class="facts">' + "".join(f"<span>{escape(fact)}</span>" for fact in facts) + "</p>"
    if root is not None and root.sample.cmdline:
        yield f"<pre>{escape(' '.join(root.sample.cmdline))}</pre>"


def _findings(snapshot: Snapshot) -> Iterator[str]:
    yield "<h2>Findings</h2>"
    if not snapshot.findings:
        yield "<p>Nothing was found that is known to be wrong.</p>"
    for finding in snapshot.findings:
        yield _finding(finding, snapshot)


def _finding(finding: Finding, snapshot: Snapshot) -> str:
    where = name_of(finding.process, snapshot) if finding.process else "the whole job"
    rows = [("seen", evidence) for evidence in finding.evidence]
    rows += [("follows", f"from {finding.effect_of}")] if finding.effect_of else []
    rows += [("left", seconds_text(finding.eta_s))] if finding.eta_s is not None else []
    rows += [("why", finding.cause), ("do", finding.advice)]
    facts = "".join(f"<dt>{label}</dt><dd>{escape(text)}</dd>" for label, text in rows if text)
    passed = " passed" if finding.resolved_s is not None else ""
    note = ' <span class="note">no longer holds</span>' if passed else ""
    return (
        f'<article class="{finding.severity.word}{passed}">'
        f'<h3><span class="word">{finding.severity.word}</span> {escape(finding.summary)}{note}'
        f'</h3><p class="note"><code>{escape(finding.rule)}</code> {escape(where)}</p>'
        f"<dl>{facts}</dl></article>"
    )


def _processes(snapshot: Snapshot) -> Iterator[str]:
    titles = ("Process", "State", "#CPU %", "#Private", "#Shared", "#Files", "#Maps", "Hook")
    yield "<h2>Processes</h2>"
    rows = (
        (process.is_gone, (*_process_cells(process), doing_words(process)))
        for process in snapshot.processes
    )
    yield from _table((*titles, "~Doing"), rows)


def _process_cells(process: Process) -> tuple[str, ...]:
    sample = process.sample
    fds, maps = sample.fds, sample.maps
    limit = f" of {count_text(fds.soft_limit)}" if fds and fds.soft_limit is not None else ""
    return (
        "\u2003" * process.depth + f"{process.pid} {process.label}",
        "ended" if process.is_gone else STATE_WORDS.get(sample.state, sample.state),
        percent_text(process.cpu_percent),
        bytes_text(process.private_bytes),
        bytes_text(process.shm_bytes),
        count_text(fds.used) + limit if fds else DASH,
        count_text(maps.used) if maps else DASH,
        process.hook.state,
    )


def _curves(snapshot: Snapshot, course: Course) -> Iterator[str]:
    """The numbers that moved most, each over the whole recording."""
    curves = [(f"{name}", curve.points, name) for name, curve in course.host.items()]
    moved = sorted(course.processes.items(), key=lambda item: -_movement(item[1].points))
    for (process, name), curve in moved[:CURVES_SHOWN]:
        what = name.removesuffix("_bytes").replace("_", " ")
        curves.append((f"{name_of(process, snapshot)}: {what}", curve.points, name))
    shown = [_curve(*each) for each in curves if len(each[1]) > 1]
    if shown:
        yield "<h2>Over time</h2>"
        yield "".join(shown)


def _curve(title: str, points: Sequence[Point], name: str) -> str:
    """One line from left to right, its range written below."""
    low, high = min(p.value for p in points), max(p.value for p in points)
    began_s, ended_s = points[0].at_s, points[-1].at_s
    wide, tall = max(ended_s - began_s, 1e-9), max(high - low, 1e-9)
    line = " ".join(
        f"{(p.at_s - began_s) / wide * CURVE_WIDTH:.1f},"
        f"{CURVE_HEIGHT - 2 - (p.value - low) / tall * (CURVE_HEIGHT - 4):.1f}"
        for p in points
    )
    text = bytes_text if "bytes" in name else count_text
    words = f"{title}, {text(low)} to {text(high)} in {seconds_text(ended_s - began_s)}"
    return (
        f'<figure><svg viewBox="0 0 {CURVE_WIDTH} {CURVE_HEIGHT}" width="{CURVE_WIDTH}"'
        f' height="{CURVE_HEIGHT}" role="img" aria-label="{escape(words)}">'
        f'<polyline points="{line}"/></svg><figcaption>{escape(words)}</figcaption></figure>'
    )


def _movement(points: Sequence[Point]) -> float:
    """How far a number went, as a share of its size."""
    values = [point.value for point in points]
    return (max(values) - min(values)) / max(map(abs, values)) if any(values) else 0.0


def _host(snapshot: Snapshot) -> Iterator[str]:
    yield "<h2>Host</h2>"
    yield f"<pre>{escape(chr(10).join(host_lines(snapshot.host, _WIDE)))}</pre>"


def _waits(snapshot: Snapshot) -> Iterator[str]:
    chains = snapshot.waits.chains
    if not chains:
        return
    yield "<h2>Who waits for whom</h2>"
    rows = (
        (False, (chain.verdict.replace("-", " "), chain.sentence, chain.conclusion))
        for chain in chains
    )
    yield from _table(("Verdict", "~Chain", "~Conclusion"), rows)


def _segments(snapshot: Snapshot) -> Iterator[str]:
    segments: Sequence[Segment] = snapshot.segments
    if not segments:
        return
    yield f"<h2>Shared memory</h2><p class='note'>{count_text(len(segments))} segments</p>"
    titles = ("Made by", "Kind", "#Count", "#Size", "#Used", "#Oldest", "~Mapped by")
    yield from _table(titles, ((False, tuple(row)) for row in segment_rows(snapshot)))


def _flows(snapshot: Snapshot) -> Iterator[str]:
    if not snapshot.flows:
        return
    yield "<h2>Tensors from process to process</h2>"
    rows = (
        (
            False,
            (
                name_of(flow.sender, snapshot),
                name_of(flow.receiver, snapshot),
                count_text(flow.tensors),
                bytes_text(flow.bytes),
                bytes_text(flow.copied_bytes),
                seconds_text(flow.latency_p50_s),
                seconds_text(flow.latency_p99_s),
            ),
        )
        for flow in snapshot.flows
    )
    yield from _table(("From", "To", "#Tensors", "#Bytes", "#Copied", "#p50", "#p99"), rows)


def _stacks(snapshot: Snapshot) -> Iterator[str]:
    lines = stack_lines(snapshot, _WIDE)
    if lines:
        yield f"<h2>Stacks</h2><pre>{escape(chr(10).join(lines))}</pre>"


def _events(snapshot: Snapshot) -> Iterator[str]:
    entries: Sequence[LogEntry] = snapshot.log[-EVENTS_SHOWN:]
    if not entries:
        return
    yield "<h2>Events</h2>"
    rows = ((False, (utc_text(e.wall_s)[11:23], e.kind, e.words)) for e in entries)
    yield from _table(("Time", "Kind", "~What"), rows)


def _problems(snapshot: Snapshot) -> Iterator[str]:
    problems = dict.fromkeys((*snapshot.problems, *snapshot.host.problems))
    if problems:
        items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
        yield f"<h2>What could not be read</h2><ul>{items}</ul>"


def _table(titles: Sequence[str], rows: Iterable[tuple[bool, Sequence[str]]]) -> Iterator[str]:
    """A table; a title begins with # for numbers, with ~ for long text."""
    classes = [{"#": "number", "~": "long"}.get(title[0], "") for title in titles]
    head = "".join(
        f'<th class="{kind}">{escape(title.lstrip("#~"))}</th>'
        for kind, title in zip(classes, titles, strict=True)
    )
    yield f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>'
    for is_gone, cells in rows:
        inside = "".join(
            f'<td class="{kind}">{escape(cell)}</td>'
            for kind, cell in zip(classes, cells, strict=True)
        )
        yield f'<tr class="gone">{inside}</tr>' if is_gone else f"<tr>{inside}</tr>"
    yield "</tbody></table></div>"


STYLE = """
:root { --ink: #1c2330; --faint: #667085; --line: #d9dee7; --paper: #ffffff; --shade: #f5f7fa;
  --critical: #b42318; --warning: #93590a; --info: #175cd3; --curve: #175cd3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --faint: #98a2b3; --line: #344054;
  --paper: #11151c; --shade: #1a202a; --critical: #ff8a80; --warning: #fdb022; --info: #84adff;
  --curve: #84adff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.facts, .note { color: var(--faint); } .facts span { margin-right: 1.2rem; }
article { border: 1px solid var(--line); border-left-width: 5px; border-radius: 6px;
  padding: .8rem 1rem; margin: .6rem 0; }
article.critical { border-left-color: var(--critical); }
article.warning { border-left-color: var(--warning); }
article.info { border-left-color: var(--info); } article.passed { opacity: .7; }
article h3 { margin: 0 0 .3rem; font-size: 1rem; overflow-wrap: anywhere; }
.critical .word { color: var(--critical); } .warning .word { color: var(--warning); }
.info .word { color: var(--info); } .word { text-transform: uppercase; font-weight: 700; }
dl { display: grid; grid-template-columns: 5rem 1fr; gap: .2rem .8rem; margin: 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; } th { color: var(--faint); font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 16rem; }
tr.gone td { color: var(--faint); } pre, code { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--shade); padding: .7rem 1rem; border-radius: 6px; overflow-x: auto; }
svg { display: block; } svg polyline { fill: none; stroke: var(--curve); stroke-width: 1.5; }
figure { display: inline-block; margin: 0 1.2rem 1rem 0; vertical-align: top; }
figcaption { color: var(--faint); font-size: .85rem; max-width: 300px; }
"""
