"""One blocked thread as an edge: what it waits for and which processes could provide it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from mpwatch.describe.frames import own_frames, program_frames
from mpwatch.describe.waits import (
    FULL_QUEUE,
    LOCK_OF_THREADS,
    resource_words,
    semaphore_words,
)
from mpwatch.diagnose.analysis.distributed.flight_recorder import world_size
from mpwatch.diagnose.analysis.distributed.ranks import (
    BACKWARD,
    OTHERS,
    is_in_backward,
    is_rank,
    launcher_wait,
    rank_groups,
    rank_wait,
)
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import (
    LISTENS,
    PipeEnds,
    all_links,
    channels_among,
    pipe_ends,
)
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    family_head,
    is_stopped,
    loader_owners,
)
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.stack_patterns import (
    HOOK_THREAD,
    Shape,
    calls,
    collective_of,
    current_collective,
    has_left_collective,
    main_thread,
    own_threads,
    shape_in,
    shape_of,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.connections import (
    Answering,
    answering,
    peer_of_wait,
)
from mpwatch.diagnose.analysis.waits.file_locks import (
    LOCK_FILE,
    LOCK_ON,
    has_open,
    holders_for,
    holds_it_itself,
    retried_lock,
)
from mpwatch.diagnose.analysis.waits.futures import (
    POOL_END,
    POOL_RESULT,
    awaited_inside,
    awaited_result,
    handles_a_pool,
    joins_a_pool,
    workers_at_work,
)
from mpwatch.diagnose.analysis.waits.providers import (
    HELD_BY_WAITERS,
    UNHELD,
    held_lock,
    is_held_by_waiters,
    is_left,
    likeliest_first,
    semaphore_uses,
)
from mpwatch.diagnose.analysis.waits.servers import key_wait, managed_wait
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import FILE_LOCK_CALLS, READS, Channel, WaitedOn, WaitKind
from mpwatch.model.snapshot import Loader, Process, Snapshot, Thread
from mpwatch.model.waits import WaitEdge

BUSY_PERCENT = 3.0
"""A thread that uses more than this is running, even if found waiting; a poll uses less."""

QUEUE_FEEDER = "its queue's feeder thread"
"""The name of the wait of a process that exits, or joins a queue's thread, with items unsent."""

CLIENTS = "a client of "
"""Begins the name of the wait of a server for a connection."""

UNUSED = ", the other end of which no living process uses"
UNACCEPTED = ", which is not accepted yet"
"""End of the name of a wait whose other end is held only by processes that inherited it."""

_IDLE_SHAPES: frozenset[Shape] = frozenset(
    ("worker-idle", "pool-idle", "feeder-idle", "sharer", "pin-thread")
)
SOMETHING_TO_DO = "something to do"
_OUTSIDE: frozenset[WaitKind] = frozenset(
    ("socket-read", "socket-write", "accept", "signal", "unknown")
)


class ReadContext(Struct, frozen=True):
    """The data from which edges are derived, indexed once for a snapshot."""

    index: Index
    pipes: PipeEnds
    workers: dict[ProcessId, tuple[Process, ...]]
    """DataLoader workers by the process that started them."""
    heads: dict[ProcessId, ProcessId]
    """The process that started each DataLoader worker."""
    by_pid: dict[int, Process]
    ranks: tuple[Process, ...]
    """Processes that take part in collectives now."""
    is_complete: bool
    """Whether descriptors and mappings of every living process were read: then absence counts."""
    loaders: dict[ProcessId, list[Loader]] = field(default_factory=dict)

    def has_ended(self, process: ProcessId) -> bool:
        """Whether one that was started here is dead, reaped or not."""
        found = self.by_pid.get(process.pid)
        return found is not None and (found.ended is not None or found.sample.state == "Z")


