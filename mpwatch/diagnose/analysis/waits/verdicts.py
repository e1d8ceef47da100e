"""How a chain of waits ends: in progress, at a dead end, or outside of the processes observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.describe.names import full_name
from mpwatch.diagnose.analysis.distributed.rank_waits import conclusion
from mpwatch.diagnose.analysis.idle_time import is_stalled
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import channels_among
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, age_s
from mpwatch.diagnose.analysis.stack_patterns import (
    HOOK_THREAD,
    main_shape,
    main_thread,
    own_threads,
    shape_in,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.edges import (
    CLIENTS,
    LOCK_FILE,
    QUEUE_FEEDER,
    UNUSED,
    ReadContext,
    is_busy,
    semaphore_users,
)
from mpwatch.model.samples import Frame, WaitKind
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import Verdict, WaitEdge

_SHARED: frozenset[WaitKind] = frozenset(
    ("pipe-read", "pipe-write", "socket-read", "socket-write", "poll", "semaphore")
)
"""Waits that some process has to end."""

_LOCK_FILE_ENDS = (
    "The process that holds the lock file, in this job or another, has to release it. The file of "
    "a SoftFileLock stays when its holder is killed: then the file has to be removed."
)


YOUNG_S = 60.0
"""Longer than a child of spawn needs to import torch on a loaded machine."""
YOUNG_QUIET_S = 3.0
OWN_LOCK = "It holds this lock itself: the same function is on its stack twice, and took it before."


@dataclass(frozen=True, slots=True)
class WaitEnd:
    """Why a chain goes no further than a process."""

    verdict: Verdict
    words: str
    """What that process does, to follow its name."""
    conclusion: str


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
    busy = [t for t in process.threads if is_busy(t) and t.name != HOOK_THREAD]
    if busy and (main_thread(process) in busy or not edges):
        return WaitEnd("progress", f"runs{where(process)}", f"{process.label} is working.")
    if process.role in SERVICE_ROLES:
        how = "It is a helper process of multiprocessing, which is idle by design."
        return WaitEnd("ordinary", "waits for requests", how)
    if not edges:
        state = f"is in state {process.sample.state}"
        return WaitEnd("unknown", state, "What it waits for is unknown.")
    if edges[0].kind == "child" and any(map(around.has_ended, edges[0].providers)):
        # It was read before that end, or is not through with it.
        words = f"waits for {edges[0].what}{where(process)}"
        return WaitEnd("progress", words, "That child has exited: the wait ends now.")
    if edges[0].what.startswith(CLIENTS):
        return _end_of_edge(around, process, edges[0])
    if any(set(edge.providers) - {process.process} for edge in edges):
        return None
    return _end_of_edge(around, process, _deciding(process, edges))


def _deciding(process: Process, edges: Sequence[WaitEdge]) -> WaitEdge:
    """The wait that everything depends on: where main waits for a queue's feeder, the feeder's."""
    if edges[0].what == QUEUE_FEEDER:
        return next((edge for edge in edges[1:] if edge.kind == "pipe-write"), edges[0])
    return edges[0]


def _end_of_edge(around: ReadContext, process: Process, edge: WaitEdge) -> WaitEnd:
    """How a wait ends that no other process of the job can end."""
    words = f"waits for {edge.what}{where(process)}"
    thread = next((each for each in process.threads if each.tid == edge.tid), None)
    if thread is not None and takes_its_own_lock(around.index, process, thread):
        return WaitEnd("dead-end", words, OWN_LOCK)
    if edge.kind == "stopped":
        how = f"Continue it with kill -CONT {process.pid}, or in the debugger."
        return WaitEnd("ordinary", f"is {edge.what}", how)
    if edge.kind == "timer":
        return WaitEnd("progress", f"sleeps{where(process)}", "It wakes up by itself.")
    if edge.kind == "disk":
        words = f"waits for {edge.what} in state D"
        return WaitEnd("unknown", words, "Only the kernel ends this wait: it ignores signals.")
    if edge.is_ordinary:
        return WaitEnd("ordinary", words, "This wait is normal.")
    if edge.what.endswith(UNUSED):
        return _end_of_unused(around.index, process, words)
    ranks = conclusion(process, edge.what, around.ranks)
    if ranks is not None:
        return WaitEnd("unknown", words, ranks)
    if edge.kind == "futex":
        return _end_of_futex(around.index, process, words)
    if edge.kind == "child":
        return WaitEnd("progress", words, "That child is not listed any more: the wait ends now.")
    if edge.kind in _SHARED and _is_alone(around, process, edge):
        return WaitEnd("dead-end", words, _alone_conclusion(around.index, thread, edge))
    if edge.what == LOCK_FILE:
        return WaitEnd("unknown", words, _LOCK_FILE_ENDS)
    if _is_new(around, process, edge):
        how = "It has just been opened: the next reading shows which process has the other end."
        return WaitEnd("unknown", words, how)
    return WaitEnd("unknown", words, "It waits for something outside of this job.")


def _end_of_unused(index: Index, process: Process, words: str) -> WaitEnd:
    """A wait for data on a channel whose other end is held only by processes that inherited it."""
    gone = [
        f"{full_name(child)} ({child.ended.words})"
        for child in index.snapshot.processes
        if child.ended is not None and child.sample.parent_pid == process.pid
    ]
    if not gone:
        how = "The processes that hold the other end wait for data at ends of their own."
        return WaitEnd("unknown", words, how)
    more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
    return WaitEnd(
        "dead-end",
        words,
        f"{', '.join(gone[:3])}{more} has exited. The processes that still hold the other end have"
        " inherited it and wait at ends of their own, so neither data nor an end of file arrives.",
    )


def _alone_conclusion(index: Index, thread: Thread | None, edge: WaitEdge) -> str:
    """Why no process is left that could end a wait, with the exited ones that could have."""
    if edge.kind in ("pipe-write", "socket-write"):
        return "No other process has the reading end: what is written is never read."
    if edge.kind != "semaphore":
        return "No other process has the writing end: nothing will ever arrive."
    segment = thread.waits_on.segment if thread is not None and thread.waits_on else None
    had_it = [
        f"{full_name(process)} ({process.ended.words})"
        for process in index.snapshot.processes
        if process.ended is not None
        and any(use.segment == segment for use in process.sample.segments or ())
    ]
    if not had_it:
        return "No other process has this semaphore, so none can release or set it."
    more = f" and {len(had_it) - 3} more" if len(had_it) > 3 else ""
    return (
        f"No living process but this one has the semaphore; {', '.join(had_it[:3])}{more} had it."
    )


def takes_its_own_lock(index: Index, process: Process, thread: Thread) -> bool:
    """Whether a thread waits for a lock that only itself can hold.

    It is about to take a lock in user code, the same function is a second time on its stack, and
    no other thread of Python and no other process is there that could release the lock.
    """
    wait = thread.waits_on
    if wait is None or wait.kind not in ("futex", "semaphore") or wait.timeout_s is not None:
        return False
    own = own_frames(thread.stack)
    place = next((n for n, frame in enumerate(own) if not is_library(frame)), None)
    if place is None or not _enters_a_lock(own[:place]):
        return False
    frame = own[place]
    deeper = ((each.file, each.function) for each in own[place + 1 :])
    return (frame.file, frame.function) in deeper and not _has_other_holders(index, process, thread)


def _enters_a_lock(above: Sequence[Frame]) -> bool:
    """Whether the library's frames above the user's are those of taking a lock.

    A lock of threading is taken in C, so that there are none.
    """
    return all(
        frame.file.endswith("multiprocessing/synchronize.py")
        and frame.function in ("__enter__", "acquire")
        for frame in above
    )


def _has_other_holders(index: Index, process: Process, thread: Thread) -> bool:
    """Whether another process or thread may hold the lock that a thread waits for."""
    segment = thread.waits_on.segment if thread.waits_on is not None else None
    if segment is not None:
        return bool(set(semaphore_users(index).get(segment, ())) - {process.process})
    return any(
        other.stack and not _is_at_rest(index, other)
        for other in own_threads(index, process)
        if other.tid != thread.tid
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

    A read blocks only while somebody can write: if the reader itself holds a write end, that is
    why; if it does not, then a writer exists outside of the job, such as a shell.
    """
    thread = next((t for t in process.threads if t.tid == edge.tid), None)
    wait = thread.waits_on if thread is not None else None
    if not around.is_complete or wait is None or wait.timeout_s is not None:
        return False
    if wait.call.startswith("epoll") or _may_still_receive(around.index, process):
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


