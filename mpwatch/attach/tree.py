"""Bringing the hook into all processes of a job, and out of them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from mpwatch.attach import confinement, tracer
from mpwatch.attach.bring import bring_in
from mpwatch.attach.leave import detach
from mpwatch.attach.newborn import newborn
from mpwatch.attach.outcome import Attached, Detached
from mpwatch.model.cmdline import python_program
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import ProcSample

UNDER_WAY = 256
"""Processes to which the hook is on its way, each on a thread of ours: nearly all of the time goes
by until they come back to their interpreters."""
IN_HAND = 4
"""Those for which something is done meanwhile. With more, the one that stands still would wait
until all our threads have had their turns."""
LEAVING = min(64, 8 * (os.cpu_count() or 1))
"""Processes that are asked at once to let the hook go: most of them answer at once."""
GENERATIONS = 4
"""How often children born meanwhile are looked for; those of a parent with the hook have it."""
_LEFT_ALONE: dict[Role, str] = {
    "resource-tracker": "the resource tracker of multiprocessing is left alone",
    "forkserver": "the forkserver is left alone: its children bring their own hook",
    "shm-manager": "torch_shm_manager is not a Python process",
    "compile-worker": "compile workers are left alone",
}
_OBSERVERS = ("mpwatch", "-m mpwatch")
"""How mpwatch is started; a program that it runs is called by its own name."""

_ROOTS_KEPT = 1 << 16
_root_of: dict[int, tuple[ProcessId, ProcessId]] = {}
"""By pid, each process that was to have the hook and the root process of its job. Later calls are
about some processes or new children alone: the root of a child's job is that of its parent."""

R = TypeVar("R", Attached, Detached)


def bring_in_tree(
    processes: Iterable[ProcSample],
    progress: Callable[[Attached], None],
    timeout_s: float = 1.0,
    *,
    again: bool = False,
) -> tuple[Attached, ...]:
    """Bring the hook into every Python process of a job; one that refuses stops nobody.

    Children that were born since the job was sampled, before the hook was in their parent, get it
    too.

    Args:
        processes: The job as sampled, parents first.
        progress: Called on this thread with the outcome of each process as it is known.
        timeout_s: How long to wait for each.
        again: Only go on where it is under way already, as `bring_in` does.

    Returns:
        All outcomes, in the order of the processes, then those of the newborn.
    """
    outcomes: dict[ProcessId, Attached] = {}
    samples = list(processes)
    for _ in range(GENERATIONS):
        outcomes |= _bring_in_all(samples, progress, timeout_s, again)
        samples = [] if again else newborn(outcomes)
        if not samples:
            break
    return tuple(outcomes.values())


def detach_tree(
    processes: Iterable[ProcSample], progress: Callable[[Detached], None], timeout_s: float = 1.0
) -> tuple[Detached, ...]:
    """Take the hook out of every process of a job, children first so that none passes it on.

    Children that were forked meanwhile from a parent that still had it lose it, too.
    """
    samples, outcomes = list(processes), dict[ProcessId, Detached]()
    may_be_asleep = False
    for _ in range(GENERATIONS):
        wanted = [s.process for s in samples if s.is_python and s.state not in ("Z", "X")]
        outcomes |= _detach_all(wanted, progress, timeout_s, may_be_asleep)
        seen = {sample.process for sample in samples} | outcomes.keys()
        samples = [sample for sample in newborn(seen) if why_not(sample) is None]
        if not samples:
            break
        may_be_asleep = True
    return tuple(outcomes.values())


def why_not(sample: ProcSample) -> str | None:
    """Why a process is left alone; `None` if it is to have the hook."""
    if sample.state in ("Z", "X"):
        return "the process has ended"
    if sample.role in _LEFT_ALONE:
        return _LEFT_ALONE[sample.role]
    if not sample.is_python:
        return "it is not a Python process"
    is_tracer = sample.cmdline[-1:] == (tracer.NAME,)
    is_ours = is_tracer or python_program(sample.cmdline).name in _OBSERVERS
    return "it is mpwatch itself" if is_ours else None


def _bring_in_all(
    samples: list[ProcSample],
    progress: Callable[[Attached], None],
    timeout_s: float,
    again: bool,
) -> dict[ProcessId, Attached]:
    """Bring it into each that is to have it, several at a time."""
    confined = _confined(samples)
    reasons = {s.process: why_not(s) or confined.get(s.process) for s in samples}
    outcomes = {p: Attached(p, "absent", reason=r) for p, r in reasons.items() if r is not None}
    for outcome in outcomes.values():
        progress(outcome)
    wanted = [p for p, reason in reasons.items() if reason is None]
    turns = threading.BoundedSemaphore(IN_HAND)

    @contextlib.contextmanager
    def rest() -> Iterator[None]:
        turns.release()
        try:
            yield
        finally:
            turns.acquire()

    def bring(process: ProcessId) -> Attached:
        with turns:
            return bring_in(process, timeout_s=timeout_s, again=again, rest=rest)

    outcomes |= _all(bring, wanted, progress, UNDER_WAY)
    return {sample.process: outcomes[sample.process] for sample in samples}


def _confined(samples: list[ProcSample]) -> dict[ProcessId, str]:
    """Those that are confined more tightly than the root of their job, with the reason."""
    reasons = {}
    if len(_root_of) > _ROOTS_KEPT:
        _root_of.clear()
    for sample in samples:
        root = _known_root(sample) or samples[0].process
        _root_of[sample.process.pid] = sample.process, root
        if root == sample.process:
            continue
        try:
            roots = confinement.read(root.pid)
        except OSError:
            continue  # the root has ended, and its job is about to
        try:
            reason = confinement.why_left_out(confinement.read(sample.process.pid), roots)
        except OSError:
            continue  # it is gone or hidden, which `bring_in` says
        if reason is not None:
            reasons[sample.process] = reason
    return reasons


def _known_root(sample: ProcSample) -> ProcessId | None:
    """The root process with which a process or its parent was compared before."""
    known = _root_of.get(sample.process.pid)
    if known is not None and known[0] == sample.process:
        return known[1]
    of_parent = _root_of.get(sample.parent_pid)
    return None if of_parent is None else of_parent[1]


def _detach_all(
    processes: list[ProcessId],
    progress: Callable[[Detached], None],
    timeout_s: float,
    may_be_asleep: bool,
) -> dict[ProcessId, Detached]:
    """Take it out of each, several at a time."""

    def leave(process: ProcessId) -> Detached:
        return detach(process, timeout_s=timeout_s, may_be_asleep=may_be_asleep)

    outcomes = _all(leave, processes[::-1], progress, LEAVING)
    return {process: outcomes[process] for process in processes}


def _all(
    work: Callable[[ProcessId], R],
    processes: list[ProcessId],
    progress: Callable[[R], None],
    at_once: int,
) -> dict[ProcessId, R]:
    outcomes: dict[ProcessId, R] = {}
    if not processes:
        return outcomes
    with ThreadPoolExecutor(min(at_once, len(processes)), "mpwatch-attach") as pool:
        for future in as_completed([pool.submit(work, process) for process in processes]):
            outcome = future.result()
            outcomes[outcome.process] = outcome
            progress(outcome)
    return outcomes