@derived
def surroundings(index: Index) -> ReadContext:
    """Index a snapshot for resolving edges."""
    workers = {owner.process: mine for owner, mine in loader_owners(index)}
    loaders: defaultdict[ProcessId, list[Loader]] = defaultdict(list)
    for loader in index.snapshot.loaders:
        loaders[loader.process].append(loader)
    ends = pipe_ends(index)
    # A rank of mp.spawn that is in no collective now is known by its siblings.
    grouped = {rank.process for ranks in rank_groups(index) for rank in ranks}
    return ReadContext(
        index=index,
        pipes=ends,
        workers=workers,
        heads={worker.process: owner for owner, mine in workers.items() for worker in mine},
        by_pid={process.pid: process for process in index.snapshot.processes},
        is_complete=ends.is_complete and _segments_known(index.snapshot),
        ranks=tuple(p for p in index.snapshot.living() if p.process in grouped or is_rank(p)),
        loaders=dict(loaders),
    )


@derived
def semaphore_users(index: Index) -> Mapping[SegmentId, tuple[ProcessId, ...]]:
    """The processes that map each semaphore, by the segments and by each process's own mappings."""
    users: defaultdict[SegmentId, dict[ProcessId, None]] = defaultdict(dict)
    for segment in index.snapshot.segments:
        users[segment.segment].update(dict.fromkeys(segment.mappers))
    for process in index.snapshot.living():
        for use in process.sample.segments or ():
            if use.kind == "semaphore" and use.ranges:
                users[use.segment][process.process] = None
    return {segment: tuple(holders) for segment, holders in users.items()}


def _segments_known(snapshot: Snapshot) -> bool:
    """Whether the mappings of every living process were read."""
    return all(p.sample.segments is not None for p in snapshot.living() if p.sample.state != "Z")


def is_busy(thread: Thread) -> bool:
    """Whether a thread runs, or did so since the last reading.

    One that looks for a lock file again and again may be found awake, and waits all the same.
    """
    if (thread.cpu_percent or 0.0) >= BUSY_PERCENT:
        return True
    return thread.state == "R" and shape_of(thread.stack) != "lock-file"


def blocked_for_s(thread: Thread) -> float | None:
    """How long a thread has used no cpu and waited for the same; `None` if that is unknown.

    A thread that waits for something else most of the time may be found in a wait for a lock of its
    process: in the moment in which it starts a thread, say. Without a limit, only the time of that
    wait counts.
    """
    wait = thread.waits_on
    is_in_lock = wait is not None and wait.kind == "futex" and wait.timeout_s is None
    times = (thread.still_s, thread.waits_s, thread.futex_s if is_in_lock else None)
    known = [each for each in times if each is not None]
    return None if thread.still_s is None else min(known)


def edges_of(around: ReadContext, process: Process) -> Iterator[WaitEdge]:
    """The waits of one process: of its main thread, and of others where they mean something."""
    main = main_thread(process)
    lock = held_lock(around.index, process.process)
    for thread in process.threads:
        is_at_work = thread.state == "R" and is_busy(thread)
        if is_at_work or thread.state == "Z" or thread.name == HOOK_THREAD:
            continue
        decides = thread is main or (lock is not None and thread is lock.holder)
        edge = _edge(around, process, thread, is_main=decides)
        if edge is not None:
            yield edge


def _edge(
    around: ReadContext, process: Process, thread: Thread, *, is_main: bool
) -> WaitEdge | None:
    """The edge of one thread; `None` where its waiting says nothing."""
    wait = thread.waits_on
    shape = shape_in(around.index, thread.stack)
    if thread.state == "t" and not is_stopped(thread.state, thread):
        return None
    if thread.state in ("T", "t"):
        by = "a signal" if thread.state == "T" else "a debugger or tracer"
        return _made(process, thread, "stopped", f"stopped by {by}", (), is_ordinary=True)
    if thread.state == "D":
        what = ", ".join(wait.targets) if wait is not None and wait.targets else "a disk or driver"
        return _made(process, thread, "disk", what, ())
    if process.role in SERVICE_ROLES:
        return _service_edge(process, thread) if is_main else None
    by_stack = _edge_from_stack(around, process, thread, shape) if thread.stack else None
    if by_stack is None and is_main:
        by_stack = _edge_of_rank(around, process, thread)
    key = key_wait(around.index, around.pipes, process, thread) if is_main else None
    if by_stack is None and key is not None:
        return _made(process, thread, "socket-read", *key)
    if by_stack is not None:
        return by_stack
    if wait is None:
        return None
    if not is_main and not (_is_telling(wait, thread) and _serves_main(process, thread)):
        return None
    return _edge_from_call(around, process, thread, wait, is_main=is_main)