def _may_still_receive(index: Index, process: Process) -> bool:
    """Whether a young process may be about to get the other end of something.

    A child of spawn or forkserver has what it was given only once it has imported the program; a
    forked child has it from the start.
    """
    snapshot = index.snapshot
    return any(
        other.process != process.process
        and other.role not in ("resource-tracker", "shm-manager")
        and other.sample.start_method != "fork"
        and other.sample.state != "Z"
        and (age := age_s(snapshot, other)) is not None
        and age < YOUNG_S
        and not is_stalled(other, index, YOUNG_QUIET_S)
        for other in snapshot.living()
    )


def _has_other_threads(index: Index, process: Process, tid: int) -> bool:
    """Whether another thread of Python could read or write what one thread waits for."""
    main = main_thread(process)
    leaving = main.tid if main is not None and main_shape(process) == "joins-queue" else tid
    return any(
        thread.stack and thread.tid not in (tid, leaving) and not _is_at_rest(index, thread)
        for thread in own_threads(index, process)
    )


def _end_of_futex(index: Index, process: Process, words: str) -> WaitEnd:
    """A lock of its own process: hopeless only where no other thread is left to release it."""
    thread = main_thread(process)
    timeout_s = thread.waits_on.timeout_s if thread is not None and thread.waits_on else None
    if timeout_s is not None:
        how = f"The wait times out by itself in {seconds_text(timeout_s)}."
        return WaitEnd("progress", words, how)
    if is_forked_alone(index, process):
        conclusion = (
            "Only a thread that was not forked with this process could end this wait, by releasing "
            "a lock or joining a barrier. It does not exist here."
        )
        return WaitEnd("dead-end", words, conclusion)
    return WaitEnd("unknown", words, "Only another thread of the same process can end this wait.")


def is_forked_alone(index: Index, process: Process) -> bool:
    """Whether it is a forked child with one own thread, which no other thread of it can wake."""
    return len(own_threads(index, process)) == 1 and process.sample.start_method == "fork"


def where(process: Process) -> str:
    """The user's own line its main thread is at, after a comma; empty without a stack."""
    thread = main_thread(process)
    frame = user_frame(thread.stack) if thread is not None else None
    return "" if frame is None else f", {frame_words(frame)}"
