"""An autopsy as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.collect.black_boxes import BlackBox
from mpwatch.hook import wire
from mpwatch.model.events import HookEvent
from mpwatch.model.units import bytes_text, count_text, seconds_text
from mpwatch.observe.note_words import note_words
from mpwatch.report.autopsy import Autopsy, Dead, ended
from mpwatch.report.json import utc_text
from mpwatch.report.sections import finding_lines, heading
from mpwatch.report.table import Paper

EVENTS_SHOWN = 8
NOTES_SHOWN = 6
_LOADER = (wire.LOADER_NEXT, wire.LOADER_PUT_INDEX, wire.LOADER_FETCH, wire.LOADER_FETCH_BEGIN)
COPIED = (
    "the records above are the last copy of a ring in memory; what the process did after the copy"
    " was made is not known"
)
_DULL_NOTES = ("birth", "call-site")


def autopsy_text(autopsies: Sequence[Autopsy], *, paper: Paper | None = None) -> str:
    """Every dead process: how it ended, what it had not finished, what it did last."""
    paper = paper or Paper()
    lines: list[str] = []
    for autopsy in autopsies:
        if len(autopsies) > 1 or autopsy.parent_words:
            count = len(autopsy.dead)
            what = f"{count} dead process{'es' if count != 1 else ''}"
            lines += heading(f"job of {autopsy.root.pid}", what, paper)[1:]
            if autopsy.parent_words:
                lines += paper.wrap(autopsy.parent_words, "  ", "  ")
            lines.append("")
        for dead in autopsy.dead:
            lines += [*_process(dead, autopsy, paper), ""]
        findings = [f for f in autopsy.snapshot.findings if f.resolved_s is None]
        if findings:
            lines += heading("what follows", "", paper)[1:]
            lines += finding_lines(findings, autopsy.snapshot, paper)
    return "\n".join(lines[:-1])


def _process(dead: Dead, autopsy: Autopsy, paper: Paper) -> list[str]:
    box = dead.box
    known = autopsy.snapshot.get(box.process)
    name = known.label if known else "process"
    parent = f" of {dead.parent.pid}" if dead.parent else ""
    moment = _utc(box, box.last_ns)
    title = paper.paint(f"{box.process.pid} {name}{parent}", "strong")
    lines = [f"{title}  last sign of life {moment}"]
    lines += _labelled("ended", ended(dead).words.removeprefix("unknown: "), paper)
    if dead.unfinished is not None:
        began = f"begun {_before(dead.unfinished, box.last_ns)} that"
        lines += _labelled("unfinished", f"{_call(dead.unfinished)}, {began}", paper)
    for number, event in enumerate(box.events[-EVENTS_SHOWN:]):
        words = f"{_before(event, box.last_ns):>14}  {_call(event)}"
        lines += _labelled("last" if number == 0 else "", words, paper)
    notes = [note for note in box.notes if note.kind not in _DULL_NOTES]
    for number, note in enumerate(notes[-NOTES_SHOWN:]):
        lines += _labelled("noted" if number == 0 else "", note_words(note.kind, note.data), paper)
    if box.copied_ns:
        lines += _labelled("copied", f"{_utc(box, box.copied_ns)}: {COPIED}", paper)
    if box.lost:
        lines += _labelled("older", f"{count_text(box.lost)} records were overwritten", paper)
    for problem in box.problems:
        lines += _labelled("unread", problem, paper)
    return lines


def _utc(box: BlackBox, at_ns: int) -> str:
    """A moment of the clock of a process, as `2026-01-31 12:00:00 UTC`."""
    return utc_text(box.wall_s(at_ns)).replace("T", " ").replace("+00:00", " UTC")


def _call(event: HookEvent) -> str:
    """`share, 16.0K, took 45 us`."""
    parts = [wire.KIND_NAMES.get(event.kind, f"kind {event.kind}")]
    if event.kind in _LOADER:
        parts.append(f"batch {event.aux}")
    if event.bytes:
        parts.append(bytes_text(event.bytes))
    if event.duration_ns and event.kind != wire.LOADER_FETCH_BEGIN:
        parts.append(f"took {seconds_text(event.duration_ns / 1e9)}")
    if event.flags & wire.FLAG_RAISED:
        parts.append("raised")
    return ", ".join(parts)


def _before(event: HookEvent, last_ns: int) -> str:
    return f"{seconds_text(max(0, last_ns - event.at_ns) / 1e9)} before"


def _labelled(label: str, text: str, paper: Paper) -> list[str]:
    return paper.wrap(text, f"  {label:<11} ", " " * 14)