def answers_to(
    around: ReadContext, edges: Sequence[WaitEdge]
) -> Mapping[tuple[ProcessId, int, ProcessId], Answering]:
    """The thread of a server that has a connection, by the thread that waits and the server."""
    found = {}
    for edge in edges:
        client = around.index.snapshot.get(edge.waiter)
        if client is None or edge.kind not in ("socket-read", "poll"):
            continue
        thread = next((each for each in client.threads if each.tid == edge.tid), None)
        if thread is None or peer_of_wait(around.pipes, thread) is None:
            continue
        for server in map(around.index.snapshot.get, edge.providers):
            if server is None:
                continue
            answer = answering(around.index, around.pipes, client, thread, server)
            if answer is not None:
                found[edge.waiter, edge.tid, server.process] = answer
    return found


def edge_of_answering(around: ReadContext, answer: Answering) -> WaitEdge | None:
    """What the thread that has the connection of a client waits for itself; `None` if it runs."""
    process, thread = answer.server, answer.thread
    wait = thread.waits_on
    if is_busy(thread):
        return None
    if thread.state in ("T", "t", "D"):
        return _edge(around, process, thread, is_main=False)
    shape = shape_in(around.index, thread.stack)
    by_stack = _edge_from_stack(around, process, thread, shape) if thread.stack else None
    if by_stack is not None or wait is None:
        return by_stack
    return _edge_from_call(around, process, thread, wait, is_main=True)


def _is_telling(wait: WaitedOn, thread: Thread) -> bool:
    """Whether the wait of a thread that is not the main one means something by itself."""
    if wait.kind in ("pipe-write", "semaphore"):
        return True
    if wait.kind == "pipe-read":
        return bool(thread.stack)
    # Both ends of a Pipe are sockets; threads of libraries that read one serve clients.
    return wait.kind == "socket-read" and user_frame(thread.stack) is not None


def _serves_main(process: Process, thread: Thread) -> bool:
    """Whether a thread is none of a Pool, or main waits for what that Pool returns.

    The threads of a Pool wait for its workers for as long as it lives, whatever main does.
    """
    if not handles_a_pool(thread):
        return True
    main = main_thread(process)
    frames = own_frames(main.stack) if main is not None else ()
    return awaited_result(frames) == POOL_RESULT or joins_a_pool(frames)


def _service_edge(process: Process, thread: Thread) -> WaitEdge | None:
    """Helpers of multiprocessing are idle until another process needs them."""
    if thread.waits_on is None:
        return None
    return _made(process, thread, thread.waits_on.kind, "orders", (), is_ordinary=True)


def _edge_from_stack(
    around: ReadContext, process: Process, thread: Thread, shape: Shape
) -> WaitEdge | None:
    """What a recognised stack waits for; `None` leaves it to the system call."""
    kind: WaitKind = thread.waits_on.kind if thread.waits_on is not None else "unknown"
    if shape == "worker-idle":
        head = around.heads.get(process.process)
        heads = (head,) if head is not None else ()
        return _made(process, thread, kind, "work", heads, "stack", is_ordinary=True)
    if shape == "waits-for-batch":
        what, providers = _batch(around, process)
        return _made(process, thread, kind, what, providers, "stack")
    if shape == "collective" and not has_left_collective(thread):
        return _collective_edge(around, process, thread, kind)
    if shape == "joins-queue":
        return _made(process, thread, kind, QUEUE_FEEDER, (process.process,), "stack")
    managed = managed_wait(around.index, around.pipes, process, thread)
    if managed is not None:
        return _made(process, thread, kind, *managed, "stack")
    retried = retried_lock(around.index, process, thread)
    if retried is not None:
        what, path = retried
        found = holders_for(around.index, process, path)
        return _made(process, thread, "unknown", what, found, "stack")
    if shape == "lock-file":
        # It polls every few milliseconds: its sleep says nothing.
        return _made(process, thread, "unknown", LOCK_FILE, (), "stack")
    if shape == "debugger":
        return _made(
            process, thread, kind, "a person at the debugger", (), "stack", is_ordinary=True
        )
    if shape in _IDLE_SHAPES:
        return _made(process, thread, kind, SOMETHING_TO_DO, (), "stack", is_ordinary=True)
    return None


