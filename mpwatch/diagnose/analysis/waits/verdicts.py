"""How a chain of waits ends: in progress, at a dead end, or outside of the processes observed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.frames import at_frame, frame_words, is_library, own_frames, program_frames
from mpwatch.describe.processes import STATE_D, full_name, names_text
from mpwatch.describe.waits import edge_words
from mpwatch.diagnose.analysis.distributed.ranks import OTHERS, conclusion, is_in_backward
from mpwatch.diagnose.analysis.idle_time import gets_before_limit
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import channels_among
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, family_head
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.source.loops import LOOP_ENDS, condition_of
from mpwatch.diagnose.analysis.stack_patterns import (
    HOOK_THREAD,
    calls,
    has_stacks,
    main_shape,
    main_thread,
    own_threads,
    runs_event_loop,
    shape_in,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.connections import (
    Answering,
    all_wait_to_receive,
)
from mpwatch.diagnose.analysis.waits.edges import (
    CLIENTS,
    QUEUE_FEEDER,
    UNUSED,
    ReadContext,
    blocked_for_s,
    closed_by_parent,
    ended_holders,
    has_had,
    is_busy,
    semaphore_users,
)
from mpwatch.diagnose.analysis.waits.file_locks import LOCK_FILE, LOCK_ON, holds_it_itself
from mpwatch.diagnose.analysis.waits.futures import (
    IMPORT_LOCK,
    abandoned,
    awaited_inside,
    importing,
)
from mpwatch.diagnose.analysis.waits.gpu import waits_for_gpu
from mpwatch.diagnose.analysis.waits.providers import (
    HELD_BY_WAITERS,
    UNHELD,
    ThreadLock,
    ended_children,
    held_lock,
    nested_in,
    thread_words,
    words_of,
)
from mpwatch.diagnose.analysis.waits.servers import MANAGED
from mpwatch.diagnose.analysis.waits.threads import (
    is_idle_loop,
    joined_executor,
    may_still_receive,
    older_threads,
    threads_at_fork,
    threads_that_wait_for_each_other,
    waits_for_a_callback,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FILE_LOCK_CALLS, OPENS, READS, Frame, WaitKind
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Statement
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import SETTLED_S, Verdict, WaitEdge

ENDED_SHOWN = 3
_SHARED: frozenset[WaitKind] = frozenset(
    ("pipe-read", "pipe-write", "socket-read", "socket-write", "poll", "semaphore")
)
"""Waits that some process has to end."""

_LOCK_FILE_ENDS = (
    "The process that holds the lock file, in this job or another, has to release it. The file of "
    "a SoftFileLock, or of torch's build of an extension, stays when its holder is killed: then "
    "the file has to be removed."
)


_FIFO_ENDS = "The open of a FIFO returns when another process opens its other end; none has."
_HOLDER_HIDDEN = (
    "The kernel shows no holder: it is in another container or on another machine, or the lock "
    "changes hands at this moment."
)

LEFT_LOCK = "Every process that has this lock is seen outside of its block: none will release it."
TAKEN_TWICE = "Only processes that wait for it have it: some took it before, and want it once more."
NO_WRITER = "No other process has the writing end: nothing will ever arrive."
ONE_THREAD = "Only another thread of the process could end this wait, and there is none."
ALL_THREADS = "All threads of the process wait for another one: none is left to end this wait."
OWN_LOCK = "It holds this lock itself: the same function is on its stack twice, and took it before."
OWN_BLOCK = "It holds this lock itself: a function that it is still in has taken it before."
OWN_QUEUE = (
    "It holds this lock itself: it is in the same queue twice, the second time in a function that "
    "has interrupted the first, as a signal handler or a finalizer does."
)
OWN_LOG = (
    "It holds this lock itself: put() has logged the start of its feeder thread while it held the "
    "lock, and a handler puts that record into a queue by the same method."
)

ONLY_THREAD = (
    "It is the only thread of this process, so it has taken this lock itself, or a thread that has "
    "ended had it: no process is left to release it."
)
ONLY_A_CALLBACK = (
    "Besides the threads of its Pool, which has no work, no thread is there to end this wait."
)
IDLE_LOOP = (
    "Its event loop watches only its own wake-up socket, and no timer, thread or signal is there "
    "that could wake it up."
)
PYTHON_LOCK = 9
"""The command of a futex that Python's locks use (FUTEX_WAIT_BITSET, futex(2))."""
BOTH_READ = (
    "Both ends of this connection wait to receive, and no other thread is left to send there."
)
MAY_BOTH_READ = (
    "Both ends of this connection wait to receive: it ends only if another thread sends there."
)
IN_USE = (
    "The other end is woken up again and again where it waits to receive: this connection is in "
    "use."
)
IN_PASSING = (
    "Both ends were found waiting to receive, one read after the other, and no wait is known to "
    "last: between two messages that is normal."
)
IN_COROUTINE = (
    "A coroutine of its event loop has this connection; what coroutines wait for is on no stack."
)
AMONG_OTHERS = (
    "It watches this connection among others: it waits for more data on it, or for another one."
)
OF_OWN_THREAD = "Only another thread of the same process can end this wait."
UNSEEN = "It has this connection, and nothing shows which of its threads is to answer."
NO_TASK = "Its call is in no queue and no worker has it, so no worker sends a result any more."
RECEIVES = (
    "It is woken up again and again where it waits to receive: it goes on, and has not sent what "
    "the other one waits for."
)
UNANSWERED = (MAY_BOTH_READ, IN_COROUTINE, AMONG_OTHERS, UNSEEN)
"""Conclusions about a server that seems to wait for its clients, one of which waits for it."""
OUTSIDE = (
    "It is outside of what is watched: other processes of this job, which were not looked at, may "
    "end it."
)
_WORK_FROM_OUTSIDE = "It waits for work, which comes from outside of what is watched."
OWN_FILE_LOCK = (
    "It holds this lock itself: it has opened the file twice, and a lock of flock() belongs to the "
    "open file, not to the process."
)


