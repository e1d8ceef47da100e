"""Where a chain of waits ends: at something that moves, at nobody, or outside of what is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.pipes import channels_among
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES
from mpwatch.diagnose.analysis.stack_patterns import (
    HOOK_THREAD,
    main_thread,
    own_threads,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.edges import LOCK_FILE, ReadContext, is_busy
from mpwatch.diagnose.analysis.waits.rank_waits import conclusion
from mpwatch.model.samples import WaitKind
from mpwatch.model.snapshot import Process
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import Verdict, WaitEdge

_SHARED: frozenset[WaitKind] = frozenset(
    ("pipe-read", "pipe-write", "socket-read", "socket-write", "poll", "semaphore")
)
"""Waits that some process has to end."""

_LOCK_FILE_ENDS = (
    "Whoever holds the lock file has to let go of it, in this job or another. A SoftFileLock stays "
    "where its holder was killed: such a file has to be removed."
)


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
        return WaitEnd("dead-end", words, f"{process.label} is gone and will not do it.")
    if process.sample.state == "Z":
        return WaitEnd("dead-end", "is a zombie", f"{process.label} has ended and was not reaped.")
    busy = [t for t in process.threads if is_busy(t) and t.name != HOOK_THREAD]
    if busy and (main_thread(process) in busy or not edges):
        return WaitEnd("progress", f"runs{where(process)}", f"{process.label} is working.")
    if process.role in SERVICE_ROLES:
        return WaitEnd("ordinary", "waits for orders", "A helper of multiprocessing at rest.")
    if not edges:
        state = f"is in state {process.sample.state}"
        return WaitEnd("unknown", state, "What it waits for is unknown.")
    if edges[0].kind == "child" and any(map(around.has_ended, edges[0].providers)):
        # It was read before that end, or is not through with it.
        words = f"waits for {edges[0].what}{where(process)}"
        return WaitEnd("progress", words, "That is over: the wait ends now.")
    if any(set(edge.providers) - {process.process} for edge in edges):
        return None
    return _end_of_edge(around, process, edges[0])


def _end_of_edge(around: ReadContext, process: Process, edge: WaitEdge) -> WaitEnd:
    """How a wait ends that no other process of the job can end."""
    words = f"waits for {edge.what}{where(process)}"
    if edge.kind == "stopped":
        how = f"It goes on when continued: kill -CONT {process.pid}, or in the debugger."
        return WaitEnd("ordinary", f"is {edge.what}", how)
    if edge.kind == "timer":
        return WaitEnd("progress", f"sleeps{where(process)}", "It wakes up by itself.")
    if edge.kind == "disk":
        words = f"waits for {edge.what} in state D"
        return WaitEnd("unknown", words, "Only the kernel ends this wait: it ignores signals.")
    if edge.is_ordinary:
        return WaitEnd("ordinary", words, "Ordinary waiting.")
    if edge.kind == "futex":
        return _end_of_futex(process, words)
    ranks = conclusion(process, edge.what, around.ranks)
    if ranks is not None:
        return WaitEnd("unknown", words, ranks)
    if edge.kind == "child":
        return WaitEnd("progress", words, "The child is no longer there.")
    if edge.kind in _SHARED and _is_alone(around, process, edge):
        return WaitEnd("dead-end", words, "Nobody but itself holds the other end any more.")
    if edge.what == LOCK_FILE:
        return WaitEnd("unknown", words, _LOCK_FILE_ENDS)
    if _is_new(around, process, edge):
        how = "Opened a moment ago: who has the other end will be seen at the next look."
        return WaitEnd("unknown", words, how)
    return WaitEnd("unknown", words, "It waits for something outside of this job.")


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
    """Whether nobody else, inside this job or outside, can end a wait.

    A read blocks only while somebody can write: if the reader itself holds a write end, that is
    why; if it does not, then a writer exists outside of the job, such as a shell.
    """
    thread = next((t for t in process.threads if t.tid == edge.tid), None)
    wait = thread.waits_on if thread is not None else None
    if not around.is_complete or wait is None or wait.timeout_s is not None:
        return False
    if edge.kind == "semaphore":
        return len(own_threads(process)) == 1
    is_write = edge.kind in ("pipe-write", "socket-write")
    ends = around.pipes.readers if is_write else around.pipes.writers
    channels = channels_among(wait.targets)
    if not channels or len(channels) < len(wait.targets):
        return False
    return all(process.process in ends.get(channel, ()) for channel in channels)


def _end_of_futex(process: Process, words: str) -> WaitEnd:
    """A lock of its own process: hopeless only where no other thread is left to release it."""
    thread = main_thread(process)
    timeout_s = thread.waits_on.timeout_s if thread is not None and thread.waits_on else None
    if timeout_s is not None:
        return WaitEnd("progress", words, f"It gives up by itself in {seconds_text(timeout_s)}.")
    if is_forked_alone(process):
        conclusion = (
            "Only a thread that was not forked with this process could end this wait, by releasing "
            "a lock or joining a barrier. It does not exist here."
        )
        return WaitEnd("dead-end", words, conclusion)
    return WaitEnd("unknown", words, "Only another thread of the same process can end this wait.")


def is_forked_alone(process: Process) -> bool:
    """Whether it is a forked child with one thread of its own: nobody in it can wake that one."""
    return len(own_threads(process)) == 1 and process.sample.start_method == "fork"


def where(process: Process) -> str:
    """The user's own line its main thread is at, after a comma; empty without a stack."""
    thread = main_thread(process)
    frame = user_frame(thread.stack) if thread is not None else None
    return "" if frame is None else f", {frame_words(frame)}"