def _batch(around: ReadContext, process: Process) -> tuple[str, tuple[ProcessId, ...]]:
    """The batch a main process waits for and the workers that can send it."""
    workers = around.workers.get(process.process, ())
    waiting = [x for x in around.loaders.get(process.process, []) if x.waiting_since_s is not None]
    for loader in waiting:
        if loader.owner_worker is None:
            continue
        owners = tuple(w.process for w in workers if w.sample.worker_id == loader.owner_worker)
        if owners:
            number = "" if loader.next_task is None else f" {loader.next_task}"
            return f"batch{number}", owners
    return "a batch", tuple(worker.process for worker in workers)


def _collective_edge(
    around: ReadContext, process: Process, thread: Thread, kind: WaitKind
) -> WaitEdge:
    """A rank waits for those that are not in the same collective; for any other if all are.

    Those that are in it with this one keep nobody waiting where the job has ranks elsewhere.
    """
    mine = collective_of(own_frames(thread.stack)) or ""
    others = [rank for rank in around.ranks if rank.process != process.process]
    late = [rank for rank in others if current_collective(rank) != mine]
    are_all = (world_size(process) or 0) <= len(others) + 1
    providers = tuple(rank.process for rank in late or (others if are_all else ()))
    return _made(process, thread, kind, f"the other ranks in {mine}", providers, "stack")


def _edge_of_rank(around: ReadContext, process: Process, thread: Thread) -> WaitEdge | None:
    """A rank that waits for others to join or to set a key, or the launcher that waits for them.

    Also one whose backward pass is done but for what another rank has to add.
    """
    late = _late_in_backward(around, process, thread)
    if late:
        return _made(process, thread, "futex", f"{OTHERS}{BACKWARD}", late, "stack")
    kind: WaitKind = "child"
    found = launcher_wait(process, thread, around.index.snapshot.living())
    if found is None and any(rank is process for rank in around.ranks):
        kind, found = "unknown", rank_wait(process, thread, around.ranks, around.pipes)
    if found is None:
        return None
    edge = _made(process, thread, kind, *found, "stack" if thread.stack else "")
    # A poll begins anew each time.
    is_poll = thread.waits_on is not None and thread.waits_on.kind == "timer"
    return replace(edge, since_s=None) if is_poll else edge


def _late_in_backward(
    around: ReadContext, process: Process, thread: Thread
) -> tuple[ProcessId, ...]:
    """The ranks that still work, where this one waits in a backward pass without computing."""
    wait = thread.waits_on
    if wait is None or wait.kind != "futex" or not is_in_backward(process):
        return ()
    others = [rank for rank in around.ranks if rank.process != process.process]
    mains = {rank.process: main for rank in others if (main := main_thread(rank)) is not None}
    return tuple(identity for identity, main in mains.items() if is_busy(main))


