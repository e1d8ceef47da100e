"""When values of names are read: while a finding stands whose cause they would decide.

Nothing is asked of any process without such a finding. A process with a hook is asked through it,
another one by py-spy, which reads it while it runs and knows no attributes of objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.values import wanted_values
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.values import ValuesRead, WantedFrame

VALUES_S = 5.0
"""Shortest interval between two readings of one process by its hook."""
OUTSIDE_S = 15.0
"""The same by py-spy, which takes some 100 ms of cpu."""

Wanted: TypeAlias = Mapping[ProcessId, Sequence[WantedFrame]]


class Readers(Protocol):
    """Read values by the hook of a process, or from outside."""

    def ask_hook(self, process: ProcessId, what: str, frames: Sequence[WantedFrame]) -> None:
        """Ask a hook; its answer is an input later on."""

    def take_values(self, process: ProcessId, frames: Sequence[WantedFrame]) -> ValuesRead:
        """Read them now, on the calling thread."""
        ...


class ValueReads:
    """Asks for the values that the findings of a snapshot want."""

    def __init__(self, readers: Readers, report: Callable[[ValuesRead], None]) -> None:
        """Make it; nothing is asked yet.

        Args:
            readers: Read the values.
            report: Called on a thread with what was read from outside.
        """
        self._readers = readers
        self._report = report
        self._asked_s: dict[ProcessId, float] = {}
        self._thread: threading.Thread | None = None

    def start_due(self, snapshot: Snapshot, history: History) -> set[ProcessId]:
        """Ask the processes that are due, and return them.

        Args:
            snapshot: The job, with its findings.
            history: Its numbers over time.
        """
        if not snapshot.findings:
            return set()
        wanted = wanted_values(Index(snapshot, history), snapshot.findings)
        self._asked_s = {each: at_s for each, at_s in self._asked_s.items() if each in wanted}
        is_busy = self._thread is not None and self._thread.is_alive()
        due, outside = set(), {}
        for process, frames in wanted.items():
            known = snapshot.get(process)
            is_hooked = known is not None and known.hook.state == "ready"
            since_s = snapshot.at_s - self._asked_s.get(process, float("-inf"))
            if since_s < (VALUES_S if is_hooked else OUTSIDE_S) or (is_busy and not is_hooked):
                continue
            self._asked_s[process] = snapshot.at_s
            due.add(process)
            if is_hooked:
                self._readers.ask_hook(process, "values", frames)
            else:
                outside[process] = frames
        if outside:
            self._thread = threading.Thread(
                target=self._run, args=(outside,), name="mpwatch-values", daemon=True
            )
            self._thread.start()
        return due

    def _run(self, wanted: Wanted) -> None:
        for process, frames in wanted.items():
            self._report(self._readers.take_values(process, frames))
