"""One snapshot with the lookups that pages share, each computed once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from mpwatch.describe.processes import STATE_WORDS, full_name_of, process_state, unique_names
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import WaitEdge
from mpwatch.tui.elements.styled_text import Row, Span, Tone

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


class SnapshotView:
    """A snapshot prepared for pages; each lookup is computed at most once.

    Attributes:
        snapshot: The snapshot itself.
        scope: The one process a page is limited to, or `None` for the whole job.
        rows: The rows of the tree that were built, with their inputs.
        rows_before: The rows of the previously displayed view.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        scope: ProcessId | None = None,
        rows_before: KnownRows = MappingProxyType({}),
    ) -> None:
        self.snapshot = snapshot
        self.scope = scope
        self.rows: dict[ProcessId, KnownRow] = {}
        self.rows_before = rows_before
        self._kept: dict[str, Any] = {}

    def scoped(self, scope: ProcessId | None) -> SnapshotView:
        """The same snapshot, limited to one process."""
        return self if scope == self.scope else SnapshotView(self.snapshot, scope)

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