class WaitEnd(Struct, frozen=True):
    """Why a chain goes no further than a process."""

    verdict: Verdict
    words: str
    """What that process does, to follow its name."""
    conclusion: str
    tid: int | None = None
    """The thread that it depends on; `None`: the main thread."""


def end_at(around: ReadContext, process: Process, edges: Sequence[WaitEdge]) -> WaitEnd | None:
    """Why a chain ends at this process; `None` if it waits for another one.

    Args:
        around: What edges were resolved against.
        process: Where the chain has arrived.
        edges: Its telling edges, that of the main thread first.
    """
    if process.ended is not None:
        words = f"ended: {process.ended.words}"
        how = f"{process.label} has exited, so this wait can never complete."
        return WaitEnd("dead-end", words, how)
    if process.sample.state == "Z":
        how = f"{process.label} has exited (its parent has not reaped it)."
        return WaitEnd("dead-end", "is a zombie", how)
    lock = held_lock(around.index, process.process)
    if lock is not None:
        return _end_of_held_lock(around.index, process, edges, lock)
    busy = [t for t in process.threads if is_busy(t) and t.name != HOOK_THREAD]
    main = main_thread(process)
    if main is not None and waits_for_gpu(around.index, process, main):
        return WaitEnd("unknown", f"waits for the GPU{where(process)}", _END_OF_KERNELS)
    if busy and (main in busy or not edges):
        return WaitEnd("progress", f"runs{where(process)}", f"{process.label} is working.")
    if process.role in SERVICE_ROLES:
        how = "It is a helper process of multiprocessing, which is idle by design."
        return WaitEnd("ordinary", "waits for requests", how)
    if not edges:
        state = f"is in state {process.sample.state}"
        return WaitEnd("unknown", state, "What it waits for is unknown.")
    if edges[0].kind == "child" and any(map(around.has_ended, edges[0].providers)):
        # It was read before that end, or is not through with it.
        words = f"{edge_words(edges[0])}{where(process)}"
        return WaitEnd("progress", words, "That child has exited: the wait ends now.")
    if edges[0].what.startswith(CLIENTS):
        return _end_of_edge(around, process, edges[0])
    if edges[0].kind == "futex" and (blocked := self_blocked(around.index, process.process)):
        # Whatever its other threads do, this one never comes back, and keeps the lock.
        return WaitEnd("dead-end", f"{edge_words(edges[0])}{where(process)}", blocked.conclusion)
    if edges[0].kind == "futex" and waits_for_a_callback(around.index, process.process):
        return WaitEnd("dead-end", f"{edge_words(edges[0])}{where(process)}", ONLY_A_CALLBACK)
    result = abandoned(around.index, process.process) if edges[0].kind == "futex" else None
    if result is not None and result.kind in ("importing", "nested"):
        # Whatever its workers wait for: what they need has to come from this process.
        return WaitEnd("dead-end", f"{edge_words(edges[0])}{where(process)}", result.words)
    joined = _end_of_joined(around.index, process, edges)
    if joined is not None:
        return joined
    if _blocks_its_loop(process, edges[0]):
        return _end_of_edge(around, process, edges[0])
    if any(set(edge.providers) - {process.process} for edge in edges):
        return None
    return _end_of_edge(around, process, _deciding(edges))