def _edge_from_call(
    around: ReadContext, process: Process, thread: Thread, wait: WaitedOn, *, is_main: bool
) -> WaitEdge:
    """What a system call waits for."""
    own = process.process
    channels = channels_among(wait.targets)
    ends = around.pipes
    server = next((c for c in channels if LISTENS in ends.addresses.get(c, "")), None)
    if server is not None:
        what = f"{CLIENTS}{ends.addresses[server].replace(LISTENS, ' ')}"
        return _made(process, thread, wait.kind, what, (), is_ordinary=True)
    if ends.outward.isdisjoint(channels):
        if wait.kind in ("pipe-write", "socket-write") and channels:
            readers = _others(ends.readers.get(channels[0], ()), own)
            what = f"a reader of {ends.words(channels[0])}"
            return _made(process, thread, wait.kind, what, readers)
        if wait.kind in READS and channels:
            return _read_edge(around, process, thread, wait, channels)
    if wait.kind == "semaphore" and wait.segment is not None:
        return _semaphore_edge(around, process, thread, wait.segment)
    if wait.call in FILE_LOCK_CALLS and wait.targets:
        return _file_lock_edge(around, process, thread, wait)
    if wait.kind == "child":
        return _made(process, thread, wait.kind, *_children(around, process, wait))
    if wait.kind == "futex":
        # Only a thread of this very process can end it.
        inside = awaited_inside(own_frames(thread.stack)) if thread.stack else None
        if is_main and inside is None and joins_a_pool(own_frames(thread.stack)):
            inside = POOL_END
        workers = workers_at_work(around.index, process) if is_main and inside else ()
        if workers and inside is not None:
            return _made(process, thread, wait.kind, inside, workers, "stack")
        what = inside or LOCK_OF_THREADS
        return _made(
            process,
            thread,
            wait.kind,
            what,
            (own,) if len(own_threads(around.index, process)) > 1 else (),
        )
    what = ", ".join(_target_words(ends, wait)[:3]) or wait.call
    is_ordinary = wait.kind in _OUTSIDE and not is_main
    return _made(process, thread, wait.kind, what, (), is_ordinary=is_ordinary)


def _semaphore_edge(
    around: ReadContext, process: Process, thread: Thread, segment: SegmentId
) -> WaitEdge:
    """A lock, condition, barrier or full queue that processes share."""
    index = around.index
    mappers = semaphore_users(index).get(segment, ())
    if around.is_complete and is_left(index, segment, mappers):
        return _made(process, thread, "semaphore", f"{semaphore_words(segment)}{UNHELD}", ())
    if around.is_complete and is_held_by_waiters(index, segment, mappers):
        return _made(
            process, thread, "semaphore", f"{semaphore_words(segment)}{HELD_BY_WAITERS}", ()
        )
    users = _others(mappers, process.process)
    # A worker without a task does nothing until its parent gives it one.
    users = tuple(each for each in users if not _is_idle_worker(index, each)) or users
    use = semaphore_uses(index).get(process.process)
    name = semaphore_words(segment)
    if use is not None and use.what and use.segment == segment:
        name = f"{use.what} ({name})"
    providers = likeliest_first(index, process, users, segment)
    return _made(process, thread, "semaphore", name, providers)


def _is_idle_worker(index: Index, identity: ProcessId) -> bool:
    """Whether it is a worker of a Pool or a DataLoader that waits for a task."""
    process = index.snapshot.get(identity)
    thread = main_thread(process) if process is not None else None
    return thread is not None and shape_in(index, thread.stack) in ("pool-idle", "worker-idle")


def _file_lock_edge(
    around: ReadContext, process: Process, thread: Thread, wait: WaitedOn
) -> WaitEdge:
    """A lock on a file, held by a process of the job or by one outside of it."""
    path, holder = wait.targets[0], wait.holder
    known = holders_for(around.index, process, path)
    if known or holds_it_itself(around.index, process, path):
        return _made(process, thread, wait.kind, f"{LOCK_ON}{path}", known)
    if holder is None:
        return _made(process, thread, wait.kind, f"{LOCK_ON}{path}", ())
    found = around.by_pid.get(holder.pid)
    if found is not None and not found.is_gone and found.process != process.process:
        return _made(process, thread, wait.kind, f"{LOCK_ON}{path}", (found.process,))
    heirs = tuple(
        other.process
        for other in around.index.snapshot.living()
        if other.process != process.process and has_open(other, path)
    )
    if heirs and not holder.name:
        what = f"{LOCK_ON}{path}, taken by process {holder.pid}, which has exited"
        return _made(process, thread, wait.kind, what, heirs)
    name = f" ({holder.name})" if holder.name else ", which has exited"
    what = f"{LOCK_ON}{path}, taken by process {holder.pid}{name} outside of this job"
    return _made(process, thread, wait.kind, what, ())


