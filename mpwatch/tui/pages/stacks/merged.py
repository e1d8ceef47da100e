"""Stacks of all workers or ranks, grouped by equal stacks."""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.describe.processes import names_text
from mpwatch.diagnose.analysis.stack_merge import MergedStacks, StackGroup, merge
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.tui.elements.page import Page, SnapshotView, ago_text
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Span,
    cell,
    gauge,
    line,
    wrapped,
)
from mpwatch.tui.pages.stacks.threads import stack_lines

COLUMNS = (
    ScreenColumn("COUNT", 5, align="right", keep=9),
    ScreenColumn("", 14, keep=6),
    ScreenColumn("PROCESSES", 18, keep=8, most=30),
    ScreenColumn("DOING", 30, keep=9, grows=True),
)


OLD_S = 10.0
"""Stacks of this age may show what a process has left; they are then said to be old."""
_ROLES = ("loader-worker", "rank", "spawned", "pool-worker", "ray-worker")


def _merged(view: SnapshotView) -> MergedStacks:
    return view.once("merged stacks", lambda found: merge(_comparable(found)))


def _comparable(view: SnapshotView) -> Sequence[Process]:
    """Processes with comparable work: workers and ranks, or all if there are none."""
    living = view.snapshot.living()
    return [p for p in living if p.role in _ROLES] or living


def _items(view: SnapshotView) -> list[StackGroup]:
    return list(_merged(view).groups)


def _row(group: StackGroup, view: SnapshotView) -> Row:
    total = max(1, _merged(view).total)
    return Row(
        group.words,
        (
            cell(str(len(group.processes))),
            gauge(len(group.processes) / total, 14),
            cell(_names(group, view), "title"),
            cell(group.words, "warning" if group.is_outlier else ""),
        ),
        mark=Span("w", "warning") if group.is_outlier else Span(" "),
    )


def _names(group: StackGroup, view: SnapshotView) -> str:
    """`workers 0-2`, or names where numbers do not tell the processes from each other."""
    names = [view.name(process) for process in group.processes]
    are_labels = names == [view.by_id[process].label for process in group.processes]
    return group.called if group.noun and are_labels else names_text(names)


def _above(view: SnapshotView, width: int) -> tuple[Line, ...]:
    merged = _merged(view)
    if not merged.groups:
        return ()
    words = f"{merged.sentence}{_age(view)}"
    return tuple(line(" ", *content) for content in wrapped(words, max(20, width - 2)))


def _age(view: SnapshotView) -> str:
    """When the oldest stack was taken of a thread that has run since; empty if all are new."""
    oldest_s = 0.0
    for thread in filter(None, map(main_thread, _comparable(view))):
        age_s = view.age_s(thread.stack_at_s) if thread.stack else None
        if age_s is not None and (thread.still_s or 0.0) < age_s:
            oldest_s = max(oldest_s, age_s)
    return f"; the oldest stack was taken {ago_text(oldest_s)}" if oldest_s >= OLD_S else ""


def _details(group: StackGroup, view: SnapshotView, width: int) -> tuple[Line, ...]:
    head = line((f" one stack of {_names(group, view)}", "title"), f"  {group.words}")
    return (head, *stack_lines(group.frames, width))


def _process(group: StackGroup) -> ProcessId | None:
    return group.processes[0] if group.processes else None


PAGE: Page[StackGroup] = Page(
    name="merged",
    title="Merged stacks",
    short="Merged",
    columns=COLUMNS,
    items=_items,
    key=lambda group: group.words,
    row=_row,
    text=lambda group, view: f"{group.names} {group.words}",
    empty=lambda view: (
        "No stacks of this job have been taken yet.",
        "s takes one of every process, through the hook if it is ready, else with py-spy.",
    ),
    above=_above,
    details=_details,
    details_share=0.45,
    process=_process,
    help=(
        "Main threads grouped by equal stacks: the common stack and its exceptions.",
        "A w before a row: a small group that differs from the majority.",
        "s takes the stacks of every process again.",
    ),
)