def end_of_receiving(around: ReadContext, process: Process, edge: WaitEdge) -> WaitEnd | None:
    """The end at a process that others wait for, and that goes on receiving; `None` at others.

    Args:
        around: What edges were resolved against.
        process: Where the chain has arrived.
        edge: What its main thread waits for.
    """
    if not _goes_on_receiving(around.index, process, edge):
        return None
    return WaitEnd("unknown", f"goes on receiving{where(process)}", RECEIVES)


def _goes_on_receiving(index: Index, process: Process, edge: WaitEdge) -> bool:
    """Whether a main thread gets something again and again where it waits to receive."""
    main = main_thread(process)
    if main is None or main.waits_on is None or edge.tid != main.tid or edge.kind not in READS:
        return False
    if edge.is_ordinary or runs_event_loop(main):
        return False  # the first is a worker that gets its work, timers wake up the second as well
    return gets_before_limit(index, process)


def _end_of_joined(index: Index, process: Process, edges: Sequence[WaitEdge]) -> WaitEnd | None:
    """The end at a process that joins a thread pool; `None` if a thread waits for another process.

    Where all of them wait, at another end than that of asyncio.run, the threads say more.
    """
    joined = joined_executor(index, process.process)
    if joined is None or not (joined.computes or joined.by == "asyncio"):
        return None
    threads = {each.tid: each for each in joined.running}
    if any(each.tid in threads and set(each.providers) - {process.process} for each in edges):
        return None
    first = joined.running[0]
    frame = user_frame(first.stack)
    at = at_frame(frame)
    what = "result" if joined.by == "result" else "end"
    words = f"waits for the {what} of thread {first.name} of its executor{where(process)}"
    how = f"{process.label}: thread {first.name} {'runs' if joined.computes else 'is'}{at}."
    return WaitEnd("progress" if joined.computes else "unknown", words, how)


_END_OF_KERNELS = (
    "The wait ends with the kernels that it has launched. A collective of NCCL is one, and ends "
    "when all ranks have launched it."
)


def end_of_answer(around: ReadContext, answer: Answering, edge: WaitEdge | None) -> WaitEnd | None:
    """Why a chain ends at the thread of a server that has the connection of a client.

    Args:
        around: What edges were resolved against.
        answer: The thread and the connection.
        edge: What that thread waits for.

    Returns:
        `None` if it waits for another process.
    """
    index, process, thread = around.index, answer.server, answer.thread
    frame = user_frame(thread.stack)
    at = "" if frame is None else f", {frame_words(frame)},"
    has = "has" if answer.is_sure else "most likely has"
    by = f"{at} in {thread_words(process, thread)}, which {has} this connection"
    if answer.how == "loop" and runs_event_loop(thread):
        words = f"waits in its event loop{at.rstrip(',')}"
        return WaitEnd("unknown", words, IN_COROUTINE, thread.tid)
    if answer.how == "loop":
        is_native = has_stacks(process) and not thread.stack
        code = " in native code" if is_native else ""
        words = f"watches several descriptors{code}{by}"
        return WaitEnd("unknown", words, AMONG_OTHERS, thread.tid)
    if answer.how == "reads":
        return _end_of_both_reading(around, answer, by)
    how = f"{process.label}: this thread has to answer."
    if edge is None:
        return WaitEnd("progress", f"runs{by}", how, thread.tid)
    if set(edge.providers) - {process.process}:
        return None
    if edge.kind == "timer":
        return WaitEnd("progress", f"sleeps{by}", how, thread.tid)
    words = f"{edge_words(edge)}{by}"
    if edge.kind == "futex":
        wait = thread.waits_on
        if wait is not None and wait.timeout_s is not None:
            how = f"It gives up by itself in {seconds_text(wait.timeout_s)}."
            return WaitEnd("progress", words, how, thread.tid)
        own = own_lock(index, process, thread)
        if own:
            return WaitEnd("dead-end", words, own, thread.tid)
        return WaitEnd("unknown", words, OF_OWN_THREAD, thread.tid)
    return replace(_end_of_edge(around, process, edge), words=words, tid=thread.tid)


