"""Which processes the hook is to be brought into, and when again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mpwatch.model.events import HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from mpwatch.model.snapshot import Snapshot

AGAIN_S = 10.0
"""How long a pending hook is left to arrive by itself before somebody looks what became of it."""


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
    of an import, and then has to be made once more.
    """

    def __init__(self) -> None:
        self._tried_s: dict[ProcessId, float] = {}

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
            elif process.hook.state == "pending" and now_s - before_s >= AGAIN_S:
                tried_s[process.process] = now_s
                again.append(process.sample)
        self._tried_s = tried_s
        return first, again
