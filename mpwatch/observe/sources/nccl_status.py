"""When NCCL RAS is asked for the state of a job's communicators.

Only where a rank has NCCL's library mapped and its main thread is stalled, as with the worker
servers; in a job without that library nothing else is checked. One request covers all ranks of the
job, on all machines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from mpwatch.collect.job.nccl_ras import ask, find_listener, port_of
from mpwatch.collect.job.worker_server import NoAnswer
from mpwatch.model.collectives import NcclAnswer, NcclStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.worker_servers import AGAIN_S, INTERVAL_S, is_still

ROLES = ("rank", "spawned", "main")
PROCESSES = 1024
"""Processes whose descriptors are searched for the listening socket."""

Ask = Callable[[Sequence[ProcessId], int], "NcclAnswer | None"]


class NcclStatuses:
    """Asks NCCL RAS on a thread of its own."""

    def __init__(self, report: Callable[[NcclStatus], None], ask: Ask | None = None) -> None:
        """Make it; nothing is asked yet.

        Args:
            report: Called on the thread with each answer.
            ask: Asks the RAS of some processes at a port: `None` if it does not listen there;
                raises `NoAnswer` or `OSError`.
        """
        self._report = report
        self._ask = ask or _ask
        self._due_s = float("-inf")
        self._thread: threading.Thread | None = None
        self._last: NcclStatus | None = None
        """The newest answer that was reported and still counts."""

    def start_due(self, snapshot: Snapshot) -> bool:
        """Begin to ask, if that is due at this reading; returns whether it is."""
        if snapshot.at_s < self._due_s or (self._thread is not None and self._thread.is_alive()):
            return False
        self._due_s = snapshot.at_s + INTERVAL_S
        ranks = (process for process in snapshot.living() if process.role in ROLES)
        still = next((rank for rank in ranks if is_still(rank) and rank.has_nccl), None)
        if still is None:
            if self._last is not None:
                self._report(NcclStatus(self._last.process, snapshot.at_s))
                self._last = None
            return False
        port = port_of(still.sample.environment)
        if port is None:
            return False
        self._due_s = snapshot.at_s + AGAIN_S
        users = [process for process in snapshot.living() if process.has_nccl]
        others = [process.process for process in users if process is not still]
        self._thread = threading.Thread(
            target=self._run,
            args=([still.process, *others][:PROCESSES], port),
            name="mpwatch-nccl",
            daemon=True,
        )
        self._thread.start()
        return True

    def _run(self, processes: Sequence[ProcessId], port: int) -> None:
        try:
            answer = self._ask(processes, port)
        except (NoAnswer, OSError):
            return  # RAS is off or does not respond; the stacks of the ranks say the rest
        if answer is None:
            return
        at_s, last = time.monotonic(), self._last
        is_same = last is not None and last.answer == answer
        since_s = last.since_s if last is not None and is_same else at_s
        self._last = NcclStatus(processes[0], at_s, answer, since_s)
        self._report(self._last)


def _ask(processes: Sequence[ProcessId], port: int) -> NcclAnswer | None:
    listener = find_listener(processes, port)
    return None if listener is None else ask(listener)