def _end_of_both_reading(around: ReadContext, answer: Answering, by: str) -> WaitEnd:
    """The end at a thread that was found waiting to receive on the connection of a client.

    The two are read one after the other: between a request and its answer, or between two requests,
    each is found so in a connection that works.
    """
    words, tid = f"waits to receive on the same connection{by}", answer.thread.tid
    if all_wait_to_receive(around.index, around.pipes, answer):
        return WaitEnd("dead-end", words, BOTH_READ, tid)
    is_main = answer.waiting.tid == answer.client.pid
    if is_main and gets_before_limit(around.index, answer.client):
        return WaitEnd("progress", words, IN_USE, tid)
    if (blocked_for_s(answer.waiting) or 0.0) < SETTLED_S:
        return WaitEnd("ordinary", words, IN_PASSING, tid)
    return WaitEnd("unknown", words, MAY_BOTH_READ, tid)


def end_of_unseen(process: Process, end: WaitEnd, for_s: float | None) -> WaitEnd:
    """The end at a server of which a client waits, and none of its threads is known to answer."""
    if end.verdict != "ordinary" or (for_s or 0.0) < SETTLED_S or process.role in SERVICE_ROLES:
        return end
    return replace(end, verdict="unknown", conclusion=UNSEEN)


def _blocks_its_loop(process: Process, edge: WaitEdge) -> bool:
    """Whether a coroutine blocks its event loop by a wait for something of its own process.

    The other threads of such a process mostly wait for what the loop would have them do.
    """
    main = main_thread(process)
    is_own = not set(edge.providers) - {process.process}
    return main is not None and edge.kind == "futex" and is_own and runs_event_loop(main)


def _end_of_held_lock(
    index: Index, process: Process, edges: Sequence[WaitEdge], lock: ThreadLock
) -> WaitEnd | None:
    """What the thread does that has the lock; `None` if it waits for another process."""
    holder = lock.holder
    edge = next((each for each in edges if each.tid == holder.tid), None)
    if edge is not None and set(edge.providers) - {process.process}:
        return None
    frame = user_frame(holder.stack)
    at = at_frame(frame)
    by = words_of(process, lock)
    how = f"{process.label}: the wait ends when {thread_words(process, holder)} releases its lock."
    if is_busy(holder) or edge is None:
        return WaitEnd("progress", f"runs{at} in {by}", how, holder.tid)
    if edge.kind == "timer":
        return WaitEnd("progress", f"sleeps{at} in {by}", how, holder.tid)
    if threads_that_wait_for_each_other(index, process.process):
        how = ALL_THREADS
        return WaitEnd("dead-end", f"{edge_words(edge)}{at} in {by}", how, holder.tid)
    return WaitEnd("unknown", f"{edge_words(edge)}{at} in {by}", how, holder.tid)


def _deciding(edges: Sequence[WaitEdge]) -> WaitEdge:
    """The wait that everything depends on: where main waits for a queue's feeder, the feeder's."""
    if edges[0].what == QUEUE_FEEDER:
        return next((edge for edge in edges[1:] if edge.kind == "pipe-write"), edges[0])
    return edges[0]


