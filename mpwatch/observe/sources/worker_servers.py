"""When the worker servers of ranks are asked for what torch's flight recorder holds.

Only where no hook answers, and only while the main thread of one of these ranks is stalled: the
server makes the answer with the recorder locked. All ranks of the job with such a server are asked
then, because the difference between them is the evidence.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mpwatch.collect.job.worker_server import THREAD, NoAnswer, ask, gauge_of, socket_of
from mpwatch.model.events import HookGauges
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot

STILL_S = 4.0
"""As long as the hook waits before it reads the entries of its recorder."""
AGAIN_S = 10.0
INTERVAL_S = 2.0
"""Interval at which the job is checked for stalled ranks."""
RANKS = 64
"""Servers asked at a time, one after another."""


class Server(NamedTuple):
    """A worker server."""

    process: ProcessId
    path: str


class WorkerServers:
    """Asks the worker servers of a job on a thread of its own."""

    def __init__(
        self,
        report: Callable[[HookGauges], None],
        ask: Callable[[ProcessId, str], object] | None = None,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            report: Called on the thread with each answer.
            ask: Asks one server for the gauge `collectives`, and raises `NoAnswer`.
        """
        self._report = report
        self._ask = ask or _gauge
        self._due_s = float("-inf")
        self._thread: threading.Thread | None = None
        self._told: set[ProcessId] = set()
        """Processes of which an answer was reported."""

    def start_due(self, snapshot: Snapshot) -> bool:
        """Begin to ask, if that is due at this reading; returns whether it is."""
        if snapshot.at_s < self._due_s or (self._thread is not None and self._thread.is_alive()):
            return False
        self._due_s = snapshot.at_s + INTERVAL_S
        found = servers(snapshot)
        if not any(is_still(process) for process, _ in found):
            # What was read of a rank that has made progress since is outdated.
            for process, _ in found:
                if process.process in self._told:
                    self._report(HookGauges(process.process, snapshot.at_s))
            self._told.clear()
            return False
        self._due_s = snapshot.at_s + AGAIN_S
        asked = [server for _, server in found[:RANKS]]
        self._thread = threading.Thread(
            target=self._run, args=(asked,), name="mpwatch-recorder", daemon=True
        )
        self._thread.start()
        return True

    def _run(self, asked: Sequence[Server]) -> None:
        for server in asked:
            try:
                gauge = self._ask(server.process, server.path)
            except NoAnswer:
                continue  # the program may have closed it; its stacks say the rest
            self._told.add(server.process)
            self._report(HookGauges(server.process, time.monotonic(), {"collectives": gauge}))


def _gauge(process: ProcessId, path: str) -> object:
    return gauge_of(ask(process, path))


def servers(snapshot: Snapshot) -> list[tuple[Process, Server]]:
    """The ranks of a job that have a worker server and no hook that answers."""
    found = []
    for process in snapshot.living():
        if process.hook.state == "ready" or process.role not in ("rank", "spawned", "main"):
            continue
        if THREAD not in [thread.name for thread in process.threads]:
            continue
        fds = process.sample.fds
        path = socket_of(
            process.sample.environment,
            [link.address or "" for link in (fds.links if fds is not None else None) or ()],
        )
        if path is not None:
            found.append((process, Server(process.process, path)))
    return found


def is_still(process: Process) -> bool:
    """Whether the main thread of a process has stood still for `STILL_S`."""
    main = next((thread for thread in process.threads if thread.tid == process.pid), None)
    return main is not None and main.still_s is not None and main.still_s >= STILL_S
