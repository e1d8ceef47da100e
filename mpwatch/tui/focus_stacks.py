"""Whose stacks are worth taking because a person looks at them."""

from __future__ import annotations

from mpwatch.model.commands import Command, TakeStacks
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process

HOOKED_S = 3.0
"""A hook answers in microseconds: its stacks may be asked for this often."""
REMEMBERED = 512
"""Processes whose last look is remembered: the least recently asked for is forgotten first."""
OUTSIDE_S = 30.0
"""py-spy halts the process for some milliseconds: rarely, unless it is followed."""
OUTSIDE_LIMIT_S = 240.0
"""A cursor that stays where it is asks after twice as long each time: nobody may be there."""


class Glance:
    """Asks for stacks of the process under the cursor, not more often than they cost little."""

    def __init__(self) -> None:
        self._rests_on: ProcessId | None = None
        self._asked_s: dict[ProcessId, float] = {}
        self._asked_here = 0
        """How often since the cursor came to rest."""

    def due(self, process: Process | None, at_s: float) -> Command | None:
        """What to ask for at this snapshot, if anything.

        A cursor that is still moving asks for nothing: it must rest for one snapshot.

        Args:
            process: What the cursor is on.
            at_s: The moment of the snapshot.
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
    """Whether its stacks were taken lately for another reason, as those of the root are."""
    return any(
        t.stack_at_s is not None and at_s - t.stack_at_s < every_s / 2 for t in process.threads
    )