def _end_of_edge(around: ReadContext, process: Process, edge: WaitEdge) -> WaitEnd:
    """How a wait ends that no other process of the job can end."""
    at = where(process)
    words = f"{edge_words(edge)}{at}"
    thread = next((each for each in process.threads if each.tid == edge.tid), None)
    if thread is not None and (own := own_lock(around.index, process, thread)):
        return WaitEnd("dead-end", words, own)
    if edge.kind == "stopped":
        how = f"Continue it with kill -CONT {process.pid}, or in the debugger."
        return WaitEnd("ordinary", f"is {edge.what}", how)
    if edge.kind == "timer":
        return WaitEnd("progress", f"sleeps{at}", _end_of_sleep(around.index, process))
    if edge.kind == "disk":
        words = f"{edge_words(edge)} in state D"
        return WaitEnd("unknown", words, f"The kernel ends this wait. {STATE_D}")
    is_part = around.index.snapshot.part_of is not None
    if edge.is_ordinary:
        how = _WORK_FROM_OUTSIDE if is_part else "This wait is normal."
        return WaitEnd("ordinary", words, how)
    if edge.kind == "poll" and is_idle_loop(around.index, process.process):
        words = f"waits in its event loop{at}"
        return WaitEnd("dead-end", words, IDLE_LOOP)
    if is_part and _may_end_outside(process, edge):
        return WaitEnd("unknown", words, OUTSIDE)
    if edge.what in MANAGED and not edge.providers:
        return WaitEnd("dead-end", words, "No other living process uses the manager.")
    if edge.what.endswith(UNHELD):
        return WaitEnd("dead-end", words, LEFT_LOCK)
    if edge.what.endswith(HELD_BY_WAITERS):
        return WaitEnd("dead-end", words, TAKEN_TWICE)
    if edge.what.endswith(UNUSED):
        return _end_of_unused(around, process, thread, words)
    ranks = conclusion(process, edge.what, around.ranks)
    if ranks is not None:
        return WaitEnd("unknown", words, ranks)
    if edge.kind == "futex":
        return _end_of_futex(around.index, process, words)
    if edge.kind == "child":
        return WaitEnd("progress", words, "That child is not listed any more: the wait ends now.")
    if edge.kind in _SHARED and _is_alone(around, process, edge):
        return WaitEnd("dead-end", words, _alone_conclusion(around.index, thread, edge))
    if _holds_this_file_lock(around, process, edge, thread):
        return WaitEnd("dead-end", words, OWN_FILE_LOCK)
    wait = thread.waits_on if thread is not None else None
    if edge.what.startswith(LOCK_ON) and wait is not None and wait.holder is None:
        return WaitEnd("unknown", words, _HOLDER_HIDDEN)
    if edge.what.startswith(LOCK_FILE):
        return WaitEnd("unknown", words, _LOCK_FILE_ENDS)
    if edge.what.startswith(OPENS):
        return WaitEnd("unknown", words, _FIFO_ENDS)
    if _is_new(around, process, edge):
        how = "It has just been opened: the next reading shows which process has the other end."
        return WaitEnd("unknown", words, how)
    return WaitEnd("unknown", words, "It waits for something outside of this job.")


def _may_end_outside(process: Process, edge: WaitEdge) -> bool:
    """Whether a process of the job that was not looked at may end a wait.

    Ranks wait for each other in native code, where the system call shows a lock of their own.
    """
    if edge.kind == "futex":
        return edge.what.startswith(OTHERS) or is_in_backward(process)
    return edge.kind in _SHARED or edge.kind in ("unknown", "accept")


def _holds_this_file_lock(
    around: ReadContext, process: Process, edge: WaitEdge, thread: Thread | None
) -> bool:
    """Whether a process with one thread is blocked by a lock that only itself holds."""
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.call not in FILE_LOCK_CALLS or edge.providers:
        return False
    path = edge.what.removeprefix(LOCK_ON)
    is_own = holds_it_itself(around.index, process, path)
    return is_own and len(own_threads(around.index, process)) == 1


def _end_of_unused(
    around: ReadContext, process: Process, thread: Thread | None, words: str
) -> WaitEnd:
    """A wait for data: the processes that hold the other end have only inherited it."""
    wait = thread.waits_on if thread is not None else None
    channels = channels_among(wait.targets) if wait is not None else ()
    closer = closed_by_parent(around, process, channels)
    if closer is not None:
        how = f"{full_name(closer)} has closed its writing end, and waits for it. {_INHERITED}"
        return WaitEnd("dead-end", words, how)
    had_it = ended_holders(around, process, thread)
    parent = family_head(around.index, process)
    if not had_it and parent is not None and ended_children(around.index, parent.process):
        return WaitEnd("dead-end", words, f"What wrote to it has exited. {_INHERITED}")
    if not had_it:
        how = "The processes that hold the other end wait for data at ends of their own."
        return WaitEnd("unknown", words, how)
    names = [f"{full_name(child)} ({child.ended.words})" for child in had_it if child.ended]
    is_known = len(names) == 1 or all(has_had(around, child, thread) for child in had_it)
    all_names = names_text(names, ENDED_SHOWN)
    have = "has" if len(names) == 1 else "have"
    exited = f"{all_names} {have} exited." if is_known else f"These have exited: {all_names}."
    return WaitEnd("dead-end", words, f"{exited} {_INHERITED}")