def _target_words(ends: PipeEnds, wait: WaitedOn) -> list[str]:
    """What is waited for, sockets by their address."""
    found = [(target, channels_among((target,))) for target in wait.targets]
    return [
        ends.words(numbers[0])
        if numbers and numbers[0] in ends.addresses
        else resource_words(target)
        for target, numbers in found
    ]


def _read_edge(
    around: ReadContext,
    process: Process,
    thread: Thread,
    wait: WaitedOn,
    channels: tuple[Channel, ...],
) -> WaitEdge:
    """A wait for something to read, from the processes that hold the other end.

    Forked workers inherit write ends that they never use. So between main and its workers, only
    main counts as the writer for its workers, and only the workers for main.
    """
    writers = {
        holder: None
        for channel in channels
        for holder in _others(around.pipes.writers.get(channel, ()), process.process)
    }
    what = _channels_words(around.pipes, channels, wait.targets)
    if around.pipes.unaccepted.issuperset(channels):
        accepting = tuple(each for each in writers if _accepts(around, each))
        return _made(process, thread, wait.kind, f"{what}{UNACCEPTED}", accepting or tuple(writers))
    head = around.heads.get(process.process)
    if head is not None and head in writers:
        return _made(process, thread, wait.kind, f"work on {what}", (head,), is_ordinary=True)
    mine = tuple(w.process for w in around.workers.get(process.process, ()) if w.process in writers)
    if mine:
        return _made(process, thread, wait.kind, f"a batch on {what}", mine)
    is_of_queue = calls(own_frames(thread.stack), "multiprocessing/queues.py:get")
    closer = None if is_of_queue else _closer(around, process, channels)
    users = tuple(
        each
        for each in writers
        if not _reads_elsewhere(around, each, process, channels)
        and (closer is None or not _serves_their_parent(around, each, process, closer))
        and (
            is_of_queue
            or _watches_other_end(around, each, channels)
            or not has_only_inherited(around, each, process)
        )
    )
    is_left = (
        is_of_queue
        and wait.timeout_s is None
        and around.is_complete
        and _only_ended_writers(around, process, thread, users)
    )
    if writers and (not users or is_left) and wait.timeout_s is None:
        return _made(process, thread, wait.kind, f"{what}{UNUSED}", ())
    return _made(process, thread, wait.kind, what, users or tuple(writers))


def _accepts(around: ReadContext, holder: ProcessId) -> bool:
    """Whether a thread of a process is in a call of accept(), also in what that does after it.

    Other holders of a listening socket may have inherited it by a fork.
    """
    process = around.index.snapshot.get(holder)
    return process is not None and any(
        calls(own_frames(thread.stack), ":accept") for thread in process.threads
    )


def _reads_elsewhere(
    around: ReadContext, holder: ProcessId, reader: Process, channels: tuple[Channel, ...]
) -> bool:
    """Whether a process talks to the reader by sockets of its own, and waits for data on those.

    It has inherited the other end of `channels`, as forked siblings do: each uses the one end that
    it was made for. The parent of the reader has made the pair and inherited nothing of it. Of
    pipes nothing follows: a process that waits for an order on one may answer on another.
    """
    process = around.index.snapshot.get(holder)
    thread = main_thread(process) if process is not None else None
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.kind not in READS or holder.pid == reader.sample.parent_pid:
        return False
    own, ends = channels_among(wait.targets), around.pipes
    if not own or len(own) < len(wait.targets) or not ends.addresses.keys() >= set(own):
        return False
    if not {ends.peers.get(channel) for channel in channels}.isdisjoint(own):
        return False
    return all(reader.process in ends.writers.get(each, ()) for each in own)


def _watches_other_end(
    around: ReadContext, holder: ProcessId, channels: tuple[Channel, ...]
) -> bool:
    """Whether a thread of a process waits for data on the other end of what another one reads.

    An event loop sends from coroutines, which are on no stack.
    """
    process = around.index.snapshot.get(holder)
    ends = {around.pipes.peers.get(channel) for channel in channels}
    return process is not None and any(
        not ends.isdisjoint(channels_among(thread.waits_on.targets))
        for thread in process.threads
        if thread.waits_on is not None
    )


