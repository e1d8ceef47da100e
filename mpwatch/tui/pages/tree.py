"""The process tree of the overview: state, activity and resource use of each process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from msgspec import Struct

from mpwatch.collect.hook.discovery import NO_HOOK
from mpwatch.describe.processes import can_have_hook
from mpwatch.model.findings import Severity
from mpwatch.model.ids import HookState, ProcessId
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.units import bytes_text, percent_text
from mpwatch.tui.elements.header import ending_tone, ending_words, share_tone, start_methods
from mpwatch.tui.elements.page import MARKS, Order, Page, SnapshotView, ago_text, state_tone
from mpwatch.tui.elements.styled_text import (
    NOTHING,
    Cell,
    Line,
    Numbered,
    Row,
    ScreenColumn,
    Span,
    Tone,
    Trend,
    cell,
    line,
)
from mpwatch.tui.pages.stacks.threads import stack_head, stack_lines

TREND_WIDTH = 14
COLUMNS = (
    ScreenColumn("PROCESS", 20, keep=10, most=27),
    ScreenColumn("STATE", 8, keep=9),
    ScreenColumn("CPU", 4, align="right", keep=8, letter="C"),
    ScreenColumn("", 4, align="right", keep=6, spreads=TREND_WIDTH),
    ScreenColumn("PRIVATE", 7, align="right", keep=8, letter="P"),
    ScreenColumn("SHM", 5, align="right", keep=3, letter="S"),
    ScreenColumn("FDS", 9, align="right", keep=8, letter="F"),
    ScreenColumn("", 4, align="right", keep=4, spreads=TREND_WIDTH),
    ScreenColumn("MAPS", 8, align="right", keep=2, letter="M"),
    ScreenColumn("THR", 3, align="right", keep=1, letter="T"),
    ScreenColumn("HOOK", 7, keep=5),
    ScreenColumn("DOING", 20, keep=9, grows=True),
)
HOOK_TONES: Mapping[HookState, Tone] = MappingProxyType(
    {
        "absent": "dim",
        "pending": "warning",
        "ready": "good",
        "silent": "critical",
        "gone": "dim",
    }
)


class TreeRow(Struct, frozen=True):
    """A process at its place in the tree."""

    process: Process
    depth: int
    children: int
    """Number of descendants, at any depth."""
    is_folded: bool = False


def page(folded: frozenset[ProcessId] = frozenset(), hide_ended: bool = False) -> Page[TreeRow]:
    """The tree page with the given branches folded."""

    def items(view: SnapshotView) -> list[TreeRow]:
        return nodes(view, Order(), folded, hide_ended)

    def arrange(view: SnapshotView, order: Order) -> list[TreeRow]:
        return nodes(view, order, folded, hide_ended)

    return replace(PAGE, items=items, arrange=arrange)


def nodes(
    view: SnapshotView,
    order: Order,
    folded: frozenset[ProcessId] = frozenset(),
    hide_ended: bool = False,
) -> list[TreeRow]:
    """The tree, parents before children; siblings as ordered, else those with findings first."""
    found: list[TreeRow] = []
    measure = SORTS.get(order.column or "")

    def arranged(siblings: Sequence[Process], depth: int) -> list[tuple[Process, int]]:
        """Siblings in reverse order, since `waiting` is a stack."""
        order_of_all = _arranged(siblings, view, measure, order.is_reversed)
        return [(process, depth) for process in reversed(order_of_all)]

    # A recursive inner function would be a reference cycle, which keeps this snapshot alive until
    # the next garbage collection.
    waiting = arranged(view.children.get(None, []), 0)
    while waiting:
        process, depth = waiting.pop()
        if hide_ended and process.is_gone and process.process != view.snapshot.root:
            continue
        below = view.children.get(process.process, [])
        is_folded = process.process in folded and bool(below)
        count = _count(view, process.process) if below else 0
        found.append(TreeRow(process, depth, count, is_folded))
        if below and not is_folded:
            waiting += arranged(below, depth + 1)
    return found


def _arranged(
    siblings: Sequence[Process],
    view: SnapshotView,
    measure: Callable[[Process], float | None] | None,
    is_reversed: bool,
) -> list[Process]:
    if len(siblings) == 1:
        return list(siblings)
    if measure is None:
        found = sorted(siblings, key=lambda process: _trouble(process, view))
        return found[::-1] if is_reversed else found
    known = [(value, p) for p in siblings if (value := measure(p)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=not is_reversed)
    return [p for _, p in known] + [p for p in siblings if measure(p) is None]


def _trouble(process: Process, view: SnapshotView) -> tuple[int, int]:
    """Sort key, smallest first: worst finding, then running processes, then ended ones."""
    severity = view.severity(process.process)
    return (-int(severity) if severity else 0, 1 if process.is_gone else 0)


def _count(view: SnapshotView, process: ProcessId) -> int:
    below = view.children.get(process, [])
    return len(below) + sum(_count(view, child.process) for child in below)


def _row(node: TreeRow, view: SnapshotView) -> Row:
    """The row of a process; of what the previous view has shown, only what has changed is made.

    Of a process that does nothing, these are its trends, which take a fifth of a row.
    """
    process = node.process
    state, severity = view.state(process), view.severity(process.process)
    basis = _basis(node, state, severity)
    known = view.rows.get(process.process) or view.rows_before.get(process.process)
    if known is None or known[1] != basis:
        known = process, basis, new_row(node, state, severity)
    elif known[0] is not process:  # of one that has exited it is the same object
        known = process, basis, _with_trends(known[2], process)
    view.rows[process.process] = known
    return known[2]


def _basis(node: TreeRow, state: str, severity: Severity | None) -> tuple[object, ...]:
    """All that the row of a process shows, but for its trends."""
    process = node.process
    fds, maps = process.sample.fds, process.sample.maps
    return (
        *(node.depth, node.children, node.is_folded, severity, state, process.label),
        *(process.ended, process.cpu_percent, process.private_bytes, process.shm_bytes),
        (fds.used, fds.soft_limit) if fds is not None else None,
        (maps.used, maps.limit) if maps is not None else None,
        *(_thread_count(process), process.hook.state, can_have_hook(process), process.doing),
    )


def new_row(node: TreeRow, state: str, severity: Severity | None) -> Row:
    """Build the row of a process, of what `_basis` has and its trends."""
    process = node.process
    cpu_trend, fds_trend = _trends(process)
    return Row(
        process.process,
        (
            _name_cell(node),
            cell(state, state_tone(state)),
            cell(percent_text(None if process.is_gone else process.cpu_percent)),
            cpu_trend,
            cell(bytes_text(process.private_bytes)),
            cell(bytes_text(process.shm_bytes)),
            fds_cell(process),
            fds_trend,
            _maps(process),
            cell(short_count(_thread_count(process))),
            hook_cell(process),
            _doing(process),
        ),
        tone="dim" if process.is_gone else "",
        mark=MARKS[severity] if severity else Span(" "),
    )


def _trends(process: Process) -> tuple[Trend, Trend]:
    """The trends beside the cpu use and the number of descriptors."""
    trends = process.trends
    return Trend(trends.cpu_percent, top=100.0), Trend(trends.fds, least_span=16)


def _with_trends(row: Row, process: Process) -> Row:
    """A row with the present trends, its other cells as they are."""
    trends = iter(_trends(process))
    cells = tuple([next(trends) if isinstance(each, Trend) else each for each in row.cells])
    return Row(row.key, cells, row.tone, row.mark)


def _name_cell(node: TreeRow) -> Cell:
    fold = "> " if node.is_folded else "v " if node.children else "  "
    label = node.process.label
    indent = "  " * min(node.depth, 6)
    more = f" +{node.children}" if node.is_folded else ""
    before = line((indent + fold, "dim"), f"{node.process.pid} ")
    if label.rpartition(" ")[2].isdecimal():
        return Numbered(before, label, cell(more, "dim") if more else NOTHING, "title")
    return (*before, *line((label, "title"), (more, "dim")))


def _doing(process: Process) -> Line:
    if process.is_gone:
        return cell(ending_words(process), ending_tone(process))
    return cell(process.doing or "-")


def fds_cell(process: Process) -> Line:
    """Descriptors against their soft limit: `642/1024`."""
    fds = process.sample.fds
    if fds is None:
        return cell("-")
    share = fds.used / fds.soft_limit if fds.soft_limit else None
    return cell(f"{short_count(fds.used)}/{short_count(fds.soft_limit)}", share_tone(share))


def _maps(process: Process) -> Line:
    maps = process.sample.maps
    # An exiting process has no mappings left; zero is not its former value.
    if maps is None or not maps.used:
        return cell("-")
    share = maps.used / maps.limit if maps.limit else None
    return cell(f"{short_count(maps.used)}/{short_count(maps.limit)}", share_tone(share))


def hook_cell(process: Process) -> Line:
    """The state of the hook; a dash for a process that cannot have one."""
    if process.hook.state == "absent" and (process.is_gone or not can_have_hook(process)):
        return cell("-", "dim")
    if process.is_gone:
        return cell("gone", "dim")
    return cell(process.hook.state, HOOK_TONES[process.hook.state])


def short_count(count: float | None) -> str:
    """A count in at most four characters: `842`, `9999`, `12k`, `1.2M`."""
    if count is None:
        return "-"
    for limit, factor, letter in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if count < limit:
            value = count / factor
            return (
                f"{value:.1f}{letter}" if letter == "M" and value < 9.95 else f"{value:.0f}{letter}"
            )
    return f"{count:.0e}"


def _thread_count(process: Process) -> int | None:
    if process.sample.thread_count is not None:
        return process.sample.thread_count
    return len(process.threads) or None


def _fds_used(process: Process) -> float | None:
    fds = process.sample.fds
    return None if fds is None else float(fds.used)


def _maps_used(process: Process) -> float | None:
    return None if process.sample.maps is None else float(process.sample.maps.used)


SORTS: Mapping[str, Callable[[Process], float | None]] = MappingProxyType(
    {
        "CPU": lambda p: None if p.is_gone else p.cpu_percent,
        "PRIVATE": lambda p: p.private_bytes,
        "SHM": lambda p: p.shm_bytes,
        "FDS": _fds_used,
        "MAPS": _maps_used,
        "THR": _thread_count,
    }
)


def explained(node: TreeRow, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """Lines about the process under the cursor, two that say most, and its main thread's stack."""
    process = node.process
    words = f" {process.label} ({process.pid})"
    if process.ended is not None:
        ago = ago_text(view.age_s(process.ended.at_s))
        first = line(
            (words, "title"), " ended: ", (process.ended.words, ending_tone(process)), f", {ago}"
        )
        return (first, line("  ", (command(process), "dim")))
    facts = [view.state(process)]
    if process.hook.state != "absent" or can_have_hook(process):
        hook = process.hook
        # That there is none is no reason for its absence.
        reason = f" ({hook.reason})" if hook.reason and hook.reason != NO_HOOK else ""
        facts.append(f"hook {hook.state}{reason}")
    if process.sample.start_method:
        facts.append(f"started by {process.sample.start_method}")
    elif methods := start_methods(process, view.children.get(process.process, ())):
        facts.append(f"starts by {methods}")
    if process.sharing_strategy:
        facts.append(f"shares by {process.sharing_strategy}")
    facts += process.problems[:1]
    doing = process.doing or command(process)
    found = view.findings_of.get(process.process)
    about = [f"{found[0].severity.word}: {found[0].summary}"] if found else []
    thread = process.threads[0] if process.threads else None
    stack = stack_lines(thread.shown_stack, width) if thread is not None else ()
    return (
        line((words, "title"), "  ", ", ".join(facts)),
        *(line("  ", each) for each in (*about, doing)),
        *_head_of(thread, process, view),
        *stack,
    )


