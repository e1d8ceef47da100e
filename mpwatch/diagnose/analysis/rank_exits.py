"""Which rank ended first, and which ended because another had."""

from __future__ import annotations

from collections.abc import Mapping
from signal import Signals

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.exits import death_of
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import WORK_ROLES, family_head
from mpwatch.diagnose.analysis.ranks import BACKWARD, has_group, in_collective, is_in_backward
from mpwatch.diagnose.analysis.stack_patterns import collective_of
from mpwatch.diagnose.known_errors import contains
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, Frame
from mpwatch.model.snapshot import LogEntry, Process

AFTER_S = 20.0
"""Seconds after the exit of a rank in which others fail because of it: a closed connection
is noticed at once, and a rank that computes calls its next collective later."""
PEER_LOST = ("Connection closed by peer", "Connection reset by peer")
"""What gloo says where another rank has ended (gloo, tcp/pair.cc, torch 2.1 to 2.13)."""


def is_rank_with_group(process: Process) -> bool:
    """Whether a process, living or ended, was last seen as a member of a process group."""
    return process.role in WORK_ROLES | {"main"} and (
        has_group(process) or "collectives" in process.gauges
    )


def ranks_beside(index: Index, process: Process) -> list[Process]:
    """The other ranks of its parent, living and ended."""
    head = family_head(index, process)
    return [
        other
        for other in index.snapshot.processes
        if other.process != process.process
        and is_rank_with_group(other)
        and family_head(index, other) == head
    ]


def last_place(process: Process) -> str | None:
    """The collective a rank was last seen in, or the backward pass."""
    return in_collective(process) or (BACKWARD if is_in_backward(process) else None)


def exception_of(index: Index, process: Process) -> LogEntry | None:
    """The last exception that the hook reported of a process."""
    return _exceptions(index).get(process.process)


@derived
def _exceptions(index: Index) -> Mapping[ProcessId | None, LogEntry]:
    return {entry.process: entry for entry in index.entries("exception")}


def failed_for_a_peer(index: Index, process: Process) -> bool:
    """Whether a rank failed in a collective, so that the exit of another rank may be the cause.

    By the exception that the hook reported, else by its last stack.
    """
    if process.ended is None or not is_rank_with_group(process):
        return False
    if death_of(process.ended) not in ("failed", "crash"):
        return False
    told = exception_of(index, process)
    if told is not None:
        return any(contains(told, text) for text in PEER_LOST) or (
            "timeout" in told.words.lower() and collective_of(_frames_of(told)) is not None
        )
    return last_place(process) is not None


def left_before(index: Index, process: Process, ended: Ended) -> Process | None:
    """The rank whose exit ended this one: the first that ended, for a reason of its own.

    Returns:
        `None` if this rank did not fail in a collective, or if none ended before it.
    """
    if not failed_for_a_peer(index, process):
        return None
    earlier = [
        (other.ended.at_s, other)
        for other in ranks_beside(index, process)
        if other.ended is not None
        and 0.0 <= ended.at_s - other.ended.at_s <= AFTER_S
        and death_of(other.ended) not in ("shutdown", "unknown")
        and not _failed_later(index, other, ended)
    ]
    return min(earlier, key=lambda pair: (pair[0], pair[1].pid))[1] if earlier else None


def _failed_later(index: Index, other: Process, ended: Ended) -> bool:
    """Whether the exit of another rank is no earlier cause: it failed for a peer itself.

    Without the hook its last stack may be some seconds old: then the time decides.
    """
    if not failed_for_a_peer(index, other):
        return False
    is_told = exception_of(index, other) is not None
    return is_told or other.ended is None or other.ended.at_s >= ended.at_s


def aborted_in_collective(index: Index, process: Process) -> bool:
    """Whether a rank was ended by SIGABRT while it or another rank was in a collective."""
    ended = process.ended
    if ended is None or ended.signal != Signals.SIGABRT or not is_rank_with_group(process):
        return False
    ranks = ranks_beside(index, process)
    return bool(ranks) and any(
        last_place(rank) is not None or failed_for_a_peer(index, rank) for rank in (process, *ranks)
    )


def _frames_of(entry: LogEntry) -> tuple[Frame, ...]:
    """The frames of a note of the hook; empty if it has none."""
    rows = entry.details.get("frames")
    frames = [
        Frame(str(row[0]), str(row[1]), row[2] if type(row[2]) is int else 0)
        for row in (rows if isinstance(rows, list | tuple) else ())
        if isinstance(row, list | tuple) and len(row) >= 3
    ]
    return tuple(own_frames(frames))
