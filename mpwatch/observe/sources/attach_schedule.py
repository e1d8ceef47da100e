"""Selects the processes for injection, and repeats injections that are pending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mpwatch.collect.own_threads import OwnThreads
from mpwatch.model.events import HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from mpwatch.model.snapshot import Snapshot

INJECT_AGAIN_S = 10.0
"""Interval after which a pending or temporarily refused injection is repeated."""
UNDER_WAY_S = 2.0
"""Stacks of a process are not taken for this long after its injection began."""


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
    """Remembers into which processes the hook was injected.

    Each process gets it once: after a detach it is not injected again. A pending injection
    is repeated after a while, since its call may have run during an import and then has
    no effect. A process that was refused for a temporary reason (a debugger, a slow disk) is tried
    again.
    """

    def __init__(self) -> None:
        self._tried_s: dict[ProcessId, float] = {}
        self._refused: set[ProcessId] = set()
        self._started: set[ProcessId] = set()

    def received(self, status: HookStatus) -> None:
        """Note the result for one process."""
        if status.passes:
            self._refused.add(status.process)
        self._started.discard(status.process)

    def postponed(self, samples: Sequence[ProcSample]) -> None:
        """Note that an injection could not be begun: it is due again at the next reading."""
        for sample in samples:
            self._tried_s.pop(sample.process, None)
            self._started.discard(sample.process)

    def under_way(self, now_s: float) -> frozenset[ProcessId]:
        """Processes whose injection has begun and not ended.

        py-spy must not touch them: the kernel allows a process one tracer.
        """
        return frozenset(
            process for process in self._started
            if now_s - self._tried_s.get(process, now_s) < UNDER_WAY_S
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
            elif process.process in self._refused and now_s - before_s >= INJECT_AGAIN_S:
                tried_s[process.process] = now_s
                self._refused.discard(process.process)
                if process.hook.state == "absent":
                    first.append(process.sample)
            elif process.hook.state == "pending" and now_s - before_s >= INJECT_AGAIN_S:
                tried_s[process.process] = now_s
                again.append(process.sample)
        self._tried_s = tried_s
        self._refused &= tried_s.keys()
        self._started = {sample.process for sample in first} | (self._started & tried_s.keys())
        return first, again


class Injection:
    """Injects the hook into the processes of a job as they appear, on threads of its own."""

    def __init__(
        self, inject: Inject, *, is_allowed: bool, threads: OwnThreads | None = None
    ) -> None:
        """Make it.

        Args:
            inject: Injects; called on a thread.
            is_allowed: Whether to begin at once; `allow` does so later.
            threads: Starts the threads.
        """
        self._threads = threads or OwnThreads()
        self._inject = inject
        self._is_allowed = is_allowed
        self._schedule = AttachSchedule()

    def allow(self) -> None:
        """Inject from the next reading on, also where the hook was detached since."""
        self._schedule = AttachSchedule()
        self._is_allowed = True

    def forbid(self) -> None:
        """Begin no further injection, also into processes that start later."""
        self._is_allowed = False

    def start_due(self, snapshot: Snapshot, report: Callable[[HookStatus], None]) -> None:
        """Start the injections that are due.

        Args:
            snapshot: The job.
            report: Called on another thread with each result.
        """
        if not self._is_allowed:
            return
        for samples, again in zip(self._schedule.due(snapshot), (False, True), strict=True):
            if not samples:
                continue
            name, inject = "mpwatch-inject", self._inject
            if self._threads.start(inject, name, samples, report, again=again) is None:
                self._schedule.postponed(samples)

    def received(self, status: HookStatus) -> None:
        """Note the result for one process."""
        self._schedule.received(status)

    def under_way(self, now_s: float) -> frozenset[ProcessId]:
        """See `AttachSchedule.under_way`."""
        return self._schedule.under_way(now_s)
