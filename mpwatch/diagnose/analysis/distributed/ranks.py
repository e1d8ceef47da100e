"""Ranks: processes that take part in the same collectives, where each waits for the others.

They wait in a collective, before one of them joins the process group, or for a key in their store;
no system call shows for which of these.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.distributed.flight_recorder import number_of, unfinished, world_size
from mpwatch.diagnose.analysis.distributed.nccl_words import Pending, pending_calls
from mpwatch.diagnose.analysis.idle_time import STALLED_S, is_stalled, quiet_s
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import PipeEnds, channels_among
from mpwatch.diagnose.analysis.process_queries import called, family_head, is_stopped
from mpwatch.diagnose.analysis.source.branches import Guard, branch_of_one_side
from mpwatch.diagnose.analysis.source.lines import are_of_one_function, source_of
from mpwatch.diagnose.analysis.source.origins import Parting, parting
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    collective_of,
    current_collective,
    has_left_collective,
    main_thread,
    outermost_first,
    user_frame,
)
from mpwatch.diagnose.analysis.throughput.shares import is_at_one_wait, shares, with_a_core
from mpwatch.diagnose.analysis.waits.gpu import gpu_wait_s, waits_for_gpu
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import THREADS_OF_A_GROUP, Frame, WaitKind
from mpwatch.model.snapshot import Process, Thread

ALL_STALLED_S = 20.0
"""Where most ranks are elsewhere: so long none of those may have made progress either."""
ALL_INSIDE_S = 30.0
"""All ranks in one collective without cpu time: a slow network moves some data in this time."""
WORKING_S = 300.0
"""Half of the shortest default timeout of a process group (10 minutes with NCCL, 30 with gloo,
torch 2.1 to 2.13): until then a rank that works is reported as information only."""
PAUSE_S = 120.0
"""A rank that does something alone, and wakes up meanwhile, may take this long for it: a tenth or a
fifth of the timeouts that process groups have by default."""
WORKING_PERCENT = 10.0
"""CPU use of a rank that works; one that polls uses less."""
STRAY_SHARE = 0.05
"""So many of the ranks that wait for one may seem to move: one that wakes up for a tick of the cpu
looks like one that goes on. Of 64 ranks on two cores, each did so once in some minutes, so that at
most times one of 128 had just done so (26 November 2026)."""
OF_ALL = frozenset(("all_gather", "all_reduce", "all_to_all", "barrier", "reduce_scatter"))
"""None of its ranks leaves such a collective before all have entered it."""
_BACKWARD = "_engine_run_backward"


def strays(count: int) -> int:
    """How many of so many ranks, or nodes of a job, may be left out by `STRAY_SHARE`."""
    return int(STRAY_SHARE * count)


def in_collective(process: Process) -> str | None:
    """The collective that any of its threads is in; `None` if none."""
    for thread in process.threads:
        name = collective_of(own_frames(thread.stack))
        if name is not None and not has_left_collective(thread):
            return name
    return None


def is_in_backward(process: Process) -> bool:
    """Whether a rank is in a backward pass, as part of which DistributedDataParallel reduces.

    That happens in native code: one that computes looks the same, but uses the cpu.
    """
    thread = main_thread(process)
    return thread is not None and waits_in_backward(thread.stack) and has_group(process)


def collective_share(
    index: Index, rank: Process, least: float, *, is_in_loop: bool = False
) -> float:
    """The share of the time that a rank waits in collectives, of that with a core.

    Such a wait is one for a condition of its own process (gloo), and few stacks are taken: where
    those that were show a collective, or the last one does, the waits without a stack count as
    well. On a loaded machine a few stacks are of a line shortly before.

    Args:
        index: The snapshot.
        rank: The process.
        least: The share of the time with a core that is assumed, at least.
        is_in_loop: Whether other ranks show that it goes through collectives in a loop.
    """
    waits = [each for each in shares(index, rank) if each.activity.kind == "waiting"]
    seen = sum(each.share for each in waits if each.activity.target == "collective")
    alike = [each for each in waits if each.activity.target == "lock"]
    is_shown = is_in_loop or seen > 0 or in_collective(rank) is not None or is_in_backward(rank)
    placed = sum(each.share for each in alike if each.activity.place)
    if is_shown and placed <= seen:
        seen += sum(each.share for each in alike if not each.activity.place)
    return with_a_core(index, rank, seen, least)


def waits_in_backward(stack: Sequence[Frame]) -> bool:
    """Whether native code of autograd runs, or waits, at the top of a stack.

    Also where it is called by a function of torch.distributed that the backward pass calls: a
    communication hook of DistributedDataParallel, or one that reduces what is sharded.
    """
    own = own_frames(stack)
    if not own:
        return False
    return own[0].function == _BACKWARD or (
        "torch/distributed/" in own[0].file and any(each.function == _BACKWARD for each in own)
    )


BACKWARD = "the backward pass"
ON_GPU = "a collective on the GPU"
"""What a rank is taken to be in that waits for the GPU, while another one is elsewhere."""
OF_NCCL = " of NCCL"
"""At the end of the name of a collective on the GPU that others of its ranks have not launched."""
NEW_GROUP = "new_group"
"""Makes a process group; all ranks of the default group have to call it."""
_CALLERS = 3


def place_of(rank: Process, index: Index, for_s: float = 0.0) -> str | None:
    """The collective a rank is in; the backward pass, if it has been stalled in it.

    One that is stopped waits in none: it may have been stopped in the collective before the one
    that the others are in, which ends for them without it.

    Args:
        rank: The rank.
        index: The snapshot.
        for_s: Without progress for so long at least, whatever this one reading shows.
    """
    if is_stopped(rank.sample.state, main_thread(rank)):
        return None
    if _makes_group(rank):
        return NEW_GROUP
    name = in_collective(rank)
    if name is not None:
        return name
    if is_in_backward(rank) and (for_s >= STALLED_S or is_stalled(rank, index)):
        return BACKWARD
    operation = _recorded_wait(rank, index)
    if operation is not None:
        return operation
    pending = _awaited_on_gpu(rank, index)
    if pending is not None:
        return f"{pending.call}{OF_NCCL}"
    return ON_GPU if _waits_on_gpu(rank, index) else None


def _recorded_wait(rank: Process, index: Index) -> str | None:
    """The operation in which torch's recorder has a rank that stands still in native code of torch.

    Of a function that waits for the ranks and is not known by its name.
    """
    thread, record = main_thread(rank), unfinished(rank)
    if thread is None or record is None or rank.has_nccl or not is_stalled(rank, index):
        return None
    own, wait = own_frames(thread.stack), thread.waits_on
    waits = wait is not None and wait.kind == "futex" and wait.timeout_s is None
    return record.operation if waits and own and _OF_TORCH in f"/{own[0].file}" else None


_OF_TORCH = "/torch/"


def _awaited_on_gpu(rank: Process, index: Index) -> Pending | None:
    """The collective of NCCL that a rank waits for, because others have not launched it."""
    number = number_of(rank)
    pending = pending_calls(index).get(number) if number is not None else None
    return pending if pending is not None and _waits_on_gpu(rank, index) else None


def _waits_on_gpu(rank: Process, index: Index) -> bool:
    """Whether a rank of NCCL waits for the GPU.

    A collective of NCCL returns at once; its rank waits at a later line that needs the result.
    """
    thread = main_thread(rank)
    return thread is not None and waits_for_gpu(index, rank, thread) and rank.has_nccl


def all_on_gpu(index: Index) -> Sequence[Process]:
    """The living ranks of NCCL if all of them have waited for the GPU for `ALL_INSIDE_S`."""
    ranks = [p for p in ranks_of(index) if p.has_nccl and has_group(p)]
    waits_s = (gpu_wait_s(rank, index) or 0.0 for rank in ranks)
    return ranks if len(ranks) > 1 and all(wait_s >= ALL_INSIDE_S for wait_s in waits_s) else ()


def standing_s(rank: Process, index: Index) -> float | None:
    """Seconds for which a rank has not got on: without cpu time, or polling for the GPU."""
    waits_s = gpu_wait_s(rank, index)
    if waits_s is None:
        return quiet_s(rank, index)
    pending = _awaited_on_gpu(rank, index)
    return waits_s if pending is None else max(waits_s, pending.same_s)


def unmoved_s(rank: Process, index: Index) -> float | None:
    """Seconds without cpu time, or polling for a collective that others have not launched.

    A rank that polls for the GPU without that may take a long step, and is not meant.
    """
    is_awaiting = _awaited_on_gpu(rank, index) is not None
    return standing_s(rank, index) if is_awaiting else quiet_s(rank, index)


def called_at(rank: Process) -> str:
    """The line of the user's code that the main thread of a rank is at; empty if unknown."""
    thread = main_thread(rank)
    frame = user_frame(thread.stack) if thread is not None else None
    return "" if frame is None else frame_words(frame)


