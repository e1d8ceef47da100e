"""Threads of the job and their stacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from mpwatch.describe.frames import frame_words, is_library, place_words
from mpwatch.describe.processes import state_word
from mpwatch.describe.waits import resource_words
from mpwatch.diagnose.analysis.stack_patterns import HOOK_THREAD, user_frame
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, WaitedOn
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.units import percent_text, seconds_text
from mpwatch.tui.elements.page import Page, SnapshotView, ago_text, state_tone
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Span,
    Tone,
    cell,
    headed,
    line,
    name_cell,
)

NO_LINES: Mapping[tuple[str, int], str] = MappingProxyType({})

COLUMNS = (
    ScreenColumn("PROCESS", 10, keep=9, most=18),
    ScreenColumn("TID", 7, align="right", keep=6),
    ScreenColumn("NAME", 16, keep=4, spreads=32),
    ScreenColumn("STATE", 8, keep=8),
    ScreenColumn("CPU", 4, align="right", keep=7, letter="C"),
    ScreenColumn("NO CPU", 6, align="right", keep=3),
    ScreenColumn("WAITS IN", 18, keep=5, most=26, spreads=48),
    ScreenColumn("STACK", 24, keep=9, grows=True),
)


class ThreadRow(NamedTuple):
    """A thread with the process it is in."""

    process: Process
    thread: Thread


def items(view: SnapshotView) -> list[ThreadRow]:
    """All threads of the living processes in scope, in the order of the tree."""
    return [ThreadRow(p, t) for p in view.current for t in p.threads]


def wait_words(waited: WaitedOn | None) -> str:
    """The wait of a blocked thread: `pipe-read pipe 18174`, `futex 0x7f12`."""
    if waited is None:
        return ""
    kind = waited.kind if waited.kind != "unknown" else waited.call
    targets = [resource_words(target) for target in waited.targets[:2]]
    if targets and targets[0].startswith(f"{kind} "):
        return ", ".join(targets)
    return f"{kind} {', '.join(targets)}".rstrip()


def _row(item: ThreadRow, view: SnapshotView) -> Row:
    process, thread = item
    state = "ended" if process.is_gone else state_word(thread.state)
    return Row(
        (process.process, thread.tid),
        (
            name_cell(view.name(process.process), "title" if thread.tid == process.pid else ""),
            cell(str(thread.tid), "dim"),
            cell(thread.name),
            cell(state, state_tone(state)),
            cell(percent_text(thread.cpu_percent)),
            cell(_still_words(thread.still_s), _still_tone(thread.still_s)),
            cell(
                "-" if process.is_gone else wait_words(thread.waits_on) or thread.wchan or "-",
                "dim",
            ),
            _innermost(thread, any(t.stack for t in process.threads)),
        ),
        mark=Span("G", "good") if thread.has_gil else Span(" "),
    )


def _still_words(still_s: float | None) -> str:
    """Time without cpu use; empty below one or two sample intervals, which mean nothing."""
    return "" if still_s is not None and still_s < 2 else seconds_text(still_s)


def _still_tone(still_s: float | None) -> Tone:
    return "warning" if still_s is not None and still_s >= 30 else ""


def _innermost(thread: Thread, others_have: bool) -> Line:
    """The innermost frame of the program's own code, then the innermost frame of all."""
    if not thread.stack:
        if thread.name == HOOK_THREAD:
            return cell("of the hook", "dim")
        return cell("no Python frames" if others_have else "not taken", "dim")
    own = user_frame(thread.stack)
    top = thread.stack[0]
    if own is None or not is_library(top):
        return cell(frame_words(top))
    return line(frame_words(own), (f" -> {top.function}", "dim"))


def stack_head(thread: Thread, at_s: float, cost_s: float | None = None) -> Line:
    """The source of a stack, its age, and the cost of taking it if known.

    A hook answers within microseconds on its own thread; py-spy pauses the process.
    """
    if not thread.stack:
        return cell(" no stack taken yet; s takes one of every process", "dim")
    age = None if thread.stack_at_s is None else max(0.0, at_s - thread.stack_at_s)
    gil = ", holds the GIL" if thread.has_gil else ""
    cost = f", took {seconds_text(cost_s)} of cpu" if cost_s is not None else ""
    source = (
        "the hook" if thread.stack_source == "hook" else thread.stack_source or "an unknown method"
    )
    return line(
        (f" stack of {thread.name} {thread.tid}", "title"),
        (f"  by {source}{cost}, {ago_text(age)}{gil}", "dim"),
    )


_ADDRESS = re.compile(r"^<[^<>]* at 0x[0-9a-f]+>$")
PLACE_LIMIT = 46
"""Cells for the path and line of a frame."""


