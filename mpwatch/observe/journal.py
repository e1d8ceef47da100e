"""What happened, in words, bounded: the events view and the notes rules read."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import LogEntry

KEPT = 2000


class Journal:
    """A bounded log; what falls out at its old end is counted."""

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=KEPT)
        self._sequence = 0
        self._wall_minus_monotonic_s = 0.0
        self._view: tuple[LogEntry, ...] | None = ()

    def set_clock(self, at_s: float, wall_s: float) -> None:
        """Learn how monotonic and wall time relate, from a sample that has both."""
        self._wall_minus_monotonic_s = wall_s - at_s

    def add(
        self,
        at_s: float,
        kind: str,
        process: ProcessId | None,
        words: str,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Write one line."""
        wall_s = at_s + self._wall_minus_monotonic_s
        entry = LogEntry(self._sequence, at_s, wall_s, kind, process, words, details or {})
        self._sequence += 1
        self._entries.append(entry)
        self._view = None

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """The lines kept, oldest first; the same object until a line is added."""
        if self._view is None:
            self._view = tuple(self._entries)
        return self._view

    @property
    def dropped(self) -> int:
        """How many lines are no longer kept."""
        return self._sequence - len(self._entries)