def apart(index: Index, ranks: Sequence[Process]) -> Sequence[str]:
    """The collectives in which ranks wait, in their order, if none of them gets on.

    Returns:
        Nothing where one of them is in none, or may only wait for its own kernels.
    """
    if not all((_stands_s(rank, index) or 0.0) >= STALLED_S for rank in ranks):
        return ()
    places = [place_of(rank, index) for rank in ranks]
    return () if None in places or ON_GPU in places else [f"{place}" for place in places]


def apart_s(index: Index, ranks: Sequence[Process]) -> float:
    """Seconds for which none of some ranks has got on."""
    return min((_stands_s(rank, index) or 0.0 for rank in ranks), default=0.0)


def _stands_s(rank: Process, index: Index) -> float | None:
    """As `standing_s`; a rank that makes a group looks again every 10 s (torch 2.1 to 2.13)."""
    seconds = standing_s(rank, index)
    if _makes_group(rank) and is_at_one_wait(index, rank, _STORE_S):
        return max(seconds or 0.0, _STORE_S)
    return seconds


_STORE_S = 20.0


class GroupsApart(Struct, frozen=True):
    """Ranks that wait in collectives of different process groups, each for another one."""

    cause: str
    advice: str
    is_recorded: bool
    """Whether torch has recorded the groups; else the statements of the calls pass different."""