def has_only_inherited(around: ReadContext, holder: ProcessId, reader: Process) -> bool:
    """Whether a process has the other end of something by its fork alone, and never writes to it.

    It has one Python thread, which waits for data, and no function on its stack sends or writes
    anything, as far as the source shows. The parent of the reader has made what it reads.
    """
    process = around.index.snapshot.get(holder)
    thread = main_thread(process) if process is not None else None
    wait = thread.waits_on if thread is not None else None
    if process is None or thread is None or wait is None or wait.kind not in READS:
        return False
    if process.sample.start_method != "fork" or holder.pid == reader.sample.parent_pid:
        return False
    own = program_frames(thread.stack)
    lines = [source_of(around.index, frame) for frame in own]
    return (
        bool(own)
        and sum(bool(each.stack) for each in own_threads(around.index, process)) == 1
        and all(each is not None and not each.may_send for each in lines)
    )


def closed_by_parent(
    around: ReadContext, reader: Process, channels: Sequence[Channel]
) -> Process | None:
    """The parent of a process that has closed what that one reads, of which a sibling has a copy.

    `None` where no sibling is known to have it by its fork alone, see `_serves_their_parent`.
    """
    parent = _closer(around, reader, channels)
    if parent is None:
        return None
    holders = {each for channel in channels for each in around.pipes.writers.get(channel, ())}
    is_kept = any(_serves_their_parent(around, each, reader, parent) for each in holders)
    return parent if is_kept else None


def _closer(around: ReadContext, reader: Process, channels: Sequence[Channel]) -> Process | None:
    """The parent of a process, if it has closed what that one reads, and waits for that one.

    It sends nothing more, and waits for what comes after the end of file: an answer or the exit.
    """
    parent = around.by_pid.get(reader.sample.parent_pid)
    thread = main_thread(parent) if parent is not None else None
    wait = thread.waits_on if thread is not None else None
    ends = around.pipes
    if parent is None or wait is None or not ends.is_complete or not channels:
        return None
    if any(each in ends.addresses for each in channels):
        return None
    if any(parent.process in ends.writers.get(each, ()) for each in channels):
        return None
    awaited = channels_among(wait.targets)
    is_answer = wait.kind in READS and len(awaited) == len(wait.targets) > 0
    is_answer = is_answer and all(reader.process in ends.writers.get(each, ()) for each in awaited)
    is_exit = wait.kind == "child" and wait.targets == (f"pid {reader.pid}",)
    return parent if is_answer or is_exit else None


def _serves_their_parent(
    around: ReadContext, holder: ProcessId, reader: Process, parent: Process
) -> bool:
    """Whether a process has what its older sibling reads by its fork, and pipes of its own to use.

    It waits for an order of the parent of both, and has another pipe for the answer, which was made
    after the fork of the reader: that one has no end of it. So what the reader reads is no part of
    its work. The parent has closed its own end, and waits for the reader (`_closer`).
    """
    process = around.index.snapshot.get(holder)
    thread = main_thread(process) if process is not None else None
    wait = thread.waits_on if thread is not None else None
    if process is None or wait is None or wait.kind not in READS:
        return False
    is_sibling = process.sample.parent_pid == parent.pid and process.sample.start_method == "fork"
    if not is_sibling or holder.start_ticks < reader.process.start_ticks:
        return False
    orders = channels_among(wait.targets)
    writers = around.pipes.writers
    if not orders or len(orders) < len(wait.targets):
        return False
    if not all(parent.process in writers.get(each, ()) for each in orders):
        return False
    links = all_links(around.index)
    theirs = {each.channel for each in links.get(reader.process, ())}
    read = {
        each.channel
        for each in links.get(parent.process, ())
        if each.kind == "pipe" and each.is_writable is False
    }
    return any(
        each.kind == "pipe" and each.is_writable and each.channel in read - theirs
        for each in links.get(holder, ())
    )


