"""A process was killed while it held the lock of a queue; the others wait for it for ever."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mpwatch.diagnose.deaths import violent_deaths_near
from mpwatch.diagnose.stack_shapes import calls, innermost, main_thread, own_frames, user_frame
from mpwatch.diagnose.stillness import quiet_s
from mpwatch.diagnose.tree import all_called, called
from mpwatch.diagnose.wait_edges import is_busy, surroundings
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.units import seconds_text

RULE = "queue-lock-held-by-dead"
STUCK_S = 6.0
UNSEEN_S = 12.0
"""Without a stack the semaphore may be that of an event, which the next look will show."""


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each semaphore at zero whose holder can only be a dead process.

    Healthy readers of one queue: one holds the lock and reads, the others wait for the lock. Here
    nobody reads, everybody waits, and one of the family was killed.
    """
    waiters = _waiters(snapshot, history)
    if not waiters:
        return
    users = surroundings(snapshot).semaphore_users()
    for segment, waiting in waiters.items():
        dead = violent_deaths_near(snapshot, waiting[0])
        if not dead:
            continue
        names = {process.process for process in waiting}
        others = [p for p in map(snapshot.get, users.get(segment, ())) if p is not None]
        readers_code = {code for p in (*waiting, *dead) if (code := _reads_in(p)) is not None}
        if any(_may_hold(p, names, readers_code) for p in others if not p.is_gone):
            continue
        yield _finding(segment, waiting, dead, history)


def _waiters(snapshot: Snapshot, history: History) -> dict[SegmentId, list[Process]]:
    """Processes whose main thread stands at a semaphore that is zero, by semaphore."""
    found: defaultdict[SegmentId, list[Process]] = defaultdict(list)
    for process in snapshot.living():
        thread = main_thread(process)
        wait = thread.waits_on if thread is not None else None
        if thread is None or wait is None or wait.segment is None:
            continue
        if wait.value or wait.timeout_s is not None or _is_signalled(own_frames(thread.stack)):
            continue
        quiet = quiet_s(process, history)
        if quiet is not None and quiet >= (STUCK_S if _is_shown(thread, quiet) else UNSEEN_S):
            found[wait.segment].append(process)
    return dict(found)


def _is_shown(thread: Thread, quiet_s: float) -> bool:
    """Whether its stack was taken since it stands: an older one is of something else."""
    return bool(thread.stack) and (thread.stack_age_s or 0.0) <= quiet_s


def _is_signalled(frames: Sequence[Frame]) -> bool:
    """Whether it is inside of a Condition or Event, whose semaphores count and are not held."""
    return innermost(frames, "synchronize.py:notify", "synchronize.py:wait") is not None


def _reads_in(process: Process) -> tuple[str, str] | None:
    """The file and function of the user's that a process takes from a queue in."""
    thread = main_thread(process)
    frame = user_frame(thread.stack) if thread is not None else None
    return None if frame is None else (frame.file, frame.function)


def _may_hold(
    process: Process, waiting: set[ProcessId], readers_code: set[tuple[str, str]]
) -> bool:
    """Whether a living process may hold the lock: it reads from a queue, or it runs.

    Who reads in other code than all that wait, and than the dead did, reads another queue: as the
    parent does that hands out work on one and collects the results from another.
    """
    if process.process in waiting:
        return False
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
    segment: SegmentId, waiting: list[Process], dead: tuple[Process, ...], history: History
) -> Finding:
    """Put it into words."""
    shortest = min(quiet_s(process, history) or 0.0 for process in waiting)
    ends = [f"{called(p)} ended: {p.ended.words}" for p in dead[:3] if p.ended is not None]
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=waiting[0].process,
        subject=str(segment),
        summary=(
            f"{all_called(waiting)} wait for a lock that a killed process took with it"
            if len(waiting) > 1
            else f"{called(waiting[0])} waits for a lock that a killed process took with it"
        ),
        evidence=(
            f"semaphore {segment} is 0 and has been waited for at least {seconds_text(shortest)}",
            "no living process that maps it is reading or running",
            *ends,
        ),
        cause=(
            "A reader of a queue holds the queue's lock while it waits for an item. Killed in that "
            "moment (SIGKILL, out of memory, a crash), it never gives the lock back: semaphores do "
            "not notice that their holder died. The same holds for every multiprocessing lock."
        ),
        advice=(
            "Restart the job: nothing releases this lock. Give each consumer a queue of its own, "
            "as a DataLoader does, never stop consumers with SIGKILL, and use get(timeout=...) so "
            "that the others notice."
        ),
    )
