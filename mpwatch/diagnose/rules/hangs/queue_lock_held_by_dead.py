"""A process was killed while it held a queue's lock; the others wait for the lock for ever."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.exits import death_of, terminations_near, violent_deaths_near
from mpwatch.diagnose.analysis.idle_time import STUCK_S, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    innermost,
    main_shape,
    main_thread,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.edges import is_busy, semaphore_users
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.units import seconds_text

RULE = "queue-lock-held-by-dead"
UNSEEN_S = 12.0
"""Without a stack the semaphore may be that of an event; the next stack sample shows which."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each semaphore at zero whose holder can only be a dead process.

    In a healthy queue one reader holds the lock and reads, and the others wait for the lock. Here
    all wait, none reads, and a sibling was killed.
    """
    waiters = _waiters(index)
    if not waiters:
        return
    users = semaphore_users(index)
    for segment, waiting in waiters.items():
        dead = violent_deaths_near(index, waiting[0])
        stopped = () if dead else terminations_near(index, waiting[0])
        if not dead and not stopped:
            continue
        names = {process.process for process in waiting}
        users_of_it = [p for p in map(index.snapshot.get, users.get(segment, ())) if p is not None]
        others = [p for p in users_of_it if not p.is_gone and p.process not in names]
        readers_code = {code for p in (*waiting, *dead) if (code := _reads_in(p)) is not None}
        if any(_may_hold(p, readers_code) for p in others):
            continue
        if stopped and not (all(map(_takes_a_lock, waiting)) and all(map(_holds_nothing, others))):
            continue
        yield _finding(segment, waiting, dead or stopped, index)


def _waiters(index: Index) -> dict[SegmentId, list[Process]]:
    """Processes whose main thread waits for a semaphore that is zero, by semaphore."""
    found: defaultdict[SegmentId, list[Process]] = defaultdict(list)
    for process in index.snapshot.living():
        thread = main_thread(process)
        wait = thread.waits_on if thread is not None else None
        if thread is None or wait is None or wait.segment is None:
            continue
        if wait.value or wait.timeout_s is not None or _is_signalled(own_frames(thread.stack)):
            continue
        quiet = quiet_s(process, index)
        if quiet is not None and quiet >= (STUCK_S if _is_shown(thread, quiet) else UNSEEN_S):
            found[wait.segment].append(process)
    return dict(found)


def _is_shown(thread: Thread, quiet_s: float) -> bool:
    """Whether its stack was sampled during this wait; an older one shows something else."""
    return bool(thread.stack) and (thread.stack_age_s or 0.0) <= quiet_s


def _is_signalled(frames: Sequence[Frame]) -> bool:
    """Whether it is inside a Condition or Event, whose semaphores count and have no holder."""
    return innermost(frames, "synchronize.py:notify", "synchronize.py:wait") is not None


def _reads_in(process: Process) -> tuple[str, str] | None:
    """The file and function of the user code that reads the queue."""
    thread = main_thread(process)
    frame = user_frame(thread.stack) if thread is not None else None
    return None if frame is None else (frame.file, frame.function)


def _takes_a_lock(process: Process) -> bool:
    """Whether it is entering `with lock:`, which the holder releases.

    Another semaphore may be at zero because no process has released it yet.
    """
    thread = main_thread(process)
    return thread is not None and calls(own_frames(thread.stack), "synchronize.py:__enter__")


def _holds_nothing(process: Process) -> bool:
    """Whether it only waits for its children to exit, as a process that stops one of them does.

    Any other process may sleep inside `with lock:`. That a process was terminated is weaker
    evidence than that it was killed, so no other possible holder may remain.
    """
    return process.role in SERVICE_ROLES or main_shape(process) == "joins-process"


def _may_hold(process: Process, readers_code: set[tuple[str, str]]) -> bool:
    """Whether a living process may hold the lock: it reads from a queue, or it runs.

    A process that reads in other code than those that wait, and than the dead processes did, reads
    another queue: for example a parent that sends work on one queue and collects results from
    another.
    """
    code = _reads_in(process)
    is_elsewhere = bool(readers_code) and code is not None and code not in readers_code
    for thread in process.threads:
        if is_busy(thread):
            return True
        if is_elsewhere and thread == main_thread(process):
            continue
        wait = thread.waits_on
        if wait is not None and wait.kind == "pipe-read":
            return True
        frames = own_frames(thread.stack)
        if calls(frames, "queues.py:get") and not calls(frames, "synchronize.py:__enter__"):
            return True
    return False


def _finding(
    segment: SegmentId, waiting: list[Process], dead: tuple[Process, ...], index: Index
) -> Finding:
    """The finding for one semaphore."""
    shortest = min(quiet_s(process, index) or 0.0 for process in waiting)
    is_queues = any(_is_in_a_queue(process) for process in waiting)
    ends = [f"{called(p)} ended: {p.ended.words}" for p in dead[:3] if p.ended is not None]
    was_killed = any(p.ended and death_of(p.ended) != "shutdown" for p in dead)
    how = "killed" if was_killed else "terminated"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=waiting[0].process,
        subject=str(segment),
        summary=(
            f"{all_called(waiting)} wait for a lock that a {how} process still held"
            if len(waiting) > 1
            else f"{called(waiting[0])} waits for a lock that a {how} process still held"
        ),
        evidence=(
            f"semaphore {segment} is 0 and has been waited for at least {seconds_text(shortest)}",
            "no living process that maps it is reading or running",
            *ends,
        ),
        cause=_CAUSE_QUEUE if is_queues else _CAUSE_LOCK,
        advice=_ADVICE_QUEUE if is_queues else _ADVICE_LOCK,
    )


def _is_in_a_queue(process: Process) -> bool:
    """Whether the lock belongs to a queue; also true without a stack."""
    thread = main_thread(process)
    frames = own_frames(thread.stack) if thread is not None else ()
    return not frames or innermost(frames, "queues.py:get", "queues.py:put") is not None


_CAUSE_QUEUE = (
    "A reader of a queue holds the queue's lock while it waits for an item. Killed at that "
    "moment (SIGKILL, out of memory, a crash), it never releases the lock: semaphores are "
    "not released when their holder dies."
)
_ADVICE_QUEUE = (
    "Restart the job: nothing releases this lock. Give each consumer a queue of its own, "
    "as a DataLoader does, never stop consumers with SIGKILL, and use get(timeout=...) so "
    "that the others notice."
)
_CAUSE_LOCK = (
    "A process that a signal ends inside `with lock:` never releases the lock: the block is not "
    "exited, and semaphores are not released when their holder dies. Process.terminate() sends "
    "such a signal; SIGKILL and crashes have the same effect."
)
_ADVICE_LOCK = (
    "Restart the job: nothing releases this lock. Instead of terminate(), ask processes to stop "
    "with a Value or an Event that they check outside the lock, and join them; or take the "
    "lock with acquire(timeout=...), so that the others notice."
)