def ended_holders(
    around: ReadContext, process: Process, thread: Thread | None
) -> tuple[Process, ...]:
    """Ended children and siblings of a process that had, or may have had, what it reads from.

    Those of which it is known that they had it, if there are any.
    """
    near = process.pid, process.sample.parent_pid
    gone = [
        child
        for child in around.index.snapshot.processes
        if child.ended is not None and child.sample.parent_pid in near
    ]
    known = {child.process: has_had(around, child, thread) for child in gone}
    sure = [child for child in gone if known[child.process]]
    mine = [child for child in gone if child.sample.parent_pid == process.pid]
    return tuple(sure or [child for child in mine if known[child.process] is not False])


def has_had(around: ReadContext, process: Process, thread: Thread | None) -> bool | None:
    """Whether a process had what a thread reads from when last read; `None` if not known."""
    wait = thread.waits_on if thread is not None else None
    channels = channels_among(wait.targets) if wait is not None else ()
    ends = {around.pipes.peers.get(channel, channel) for channel in channels}
    fds = process.sample.fds
    if fds is None or fds.links is None:
        return None
    return any(link.channel in ends and link.is_writable is not False for link in fds.links)


def _only_ended_writers(
    around: ReadContext, process: Process, thread: Thread, users: Sequence[ProcessId]
) -> bool:
    """Whether what wrote to a queue has ended, as far as what the living ones wait for shows.

    One that waits for room in a full queue has put into another one: this one is empty. Where all
    the living ones do so, and none but they and the reader has these other queues, nothing comes.
    """
    gone = ended_holders(around, process, thread)
    if not any(each.ended is not None and each.ended.exit_code for each in gone):
        return False
    uses, known = semaphore_uses(around.index), {process.process, *users}
    mappers = semaphore_users(around.index)
    for user in users:
        use, other = uses.get(user), around.index.snapshot.get(user)
        main = main_thread(other) if other is not None else None
        wait = main.waits_on if main is not None else None
        if use is None or use.what != FULL_QUEUE or use.segment is None:
            return False
        if (
            wait is None
            or wait.timeout_s is not None
            or not known.issuperset(mappers.get(use.segment, ()))
        ):
            return False
    return bool(users)


def _channels_words(ends: PipeEnds, channels: tuple[Channel, ...], targets: Sequence[str]) -> str:
    """The name of one channel, or the number of several."""
    if len(channels) == 1:
        return ends.words(channels[0])
    has_sockets = not ends.addresses.keys().isdisjoint(channels)
    return f"{len(channels)} pipes or sockets" if has_sockets else f"{len(channels)} pipes"


def _children(
    around: ReadContext, process: Process, wait: WaitedOn
) -> tuple[str, tuple[ProcessId, ...]]:
    """The children whose end is waited for."""
    named = [t.removeprefix("pid ") for t in wait.targets if t.startswith("pid ")]
    found = [
        around.by_pid[int(pid)] for pid in named if pid.isdigit() and int(pid) in around.by_pid
    ]
    if named:
        return f"exit of {named[0]}", tuple(child.process for child in found)
    children = [
        child
        for child in around.index.snapshot.living()
        if (head := family_head(around.index, child)) is not None
        and head.process == process.process
    ]
    return "exit of any child", tuple(child.process for child in children)


def _others(holders: tuple[ProcessId, ...], own: ProcessId) -> tuple[ProcessId, ...]:
    return tuple(holder for holder in holders if holder != own)


def _made(
    process: Process,
    thread: Thread,
    kind: WaitKind,
    what: str,
    providers: tuple[ProcessId, ...],
    layer: str = "",
    *,
    is_ordinary: bool = False,
) -> WaitEdge:
    """An edge with where it is known from."""
    call = thread.waits_on.call if thread.waits_on is not None else ""
    evidence = f"stack ({thread.stack_source})" if layer == "stack" else f"system call {call}"
    return WaitEdge(
        waiter=process.process,
        tid=thread.tid,
        kind=kind,
        what=what,
        providers=providers,
        since_s=blocked_for_s(thread),
        evidence=evidence if layer or call else f"state {thread.state}",
        is_ordinary=is_ordinary,
    )
