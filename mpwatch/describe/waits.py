"""What a thread waits for in words: the same on every screen, in the account and in reports."""

from __future__ import annotations

import re

from mpwatch.model.samples import WaitKind
from mpwatch.model.waits import WaitEdge

_READER = "a reader of "
"""Begins the name of the wait of a thread that writes, see `diagnose.analysis.waits.edges`."""
_CHANNEL = re.compile(r"(pipe|socket|tcp|udp|unix|\d+ pipes)\b")
_FOR_DATA: frozenset[WaitKind] = frozenset(("pipe-read", "socket-read", "poll"))


def resource_words(target: str) -> str:
    """A target of a system call: `pipe 18174` for `pipe:[18174]`, `semaphore 9:7` for `sem 9:7`."""
    words = target.replace(":[", " ").rstrip("]")
    return f"semaphore {words[4:]}" if words.startswith("sem ") else words


def object_words(kind: WaitKind, what: str) -> str:
    """What a wait is for: `data on pipe 18174`, `room in a full pipe (pipe 18174)`.

    Args:
        kind: Of the wait.
        what: The resource, or a name that says more, which is kept: `batch 417`.
    """
    if kind == "child" and what.startswith("exit of "):
        return f"the {what}"
    name = what.removeprefix(_READER)
    if not _CHANNEL.match(name):
        return what
    if kind in _FOR_DATA:
        return f"data on {name}"
    if kind == "pipe-write":
        return f"room in a full pipe ({name})"
    if kind == "socket-write":
        return f"the other end of {name} to read"
    return f"a connection on {name}" if kind == "accept" else what


def edge_words(edge: WaitEdge) -> str:
    """`waits for data on pipe 18174`."""
    return f"waits for {object_words(edge.kind, edge.what)}"
