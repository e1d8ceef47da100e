"""Which processes the hook is to be brought into, and when again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mpwatch.model.events import HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from mpwatch.model.snapshot import Snapshot

AGAIN_S = 10.0
"""How long a pending hook is left to arrive by itself before somebody looks what became of it, and
one that was kept out for the moment until it is tried again."""
AWAITED_S = 2.0
"""For how long nobody else touches a process that is getting its hook."""


class Bring(Protocol):
    """Brings the hook into processes and reports how it went for each; may take seconds."""

    def __call__(
        self,
        samples: Sequence[ProcSample],
        report: Callable[[HookStatus], None],
        *,
        again: bool = False,
    ) -> None:
        """Bring it in.

        Args:
            samples: Where.
            report: Called with what is known of each process, as it is known.
            again: Only go on with what is under way: one that somebody has called off stays off.
        """
        ...


class BringPlan:
    """Remembers where the hook was brought already.

    Each process gets it once: one that had a hook and was freed of it stays free. A call that the
    main thread has not come to yet is looked after: it may have come at a bad moment, in the middle
    of an import, and then has to be made once more. One that was kept out by something that passes,
    a debugger or a slow disk, gets another try.
    """

    def __init__(self) -> None:
        self._tried_s: dict[ProcessId, float] = {}
        self._kept_out: set[ProcessId] = set()
        self._awaited: set[ProcessId] = set()

    def has_heard(self, status: HookStatus) -> None:
        """Note what became of one process."""
        if status.passes:
            self._kept_out.add(status.process)
        self._awaited.discard(status.process)

    def awaited(self, now_s: float) -> frozenset[ProcessId]:
        """Processes of which it will be known in a moment whether they have a hook.

        py-spy would be in the way there: the kernel allows a process one tracer.
        """
        return frozenset(
            process for process in self._awaited
            if now_s - self._tried_s.get(process, now_s) < AWAITED_S
        )  # fmt: skip

    def due(self, snapshot: Snapshot) -> tuple[list[ProcSample], list[ProcSample]]:
        """Processes that get it for the first time, and those to look after."""
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
            elif process.process in self._kept_out and now_s - before_s >= AGAIN_S:
                tried_s[process.process] = now_s
                self._kept_out.discard(process.process)
                if process.hook.state == "absent":
                    first.append(process.sample)
            elif process.hook.state == "pending" and now_s - before_s >= AGAIN_S:
                tried_s[process.process] = now_s
                again.append(process.sample)
        self._tried_s = tried_s
        self._kept_out &= tried_s.keys()
        self._awaited = {sample.process for sample in first} | (self._awaited & tried_s.keys())
        return first, again