_PASSED_GROUP = re.compile(r"\b(?:\w+_)?group ?= ?([\w.\[\]]+)", re.IGNORECASE)


_ROOT = re.compile(
    r"\b(?:src|dst|group_src|group_dst)="
    r"([\w.]+[\[(][^\]()]*[\])](?:\.\w+)*|[\w.]+)(?=[,)])"
)
_SECOND = re.compile(
    r"\b(?:broadcast|broadcast_object_list|reduce)\((?:[^,()]|\([^()]*\))+, ?"
    r"([A-Za-z_][\w.]*)(?=[,)])"
)


class PassedRoot(Struct, frozen=True):
    """What a statement passes to a collective as the rank that sends, or to which all send."""

    text: str
    """As an argument: `src=owner`."""
    value: str

    @property
    def name(self) -> str:
        """The variable or attribute that it is; empty for what is computed there, or a number."""
        return self.value if re.fullmatch(r"[A-Za-z_][\w.]*", self.value) else ""


def passed_root(statement: str) -> PassedRoot | None:
    """What a statement passes as the one rank of a collective; `None` without one."""
    found = _ROOT.search(statement) or _SECOND.search(statement)
    if found is None:
        return None
    return PassedRoot(found[0] if "=" in found[0] else found[1], found[1])


def passes_group(statement: str) -> bool:
    """Whether the statement of a call passes a process group to it, as far as words show."""
    return _TAKES_A_GROUP.search(statement) is not None


_TAKES_A_GROUP = re.compile(r"\b(?:\w+_)?group\b", re.IGNORECASE)


def groups_apart(index: Index, ranks: Sequence[Process]) -> GroupsApart | None:
    """Why ranks that are in collectives at different lines do not meet; `None` if not known.

    Each waits for one that is in a collective of another group, so that they have used the groups
    in a different order.
    """
    places: dict[str, tuple[Process, str]] = {}
    for rank in ranks:
        thread, record = main_thread(rank), unfinished(rank)
        frame = user_frame(thread.stack) if thread is not None else None
        line = source_of(index, frame) if frame is not None else None
        passed = _PASSED_GROUP.search(line.statement.text) if line is not None else None
        group = ""
        if record is not None:
            group = f"group {record.group}"
        elif passed is not None:
            group = f"`{passed[1]}`"
        elif line is not None and "group" not in line.statement.text.lower():
            group = "the default group"
        if not group or frame is None:
            return None
        places.setdefault(group, (rank, frame_words(frame)))
    if len(places) < 2 or len({place for _, place in places.values()}) < 2:
        return None
    is_recorded = all(unfinished(rank) is not None for rank in ranks)
    steps = [f"{called(rank)} waits in {group} at {at}" for group, (rank, at) in places.items()]
    found = list(places.values())
    guard = next(
        (
            guard
            for (one, _), (other, _) in permutations(found, 2)
            if (guard := _guard_between(index, one, other)) is not None
        ),
        None,
    )
    why = ""
    if (parted := _parted(index, [rank for rank, _ in found])) is not None:
        why = f" {parted.cause}"
    elif guard is not None:
        why = (
            " Most likely the order depends on a condition that each rank meets by values of its "
            f"own: {guard.words}."
        )
    return GroupsApart(
        cause=(
            f"{'; '.join(steps)}. A collective ends when all ranks of its group have called it, "
            f"and {'' if is_recorded else 'most likely '}these ranks use different groups in a "
            f"different order: each waits in one group for a rank that waits in another.{why}"
        ),
        advice=(
            "Let what decides when each group is used be the same on all ranks (a step that all "
            "count alike, or a value that they have agreed on by an all_reduce), so that all of "
            "them use the groups in one order. A longer timeout changes nothing."
        ),
        is_recorded=is_recorded,
    )


