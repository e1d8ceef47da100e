"""The log of a job, bounded: what the events view shows, and the errors that rules read."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from mpwatch.diagnose.known_errors import tags_of
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import LogEntry

KEPT = 2000
ERRORS_KEPT = 500
"""Entries with a known error message that are kept after the log has dropped them."""
REPEATS_KEPT = 8
"""Of these, entries of one process with the same tags: one that fails in a loop must not displace
the errors of other processes. All of them are in the log, and `dropped` counts them there."""


class Journal:
    """A bounded log; what is dropped at its old end is counted."""

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=KEPT)
        self._errors: deque[LogEntry] = deque()
        self._repeats: Counter[tuple[ProcessId | None, tuple[str, ...]]] = Counter()
        """How many of `_errors` each process has of each kind."""
        self._sequence = 0
        self._wall_minus_monotonic_s = 0.0
        self._view: tuple[LogEntry, ...] | None = ()
        self._errors_view: tuple[LogEntry, ...] | None = ()

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
        """Write one line; known error messages are matched here, once."""
        wall_s = at_s + self._wall_minus_monotonic_s
        details = details or {}
        tags = tags_of(kind, words, details)
        entry = LogEntry(self._sequence, at_s, wall_s, kind, process, words, details, tags)
        self._sequence += 1
        self._entries.append(entry)
        self._view = None
        if tags:
            self._keep_error(entry)

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """The lines kept, oldest first; the same object until a line is added."""
        if self._view is None:
            self._view = tuple(self._entries)
        return self._view

    @property
    def errors(self) -> tuple[LogEntry, ...]:
        """The lines with a known error message that are kept, oldest first."""
        if self._errors_view is None:
            self._errors_view = tuple(self._errors)
        return self._errors_view

    @property
    def dropped(self) -> int:
        """How many lines are no longer kept."""
        return self._sequence - len(self._entries)

    def _keep_error(self, entry: LogEntry) -> None:
        """Keep an error beyond the log, within the two limits."""
        if self._repeats[entry.process, entry.tags] >= REPEATS_KEPT:
            return
        self._repeats[entry.process, entry.tags] += 1
        self._errors.append(entry)
        self._errors_view = None
        if len(self._errors) > ERRORS_KEPT:
            oldest = self._errors.popleft()
            self._repeats[oldest.process, oldest.tags] -= 1
            self._repeats += Counter()  # removes what is down to zero
