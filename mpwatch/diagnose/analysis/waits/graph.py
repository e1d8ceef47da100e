"""Why it stands still: who waits for whom at one moment, as a graph and in words."""

from __future__ import annotations

from typing import NamedTuple

from mpwatch.diagnose.analysis.pipes import PipeEnds
from mpwatch.diagnose.analysis.waits.chains import ChainBuilder
from mpwatch.diagnose.analysis.waits.edges import Surroundings, edges_of, surroundings
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.waits import WaitEdge, WaitGraph


def wait_graph(snapshot: Snapshot) -> WaitGraph:
    """Derive all waits of a snapshot and the chains they form.

    System calls and their arguments suffice for most of it; stacks and the hook's readings say more
    precisely what is waited for. Nothing is assumed about processes that could not be read: a chain
    that reaches one ends as `unknown`.
    """
    around = surroundings(snapshot)
    edges = _edges(around)
    return WaitGraph(edges, ChainBuilder(around, edges).chains())


class _Known(NamedTuple):
    """The edges of one process, with what they follow from."""

    process: Process
    head: ProcessId | None
    edges: tuple[WaitEdge, ...]


_OF_OTHERS = frozenset(("semaphore", "child"))
"""Kinds of waits that somebody ends who is looked up among all processes."""
_before: tuple[PipeEnds | None, dict[ProcessId, _Known]] = None, {}
"""Of the last job asked about: most of its processes rest at any moment, and are the same objects
at the next look."""


def _edges(around: Surroundings) -> tuple[WaitEdge, ...]:
    """All waits; of those whose process and pipes are what they were, as they were found then."""
    global _before
    pipes, before = _before
    known: dict[ProcessId, _Known] = {}
    found: list[WaitEdge] = []
    # Their edges follow from what others do.
    entangled = {*around.workers, *around.loaders, *(rank.process for rank in around.ranks)}
    for process in around.snapshot.living():
        head, last = around.heads.get(process.process), before.get(process.process)
        if (
            last is None
            or pipes is not around.pipes
            or last.process is not process
            or last.head != head
        ):
            last = _Known(process, head, tuple(edges_of(around, process)))
        if process.process not in entangled and not any(e.kind in _OF_OTHERS for e in last.edges):
            known[process.process] = last
        found += last.edges
    _before = around.pipes, known
    return tuple(found)
