"""Events of the job, newest first, one line each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType

from rich.cells import cell_len

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import LogEntry
from mpwatch.tui.elements.page import Page, SnapshotView
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Tone,
    cell,
    headed,
    line,
    name_cell,
)

COLUMNS = (
    ScreenColumn("TIME", 12, keep=8),
    ScreenColumn("KIND", 13, keep=7),
    ScreenColumn("PROCESS", 14, keep=6, most=22, spreads=32),
    ScreenColumn("WHAT HAPPENED", 36, keep=9, grows=True),
)
_TONES: Mapping[str, Tone] = MappingProxyType(
    {
        "started": "good",
        "ended": "warning",
        "exception": "critical",
        "finding": "warning",
        "hook": "accent",
    }
)


def items(view: SnapshotView) -> list[LogEntry]:
    """The log, newest first; sorted, since events of hooks arrive late."""
    log = view.snapshot.log
    if view.scope is not None:
        log = tuple(entry for entry in log if entry.process == view.scope)
    return sorted(log, key=lambda entry: (entry.at_s, entry.sequence), reverse=True)


def wall_time(wall_s: float) -> str:
    """Time of day with milliseconds, in the local time zone."""
    return time.strftime("%H:%M:%S", time.localtime(wall_s)) + f".{int(wall_s * 1000) % 1000:03}"


def _row(entry: LogEntry, view: SnapshotView) -> Row:
    return Row(
        entry.sequence,
        (
            cell(wall_time(entry.wall_s), "dim"),
            cell(entry.kind, _TONES.get(entry.kind, "")),
            name_cell(view.name(entry.process) if entry.process else "job", "title"),
            cell(entry.words),
        ),
    )


def above(view: SnapshotView, width: int) -> tuple[Line, ...]:
    """The number of dropped events, if any."""
    if not view.snapshot.log_dropped:
        return ()
    return (cell(f" {view.snapshot.log_dropped} older events are no longer kept", "dim"),)


def details(entry: LogEntry, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """Everything known about the event under the cursor."""
    name = view.full_name(entry.process) if entry.process else "job"
    lines = list(headed(f" {wall_time(entry.wall_s)} {name}  ", "title", entry.words, width))
    for name, value in entry.details.items():
        if value is None:
            continue
        texts = value if isinstance(value, (list, tuple)) else (value,)
        for number, text in enumerate(texts):
            head, words = f"   {name if number == 0 else '':<14} ", str(text)
            fits = cell_len(head) + cell_len(words) <= width
            # Indented text keeps its indent if it fits.
            lines += [line((head, "dim"), words)] if fits else headed(head, "dim", words, width)
    return tuple(lines)


def _empty(view: SnapshotView) -> tuple[str, ...]:
    of_it = "" if view.scope is None else " of this process"
    return (
        f"No events{of_it} since mpwatch was started.",
        "Process starts and exits, hooks and exceptions appear here; o shows what the job prints.",
    )


def _process(entry: LogEntry) -> ProcessId | None:
    return entry.process


PAGE: Page[LogEntry] = Page(
    name="events",
    title="Events",
    short="Event",
    columns=COLUMNS,
    items=items,
    key=lambda entry: entry.sequence,
    row=_row,
    text=lambda entry, view: f"{entry.kind} {view.full_name(entry.process)} {entry.words}",
    empty=_empty,
    above=above,
    details=details,
    details_share=0.3,
    process=_process,
    sorts={"KIND": lambda entry: entry.kind},
    goes_on=True,
    help=(
        "Events of the job since mpwatch was started, newest first; o shows what it prints.",
        "A cursor on the newest event moves on to each new one; on any other event it stays.",
        "Below: everything known about the event under the cursor, exceptions with their text.",
        "The list is bounded; the number of dropped events is shown on top.",
    ),
)
