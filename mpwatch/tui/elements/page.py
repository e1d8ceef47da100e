"""A page as data (a table, lines above it, details, text to copy), and the snapshot it shows.

A page is pure functions of a `SnapshotView`: one snapshot, with the lookups that pages share, each
computed once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from mpwatch.describe.processes import STATE_WORDS, full_name_of, process_state, unique_names
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import WaitEdge
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, Span, Tone, drawn, text_of

TONES: Mapping[Severity, Tone] = MappingProxyType(
    {
        Severity.INFO: "accent",
        Severity.WARNING: "warning",
        Severity.CRITICAL: "critical",
    }
)
MARKS: Mapping[Severity, Span] = MappingProxyType(
    {
        Severity.INFO: Span("i", "accent"),
        Severity.WARNING: Span("w", "warning"),
        Severity.CRITICAL: Span("C", "critical"),
    }
)
"""The letter before the row of a process with a finding."""

_STATE_TONES: Mapping[str, Tone] = MappingProxyType(
    {
        "running": "good",
        "waiting": "warning",
        "idle": "dim",
        "sleeping": "dim",
        STATE_WORDS["D"]: "warning",
        "stopped": "warning",
        "traced": "warning",
        "zombie": "critical",
        "dead": "critical",
        "ended": "dim",
    }
)


def state_tone(word: str) -> Tone:
    """The tone of a state word."""
    return _STATE_TONES.get(word, "")


def age_text(seconds: float | None) -> str:
    """An age: `now` below a second, where a number would change with every sample."""
    return "now" if seconds is not None and seconds < 1 else seconds_text(seconds)


def ago_text(seconds: float | None) -> str:
    """An age in a sentence: `now`, `12 s ago`."""
    age = age_text(seconds)
    return age if age == "now" else f"{age} ago"


T = TypeVar("T")
KnownRow: TypeAlias = tuple[Process, tuple[object, ...], Row]
KnownRows: TypeAlias = Mapping[ProcessId, KnownRow]


class Variables(NamedTuple):
    """A stack with local variables."""

    at_s: float | None
    stack: tuple[Frame, ...]


KnownVariables: TypeAlias = Mapping[tuple[ProcessId, int], Variables]


class SnapshotView:
    """A snapshot prepared for pages; each lookup is computed at most once.

    Attributes:
        snapshot: The snapshot itself.
        scope: The one process a page is limited to, or `None` for the whole job.
        node: The node that the job runs on; empty for this machine.
        variables: Stacks with local variables that were asked for, by thread.
        is_readonly: Whether this dashboard injects nothing.
        rows: The rows of the tree that were built, with their inputs.
        rows_before: The rows of the previously displayed view.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        scope: ProcessId | None = None,
        rows_before: KnownRows = MappingProxyType({}),
        node: str = "",
        is_readonly: bool = False,
        variables: KnownVariables = MappingProxyType({}),
    ) -> None:
        self.snapshot = snapshot
        self.variables = variables
        self.is_readonly = is_readonly
        self.scope = scope
        self.node = node
        self.rows: dict[ProcessId, KnownRow] = {}
        self.rows_before = rows_before
        self._kept: dict[str, Any] = {}

    def scoped(self, scope: ProcessId | None) -> SnapshotView:
        """The same snapshot, limited to one process."""
        if scope == self.scope:
            return self
        return SnapshotView(
            self.snapshot,
            scope,
            node=self.node,
            is_readonly=self.is_readonly,
            variables=self.variables,
        )

    @property
    def attach_advice(self) -> str:
        """How processes that run get the hook, in lower case and without a full stop."""
        if self.node:
            return f"on {self.node}, run mpwatch attach {self.snapshot.root.pid}"
        if self.snapshot.playback is not None:
            return "record the job with its hook (mpwatch record --hook)"
        if self.is_readonly:
            return f"run mpwatch attach {self.snapshot.root.pid} without --readonly"
        return "press i to inject the hook"

    @cached_property
    def by_id(self) -> dict[ProcessId, Process]:
        """Processes by identity."""
        return {process.process: process for process in self.snapshot.processes}

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """The processes in scope."""
        if self.scope is None:
            return self.snapshot.processes
        found = self.by_id.get(self.scope)
        return () if found is None else (found,)

    @cached_property
    def current(self) -> tuple[Process, ...]:
        """The running processes in scope; all processes once the whole job has ended."""
        living = tuple(p for p in self.processes if not p.is_gone)
        return living if living or self.snapshot.living() else self.processes

    @cached_property
    def children(self) -> dict[ProcessId | None, list[Process]]:
        """Direct children by parent; processes whose parent is not observed are under `None`.

        An orphan stays below its former parent, whose row shows the exit status.
        """
        found: dict[ProcessId | None, list[Process]] = defaultdict(list)
        for process in self.snapshot.processes:
            found[self._parent(process)].append(process)
        return found

    def _parent(self, process: Process) -> ProcessId | None:
        """The present or former parent, if observed."""
        known = (p for p in (process.parent, process.original_parent) if p in self.by_id)
        return next(known, None)

    @cached_property
    def findings_of(self) -> dict[ProcessId | None, list[Finding]]:
        """Unresolved findings by process."""
        found: dict[ProcessId | None, list[Finding]] = defaultdict(list)
        for finding in self.snapshot.findings:
            if finding.resolved_s is None:
                found[finding.process].append(finding)
        return found

    @cached_property
    def edges_of(self) -> dict[ProcessId, list[WaitEdge]]:
        """Waits by waiting process."""
        found: dict[ProcessId, list[WaitEdge]] = defaultdict(list)
        for edge in self.snapshot.waits.edges:
            found[edge.waiter].append(edge)
        return found

    def once(self, name: str, compute: Callable[[SnapshotView], T]) -> T:
        """The result of `compute` for this view, cached under `name`."""
        if name not in self._kept:
            self._kept[name] = compute(self)
        found: T = self._kept[name]
        return found

    def age_s(self, at_s: float | None) -> float | None:
        """The age of a reading at the time of the snapshot, in seconds."""
        return None if at_s is None else max(0.0, self.snapshot.at_s - at_s)

    def severity(self, process: ProcessId) -> Severity | None:
        """The worst finding about a process, or `None`."""
        return max((f.severity for f in self.findings_of.get(process, ())), default=None)

    @cached_property
    def names(self) -> Mapping[ProcessId, str]:
        """A unique name for each process, for use outside the tree."""
        return unique_names(self.snapshot)

    def name(self, process: ProcessId | None) -> str:
        """The name of a process: `worker 3`; `pid N` if it is unknown."""
        if process is None:
            return "?"
        return self.names.get(process, f"pid {process.pid}")

    def full_name(self, process: ProcessId | None) -> str:
        """Name and pid: `worker 3 (41829)`."""
        return "?" if process is None else full_name_of(process, self.snapshot)

    def state(self, process: Process) -> str:
        """The state in one word, from its waits if known, else from the kernel.

        `idle` waits for work by design, `waiting` for something that is due.
        """
        return process_state(process, self.edges_of.get(process.process, ()))


