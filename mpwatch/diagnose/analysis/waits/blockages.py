"""Processes at the end of wait chains that make no progress, and the processes that wait for them.

A process that waits for work by design is not waiting for the process that would give it some: a
server, a pool worker, a consumer whose parent is busy with something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.describe.frames import is_library, own_frames
from mpwatch.diagnose.analysis.idle_time import TICK_S, gets_before_limit, mean_cpu_percent, quiet_s
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import channels_among, listening_at
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, family_head
from mpwatch.diagnose.analysis.stack_patterns import (
    Shape,
    calls,
    main_thread,
    own_threads,
    shape_in,
)
from mpwatch.diagnose.analysis.throughput.shares import main_account
from mpwatch.diagnose.analysis.waits.chains import answering_threads, wait_graph
from mpwatch.diagnose.analysis.waits.edges import ReadContext, blocked_for_s, is_busy, surroundings
from mpwatch.diagnose.analysis.waits.file_locks import LOCK_FILE, LOCK_ON
from mpwatch.diagnose.analysis.waits.threads import is_at_exit
from mpwatch.diagnose.analysis.waits.verdicts import NO_TASK, RECEIVES, UNANSWERED
from mpwatch.model.account import RUNNING_KINDS, Activity, Target
from mpwatch.model.history import columns
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FILE_LOCK_CALLS, OPENS, WaitKind
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.waits import WaitChain, WaitEdge

Reason: TypeAlias = Literal[
    "sleeps",
    "polls",
    "computes",
    "receives",
    "stopped",
    "socket",
    "pipe",
    "file-lock",
    "disk",
    "fifo",
    "thread",
    "signal",
    "other",
]
"""What the last process of a chain does. `polls`: sleeps again and again; `receives`: gets
requests, and has not sent what is waited for; `pipe`: reads a file that is a pipe of which no
process of the job has the writing end; `fifo`: opens a FIFO of which no process opens the other
end; `thread`: waits for another thread of its own; `signal`: waits for a signal; `other`: waits for
something outside of the job."""

GOES_ON: frozenset[Reason] = frozenset(("computes", "polls", "receives"))
"""Of a process at the end of a chain: so far not known to stand still."""
UNWATCHED = GOES_ON | {"stopped"}
"""What says nothing of the process itself: only those that wait for it are watched for progress."""
_FOR_WORK: frozenset[WaitKind] = frozenset(
    ("pipe-read", "socket-read", "poll", "semaphore", "futex", "accept", "unknown")
)
_HELD_UP: frozenset[Shape] = frozenset(("lock-between-processes", "collective", "lock-file"))
"""Kinds of waits that are never for work, whichever process can end them."""
_JOINS: frozenset[Shape] = frozenset(("joins-process", "shuts-workers-down"))
_GENERATIONS_LIMIT = 8
_READ_FROM: frozenset[Target] = frozenset(("queue", "pipe", "socket"))
"""What a main thread has to read from to get on."""
POLLS_PERCENT = 5.0
"""CPU use of a process that only waits with a time limit, again and again."""
POLLS_PER_S = 5.0
"""One that waits without a time limit, and is found at nothing else, gets something if it is woken
up so often; at fewer times it may ask by several calls in vain."""
WORKS_PERCENT = 20.0
"""CPU use of a thread that may work for another one of its process."""
MOSTLY = 0.9
"""The part of the readings that find a process at the one thing that it does."""
AWAKE_READINGS = 1.2
"""So many of the readings may find it at something else, however few they are."""
LOOPS_S = 20.0
LEFT_S = 1.0
"""A thread that has slept at one line for `LOOPS_S`, with less than this left, sleeps in a loop."""
USUAL_FACTOR = 1.5
"""A pause that is this many times longer than any before (`usual_pause_s`) is not a usual one."""
LEAST_S = 2.5
"""A shorter wait is not followed: most chains of a healthy job are younger."""


class Blockage(Struct, frozen=True):
    """A process that makes no progress, or takes long, and the processes that wait for it."""

    process: Process
    reason: Reason
    chain: WaitChain
    """The longest wait chain that ends at it."""
    waiters: tuple[Process, ...]
    """Processes that cannot continue without it, the root first; empty if it is stuck alone."""
    waited_s: float
    """Seconds for which none of them has made progress."""
    edge: WaitEdge | None = None
    """The wait that leads to the process; `None` if none waits for it."""

    @property
    def thread(self) -> Thread | None:
        """The thread that it depends on, of the process at the end: mostly the main thread."""
        return _deciding_thread(self.process, self.chain)


@derived
def blockages(index: Index) -> tuple[Blockage, ...]:
    """All of a snapshot, the one most processes wait for first; without cycles and dead ends."""
    graph = wait_graph(index)
    edges = {(edge.waiter, edge.tid): edge for edge in graph.edges}
    found: dict[ProcessId, Blockage] = {}
    for chain in graph.chains:
        if chain.verdict in ("cycle", "dead-end") or not _has_lasted(index, chain):
            continue
        one = _blockage(index, chain, edges)
        if one is not None:
            before = found.get(one.process.process)
            found[one.process.process] = one if before is None else _both(index, before, one)
    return tuple(sorted(found.values(), key=lambda each: -len(each.waiters)))


def _has_lasted(index: Index, chain: WaitChain) -> bool:
    """Whether the first process of a chain has made no progress for some seconds."""
    first = index.snapshot.get(chain.links[0].process)
    waited = without_progress_s(first, index) if first is not None else None
    return waited is not None and waited >= LEAST_S


def without_progress_s(process: Process, index: Index) -> float | None:
    """Seconds for which a process that others wait for, or that waits, has got no further.

    Returns:
        As `quiet_s`; of one that waits for a file lock, or tries for it again and again, the time
        for which the same process has kept it; of one that polls a pipe or socket, the time for
        which nothing came. `None` if it was not watched.
    """
    quiet = quiet_s(process, index)
    edge = _file_lock_edges(index).get(process.process)
    if edge is None:
        if quiet is None:
            return None
        longest_s = max(quiet, _polled_in_vain_s(index, process.process))
        return min(longest_s, _in_one_phase_s(index, process.process))
    kept_s = _kept_s(index, edge)
    thread = main_thread(process)
    if thread is not None and thread.waits_on is not None and thread.waits_on.kind == "timer":
        return kept_s or 0.0
    return quiet if quiet is None or kept_s is None else min(quiet, kept_s)


@derived
def _in_one_phase_s(index: Index, identity: ProcessId) -> float:
    """Seconds since a main thread went over from a long sleep to a wait or back, by its account.

    One that first slept for a quota and then waits for its pool got on in between, however little
    cpu time that took. A loop that does both again and again has no such phases. Infinite where the
    account shows none but the present one.
    """
    account = main_account(index, identity)
    other = _OTHER_PHASE.get(account.now.kind) if account is not None else None
    if account is None or other is None:
        return float("inf")
    seconds = 0.0
    for bucket in reversed(account.buckets):
        seen = bucket.tally.seen
        weights = [each for activity, each in seen.items() if activity.kind == other]
        if weights and sum(weights) >= MOSTLY * sum(seen.values()):
            return seconds
        seconds += bucket.tally.observed_s
    return float("inf")


_OTHER_PHASE: Mapping[str, str] = {"sleeping": "waiting", "waiting": "sleeping"}


def stalled_s(process: Process, index: Index) -> float | None:
    """Seconds for which a process has made no progress, also if it tries for a file lock meanwhile.

    Returns:
        As `without_progress_s` of a process that waits for a file lock, as `quiet_s` of others.
    """
    tries = process.process in _file_lock_edges(index)
    return without_progress_s(process, index) if tries else quiet_s(process, index)


@derived
def _file_lock_edges(index: Index) -> Mapping[ProcessId, WaitEdge]:
    """The wait of each process whose main thread waits for a file lock."""
    return {
        edge.waiter: edge
        for edge in wait_graph(index).edges
        if edge.tid == edge.waiter.pid and edge.what.startswith((LOCK_FILE, LOCK_ON))
    }


def _kept_s(index: Index, edge: WaitEdge) -> float | None:
    """For how long readings have found a process waiting for one file lock of the same holder.

    Processes that take turns at a lock make progress, however long one of them waits. A holder that
    has not run since has had it all the time: to take a lock, a process has to run.

    Returns:
        Seconds; of the last minute, up to now, where the holder runs, and `None` where no account
        says it.
    """
    held_s = [
        quiet_s(holder, index) or 0.0
        for each in edge.providers
        if (holder := index.snapshot.get(each)) is not None and not holder.is_gone
    ]
    stood_s = min(held_s) if held_s and len(held_s) == len(edge.providers) else 0.0
    account = main_account(index, edge.waiter)
    if account is None:
        return stood_s or None
    seconds = 0.0
    for bucket in reversed(account.buckets):
        seen = bucket.tally.seen
        same = sum(weight for each, weight in seen.items() if _is_same_lock(each, edge))
        if same < MOSTLY * sum(seen.values()):
            break
        seconds += bucket.tally.observed_s
    return max(seconds, stood_s)


@derived
def _polled_in_vain_s(index: Index, identity: ProcessId) -> float:
    """Seconds for which a main thread has only waited for one pipe or socket, with a time limit.

    Each time the limit ends, the thread wakes up and waits again: that is no progress as long as it
    reads nothing. 0 where that is not known.
    """
    process = index.snapshot.get(identity)
    account = main_account(index, identity)
    read = index.history.of(identity, "main_read_bytes")
    if process is None or account is None or not read:
        return 0.0
    cpu_percent = mean_cpu_percent(process, index.history)
    if cpu_percent is None or cpu_percent > POLLS_PERCENT or _gets(index, process):
        return 0.0
    found: set[Activity] = set()
    seconds = 0.0
    for bucket in reversed(account.buckets):
        seen = bucket.tally.seen
        most = max(seen, key=seen.__getitem__, default=None)
        if most is None or most.kind != "waiting" or most.target not in _READ_FROM:
            break
        if seen[most] < MOSTLY * sum(seen.values()):
            break
        found.add(most)
        if len(found) > 1:
            break
        seconds += bucket.tally.observed_s
    return min(seconds, index.snapshot.at_s - read[-1].at_s)


def _gets(index: Index, process: Process) -> bool:
    return gets_before_limit(index, process, endless_per_s=POLLS_PER_S)


def _is_same_lock(activity: Activity, edge: WaitEdge) -> bool:
    if activity.target != "lock":
        return False
    if activity.what == LOCK_FILE:
        return edge.what.startswith(LOCK_FILE)
    # Without providers: the holder was not read at that moment.
    return activity.what == edge.what and activity.providers in ((), edge.providers)


@derived
def at_one_line_s(index: Index, identity: ProcessId) -> float:
    """Seconds of the last minute, up to now, in which a main thread slept in one function only."""
    account = main_account(index, identity)
    if account is None:
        return 0.0
    functions: set[str] = set()
    seconds = awake = total = readings = 0.0
    for bucket in reversed(account.buckets):
        tally = bucket.tally
        sleeping = [each for each in tally.seen if each.kind == "sleeping"]
        functions |= {each.place.partition(" ")[2] for each in sleeping if each.place}
        running = sum(each for what, each in tally.seen.items() if what.kind in RUNNING_KINDS)
        asleep = sum(map(tally.seen.__getitem__, sleeping))
        observed = sum(tally.seen.values())
        # One that waits for a core is found running, and uses no cpu time.
        awake += observed - asleep - running + min(running, tally.cpu_s)
        total += observed
        readings += tally.readings
        # A loop that looks again is found just awake now and then.
        one_s = total / readings if readings else 0.0
        is_awake = awake > max(AWAKE_READINGS * one_s, (1 - MOSTLY) * total)
        if is_awake or len(functions) > 1:
            break
        seconds += tally.observed_s
    return seconds


def _both(index: Index, one: Blockage, other: Blockage) -> Blockage:
    """Two chains that end at the same process, or the older one where the other has just begun.

    A process that gets an item now and then would otherwise be said to have waited as long as one
    that has waited at a lock since.
    """
    old, new = (one, other) if one.waited_s >= other.waited_s else (other, one)
    if new.waited_s < old.waited_s / 2:
        return old
    longer = one if len(one.chain.links) >= len(other.chain.links) else other
    waiters = dict.fromkeys(each.process for each in (*one.waiters, *other.waiters))
    return Blockage(
        longer.process,
        longer.reason,
        longer.chain,
        _root_first(index, waiters),
        new.waited_s,
        longer.edge,
    )


def _root_first(index: Index, waiters: dict[ProcessId, None]) -> tuple[Process, ...]:
    """Processes in the order of the tree."""
    return tuple(each for each in index.snapshot.processes if each.process in waiters)


def _blockage(
    index: Index, chain: WaitChain, edges: dict[tuple[ProcessId, int], WaitEdge]
) -> Blockage | None:
    """What one chain ends at; `None` where its processes are idle by design or make progress."""
    end = index.snapshot.get(chain.links[-1].process)
    if end is None or end.is_gone or end.role in SERVICE_ROLES:
        return None
    reason = _reason(index, end, chain)
    if reason is None:
        return None
    waiters = dict.fromkeys(_held_up(index, chain, edges))
    waiters.pop(end.process, None)
    if not waiters and not _is_stuck_alone(end, reason):
        return None
    thread = _deciding_thread(end, chain)
    is_answering = thread is not None and (end.process, thread.tid) in answering_threads(index)
    is_unwatched = reason in UNWATCHED or is_answering
    watched = [*waiters] if is_unwatched else [*waiters, end.process]
    known = [
        without_progress_s(process, index)
        for process in map(index.snapshot.get, watched)
        if process is not None
    ]
    times = [each for each in known if each is not None]
    if not times or len(times) < len(watched):
        return None
    before = chain.links[-2] if waiters and len(chain.links) > 1 else None
    key = None if before is None or before.process is None else (before.process, before.tid or 0)
    edge = None if key is None else edges.get(key)
    return Blockage(end, reason, chain, _root_first(index, waiters), min(times), edge)


def _deciding_thread(process: Process, chain: WaitChain) -> Thread | None:
    """The thread of the last process that a chain leads to."""
    tid = chain.links[-1].tid
    return next((each for each in process.threads if each.tid == tid), main_thread(process))


def _reason(index: Index, end: Process, chain: WaitChain) -> Reason | None:
    """What the last process of a chain does; `None` if it is idle by design."""
    thread = _deciding_thread(end, chain)
    if thread is None or end.sample.state in ("Z", "t"):
        return None
    if thread.state == "T":
        return "stopped"
    if chain.verdict == "ordinary" or _waits_for_a_person(thread):
        return None
    if chain.conclusion in (*UNANSWERED, NO_TASK):
        return None  # a client may wait for news; a rule of its own is about calls of a Pool
    if chain.conclusion == RECEIVES:
        return "receives"
    own = own_threads(index, end)
    is_known = (end.process, thread.tid) in answering_threads(index)
    # Another thread may work for this one; one that looks for requests again and again does not.
    if is_busy(thread) or any(
        (each.cpu_percent or 0.0) >= WORKS_PERCENT if is_known else is_busy(each) for each in own
    ):
        return "computes"
    return _reason_of_wait(index, end, thread)


def _reason_of_wait(index: Index, end: Process, thread: Thread) -> Reason | None:
    """As `_reason`, by the system call of a main thread that is blocked."""
    wait = thread.waits_on
    if thread.state == "D":
        return "disk"
    if wait is None:
        return None
    if shape_in(index, thread.stack) == "lock-file" or wait.call in FILE_LOCK_CALLS:
        return "file-lock"
    if any(target.startswith(OPENS) for target in wait.targets):
        return "fifo"
    if wait.kind == "timer":
        is_main = thread is main_thread(end)
        quiet = quiet_s(end, index) if is_main else blocked_for_s(thread)
        is_long = quiet is not None and quiet >= 1.0
        if is_main and _sleeps_anew(index, end, thread):
            is_long = False
        return "sleeps" if is_long else "polls"
    if _awaits_an_answer(surroundings(index), end, thread):
        return "socket"
    if _reads_to_the_end(surroundings(index), thread):
        return "pipe"
    if wait.kind == "futex":
        return "thread"
    return "signal" if wait.kind == "signal" else "other"


def _sleeps_anew(index: Index, process: Process, thread: Thread) -> bool:
    """Whether a thread has been at one line for much longer than its sleeps take.

    How much of this sleep is left says that: a single long one has so little left at its end only.
    """
    wait = thread.waits_on
    left_s = wait.timeout_s if wait is not None else None
    return (
        left_s is not None and left_s < LEFT_S and at_one_line_s(index, process.process) >= LOOPS_S
    )


def _waits_for_a_person(thread: Thread) -> bool:
    """Whether it reads a terminal or its standard input."""
    wait = thread.waits_on
    if wait is None:
        return False
    is_terminal = any(target.startswith(("/dev/pts/", "/dev/tty")) for target in wait.targets)
    return is_terminal or (wait.kind in ("pipe-read", "poll", "unknown") and wait.fds == (0,))


def _held_up(
    index: Index, chain: WaitChain, edges: dict[tuple[ProcessId, int], WaitEdge]
) -> Iterator[ProcessId]:
    """Processes of a chain that cannot continue, without those that wait for an idle one."""
    links = chain.links
    for place in range(len(links) - 2, -1, -1):
        link, after = links[place], links[place + 1]
        waiter, provider = index.snapshot.get(link.process), index.snapshot.get(after.process)
        edge = None if link.process is None else edges.get((link.process, link.tid or 0))
        if waiter is None or provider is None or edge is None:
            return
        if waiter.process == provider.process:
            continue
        if _is_for_work(index, waiter, provider, edge) or _only_joins(index, waiter, edge):
            return
        yield waiter.process


def _is_for_work(index: Index, waiter: Process, provider: Process, edge: WaitEdge) -> bool:
    """Whether a wait is by design: for orders, or for work from the process that started it."""
    if edge.is_ordinary or waiter.role in SERVICE_ROLES:
        return True
    if edge.kind not in _FOR_WORK or edge.what.startswith((LOCK_FILE, LOCK_ON)):
        return False
    if _shape(index, waiter) in _HELD_UP and not _gets_from_queue(waiter):
        return False
    above: Process | None = waiter
    for _ in range(_GENERATIONS_LIMIT):
        above = family_head(index, above) if above is not None else None
        if above is None or above.process == provider.process:
            break
    return above is not None


def _shape(index: Index, process: Process) -> Shape:
    """The shape of the main thread's stack, once for all processes with equal stacks."""
    thread = main_thread(process)
    return "" if thread is None else shape_in(index, thread.stack)


