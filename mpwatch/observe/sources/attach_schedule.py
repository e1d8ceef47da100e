"""Which processes the hook is to be injected into, and when to try one again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mpwatch.model.events import HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from mpwatch.model.snapshot import Snapshot

AGAIN_S = 10.0
"""How long after an injection a pending hook is looked at again, and a process that was refused for
a passing reason is tried again."""
AWAITED_S = 2.0
"""How long stacks are not taken of a process into which the hook is being injected."""


class Inject(Protocol):
    """Injects the hook into processes and reports the result for each; may take seconds."""

    def __call__(
        self,
        samples: Sequence[ProcSample],
        report: Callable[[HookStatus], None],
        *,
        again: bool = False,
    ) -> None:
        """Inject it.

        Args:
            samples: The processes.
            report: Called with the state of each process as soon as it is known.
            again: Only complete injections that are pending: one that was cancelled meanwhile stays
                cancelled.
        """
        ...


class AttachSchedule:
    """Remembers which processes the hook was injected into.

    Each process gets it once: one from which it was detached stays without it. A pending injection
    is repeated after a while, since its call may have run in the middle of an import and then has
    no effect. A process that was refused for a passing reason (a debugger, a slow disk) is tried
    again.
    """

    def __init__(self) -> None:
        self._tried_s: dict[ProcessId, float] = {}
        self._refused: set[ProcessId] = set()
        self._awaited: set[ProcessId] = set()

    def has_heard(self, status: HookStatus) -> None:
        """Note the result for one process."""
        if status.passes:
            self._refused.add(status.process)
        self._awaited.discard(status.process)

    def awaited(self, now_s: float) -> frozenset[ProcessId]:
        """Processes whose injection is under way.

        py-spy must not touch them: the kernel allows a process one tracer.
        """
        return frozenset(
            process for process in self._awaited
            if now_s - self._tried_s.get(process, now_s) < AWAITED_S
        )  # fmt: skip

    def due(self, snapshot: Snapshot) -> tuple[list[ProcSample], list[ProcSample]]:
        """Processes to inject for the first time, and those whose injection is to be repeated."""
        now_s = snapshot.at_s
        first: list[ProcSample] = []
        again: list[ProcSample] = []
        tried_s: dict[ProcessId, float] = {}
        for process in snapshot.living():
            before_s = self._tried_s.get(process.process)
            tried_s[process.process] = now_s if before_s is None else before_s
            if before_s is None:
                if process.hook.state == "absent":
                    first.append(process.sample)
            elif process.process in self._refused and now_s - before_s >= AGAIN_S:
                tried_s[process.process] = now_s
                self._refused.discard(process.process)
                if process.hook.state == "absent":
                    first.append(process.sample)
            elif process.hook.state == "pending" and now_s - before_s >= AGAIN_S:
                tried_s[process.process] = now_s
                again.append(process.sample)
        self._tried_s = tried_s
        self._refused &= tried_s.keys()
        self._awaited = {sample.process for sample in first} | (self._awaited & tried_s.keys())
        return first, again
