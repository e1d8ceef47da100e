"""A chain of waits that has to be explained, and the explanation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.waits import WaitChain, WaitEdge, WaitGraph

QUEUE_ITEM = "an item of a queue"
"""What the account of time calls a wait in Queue.get."""
READS = ("pipe-read", "socket-read", "poll")
"""Kinds of waits for data."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """Why none of some processes continues, and what to change."""

    cause: str
    advice: str
    evidence: tuple[str, ...] = ()
    headline: str = ""
    """What to say in place of the chain's conclusion; empty to keep that."""
    is_certain: bool = False
    """Whether what was observed cannot be a moment of a job that makes progress."""


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a chain with its wait."""

    process: Process
    edge: WaitEdge
    thread: Thread | None


@dataclass(frozen=True, slots=True)
class Case:
    """A chain to explain."""

    index: Index
    waits: WaitGraph
    chain: WaitChain
    members: tuple[Member, ...]
    """The processes of the cycle, without those that only lead into it; or of the whole chain."""


def gets_from_queue(member: Member) -> bool:
    """Whether a process is in Queue.get of multiprocessing."""
    return member.thread is not None and calls(own_frames(member.thread.stack), "queues.py:get")


def awaited(case: Case, member: Member) -> str:
    """What one process waits for: a child by its name, and no numbers of the kernel."""
    edge = member.edge
    if edge.kind == "child" and len(edge.providers) == 1:
        child = case.index.snapshot.get(edge.providers[0])
        return "the exit of a child" if child is None else f"the exit of {called(child)}"
    if edge.kind in READS and gets_from_queue(member):
        return QUEUE_ITEM
    return re.sub(r" \(semaphore \S+\)$", "", edge.what)