def _gets_from_queue(process: Process) -> bool:
    """Whether it reads a queue; then the lock it may wait for is that of the queue's readers."""
    thread = main_thread(process)
    return thread is not None and calls(own_frames(thread.stack), "queues.py:get")


def _only_joins(index: Index, waiter: Process, edge: WaitEdge) -> bool:
    """Whether it waits for the exit of a process, as a parent or a launcher does all the time.

    At its own exit that is another matter: the program is through, and the child is not.
    """
    thread = main_thread(waiter)
    frames = own_frames(thread.stack) if thread is not None else ()
    is_join = edge.kind == "child" or _shape(index, waiter) in _JOINS
    if not is_join:
        return False
    return not calls(frames, "util.py:_exit_function")


def _is_stuck_alone(process: Process, reason: Reason) -> bool:
    """Whether what a process waits for is no work, so that it is stuck also if none waits for it.

    A process that sleeps or computes is not; nor is a thread that waits for another one with
    something of threading: servers do so for their whole life. Only at the end of the program it is
    worth to know.
    """
    if reason == "thread":
        thread = main_thread(process)
        frames = own_frames(thread.stack) if thread is not None else ()
        timeout_s = thread.waits_on.timeout_s if thread and thread.waits_on else None
        is_own = bool(frames) and not is_library(frames[0])
        return timeout_s is None and (is_own or (thread is not None and is_at_exit(thread)))
    return reason in ("socket", "pipe", "file-lock", "disk", "fifo")


