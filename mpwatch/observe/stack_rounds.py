"""Stacks of everybody in rounds: what a diagnosis needs, at a bounded part of a cpu."""

from __future__ import annotations

from typing import Protocol

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import StacksTaken
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.observe.looks import Request

FIRST_AFTER_S = 0.3
"""Hooks may introduce themselves first: a process with a hook is asked, not stopped."""
ROUND_S = 2.0
PATIENCE = 10
"""A round that took t seconds of cpu is not followed by another for t times this."""


class Taker(Protocol):
    """Takes stacks one after another on a thread of its own: a `StackThread`, or a stand-in."""

    def start(self) -> None:
        """Begin."""
        ...

    def stop(self) -> None:
        """End after the process at hand."""
        ...

    def ask(self, request: Request) -> None:
        """Put a process in line."""
        ...


class StackRounds:
    """Asks for the stacks of every Python process without a hook, one round after another."""

    def __init__(self, thread: Taker) -> None:
        self._thread = thread
        self._first_s: float | None = None
        self._began_s: float | None = None
        self._cost_s = 0.0
        self._waiting: set[ProcessId] = set()

    @property
    def has_begun(self) -> bool:
        """Whether there was a first round."""
        return self._began_s is not None

    @property
    def is_under_way(self) -> bool:
        """Whether stacks that were asked for have not come yet."""
        return bool(self._waiting)

    def is_due(self, at_s: float) -> bool:
        """Whether it is time for the next round."""
        if self._first_s is None:
            self._first_s = at_s + FIRST_AFTER_S
        if self._began_s is None:
            return at_s >= self._first_s
        pause_s = max(ROUND_S, PATIENCE * self._cost_s)
        return not self._waiting and at_s >= self._began_s + pause_s

    def begin(self, snapshot: Snapshot, at_s: float) -> None:
        """Ask for the stacks of everybody whose hook cannot be asked."""
        if self._began_s is None:
            self._thread.start()
        self._began_s, self._cost_s = at_s, 0.0
        for process in snapshot.living():
            if _needs_a_look(process):
                self._waiting.add(process.process)
                self._thread.ask(Request(process.process))

    def has_taken(self, taken: StacksTaken) -> None:
        """Note what came."""
        if taken.source != "hook":
            self._waiting.discard(taken.process)
            self._cost_s += taken.cost_s or 0.0

    def stop(self) -> None:
        """End after the process at hand."""
        self._thread.stop()


def _needs_a_look(process: Process) -> bool:
    """Whether only a look from outside can tell its stack."""
    return (
        process.sample.is_python
        and process.sample.state not in "ZX"
        and process.hook.state != "ready"
    )