def _parted(index: Index, ranks: Sequence[Process]) -> Parting | None:
    """Where the value comes from by which two of some ranks have parted, where stacks show it."""
    stacks = [thread.stack for rank in ranks if (thread := main_thread(rank)) is not None]
    found = (parting(index, one, other) for one, other in combinations(stacks, 2))
    return next((each for each in found if each is not None and each.is_sure), None)


def _guard_between(index: Index, one: Process, other: Process) -> Guard | None:
    """The condition on data by which one rank is where another one is not."""
    threads = main_thread(one), main_thread(other)
    if threads[0] is None or threads[1] is None:
        return None
    return branch_of_one_side(index, threads[0].stack, threads[1].stack, by_return=True)


def returns_at_once(index: Index, rank: Process) -> bool:
    """Whether the collective that a rank calls may return before the others have entered it."""
    thread = main_thread(rank)
    frame = user_frame(thread.stack) if thread is not None else None
    line = source_of(index, frame) if frame is not None else None
    return rank.has_nccl or line is None or "async_op" in line.statement.text


def called_from(rank: Process) -> str:
    """`called_at` and its callers in the user's code: what calls a collective may be a wrapper."""
    thread = main_thread(rank)
    if thread is None:
        return ""
    own = program_frames(thread.stack)
    return " <- ".join(frame_words(frame) for frame in own[:_CALLERS])


class LeftFunction(Struct, frozen=True):
    """A function in which one rank still is, and which another one has left."""

    line: Frame
    """Where the first of them is in it."""
    past: Frame
    """Where the other one is, in the function that has called it."""


def left_function(index: Index, late: Process, inside: Process) -> LeftFunction | None:
    """The function that a rank has left, by its line and that of another rank in their caller.

    Both stacks agree down to one function, in which the rank is at a later line than the other.
    That may be the next line of one loop, too. A `with` statement at which the other one enters or
    leaves its block, that of a `rank_zero_first()`, is not left by a rank that is in the block.
    """
    its, mine, deeper = _parting(late, inside)
    if its is None or mine is None or mine.line < its.line or not deeper or _is_of_block(deeper):
        return None
    own = [frame for frame in deeper if not is_library(frame)]
    if not own or any(are_of_one_function(index, each, own[0]) for each in outermost_first(late)):
        return None
    return LeftFunction(own[0], mine)


def block_of_one(late: Process, inside: Process) -> Frame | None:
    """The line of the `with` statement at which a rank waits for one that is in its block.

    So work of one rank is put before that of the others: `with rank_zero_first():`.
    """
    its, mine, deeper = _parting(late, inside)
    return its if mine is not None and its is not None and _is_of_block(deeper) else None


def _parting(late: Process, inside: Process) -> tuple[Frame | None, Frame | None, list[Frame]]:
    """Where two ranks are in the innermost function down to which their stacks agree.

    Returns:
        The line of `inside` in it, that of `late`, and the frames of `inside` below that, outermost
        first, with those of libraries; `None` where they are at one line.
    """
    for its, mine in zip(outermost_first(inside), outermost_first(late), strict=False):
        if (its.file, its.function) != (mine.file, mine.function):
            break
        if its.line != mine.line:
            thread = main_thread(inside)
            stack = list(own_frames(thread.stack)) if thread is not None else []
            return its, mine, stack[: stack.index(its)][::-1]
    return None, None, []


def _is_of_block(frames: Sequence[Frame]) -> bool:
    """Whether the first of some frames enters or leaves the block of a `with` statement."""
    return bool(frames) and frames[0].function.rpartition(".")[2] in ("__enter__", "__exit__")


def is_joining(process: Process) -> bool:
    """Whether its main thread waits to join the process group, by its last stack."""
    return joining_call(process) == JOINS[0]


def joining_for_s(ranks: Sequence[Process]) -> float:
    """For how long at least all of them have been waiting to join.

    The rank that hosts the store polls a hundred times a second until all have joined, so its wait
    is always a short one; the others wait for bytes.
    """
    threads = [thread for rank in ranks if (thread := main_thread(rank)) is not None]
    quiet = [t for t in threads if t.waits_on is not None and t.waits_on.kind != "timer"]
    return min(
        (
            0.0 if t.waits_s is None or (t.stack_age_s or 0.0) > t.waits_s else t.waits_s
            for t in quiet or threads
        ),
        default=0.0,
    )