def _head_of(thread: Thread | None, process: Process, view: SnapshotView) -> tuple[Line, ...]:
    if thread is None:
        return ()
    return (stack_head(thread, view.snapshot.at_s, process.stacks_cost_s),)


def command(process: Process) -> str:
    """The command line of a process, or its name in brackets if the command line is empty."""
    return " ".join(process.sample.cmdline) or f"[{process.sample.name}]"


def _text(node: TreeRow, view: SnapshotView) -> str:
    p = node.process
    state, hook = view.state(p), f"hook:{p.hook.state}"
    return f"{p.pid} {p.label} {p.role} {state} {hook} {p.doing} {command(p)}"


def _of_node(measure: Callable[[Process], float | None]) -> Callable[[TreeRow], float | None]:
    return lambda node: measure(node.process)


PAGE: Page[TreeRow] = Page(
    name="overview",
    title="Job",
    short="Job",
    columns=COLUMNS,
    items=lambda view: nodes(view, Order()),
    key=lambda node: node.process.process,
    row=_row,
    text=_text,
    empty=lambda view: ("No process has been read yet; the first sample takes a moment.",),
    details=explained,
    process=lambda node: node.process.process,
    # `arrange` sorts the tree; this mapping only names the sortable columns.
    sorts={name: _of_node(measure) for name, measure in SORTS.items()},
    help=(
        "Findings are listed first; press enter for the evidence.",
        "Below it the process tree: C, w or i before a row is a critical, warning or info finding.",
        "STATE  running, waiting (for something that should come), idle (for work), sleeping,"
        " disk, stopped, traced, zombie, ended.",
        "CPU    percent of one core, with its trend against one full core.",
        "PRIVATE memory of this process only; SHM mapped shared segments, each counted once. Where"
        " processes that were forked from it end, what they had in common counts as its own again:"
        " PRIVATE rises, and no memory was taken.",
        "FDS, MAPS  used of the limit; the trend of FDS shows change, not height.",
        "HOOK   absent, pending (waits for the interpreter), ready, silent (no answer), gone.",
        "left and right fold and unfold a branch; E hides and shows processes that have ended.",
    ),
)