def _reads_to_the_end(around: ReadContext, thread: Thread) -> bool:
    """Whether a thread reads a pipe as a file, and no process of the job can write to it.

    Standard input is left out, and so are the pipes of multiprocessing: of one worker, looked at
    alone, the other ends are in its parent.
    """
    wait, own = thread.waits_on, own_frames(thread.stack)
    if wait is None or wait.kind not in ("pipe-read", "poll") or wait.fds == (0,) or not own:
        return False
    is_output = calls(own, "subprocess.py:_communicate")
    is_file = wait.kind == "pipe-read" and (
        not is_library(own[0]) or own[0].file.endswith("/subprocess.py")
    )
    channels = channels_among(wait.targets)
    writers = [around.pipes.writers.get(channel) for channel in channels]
    is_known = around.is_complete and len(channels) == len(wait.targets) > 0
    return (is_file or is_output) and is_known and not any(writers)


def _awaits_an_answer(around: ReadContext, process: Process, thread: Thread) -> bool:
    """Whether a thread waits for the other end of a connection that the process has opened.

    A connection that it has accepted, at a port on which it listens, is one of a server that waits
    for the next request.
    """
    wait = thread.waits_on
    if wait is None or wait.kind not in ("socket-read", "socket-write", "poll"):
        return False
    channels = channels_among(wait.targets)
    if len(channels) != 1 or len(wait.targets) != 1:
        return False
    address = around.pipes.addresses.get(channels[0], "")
    if (
        channels[0] not in around.pipes.outward
        or not address.startswith("tcp ")
        or (" > " not in address)
    ):
        return False
    local = address.removeprefix("tcp ").partition(" > ")[0].rpartition(":")[2]
    return local not in listening_at(process)


def usual_pause_s(index: Index, process: Process) -> float:
    """The longest time without progress that a process has come back from, while it was watched.

    Returns:
        Seconds; 0 where nothing is known.
    """
    moments, values = columns(index.history.of(process.process, "cpu_percent"))
    longest_s, active_at_s = 0.0, None
    for place in range(1, len(moments)):
        at_s = moments[place]
        if values[place] / 100 * (at_s - moments[place - 1]) > TICK_S:
            if active_at_s is not None:
                longest_s = max(longest_s, at_s - active_at_s)
            active_at_s = at_s
    return longest_s
