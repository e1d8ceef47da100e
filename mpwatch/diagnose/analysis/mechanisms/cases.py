"""A chain of waits that has to be explained, and the explanation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from signal import SIGTERM

from msgspec import Struct

from mpwatch.describe.frames import at_frame, own_frames
from mpwatch.describe.waits import OF_A_CHILD
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import channels_among, output_of
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.stack_patterns import calls, user_frame
from mpwatch.model.samples import READS
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.waits import WaitChain, WaitEdge, WaitGraph

NAMED = 4
"""Processes, threads, or ways in which they ended, that one sentence names."""
QUEUE_ITEM = "an item of a queue"
"""What the account of time calls a wait in Queue.get."""
_SIGTERM = 1 << (SIGTERM - 1)


class Mechanism(Struct, frozen=True):
    """Why none of some processes continues, and what to change."""

    cause: str
    advice: str
    evidence: tuple[str, ...] = ()
    headline: str = ""
    """What to say in place of the chain's conclusion; empty to keep that."""
    is_certain: bool = False
    """Whether what was observed cannot be a moment of a job that makes progress."""


class Waiter(Struct, frozen=True):
    """One process of a chain with its wait."""

    process: Process
    edge: WaitEdge
    thread: Thread | None


class Case(Struct, frozen=True):
    """A chain to explain."""

    index: Index
    waits: WaitGraph
    chain: WaitChain
    waiters: tuple[Waiter, ...]
    """The processes of the cycle, without those that only lead into it; or of the whole chain."""


def waiting_for(case: Case, what: str) -> list[Process]:
    """The living processes of which some thread waits for this."""
    ids = {edge.waiter for edge in case.waits.edges if edge.what == what}
    return [each for each in case.index.snapshot.living() if each.process in ids]


def ended_ones(case: Case) -> list[Process]:
    """The processes of the job that have ended, without those that only serve others."""
    return [
        each
        for each in case.index.snapshot.processes
        if each.ended is not None and each.role not in SERVICE_ROLES
    ]


def ended_words(gone: Sequence[Process], limit: int = NAMED) -> tuple[str, ...]:
    """How the first of some processes ended, as evidence."""
    return tuple(f"{called(each)} ended: {each.ended.words}" for each in gone[:limit] if each.ended)


def at_line(thread: Thread | None) -> str:
    """The line of the program at which a thread is: ` at data.py:30 main`; empty if unknown."""
    frame = user_frame(thread.stack) if thread is not None else None
    return at_frame(frame)


def with_sigterm(child: Process, cause: str, advice: str) -> tuple[str, str]:
    """Cause and advice about the join of a child, with what its handler for SIGTERM means."""
    if not (child.sample.signals_caught or 0) & _SIGTERM:
        return cause, advice
    return (
        f"{cause} {called(child)} has a handler for SIGTERM. Where that only sets a flag, "
        "terminate() does not end it: a forked child inherits the handler of its parent.",
        f"{advice} If the parent has called terminate() before the join, let the child set "
        "signal.signal(signal.SIGTERM, signal.SIG_DFL) when it starts, or call kill().",
    )


def gets_from_queue(waiter: Waiter) -> bool:
    """Whether a process is in Queue.get of multiprocessing."""
    return waiter.thread is not None and calls(own_frames(waiter.thread.stack), "queues.py:get")


def awaited(case: Case, waiter: Waiter) -> str:
    """What one process waits for: a child by its name, and no numbers of the kernel."""
    edge = waiter.edge
    if edge.kind == "child" and len(edge.providers) == 1:
        child = case.index.snapshot.get(edge.providers[0])
        return OF_A_CHILD if child is None else f"the exit of {called(child)}"
    if edge.kind in READS and gets_from_queue(waiter):
        return QUEUE_ITEM
    return re.sub(r" \(semaphore \S+\)$", "", edge.what)


def has_no_timeout(waiter: Waiter) -> bool:
    """Whether the wait that a chain follows is without a time limit."""
    wait = waiter.thread.waits_on if waiter.thread is not None else None
    return wait is not None and wait.timeout_s is None


def blocked_output_of(waiter: Waiter) -> str:
    """The standard output or error to which a process is blocked writing; empty for others."""
    wait = waiter.thread.waits_on if waiter.thread is not None else None
    pipes = channels_among(wait.targets) if wait is not None else ()
    return output_of(waiter.process, pipes[0]) if pipes else ""


def names_of(case: Case) -> str:
    """The processes of a chain in the order of the tree: one cycle has one headline."""
    waiters = {each.process.process for each in case.waiters}
    return all_called([each for each in case.index.snapshot.processes if each.process in waiters])