def _no_lines(view: SnapshotView, width: int) -> tuple[Line, ...]:
    return ()


def _no_details(item: object, view: SnapshotView, width: int) -> tuple[Line, ...]:
    return ()


def _no_process(item: object) -> ProcessId | None:
    return None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page as data; every function in it is pure."""

    name: str
    title: str
    short: str
    """Title for narrow screens."""
    columns: tuple[ScreenColumn, ...]
    items: Callable[[SnapshotView], Sequence[T]]
    """In the natural order of the page."""
    key: Callable[[T], Hashable]
    row: Callable[[T, SnapshotView], Row]
    text: Callable[[T, SnapshotView], str]
    """The text that the filter searches."""
    empty: Callable[[SnapshotView], tuple[str, ...]]
    """Why the page is empty, and what would fill it."""
    above: Callable[[SnapshotView, int], tuple[Line, ...]] = _no_lines
    details: Callable[[T, SnapshotView, int], tuple[Line, ...]] = _no_details
    """Lines about the item under the cursor."""
    details_share: float = 0.0
    """Part of the page's height for the details at least; zero is two lines. They also have the
    lines that the table does not need."""
    opens_at_top: bool = False
    """Whether the page opens with the cursor on its first row, not on the current process."""
    process: Callable[[T], ProcessId | None] = _no_process
    """The process of an item; `enter` opens it."""
    sorts: Mapping[str, Callable[[T], float | str | None]] = field(default_factory=dict)
    """By column name. Numbers sort largest first, words in order, unknown values last."""
    arrange: Callable[[SnapshotView, Order], list[T]] | None = None
    """Replaces plain sorting where that would lose structure, as in a tree."""
    goes_on: bool = False
    """Whether new items appear on top; a cursor on the top row then stays on the top row."""
    help: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """The sort order of a table as chosen by the user."""

    column: str | None = None
    """`None` is the natural order."""
    is_reversed: bool = False

    def clicked(self, column: str) -> Order:
        """The order after a click on a column: sorted, then reversed, then natural again."""
        if self.column != column:
            return Order(column)
        return Order() if self.is_reversed else Order(column, is_reversed=True)


def ordered(page: Page[T], items: Sequence[T], order: Order) -> list[T]:
    """The items in the given order; equal items keep their natural order."""
    measure = page.sorts.get(order.column or "")
    if measure is None:
        return list(items)[::-1] if order.is_reversed else list(items)
    known = [(value, item) for item in items if (value := measure(item)) is not None]
    unknown = [item for item in items if measure(item) is None]
    is_number = bool(known) and not isinstance(known[0][0], str)
    known.sort(key=lambda pair: pair[0], reverse=is_number != order.is_reversed)
    return [item for _, item in known] + unknown


def in_shown_order(page: Page[T], items: Sequence[T], before: Sequence[Hashable]) -> list[T]:
    """The items in the order they had on screen; new ones at the end.

    Rows must not move under the cursor while the user moves through the table.
    """
    position = {key: index for index, key in enumerate(before)}
    return sorted(items, key=lambda item: position.get(page.key(item), len(position)))


def filtered(page: Page[T], items: Sequence[T], view: SnapshotView, wanted: str) -> list[T]:
    """The items whose text holds every word of the filter; case does not matter.

    A word that begins with `-` must not occur.
    """
    words = wanted.lower().split()
    if not words:
        return list(items)
    return [item for item in items if _matches(page.text(item, view).lower(), words)]


def _matches(text: str, words: Sequence[str]) -> bool:
    for word in words:
        if word.startswith("-") and len(word) > 1:
            if word[1:] in text:
                return False
        elif word not in text:
            return False
    return True


def without_column(page: Page[T], name: str) -> Page[T]:
    """The page without the named column, for a scope where all its cells are equal."""
    index = next(n for n, column in enumerate(page.columns) if column.name == name)

    def row(item: T, view: SnapshotView) -> Row:
        found = page.row(item, view)
        return replace(found, cells=(*found.cells[:index], *found.cells[index + 1 :]))

    columns = (*page.columns[:index], *page.columns[index + 1 :])
    return replace(page, columns=columns, row=row)


_WIDE = 400
_TREND_WIDTH = 20


def tab_separated(
    page: Page[T], items: Sequence[T], view: SnapshotView, *, with_details: bool = False
) -> str:
    """Column names and rows, separated by tabs; details as lines below."""
    used = [index for index, column in enumerate(page.columns) if column.name]
    lines = ["\t".join(page.columns[index].name for index in used)]
    for item in items:
        cells = page.row(item, view).cells
        lines.append(
            "\t".join(text_of(drawn(cells[index], _TREND_WIDTH)).strip() for index in used)
        )
        if with_details:
            lines += [text_of(found).rstrip() for found in page.details(item, view, _WIDE)]
    return "\n".join(lines) + "\n"
