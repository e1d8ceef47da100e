"""The hooks that one run of mpwatch injects, and detaches again when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from mpwatch.attach.inject import detach
from mpwatch.attach.inject_tree import (
    GENERATIONS,
    NOT_WANTED,
    Root,
    detach_inherited,
    in_parallel,
    inheriting,
    inject_tree,
    why_not,
)
from mpwatch.attach.injection_log import InjectionLog
from mpwatch.attach.outcomes import CALLED_OFF, Attached, Detached, Refused
from mpwatch.attach.plan import plan_injection
from mpwatch.attach.target import has_ended
from mpwatch.collect.hook.discovery import has_files
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.model.events import HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import InjectionPlan
from mpwatch.model.samples import ProcSample
from mpwatch.model.units import processes_text

FINISH_S = 10.0
"""How long injections that have begun are waited for before they are called off."""
REMEMBERED = 1024
"""Processes with the hook of a session that are remembered at least, exited ones among them."""
_INJECTED = ("ready", "pending", "silent")


class AttachSession:
    """Injects the hook, remembers where, and detaches it from there.

    A process that had a hook before keeps it, with the children that it starts. All methods may be
    called from any thread.
    """

    def __init__(
        self,
        root: ProcessId,
        *,
        only: Collection[int] = (),
        keeps: bool = False,
        log: InjectionLog | None = None,
    ) -> None:
        """Create a session; nothing is injected yet.

        Args:
            root: The job.
            only: The pids that may be injected; all of the job if there are none.
            keeps: Whether the hooks stay when the session ends.
            log: The log of injections; the user's own by default.
        """
        self._root = Root(root)
        self._only = frozenset(only)
        self._keeps = keeps
        self.log = log or InjectionLog()
        self._changed = threading.Condition()
        self._calls = 0
        """How many calls of `inject` have not returned."""
        self._under_way: set[ProcessId] = set()
        """Injections that have begun and not ended. They may outlast a call that a signal ends."""
        self._is_closed = False
        self._calls_off = 0
        """How often injections were called off; one that began before goes on no further."""
        self._had_hook: frozenset[ProcessId] | None = None
        self.injected: set[ProcessId] = set()
        """Where this session has injected the hook; exited processes are forgotten from
        `REMEMBERED` on."""
        self._limit = REMEMBERED

    def plan(self, samples: Iterable[ProcSample]) -> InjectionPlan:
        """The plan of `inject` for these processes."""
        return plan_injection(samples, only=self._only, root=self._root)

    def inject(
        self,
        samples: Sequence[ProcSample],
        report: Callable[[HookStatus], None],
        *,
        again: bool = False,
    ) -> None:
        """Inject the hook; see `attach_schedule.Inject`. Does nothing once ended."""
        with self._changed:
            if self._is_closed:
                return
            self._calls += 1
            calls_off = self._calls_off
        try:
            self._remember_hooks()
            self._inject(samples, report, again, calls_off)
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    @contextmanager
    def called_off(self) -> Iterator[None]:
        """Let injections that were begun before the end of this context go on no further.

        Those that change a process just now are waited for, at most `FINISH_S`.
        """
        with self._changed:
            self._calls_off += 1
            self._wait_for_those_under_way()
        try:
            yield
        finally:
            with self._changed:
                self._calls_off += 1

    def end(self) -> str:
        """Detach what this session injected, and what was started with its hook.

        Returns:
            What was done, one sentence for the user; empty if nothing had been injected.
        """
        try:
            with self._changed:
                self._is_closed = True
                self._wait_for_those_under_way()
                injected, self.injected = self.injected, set()
            if not injected:
                return ""
            if self._keeps:
                count = sum(not has_ended(each) for each in injected)
                return (
                    f"The hook stays in {processes_text(count)} (--keep); to detach it: "
                    f"mpwatch detach {self._root.process.pid}"
                )
            said = self._said(self._detach_all(injected))
            with self._changed:
                self._wait_for_those_under_way()  # what was called off has its result in a moment
            return said
        finally:
            self.log.close()  # what ctrl-c has interrupted, or has taken too long

    def _wait_for_those_under_way(self) -> None:
        """Wait for the injections under way, with the lock held."""
        deadline_s = time.monotonic() + FINISH_S
        while (self._calls or self._under_way) and (left_s := deadline_s - time.monotonic()) > 0:
            self._changed.wait(left_s)

    def _inject(
        self,
        samples: Sequence[ProcSample],
        report: Callable[[HookStatus], None],
        again: bool,
        calls_off: int,
    ) -> None:
        known = {sample.process: sample for sample in samples}

        def is_wanted() -> bool:
            return not self._is_closed and self._calls_off == calls_off

        def begun(process: ProcessId, method: str, hook: str) -> None:
            with self._changed:
                if not is_wanted():
                    raise Refused(NOT_WANTED)
                self._remember(process)
                self._under_way.add(process)
            self.log.injecting(process, method, hook)

        def ended(attached: Attached) -> None:
            sample = known.get(attached.process)
            self.log.injected(attached, sample.cmdline if sample else None)
            with self._changed:
                if attached.state in _INJECTED and attached.method not in ("", "already there"):
                    self._remember(attached.process)
                elif attached.state == "absent" and not again:
                    self.injected.discard(attached.process)
                self._under_way.discard(attached.process)
                self._changed.notify_all()

        def report_one(attached: Attached) -> None:
            reason = ": ".join(filter(None, (attached.reason, attached.fix)))
            report(
                HookStatus(
                    attached.process,
                    time.monotonic(),
                    attached.state,
                    reason,
                    passes=attached.passes,
                )
            )

        chosen = samples
        if self._only:
            chosen = [s for s in samples if s.process.pid in self._only and why_not(s) is None]
        inject_tree(
            chosen,
            report_one,
            again=again,
            begun=begun,
            ended=ended,
            root=self._root,
            is_wanted=is_wanted,
            with_late_children=not self._only,
        )

    def _remember(self, process: ProcessId) -> None:
        """Remember where the hook was injected, with the lock held."""
        if len(self.injected) >= self._limit:
            self.injected = {each for each in self.injected if not has_ended(each)}
            self._limit = max(REMEMBERED, 2 * len(self.injected))
        self.injected.add(process)

    def _remember_hooks(self) -> None:
        """Remember once, before the first injection, which processes have a hook already."""
        if self._had_hook is None:
            samples = self._read_job()
            self._had_hook = frozenset(each.process for each in samples if has_files(each))

    def _read_job(self) -> tuple[ProcSample, ...]:
        tree = TreeCollector(self._root.process).collect(ReadRequest.processes_only())
        return () if tree is None else tree.processes

    def _detach_all(self, injected: Collection[ProcessId]) -> list[Detached]:
        """Detach the hook from each, children first; children started meanwhile are included."""
        outcomes: dict[ProcessId, Detached] = {}
        for generation in range(GENERATIONS):
            samples = self._read_job()
            chosen = descended(samples, injected, self._had_hook or frozenset())
            known = {each.process: each.cmdline for each in samples}
            if generation == 0:
                chosen = [*chosen, *(each for each in injected if each not in known)]
            wanted = [each for each in chosen if each not in outcomes][::-1]
            if not wanted:
                break
            outcomes |= in_parallel(partial(detach, begun=self.log.detaching), wanted)
            asleep = [each for each in inheriting(outcomes) if each in wanted]
            confined = self._root.confined([each for each in samples if each.process in asleep])
            detach_one = partial(detach_inherited, confined, begun=self.log.detaching)
            outcomes |= in_parallel(detach_one, asleep)
            for process in wanted:
                self.log.detached(outcomes[process], known.get(process))
        return list(outcomes.values())

    def _said(self, outcomes: Sequence[Detached]) -> str:
        """The sentence about a detach."""
        pending = sum(each.state == "pending" for each in outcomes)
        staying = [each for each in outcomes if each.is_attached and each.state != "pending"]
        done = sum(
            each.state == "absent" and each.method not in ("", CALLED_OFF) and each.had_hook
            for each in outcomes
        )
        off = sum(each.state == "absent" and each.method == CALLED_OFF for each in outcomes)
        words = f"The hook was detached from {processes_text(done)}."
        if off:
            words = f"{words} " if done else ""
            words += f"The injection into {processes_text(off)} was called off."
        elif not done and not staying and not pending:
            words = "The processes that had the hook have ended, or it was detached before."
        if pending:
            those = processes_text(pending)
            words += f" It will be detached from {those} when they run Python code again."
        if staying:
            first = staying[0]
            words += (
                f" It is still attached in {processes_text(len(staying))} ({first.process.pid}: "
                f"{first.reason or first.state}); try: mpwatch detach {self._root.process.pid}"
            )
        return words


def descended(
    samples: Sequence[ProcSample],
    injected: Collection[ProcessId],
    had_hook: Collection[ProcessId],
) -> list[ProcessId]:
    """The processes whose hook comes from this session, parents first.

    The process itself or its nearest ancestor with a known origin decides. One whose ancestors have
    exited may have inherited any hook of the job, so all have to be of this session.
    """
    by_pid = {sample.process.pid: sample for sample in samples}

    def is_from_here(sample: ProcSample) -> bool:
        seen: set[int] = set()
        current = sample
        while current.process.pid not in seen:
            if current.process in injected:
                return True
            if current.process in had_hook:
                return False
            seen.add(current.process.pid)
            current = by_pid.get(current.parent_pid, current)
        is_orphan = current is not samples[0] and current.parent_pid not in by_pid
        return is_orphan and not had_hook

    return [
        each.process
        for each in samples
        if each.is_python and each.state not in ("Z", "X") and is_from_here(each)
    ]