@derived
def rank_groups(index: Index) -> tuple[tuple[Process, ...], ...]:
    """Living ranks with a common parent, by number, where any of them may be in a collective.

    Only one rank of a group may be left.

    Ranks started by torchrun have their number in the environment; those of mp.spawn are known by
    being siblings, and by what they call.
    """
    found = []
    for family in _families(index):
        joined = tuple(filter(has_joined, family)) if any(map(has_group, family)) else family
        if any(_may_be_inside(p, index) for p in joined):
            found.append(joined)
    return tuple(found)


def _may_be_inside(rank: Process, index: Index) -> bool:
    """Whether a rank may be in a collective, by its stacks or by what torch has recorded."""
    is_shown = in_collective(rank) is not None or is_in_backward(rank) or _makes_group(rank)
    return is_shown or _waits_on_gpu(rank, index) or _recorded_wait(rank, index) is not None


def _makes_group(process: Process) -> bool:
    """Whether its main thread is in `new_group`."""
    thread = main_thread(process)
    return thread is not None and calls(
        own_frames(thread.stack), f"distributed_c10d.py:{NEW_GROUP}"
    )


class Joining(NamedTuple):
    """Living ranks with a common parent."""

    ranks: tuple[Process, ...]
    """Those that wait to join the process group."""
    late: tuple[Process, ...]
    """Those that do not wait for it."""


def joining_groups(index: Index) -> Iterator[Joining]:
    """The ranks of each parent of which any waits to join the process group.

    A sibling that does something else is late only if it is known to be a rank.
    """
    for family in _families(index):
        ranks = tuple(filter(is_joining, family))
        late = tuple(rank for rank in family if rank not in ranks)
        if ranks and all(rank.role == "rank" and in_collective(rank) is None for rank in late):
            yield Joining(ranks, late)


def has_group(process: Process) -> bool:
    """Whether a process has the threads of a process group."""
    return any(thread.name.startswith(THREADS_OF_A_GROUP) for thread in process.threads)


@derived
def ranks_of(index: Index) -> Sequence[Process]:
    """The living processes that are ranks by their environment, or have a process group.

    Seven rules ask for them, and of a job without ranks the names of all threads are looked at.
    """
    living = index.snapshot.living()
    return tuple([each for each in living if each.role == "rank" or has_group(each)])


def has_joined(process: Process) -> bool:
    """Whether a process may be in a process group: a spawned helper beside the ranks is not."""
    return (
        process.role != "spawned"
        or has_group(process)
        or "collectives" in process.gauges
        or in_collective(process) is not None
    )


def _families(index: Index) -> Iterator[tuple[Process, ...]]:
    """The living ranks of each parent, by number.

    A parent that is a rank itself is the first of them: Lightning starts the other ranks of a
    machine from the process that is rank 0. It is known by its number, or by its process group.
    """
    families: defaultdict[ProcessId | None, list[Process]] = defaultdict(list)
    by_hand: list[Process] = []
    for process in index.snapshot.living():
        if process.role in ("rank", "spawned"):
            families[_head(index, process)].append(process)
        elif process.role == "main" and process.sample.rank is not None:
            by_hand.append(process)
    for process in by_hand:
        starts_ranks = any(each.role == "rank" for each in families.get(process.process, ()))
        families[process.process if starts_ranks else _head(index, process)].append(process)
    for identity, family in families.items():
        parent = index.snapshot.get(identity) if identity is not None else None
        if (
            parent is not None
            and not parent.is_gone
            and all(each is not parent for each in family)
            and any(each.role == "rank" for each in family)
            and (has_group(parent) or in_collective(parent) is not None)
        ):
            family.append(parent)
        yield tuple(sorted(family, key=lambda p: (p.sample.rank or 0, p.process.start_ticks)))


def _head(index: Index, process: Process) -> ProcessId | None:
    head = family_head(index, process)
    return None if head is None else head.process


OTHERS = "the other ranks in "
STORE = "a key in the ranks' store"
MACHINES = "the other machines of its job"
ITS_RANKS = "the end of its ranks"
JOINS = ("init_process_group", NEW_GROUP)
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
    total = world_size(process)
    if what.removeprefix(OTHERS) not in JOINS:
        need = "Every rank of its group has to take part"
        if total is None or not 1 < len(ranks) < total:
            return f"{need}; none of the others is seen here."
        return f"{need}, and {total - len(ranks)} of {total} ranks are on other machines."
    here = sum(joining_call(rank) is not None for rank in ranks)
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
