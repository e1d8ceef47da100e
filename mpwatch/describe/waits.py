"""What a thread waits for in words: the same on every screen, in the account and in reports."""

from __future__ import annotations

import re

from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import READS, WaitKind
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.waits import SETTLED_S, WaitChain, WaitEdge

_READER = "a reader of "
"""Begins the name of the wait of a thread that writes, see `diagnose.analysis.waits.edges`."""
_CHANNEL = re.compile(r"(pipe|socket|tcp|udp|unix|\d+ pipes)\b")
SEMAPHORE = "semaphore "
"""Begins the name of a semaphore of which no more is known than its number."""
FULL_QUEUE = "room in a full queue"
"""Begins the name of the wait of a process that puts into a queue with a bound."""
FULL_PIPE = "room in a full pipe"
ROOM = "room in"
"""Begins both."""
OF_A_CHILD = "the exit of a child"
LOCK_OF_THREADS = "a lock or condition of its own process"


def resource_words(target: str) -> str:
    """A target of a system call: `pipe 18174` for `pipe:[18174]`, `semaphore 9:7` for `sem 9:7`."""
    words = target.replace(":[", " ").rstrip("]")
    return semaphore_words(words[4:]) if words.startswith("sem ") else words


def semaphore_words(segment: SegmentId | str | None) -> str:
    """`semaphore 9:7`."""
    return f"{SEMAPHORE}{segment}"


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
    if kind in READS:
        return f"data on {name}"
    if kind == "pipe-write":
        return f"{FULL_PIPE} ({name})"
    if kind == "socket-write":
        return f"the other end of {name} to read"
    return f"a connection on {name}" if kind == "accept" else what


def is_passing(chain: WaitChain, snapshot: Snapshot) -> bool:
    """Whether a chain is left out: healthy processes wait so for each other in passing.

    Of a job that was only just looked at, no wait is old, and those with an unknown end are kept;
    also the wait of one process for which none waits, as for a server outside of the job: it may be
    all that is known of a job that is stuck.
    """
    if chain.verdict in ("cycle", "dead-end"):
        return False
    if chain.verdict == "unknown" and snapshot.account.watched_s < SETTLED_S:
        return False
    known = [link.since_s for link in chain.links if link.since_s is not None]
    return bool(known) and max(known) < SETTLED_S


def edge_words(edge: WaitEdge) -> str:
    """`waits for data on pipe 18174`."""
    return f"waits for {object_words(edge.kind, edge.what)}"
