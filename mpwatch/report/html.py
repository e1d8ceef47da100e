"""A report as one HTML file, which loads nothing: it can be mailed and opened offline.

All text of the job is escaped, and a content policy forbids scripts and requests, so that a hostile
process name is only shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from mpwatch import __version__
from mpwatch.describe.account import NO_ACCOUNT, account_rows, certainty_words
from mpwatch.describe.findings import (
    FORECAST,
    labelled_fields,
    no_findings_lines,
    problems_of,
    severity_word,
    subject_of,
)
from mpwatch.describe.processes import full_name_of, part_words, program_of, unique_names
from mpwatch.describe.progress import (
    KIND_NAMES,
    pace_name,
    pace_words,
    progress_of,
    progress_sentence,
)
from mpwatch.describe.waits import is_passing
from mpwatch.model.findings import Finding
from mpwatch.model.history import Point
from mpwatch.model.snapshot import LogEntry, Snapshot
from mpwatch.model.units import bytes_text, count_text, seconds_text
from mpwatch.observe.recording.timeline import Course
from mpwatch.report.json import utc_text
from mpwatch.report.table import TextStyle
from mpwatch.report.text import (
    account_title,
    flow_rows,
    host_lines,
    process_rows,
    segment_rows,
    stack_lines,
    versions,
)

EVENTS_SHOWN = 500
CURVES_SHOWN = 24
"""Of the processes; those with the largest relative change are shown."""
SOURCES_SHOWN = 16
"""Processes whose progress is shown one by one."""
CURVE_WIDTH, CURVE_HEIGHT = 300, 70
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_WIDE = TextStyle(width=110)


def report_html(snapshot: Snapshot, course: Course | None = None) -> str:
    """The whole job as one page.

    Args:
        snapshot: The state of the job, of a recording the last one.
        course: The series over a whole recording; without one there are no curves.
    """
    title = f"mpwatch: {program_of(snapshot)} {snapshot.root.pid}"
    body = (
        *_head(snapshot, title),
        *_findings(snapshot),
        *_account(snapshot),
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
    return page(title, body)


def page(title: str, body: Iterable[str]) -> str:
    """A whole page of parts that are HTML already."""
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
        facts.append(f"recorded for {seconds_text(snapshot.playback.length_s)}")
    facts += versions(snapshot)
    yield f"<h1>{escape(title)}</h1>"
    yield '<p class="facts">' + "".join(f"<span>{escape(fact)}</span>" for fact in facts) + "</p>"
    if words := part_words(snapshot):
        yield f"<p>{escape(words)}</p>"
    if root is not None and root.sample.cmdline:
        yield f"<pre>{escape(' '.join(root.sample.cmdline))}</pre>"


def _findings(snapshot: Snapshot) -> Iterator[str]:
    yield "<h2>Findings</h2>"
    if not snapshot.findings:
        yield from (f"<p>{escape(each)}</p>" for each in no_findings_lines(snapshot))
    for finding in snapshot.findings:
        yield _finding(finding, snapshot)


def _finding(finding: Finding, snapshot: Snapshot) -> str:
    rows = [(FORECAST, seconds_text(finding.eta_s))] if finding.eta_s is not None else []
    rows += labelled_fields(finding)
    fields = "".join(f"<dt>{label}</dt><dd>{escape(text)}</dd>" for label, text in rows)
    kind = " resolved" if finding.resolved_s is not None else ""
    note = ' <span class="note">resolved</span>' if finding.resolved_s is not None else ""
    return (
        f'<article class="{finding.severity.word}{kind}">'
        f'<h3><span class="word">{severity_word(finding.severity)}</span> '
        f"{escape(finding.summary)}{note}</h3>"
        f'<p class="note"><code>{escape(finding.rule)}</code>'
        f" {escape(subject_of(finding, snapshot))}</p>"
        f"<dl>{fields}</dl></article>"
    )


def _account(snapshot: Snapshot) -> Iterator[str]:
    """What each process did with its time."""
    title = account_title(snapshot)
    yield f"<h2>{title[0].upper()}{title[1:]}</h2>"
    rows = account_rows(snapshot)
    if not rows:
        yield f"<p>{NO_ACCOUNT}</p>"
        return
    yield f'<p class="note">{escape(certainty_words(snapshot))}</p>'
    titles = ("Process", "~Last minute", "~The whole time")
    yield from table(titles, ((False, (row.name, row.recent, row.whole)) for row in rows))
    yield from _progress(snapshot)


def _progress(snapshot: Snapshot) -> Iterator[str]:
    """The rates of the job and of each process, and those of the last minutes as lines."""
    names = unique_names(snapshot)
    totals = progress_of(snapshot)
    if not totals:
        yield f"<p>{escape(progress_sentence(snapshot, names))}</p>"
        return
    rows = []
    for total in totals:
        rows.append((False, (pace_name(total, names, snapshot.root), pace_words(total))))
        if 1 < len(total.processes) <= SOURCES_SHOWN:
            for process in total.processes:
                (own,) = (p for p in progress_of(snapshot, process) if p.kind == total.kind)
                name = names.get(process, str(process.pid))
                rows.append((False, (f"\u2003{name}", pace_words(own))))
    yield from table(("Progress", "~Rate"), rows)
    for total in totals:
        points = [Point(-ago_s, rate) for ago_s, rate in total.recent]
        if len(points) > 1:
            title = f"{KIND_NAMES[total.kind]} a second"
            yield _curve(title, points, lambda per_s: f"{per_s:.3g}")


def _processes(snapshot: Snapshot) -> Iterator[str]:
    titles = (
        *("Process", "State", "#CPU", "#Private", "#Shm", "#FDs", "#Maps", "#Thr", "Hook"),
        "~Doing",
    )
    yield "<h2>Processes</h2>"
    rows = zip(process_rows(snapshot, indent="\u2003"), snapshot.processes, strict=True)
    yield from table(titles, ((p.is_gone, (*row, p.doing)) for row, p in rows))


def _curves(snapshot: Snapshot, course: Course) -> Iterator[str]:
    """The series with the largest relative change, each over the whole recording."""
    curves = [(name, curve.points, name) for name, curve in course.host.items()]
    moved = sorted(course.processes.items(), key=lambda item: -_movement(item[1].points))
    for (process, name), curve in moved[:CURVES_SHOWN]:
        what = name.removesuffix("_bytes").replace("_", " ")
        curves.append((f"{full_name_of(process, snapshot)}: {what}", curve.points, name))
    shown = [
        _curve(title, points, bytes_text if "bytes" in name else count_text)
        for title, points, name in curves
        if len(points) > 1
    ]
    if shown:
        yield "<h2>Over time</h2>"
        yield "".join(shown)


def _curve(title: str, points: Sequence[Point], text: Callable[[float], str]) -> str:
    """One series as a line, with its range as caption."""
    low, high = min(p.value for p in points), max(p.value for p in points)
    first_s, last_s = points[0].at_s, points[-1].at_s
    wide, tall = max(last_s - first_s, 1e-9), max(high - low, 1e-9)
    line = " ".join(
        f"{(p.at_s - first_s) / wide * CURVE_WIDTH:.1f},"
        f"{CURVE_HEIGHT - 2 - (p.value - low) / tall * (CURVE_HEIGHT - 4):.1f}"
        for p in points
    )
    words = f"{title}, {text(low)} to {text(high)} in {seconds_text(last_s - first_s)}"
    return (
        f'<figure><svg viewBox="0 0 {CURVE_WIDTH} {CURVE_HEIGHT}" width="{CURVE_WIDTH}"'
        f' height="{CURVE_HEIGHT}" role="img" aria-label="{escape(words)}">'
        f'<polyline points="{line}"/></svg><figcaption>{escape(words)}</figcaption></figure>'
    )


def _movement(points: Sequence[Point]) -> float:
    """The range of a series relative to its largest absolute value."""
    values = [point.value for point in points]
    return (max(values) - min(values)) / max(map(abs, values)) if any(values) else 0.0


def _host(snapshot: Snapshot) -> Iterator[str]:
    yield "<h2>Host</h2>"
    yield f"<pre>{escape(chr(10).join(host_lines(snapshot.host, _WIDE)))}</pre>"


def _waits(snapshot: Snapshot) -> Iterator[str]:
    chains = [each for each in snapshot.waits.chains if not is_passing(each, snapshot)]
    if not chains:
        return
    yield "<h2>Waits</h2>"
    rows = (
        (False, (chain.verdict.replace("-", " "), chain.sentence, chain.conclusion))
        for chain in chains
    )
    yield from table(("Verdict", "~Chain", "~Conclusion"), rows)


def _segments(snapshot: Snapshot) -> Iterator[str]:
    if not snapshot.segments:
        return
    count = count_text(len(snapshot.segments))
    yield f"<h2>Shared memory</h2><p class='note'>{count} segments</p>"
    titles = ("Made by", "Kind", "#Count", "#Size", "#Used", "#Oldest", "~Mapped by")
    yield from table(titles, ((False, row) for row in segment_rows(snapshot)))


def _flows(snapshot: Snapshot) -> Iterator[str]:
    if not snapshot.flows:
        return
    yield "<h2>Flows</h2><p class='note'>tensors from process to process</p>"
    titles = ("Sender", "Receiver", "#Tensors", "#Bytes", "#Copied", "#p50", "#p99")
    yield from table(titles, ((False, row) for row in flow_rows(snapshot)))


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
    yield from table(("Time", "Kind", "~What"), rows)


def _problems(snapshot: Snapshot) -> Iterator[str]:
    problems = problems_of(snapshot)
    if problems:
        items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
        yield f"<h2>Could not be read</h2><ul>{items}</ul>"


def table(titles: Sequence[str], rows: Iterable[tuple[bool, Sequence[str]]]) -> Iterator[str]:
    """A table of rows (whether the process has ended, cells).

    A title starts with # for numbers, with ~ for long text.
    """
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
article.info { border-left-color: var(--info); } article.resolved { opacity: .7; }
article h3 { margin: 0 0 .3rem; font-size: 1rem; overflow-wrap: anywhere; }
.critical .word { color: var(--critical); } .warning .word { color: var(--warning); }
.info .word { color: var(--info); } .word { font-weight: 700; }
dl { display: grid; grid-template-columns: 6rem 1fr; gap: .2rem .8rem; margin: 0; }
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
