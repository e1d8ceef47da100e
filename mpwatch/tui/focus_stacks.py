"""Schedule of stack requests for the process under the cursor."""

from __future__ import annotations

from mpwatch.model.commands import Command, TakeStacks
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process

HOOKED_S = 3.0
"""Interval with a hook, which answers in microseconds."""
REMEMBERED = 512
"""Processes with a remembered request time; the oldest is dropped first."""
OUTSIDE_S = 30.0
"""Interval with py-spy, which pauses the process for some milliseconds."""
OUTSIDE_LIMIT_S = 240.0
"""The interval doubles while the cursor does not move: the user may be absent."""


class Glance:
    """Requests stacks of the process under the cursor, at intervals by cost."""

    def __init__(self) -> None:
        self._rests_on: ProcessId | None = None
        self._asked_s: dict[ProcessId, float] = {}
        self._asked_here = 0
        """Requests since the last cursor movement."""

    def due(self, process: Process | None, at_s: float) -> Command | None:
        """The request to send at this snapshot, or `None`.

        The cursor must stay on one process for one snapshot before the first request.

        Args:
            process: The process under the cursor.
            at_s: The time of the snapshot.
        """
        rested = process is not None and process.process == self._rests_on
        if not rested:
            self._asked_here = 0
        self._rests_on = process.process if process else None
        if process is None or not rested or process.is_gone or not process.sample.is_python:
            return None
        if process.sample.state not in ("R", "S"):
            return None
        outside_s = min(OUTSIDE_LIMIT_S, OUTSIDE_S * 2 ** max(0, self._asked_here - 1))
        every_s = HOOKED_S if process.hook.state == "ready" else outside_s
        asked_s = self._asked_s.get(process.process)
        if asked_s is not None and (at_s - asked_s < every_s or _is_fresh(process, at_s, every_s)):
            return None
        self._asked_here = min(8, self._asked_here + 1)
        self._asked_s.pop(process.process, None)
        self._asked_s[process.process] = at_s
        if len(self._asked_s) > REMEMBERED:
            del self._asked_s[next(iter(self._asked_s))]
        return TakeStacks(process.process)


def _is_fresh(process: Process, at_s: float, every_s: float) -> bool:
    """Whether the stacks are recent, for instance from the schedule of the root process."""
    return any(
        t.stack_at_s is not None and at_s - t.stack_at_s < every_s / 2 for t in process.threads
    )
