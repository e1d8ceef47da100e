"""Which rank ended first, and which ended because another had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from signal import Signals
from typing import Literal

from msgspec import Struct

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.distributed.ranks import (
    BACKWARD,
    has_group,
    in_collective,
    is_in_backward,
)
from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import (
    GAP_TICKS,
    WORK_ROLES,
    age_s,
    family_head,
)
from mpwatch.diagnose.analysis.stack_patterns import collective_of
from mpwatch.diagnose.known_errors import gives
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, Frame
from mpwatch.model.snapshot import LogEntry, Process

AFTER_S = 20.0
"""Seconds after the exit of a rank in which others fail because of it: a closed connection
is noticed at once, and a rank that computes calls its next collective later."""
SOON_S = 3.0
"""The same where neither an exception nor a stack says that a rank was in a collective."""
TEARDOWN_S = 3.0
"""Seconds by which a rank that returned may end after those that failed because of it: it closes
its connections as the interpreter is torn down, before the process ends."""


NOTICED_S = 3.0
"""An exit may be known so late on a loaded machine: readings are a second apart there, or more."""


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


def is_started_again(index: Index, process: Process) -> bool:
    """Whether its launcher runs a new rank of the same number after the first that ended.

    A rank that ends again after that has a fault that a restart does not remove.
    """
    head = family_head(index, process)
    if head is None or head.is_gone or process.sample.rank is None:
        return False
    same = [
        other
        for other in index.snapshot.processes
        if other.sample.rank == process.sample.rank and family_head(index, other) == head
    ]
    later = [each for each in same if each.process.start_ticks > process.process.start_ticks]
    return len(same) == 1 + len(later) == 2 and not later[0].is_gone


def is_of_earlier_attempt(index: Index, gone: Process, ranks: Iterable[Process]) -> bool:
    """Whether one of some living ranks was started when a rank had ended, or in its place.

    Then both have never been in one process group. An exit is noticed up to some readings later:
    the one that has its name counts as started in its place, however soon it was, and one that was
    started well after it, and right before its exit was noticed, as started when it had ended.
    """
    for rank in ranks:
        after = rank.process.start_ticks - gone.process.start_ticks
        if rank.label == gone.label and after > 0:
            return True
        age = age_s(index.snapshot, rank)
        ended_s = index.snapshot.at_s - gone.ended.at_s if gone.ended is not None else None
        late_s = NOTICED_S if after > GAP_TICKS else 0.0
        if age is not None and ended_s is not None and ended_s + late_s > age:
            return True
    return False


def earlier_attempt(index: Index, ranks: Sequence[Process]) -> list[Process]:
    """The ranks of the same parent that had ended before these were started, or in their place."""
    return [
        each
        for each in ranks_beside(index, ranks[0])
        if each.is_gone and is_of_earlier_attempt(index, each, ranks)
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
    exception = exception_of(index, process)
    if exception is not None:
        return gives(exception, "peer-lost") or (
            gives(exception, "timed-out") and collective_of(_frames_of(exception)) is not None
        )
    return last_place(process) is not None


class FatalExit(Struct, frozen=True):
    """A rank whose exit ended others."""

    rank: Process
    ended: Ended
    sure: Literal["certain", "likely", "possible"]
    """By the exception of the other rank, by its last stack, or by the time alone."""


def left_before(index: Index, process: Process, ended: Ended) -> FatalExit | None:
    """The rank whose exit ended this one: the first that ended for a reason of its own.

    Returns:
        `None` if this rank failed for another reason, or if none ended before it.
    """
    if death_of(ended) not in ("failed", "crash") or not is_rank_with_group(process):
        return None
    is_reported = exception_of(index, process) is not None
    is_peers = failed_for_a_peer(index, process)
    if is_reported and not is_peers:
        return None
    within_s = AFTER_S if is_peers else SOON_S
    late_s = TEARDOWN_S if is_peers else 0.0
    earlier = [
        (other.ended.at_s, other.pid, other, other.ended)
        for other in ranks_beside(index, process)
        if other.ended is not None
        and (death := death_of(other.ended)) != "shutdown"
        and ended.at_s - other.ended.at_s <= within_s
        and ended.at_s - other.ended.at_s >= -(late_s if death == "normal" else 0.0)
        and not _failed_later(index, other, ended)
    ]
    if not earlier:
        return None
    *_, rank, end = min(earlier, key=lambda each: each[:2])
    return FatalExit(rank, end, "certain" if is_reported else "likely" if is_peers else "possible")


def _failed_later(index: Index, other: Process, ended: Ended) -> bool:
    """Whether the exit of another rank is no earlier cause: it failed for a peer itself.

    Without the hook its last stack may be some seconds old: then the time decides.
    """
    if not failed_for_a_peer(index, other):
        return False
    is_reported = exception_of(index, other) is not None
    return is_reported or other.ended is None or other.ended.at_s >= ended.at_s


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