_INHERITED = (
    "The processes that still hold the other end have inherited it and wait at ends of their own, "
    "so neither data nor an end of file arrives."
)


def _alone_conclusion(index: Index, thread: Thread | None, edge: WaitEdge) -> str:
    """Why no process is left that could end a wait, with the exited ones that could have."""
    if edge.kind in ("pipe-write", "socket-write"):
        return "No other process has the reading end: what is written is never read."
    if edge.kind != "semaphore":
        return NO_WRITER
    segment = thread.waits_on.segment if thread is not None and thread.waits_on else None
    had_it = [
        f"{full_name(process)} ({process.ended.words})"
        for process in index.snapshot.processes
        if process.ended is not None
        and any(use.segment == segment for use in process.sample.segments or ())
    ]
    if not had_it:
        return "No other process has this semaphore, so none can release or set it."
    return (
        "No living process but this one has the semaphore; "
        f"{names_text(had_it, ENDED_SHOWN)} had it."
    )


def own_lock(index: Index, process: Process, thread: Thread) -> str:
    """What shows that a thread waits for a lock that it has taken itself; empty if nothing does.

    It is about to take a lock in user code, and no other thread of Python and no other process is
    there that could release the lock. The source shows a block around it that took the same lock,
    or the same function is a second time on its stack. The latter shows nothing in a process that
    was forked from one with threads: one of those may have held the lock at that moment.
    """
    wait = thread.waits_on
    if wait is None or wait.kind not in ("futex", "semaphore") or wait.timeout_s is not None:
        return ""
    own = own_frames(thread.stack)
    if _enters_a_queue_again(own):
        return OWN_QUEUE
    if _logs_into_its_queue(own):
        return OWN_LOG
    place = next((n for n, frame in enumerate(own) if not is_library(frame)), None)
    if place is None or not _enters_a_lock(own[:place]):
        return ""
    is_twice = any(is_same_function(index, own[place], each) for each in own[place + 1 :])
    nested = nested_in(index, thread)
    if not (is_twice or nested is not None):
        return ""
    if _has_other_holders(index, process, thread, nested.taken if nested is not None else None):
        return ""
    if nested is None and wait.kind == "futex" and may_be_held_since_fork(index, process):
        return ""
    return OWN_LOCK if is_twice else OWN_BLOCK


class SelfBlocked(Struct, frozen=True):
    """A thread that waits for a lock which it has taken itself."""

    thread: Thread
    conclusion: str
    """One of `OWN_LOCK`, `OWN_BLOCK`, `OWN_QUEUE` and `OWN_LOG`."""


@derived
def self_blocked(index: Index, identity: ProcessId) -> SelfBlocked | None:
    """The first thread of a process that waits for a lock which it has taken itself."""
    process = index.snapshot.get(identity)
    if process is None:
        return None
    for thread in process.threads:
        if thread.stack and (why := own_lock(index, process, thread)):
            return SelfBlocked(thread, why)
    return None


def may_be_held_since_fork(index: Index, process: Process) -> bool:
    """Whether a process was forked while its parent had, or may have had, other Python threads."""
    return process.sample.start_method == "fork" and threads_at_fork(index, process) != ()


def is_same_function(index: Index, one: Frame, other: Frame) -> bool:
    """Whether two frames are of one function: a method and a function may have the same name."""
    if (one.file, one.function) != (other.file, other.function):
        return False
    lines = source_of(index, one), source_of(index, other)
    return len({each.defined for each in lines if each is not None and each.defined}) < 2


