"""Why it stands still: who waits for whom at one moment, as a graph and in words."""

from __future__ import annotations

from mpwatch.diagnose.wait_chains import ChainBuilder
from mpwatch.diagnose.wait_edges import edges_of, surroundings
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.waits import FollowedLater, WaitGraph


def wait_graph(snapshot: Snapshot) -> WaitGraph:
    """Derive all waits of a snapshot and the chains they form.

    System calls and their arguments suffice for most of it; stacks and the hook's readings say more
    precisely what is waited for. Nothing is assumed about processes that could not be read: a chain
    that reaches one ends as `unknown`.
    """
    around = surroundings(snapshot)
    edges = tuple(edge for process in snapshot.living() for edge in edges_of(around, process))
    return FollowedLater(edges, lambda: ChainBuilder(around, edges).chains())