def shortened_path(path: str, width: int) -> str:
    """The last folders of a path that fit: `…/demo/programs/straggler_worker.py:21`."""
    while cell_len(path) > width and "/" in path[2:]:
        path = f"…/{path[2:].partition('/')[2]}"
    return path if cell_len(path) <= width else f"…{path[-width + 1 :]}"


def stack_lines(
    frames: Sequence[Frame], width: int, source: Mapping[tuple[str, int], str] = NO_LINES
) -> tuple[Line, ...]:
    """A stack, innermost first, as columns: function, place, source line; locals below.

    Args:
        frames: The stack.
        width: Cells.
        source: Statements by file and line.
    """
    name_width = min(28, max((len(f.function) for f in frames), default=0)) + 2
    places = [shortened_path(place_words(frame.file, frame.line), PLACE_LIMIT) for frame in frames]
    place_width = max(map(cell_len, places), default=0) + 2
    lines: list[Line] = []
    for depth, (frame, place) in enumerate(zip(frames, places, strict=True)):
        text = source.get((frame.file, frame.line), "")
        head = frame.function[: name_width - 1].ljust(name_width)
        lines.append(
            line(
                "   ",
                (head, "title" if depth == 0 else ""),
                (set_cell_size(place, place_width), "accent"),
                (text, "dim"),
            )
        )
        lines += [line("       ", (name, "dim"), f" = {value}") for name, value in frame.locals]
    return tuple(lines)


def details(item: ThreadRow, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """The stack of the thread under the cursor."""
    head = stack_head(item.thread, view.snapshot.at_s, item.process.stacks_cost_s)
    source = {(read.file, read.line): read.statement.text for read in view.snapshot.source}
    stack, at_s = item.thread.stack, item.thread.stack_at_s
    kept = view.variables.get((item.process.process, item.thread.tid))
    # Variables of other calls would be wrong here: only those of an equal stack are shown.
    if kept is not None and _calls_of(kept.stack) == _calls_of(stack):
        stack, at_s = kept.stack, kept.at_s
    if any(frame.locals for frame in stack):
        age_s = None if at_s is None else max(0.0, view.snapshot.at_s - at_s)
        head = (*head, Span(f"; variables {ago_text(age_s)}", "dim"))
    shown = item.thread.shown_stack if stack is item.thread.stack else stack
    return (head, *_unread_lines(stack, width), *stack_lines(shown, width, source))


def _calls_of(stack: Sequence[Frame]) -> list[tuple[str, str, int]]:
    return [(frame.file, frame.function, frame.line) for frame in stack]


def _unread_lines(stack: Sequence[Frame], width: int) -> tuple[Line, ...]:
    """That some values are only addresses: py-spy runs no code in the process."""
    count = sum(bool(_ADDRESS.search(value)) for frame in stack for _, value in frame.locals)
    if not count:
        return ()
    words = (
        f"of {count} of these variables py-spy reads type and address alone; shapes of tensors and "
        "contents of cells and other objects are not read"
    )
    return headed("   ", "", words, width)


def _empty(view: SnapshotView) -> tuple[str, ...]:
    if not view.snapshot.living():
        return ("No threads: every process of this job has ended.",)
    reasons = [r for p in view.processes for r in p.problems if "thread" in r or "task" in r]
    return (
        "No threads could be read.",
        reasons[0] if reasons else "They appear with the next sample of /proc/PID/task.",
    )


def _text(item: ThreadRow, view: SnapshotView) -> str:
    process, thread = item
    state = state_word(thread.state)
    stack = " ".join(frame_words(frame) for frame in thread.stack)
    waits = wait_words(thread.waits_on)
    name = view.name(process.process)
    return f"{name} {process.pid} {thread.tid} {thread.name} {state} {waits} {stack}"


def _process(item: ThreadRow) -> ProcessId:
    return item.process.process


PAGE: Page[ThreadRow] = Page(
    name="threads",
    title="Threads",
    short="Thr",
    columns=COLUMNS,
    items=items,
    key=lambda item: (item.process.process, item.thread.tid),
    row=_row,
    text=_text,
    empty=_empty,
    details=details,
    details_share=0.4,
    process=_process,
    sorts={
        "CPU": lambda item: item.thread.cpu_percent,
        "NO CPU": lambda item: item.thread.still_s,
        "NAME": lambda item: item.thread.name,
        "STATE": lambda item: item.thread.state,
    },
    help=(
        "Every thread of every process, with the innermost frame of its Python stack.",
        "NO CPU  how long it was seen to use no cpu; WAITS IN  the target of its system call.",
        "A G before a row: that thread holds the GIL.",
        "Below: the whole stack of the thread under the cursor, its source and its age.",
        "s takes stacks of everything now; f follows the process under the cursor twice a second.",
    ),
)