def _enters_a_queue_again(own: Sequence[Frame]) -> bool:
    """Whether a thread enters the lock of queue.Queue that it holds further down its stack.

    A signal handler, or the finalizer of an object, runs between any two instructions, also inside
    of Queue.put or Queue.get while these hold the lock. Only library code that waits has let go of
    it, which has a frame of threading above.
    """
    if not own or not own[0].file.endswith("/queue.py"):
        return False
    pairs = pairwise(own)
    return any(below.file.endswith("/queue.py") and not is_library(above) for above, below in pairs)


def _logs_into_its_queue(own: Sequence[Frame]) -> bool:
    """Whether put() of multiprocessing has logged, and a handler of that record puts into a queue.

    put() holds a lock of its queue while it starts the feeder thread, and logs that by the logger
    of multiprocessing (Python 3.8 to 3.14).
    """
    inner = own[1:] if calls(own[:1], "threading.py:__enter__") else own
    return calls(inner[:1], _PUT) and calls(inner, _PUT, _LOGS, _STARTS_FEEDER, _PUT)


_PUT, _STARTS_FEEDER = "multiprocessing/queues.py:put", "multiprocessing/queues.py:_start_thread"
_LOGS = "multiprocessing/util.py:debug"


def _enters_a_lock(above: Sequence[Frame]) -> bool:
    """Whether the library's frames above the user's are those of taking a lock.

    A lock of threading is taken in C, so that there are none.
    """
    return all(
        frame.file.endswith("multiprocessing/synchronize.py")
        and frame.function in ("__enter__", "acquire")
        for frame in above
    )


def _has_other_holders(
    index: Index, process: Process, thread: Thread, taken: Statement | None
) -> bool:
    """Whether another process or thread may hold the lock that a thread waits for.

    Args:
        index: The snapshot.
        process: The process.
        thread: Its thread that waits.
        taken: The header of the block by which the thread has taken a lock of that name.
    """
    segment = thread.waits_on.segment if thread.waits_on is not None else None
    if segment is not None:
        return bool(set(semaphore_users(index).get(segment, ())) - {process.process})
    return any(
        other.stack
        and not _is_at_rest(index, other)
        and not (taken is not None and _is_outside_of(index, other, taken))
        for other in own_threads(index, process)
        if other.tid != thread.tid
    )


def _is_outside_of(index: Index, thread: Thread, taken: Statement) -> bool:
    """Whether the source shows that a thread is in no block that holds a lock of some name.

    A thread that is about to enter such a block waits for the lock as well.
    """
    if not taken.text.startswith("with "):
        return False
    lines = [source_of(index, frame) for frame in program_frames(thread.stack)]
    return all(
        line is not None and all(each.text != taken.text for each in (*line.within, *line.held))
        for line in lines
    )


def _is_at_rest(index: Index, thread: Thread) -> bool:
    """Whether it waits for work, and so holds no lock of the program."""
    return shape_in(index, thread.stack) in ("feeder-idle", "sharer", "pool-idle")


def _is_new(around: ReadContext, process: Process, edge: WaitEdge) -> bool:
    """Whether a pipe or socket is waited for that no descriptor led to when they were listed."""
    thread = next((t for t in process.threads if t.tid == edge.tid), None)
    wait = thread.waits_on if thread is not None else None
    ends, fds = around.pipes, process.sample.fds
    if wait is None or fds is None or fds.links is None:
        return False
    return any(
        not any(channel in known for known in (ends.readers, ends.writers, ends.addresses))
        for channel in channels_among(wait.targets)
    )


def _is_alone(around: ReadContext, process: Process, edge: WaitEdge) -> bool:
    """Whether no other process, of this job or outside, can end a wait.

    A read blocks only while some process can write: if the reader itself holds a write end, that is
    why; if it does not, then a writer exists outside of the job, such as a shell.
    """
    thread = next((t for t in process.threads if t.tid == edge.tid), None)
    wait = thread.waits_on if thread is not None else None
    if not around.is_complete or wait is None or wait.timeout_s is not None:
        return False
    if wait.call.startswith("epoll") or may_still_receive(around.index, process):
        return False  # an event loop also waits for signals
    if edge.kind == "semaphore":
        return len(own_threads(around.index, process)) == 1
    is_write = edge.kind in ("pipe-write", "socket-write")
    ends = around.pipes.readers if is_write else around.pipes.writers
    channels = channels_among(wait.targets)
    if not channels or len(channels) < len(wait.targets):
        return False
    is_own = all(process.process in ends.get(channel, ()) for channel in channels)
    return is_own and not _has_other_threads(around.index, process, edge.tid)


