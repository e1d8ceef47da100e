"""The account of time: what each process did in the last minute, and each of its threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from mpwatch.describe.account import (
    activity_words,
    certainty_words,
    others_words,
    parts_of,
    sentence,
    share_text,
    span_words,
)
from mpwatch.describe.progress import (
    KIND_NAMES,
    pace_name,
    pace_words,
    progress_of,
    progress_sentence,
    resampled,
)
from mpwatch.model.account import (
    RUNNING_KINDS,
    ActivityKind,
    ProcessAccount,
    Share,
    Tally,
    ThreadAccount,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import Pace
from mpwatch.model.snapshot import Process
from mpwatch.tui.elements.page import MARKS, Page, SnapshotView
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Span,
    cell,
    headed,
    line,
    trend,
    wrapped,
)

PACES_SHOWN = 3
"""Kinds of progress above the table."""
LEAST_BLOCKS = 6
COLUMNS = (
    ScreenColumn("PROCESS", 12, keep=9, most=18),
    ScreenColumn("CPU", 5, align="right", keep=8, letter="C"),
    ScreenColumn("WAITS", 5, align="right", keep=8, letter="W"),
    ScreenColumn("IDLE", 5, align="right", keep=7, letter="I"),
    ScreenColumn("OTHER", 5, align="right", keep=6, letter="O"),
    ScreenColumn("LAST MINUTE", 24, keep=9, grows=True),
)
_WAITS: frozenset[ActivityKind] = frozenset(("waiting",))
_IDLE: frozenset[ActivityKind] = frozenset(("idle",))
_KINDS = RUNNING_KINDS | _WAITS | _IDLE


class TimeRow(NamedTuple):
    """A process by its main thread, or one of its other threads."""

    process: Process
    account: ProcessAccount
    number: int
    """Of the thread, 0 is the main one."""
    is_unfolded: bool = False

    @property
    def thread(self) -> ThreadAccount:
        """The account of the thread."""
        return self.account.thread(self.number)

    @property
    def key(self) -> tuple[ProcessId, int]:
        """The identity of the row."""
        return self.account.process, self.account.uncounted[self.number].tid


def items(view: SnapshotView, unfolded: Collection[ProcessId] = ()) -> list[TimeRow]:
    """The processes in scope in the order of the tree, with the threads of those unfolded."""
    rows: list[TimeRow] = []
    accounts = view.snapshot.account.processes
    for process in view.current:
        account = accounts.get(process.process)
        if account is None or not account.uncounted:
            continue
        is_unfolded = process.process in unfolded
        rows.append(TimeRow(process, account, 0, is_unfolded))
        if is_unfolded:
            rows += [TimeRow(process, account, n) for n in range(1, len(account.uncounted))]
    return rows


def page(unfolded: Collection[ProcessId] = frozenset()) -> Page[TimeRow]:
    """The page with the threads of some processes shown."""
    return replace(PAGE, items=lambda view: items(view, unfolded))


def _share(tally: Tally, kinds: Collection[ActivityKind]) -> float:
    return sum(each.share for each in tally.shares() if each.activity.kind in kinds)


def _other(shares: tuple[Share, ...]) -> float:
    return sum(each.share for each in shares if each.activity.kind not in _KINDS)


def _row(item: TimeRow, view: SnapshotView) -> Row:
    tally = item.thread.last_minute()
    shares = tally.shares()
    computes, waits, idle = (_share(tally, kinds) for kinds in (RUNNING_KINDS, _WAITS, _IDLE))
    words = sentence(shares, view.names)
    if item.number == 0 and not item.is_unfolded and (others := others_words(item.account)):
        words = f"{words}; {others}"
    severity = view.severity(item.process.process) if item.number == 0 else None
    return Row(
        item.key,
        (
            _name(item, view),
            cell(share_text(computes), "good" if computes >= 0.5 else ""),
            cell(share_text(waits), "warning" if waits >= 0.5 else ""),
            cell(share_text(idle), "dim" if idle >= 0.5 else ""),
            cell(share_text(_other(shares))),
            cell(words),
        ),
        mark=MARKS[severity] if severity else Span(" "),
    )


def _name(item: TimeRow, view: SnapshotView) -> Line:
    if item.number:
        return line(("  └ ", "dim"), (f"{item.thread.name} {item.thread.tid}", ""))
    more = len(item.account.uncounted) - 1
    fold = "- " if item.is_unfolded else "+ " if more else "  "
    return line((fold, "dim"), (view.name(item.process.process), "title"))


def _above(view: SnapshotView, width: int) -> tuple[Line, ...]:
    room = max(20, width - 2)
    words = certainty_words(view.snapshot)
    lines = [line(" ", *content) for content in wrapped(words, room, "dim")]
    found = progress_of(view.snapshot, view.scope)[:PACES_SHOWN]
    if not found and view.snapshot.account.processes:
        words = progress_sentence(view.snapshot, view.names)
        lines += [line(" ", *content) for content in wrapped(words, room, "dim")]
    return (*lines, *_pace_lines(found, view, width))


def _pace_lines(found: Sequence[Pace], view: SnapshotView, width: int) -> list[Line]:
    """A line for each kind of progress: its name, the last minutes as blocks, and the rates."""
    root = view.snapshot.root
    names = [pace_name(pace, view.names, root) for pace in found]
    words = [pace_words(pace) for pace in found]
    room = width - 6 - max(map(len, words), default=0)
    if max(map(cell_len, names), default=0) + LEAST_BLOCKS > room:
        names = [KIND_NAMES[pace.kind] for pace in found]
    longest = max(map(cell_len, names), default=0)
    blocks = room - longest
    known = max((len(pace.recent) for pace in found), default=0)
    blocks = min(blocks, known) if blocks >= LEAST_BLOCKS else 0
    lines = []
    for pace, name, text in zip(found, names, words, strict=True):
        rates = resampled([rate for _, rate in pace.recent], blocks)
        lines.append(
            line(
                (f" {set_cell_size(name, longest)}  ", "title"),
                (f"{trend(rates, blocks)}  " if blocks else "", "trend"),
                text,
            )
        )
    return lines


def _details(item: TimeRow, view: SnapshotView, width: int) -> tuple[Line, ...]:
    thread = item.thread
    minute, whole = thread.last_minute(), thread.whole()
    name = view.full_name(item.process.process)
    head = f" {name}, thread {thread.tid} {thread.name}, {span_words(minute)}"
    now = activity_words(thread.now, view.names)
    place = f" at {thread.now.place}" if thread.now.place else ""
    lines = [cell(head, "title"), cell(f" now {now}{place}", "dim")]
    lines += _parts(minute, view.names, width)
    if item.number == 0:
        lines += _own_progress(item.process.process, view, width)
    if whole.observed_s > minute.observed_s + 1:
        lines.append(cell(f" the whole time, {span_words(whole)}", "title"))
        lines += _parts(whole, view.names, width)
    if item.number == 0 and item.account.omitted:
        lines.append(cell(f" {item.account.omitted} more threads are not accounted for", "dim"))
    return tuple(lines)


def _own_progress(process: ProcessId, view: SnapshotView, width: int) -> list[Line]:
    """What one process of several has done; nothing where the lines above the table show it."""
    others = {source.kind for source in view.snapshot.progress if source.process != process}
    found = [each for each in progress_of(view.snapshot, process) if each.kind in others]
    return [cell(" progress", "title"), *_pace_lines(found, view, width)] if found else []


def _parts(tally: Tally, names: Mapping[ProcessId, str], width: int) -> list[Line]:
    lines: list[Line] = []
    for part in parts_of(tally.shares()):
        lines += headed(f" {share_text(part.share):>5} ", "accent", part.words(names), width)
    return lines


def _empty(view: SnapshotView) -> tuple[str, ...]:
    if not view.snapshot.account.processes:
        return (
            "No account of time yet.",
            "It begins with the first reading of the threads of a process.",
        )
    if not view.current:
        return ("No account of time: this process is not observed.",)
    return (
        "No account of time: the threads of no process here could be read.",
        "The reasons are in the problems of each process.",
    )


PAGE: Page[TimeRow] = Page(
    name="time",
    title="Time",
    short="Time",
    columns=COLUMNS,
    items=items,
    key=lambda item: item.key,
    row=_row,
    text=lambda item, view: (
        f"{view.full_name(item.process.process)} {item.thread.name} "
        f"{sentence(item.thread.last_minute().shares(), view.names)}"
    ),
    empty=_empty,
    above=_above,
    details=_details,
    details_share=0.4,
    process=lambda item: item.process.process,
    sorts={
        "CPU": lambda item: _share(item.thread.last_minute(), RUNNING_KINDS),
        "WAITS": lambda item: _share(item.thread.last_minute(), _WAITS),
        "IDLE": lambda item: _share(item.thread.last_minute(), _IDLE),
        "OTHER": lambda item: _other(item.thread.last_minute().shares()),
    },
    help=(
        "What each process did in the last minute, as shares of that time, by its main thread.",
        "Right shows the other threads of the process, left hides them.",
        "CPU     computes: cpu time, from the kernel's counters; the place is from stacks",
        "WAITS   for a named thing: a batch, a lock, a queue, a pipe, a socket, a file, a child",
        "IDLE    waits by design: a worker without work, a helper process without requests",
        "OTHER   sleeps, is stopped, or what it does could not be read",
        "Waits are sampled, once in each reading: the line on top says how exact that is.",
        "Above the table is the progress that hooks count: batches of DataLoader workers, finished"
        " collectives, calls of queues, received tensors; the blocks are the last five minutes.",
    ),
)
