"""Waits of a rank that no system call shows: for other ranks, or for a key in their store."""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.pipes import PipeEnds, channels_among
from mpwatch.diagnose.analysis.stack_patterns import calls, current_collective, main_thread
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import WaitKind
from mpwatch.model.snapshot import Process, Thread

OTHERS = "the other ranks in "
STORE = "a key in the ranks' store"
MACHINES = "the other machines of its job"
ITS_RANKS = "the end of its ranks"
JOINS = ("init_process_group", "new_group")
"""What ends once all ranks of a group have called it."""
_AGENT = "elastic/agent/server/api.py"
_READS: frozenset[WaitKind] = frozenset(("socket-read", "poll"))

Wait = tuple[str, tuple[ProcessId, ...]]
"""What is waited for, and which processes can provide it."""


def joining_call(process: Process) -> str | None:
    """The function its main thread waits in for all ranks of a group; `None` if in neither."""
    thread = main_thread(process)
    if thread is None or thread.waits_on is None or not thread.stack:
        return None
    own = own_frames(thread.stack)
    return next((name for name in JOINS if calls(own, f"distributed_c10d.py:{name}")), None)


def is_rank(process: Process) -> bool:
    """Whether it takes part in collectives: started as a rank, or seen in one or at joining."""
    if process.role == "rank" or (process.role == "main" and process.sample.rank is not None):
        return True
    if process.role == "loader-worker":  # most of a large job, asked at each reading
        return False
    return current_collective(process) is not None or joining_call(process) is not None


def rank_wait(
    process: Process, thread: Thread, ranks: Sequence[Process], ends: PipeEnds
) -> Wait | None:
    """What the main thread of a rank waits for at the store; `None` if it does not.

    Args:
        process: One of the ranks.
        thread: Its main thread.
        ranks: All that are seen.
        ends: Which processes hold which socket.
    """
    wait = thread.waits_on
    if wait is None:
        return None
    is_at_store = _is_at_store(process, ends)
    call = joining_call(process)
    others = [rank for rank in ranks if rank.process != process.process and not rank.is_gone]
    # The rank that hosts the store polls until all ranks have joined.
    has_port = "MASTER_PORT" in process.sample.environment
    if call is not None and (is_at_store or wait.kind == "timer" or not has_port):
        # A rank past init_process_group may be waited for by other ranks of its group, or by none.
        # new_group ends for all at once: a rank in another collective has not called it.
        is_first = call == JOINS[0]
        late = [
            rank
            for rank in others
            if joining_call(rank) != call and not (is_first and current_collective(rank))
        ]
        return f"{OTHERS}{call}", _ids(late)
    if not is_at_store:
        return None
    if len(others) + 1 != world_size(process):
        return STORE, ()
    return STORE, _ids([rank for rank in others if not _is_at_store(rank, ends)])


def launcher_wait(process: Process, thread: Thread, living: Sequence[Process]) -> Wait | None:
    """What torchrun waits for in its sleeps: other machines, or its ranks; `None` if neither."""
    own = own_frames(thread.stack)
    if process.role != "launcher" or thread.waits_on is None:
        return None
    if calls(own, f"{_AGENT}:_rendezvous"):
        return MACHINES, ()
    ranks = [p for p in living if p.role == "rank" and p.sample.parent_pid == process.pid]
    if ranks and calls(own, f"{_AGENT}:_invoke_run"):
        return ITS_RANKS, _ids(ranks)
    return None


def world_size(process: Process) -> int | None:
    """The number of ranks of the job according to its environment; `None` if not set."""
    text = process.sample.environment.get("WORLD_SIZE", "")
    return int(text) if text.isascii() and text.isdecimal() else None


def conclusion(process: Process, what: str, ranks: Sequence[Process]) -> str | None:
    """What would end a wait that no observed process can end; `None` for other kinds of wait."""
    if what == MACHINES:
        return (
            "As many machines as --nnodes says have to join, each by a launcher of its own: the"
            " others are late, were not started, or do not reach this address."
        )
    if what == STORE:
        return "Another rank has to set it, one on another machine or one that waits here as well."
    if not what.startswith(OTHERS):
        return None
    if what.removeprefix(OTHERS) not in JOINS:
        return "Every rank of its group has to take part; none of the others is seen here."
    here = sum(joining_call(rank) is not None for rank in ranks)
    total = world_size(process)
    if what.endswith(JOINS[1]) and here > 1 and total in (None, here):
        unseen = "" if total else " Or others are on another machine, or were not started."
        likely = f"{here} ranks are in it and none continues: likely they make different groups."
        return f"{likely} {_GROUPS}{unseen}"
    if total is None:
        do = "do" if here > 1 else "does"
        return (
            f"Every rank has to call it, and {here} seen here {do}: others are on another machine,"
            " were not started, or are not that far yet."
        )
    if here < total:
        return (
            f"WORLD_SIZE is {total}, and {here} of them {'are' if here > 1 else 'is'} here: the"
            " others are late, were not started, or wait at another address."
        )
    return f"All {total} ranks are here: it ends now, unless they wait at different addresses."


_GROUPS = (
    "Every rank of the job has to call new_group for every group, also for those that it is not in,"
    " and all in the same order: one of them has left a call out, or made them in another order."
)


def _is_at_store(process: Process, ends: PipeEnds) -> bool:
    """Whether its main thread waits for an answer of the store."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    return wait is not None and wait.kind in _READS and _is_store(process, ends, wait.targets)


def _is_store(process: Process, ends: PipeEnds, targets: Sequence[str]) -> bool:
    """Whether the other end of all these sockets is the port that the ranks were given."""
    port = process.sample.environment.get("MASTER_PORT")
    channels = channels_among(targets)
    if not channels or len(channels) < len(targets):
        return False
    return port is not None and all(
        ends.addresses.get(channel, "").endswith(f":{port}") for channel in channels
    )


def _ids(processes: Sequence[Process]) -> tuple[ProcessId, ...]:
    return tuple(process.process for process in processes)