def _has_other_threads(index: Index, process: Process, tid: int) -> bool:
    """Whether another thread of Python could read or write what one thread waits for."""
    main = main_thread(process)
    leaving = main.tid if main is not None and main_shape(process) == "joins-queue" else tid
    return any(
        thread.stack and thread.tid not in (tid, leaving) and not _is_at_rest(index, thread)
        for thread in own_threads(index, process)
    )


def _end_of_sleep(index: Index, process: Process) -> str:
    """How a sleep goes on: one in a loop that polls for something does not end by itself."""
    condition = condition_of(index, process)
    if condition is None:
        return "It wakes up by itself."
    end = LOOP_ENDS[condition.kind]
    return f"It wakes up and checks again: the loop {condition.words} ends {end}."


_IN_BACKWARD = (
    "Gradients are averaged in it among the ranks: it ends when each of them has come to it."
)


def _end_of_futex(index: Index, process: Process, words: str) -> WaitEnd:
    """A lock of its own process: hopeless only where no other thread is left to release it."""
    thread = main_thread(process)
    timeout_s = thread.waits_on.timeout_s if thread is not None and thread.waits_on else None
    if timeout_s is not None:
        return WaitEnd("progress", words, f"It gives up by itself in {seconds_text(timeout_s)}.")
    if is_in_backward(process):
        words = f"waits in the backward pass{where(process)}"
        return WaitEnd("unknown", words, _IN_BACKWARD)
    result = abandoned(index, process.process)
    if result is not None:
        return WaitEnd("dead-end", words, result.words)
    if thread is not None and _is_the_only_one_to_release(index, process, thread):
        return WaitEnd("dead-end", words, ONLY_THREAD)
    threads = threads_that_wait_for_each_other(index, process.process)
    is_own = bool(threads) and _parent_had_one_thread(index, process)
    if is_forked_alone(index, process) and not is_own:
        conclusion = (
            "Only a thread that was not forked with this process could end this wait, by releasing "
            "a lock or joining a barrier. It does not exist here."
        )
        return WaitEnd("dead-end", words, conclusion)
    if threads:
        return WaitEnd("dead-end", words, ONE_THREAD if len(threads) == 1 else ALL_THREADS)
    if thread is not None and (other := _importing(process, thread)) is not None:
        return WaitEnd("unknown", words, other)
    return WaitEnd("unknown", words, "Only another thread of the same process can end this wait.")


def _importing(process: Process, thread: Thread) -> str | None:
    """Where the thread is that imports a module for which another one waits."""
    if awaited_inside(own_frames(thread.stack)) != IMPORT_LOCK:
        return None
    other = importing(process, thread)
    if other is None:
        return None
    frame = user_frame(other.stack)
    at = at_frame(frame, ", at ")
    return f"Its thread {other.name} runs the code of that module{at}, and has to finish first."


def _is_the_only_one_to_release(index: Index, process: Process, thread: Thread) -> bool:
    """Whether a process with one thread, not forked, waits for a Lock of threading.

    Such a lock is taken in C, right below the line of the program. An Event or a Condition has
    frames of its own, and a handler of a signal may set it.
    """
    wait, own = thread.waits_on, own_frames(thread.stack)
    if wait is None or wait.futex_command != PYTHON_LOCK or not own or is_library(own[0]):
        return False
    is_fresh = process.sample.start_method != "fork"
    return is_fresh and len(process.threads) == 1 == len(own_threads(index, process))


def is_forked_alone(index: Index, process: Process) -> bool:
    """Whether it is a forked child with one own thread, which no other thread of it can wake."""
    return len(own_threads(index, process)) == 1 and process.sample.start_method == "fork"


def _parent_had_one_thread(index: Index, process: Process) -> bool:
    """Whether the parent of a process is known to have had no other thread when it forked."""
    head = family_head(index, process)
    is_known = head is not None and len(head.sample.threads or ()) > 0
    return head is not None and is_known and not older_threads(head, process)


def where(process: Process) -> str:
    """The user's own line its main thread is at, after a comma; empty without a stack."""
    thread = main_thread(process)
    frame = user_frame(thread.stack) if thread is not None else None
    return "" if frame is None else f", {frame_words(frame)}"
