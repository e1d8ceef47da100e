"""TCP connections between nodes, joined by both ends: what a rank waits for on another node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.nodes.across.ranks import PlacedRank, does
from mpwatch.nodes.head.view import NodeView
from mpwatch.nodes.wire.summary import SocketRow

STEPS_LIMIT = 4
"""So many connections are followed."""
_LOOPBACK = ("127.", "[::1]", "::1")


def waits_across(first: PlacedRank, views: Sequence[NodeView]) -> Iterator[str]:
    """In words what a rank waits for over TCP, what is at the other end, and so on.

    Args:
        first: The rank.
        views: All nodes.
    """
    view, pid, name = first.view, first.row.pid, first.called
    seen = {(view.name, pid)}
    for _ in range(STEPS_LIMIT):
        own = _awaited(view, pid)
        if own is None:
            return
        words = f"{name} waits to read from the connection {own.local} > {own.remote}"
        end = _other_end(view, own, views)
        if end is None:
            yield f"{words}, whose other end is not known"
            return
        view, other = end
        pid, rank = other.pid, _rank(view, other.pid)
        name = rank.called if rank is not None else f"{other.label} ({other.pid}) on {view.name}"
        does_words = f", which {does(rank)}" if rank is not None else ""
        is_cycle = (view.name, pid) in seen
        yield f"{words}; at its other end is {name}{' again' if is_cycle else does_words}"
        if is_cycle:
            return
        seen.add((view.name, pid))


def _awaited(view: NodeView, pid: int) -> SocketRow | None:
    """The connection that the main thread of a process waits to read from."""
    sockets = view.summary.sockets if view.summary is not None else ()
    return next((row for row in sockets if row.pid == pid and row.is_awaited), None)


def _other_end(
    view: NodeView, own: SocketRow, views: Sequence[NodeView]
) -> tuple[NodeView, SocketRow] | None:
    """The node and process at the other end of a connection.

    Loopback addresses are the same on all machines: their other end is on the same one.
    """
    is_local = own.local.startswith(_LOOPBACK)
    for other in views:
        if is_local and other.host != view.host:
            continue
        for row in other.summary.sockets if other.summary is not None else ():
            if (row.local, row.remote) == (own.remote, own.local):
                return other, row
    return None


def _rank(view: NodeView, pid: int) -> PlacedRank | None:
    ranks = view.summary.ranks if view.summary is not None else ()
    return next((PlacedRank(view, row) for row in ranks if row.pid == pid), None)
