"""A process was killed while it held a queue's lock; the others wait for the lock for ever."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.describe.frames import own_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.diagnose.analysis.exits.kinds import (
    death_of,
    last_seen,
    sender_of,
    terminations_near,
    violent_deaths_near,
)
from mpwatch.diagnose.analysis.idle_time import STUCK_S, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, ended_words
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    family_head,
)
from mpwatch.diagnose.analysis.stack_patterns import (
    HOOK_THREAD,
    calls,
    innermost,
    main_shape,
    main_thread,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s, is_busy, semaphore_users
from mpwatch.diagnose.analysis.waits.providers import (
    ENTERS,
    is_named_a_lock,
    is_seen_outside,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import SegmentId
from mpwatch.model.snapshot import Process

RULE = "queue-lock-held-by-dead"
SEEN_S = 1.0
"""A process that has waited for less may get what it waits for at once; and the time by which a
stack may be older than the reading that first shows its wait."""
GAP_S = 4.0
"""Between the end of one process that waited for a lock and the wait of the one in its place."""

Kind: TypeAlias = Literal["queue", "lock"]
"""What a semaphore is: a lock of a queue, or one that the program takes."""


class _Wanted(Struct, frozen=True):
    """A lock that is waited for."""

    kind: Kind
    waiting: Sequence[Process]
    """The living processes whose main threads wait for it."""
    replaced: Sequence[Process]
    """Ended ones that waited for it to their end, and in whose place others wait now."""
    lasted_s: float


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each lock whose holder can only be a dead process.

    In a healthy queue one reader holds the lock and reads, and the others wait for the lock. Here
    all wait, none reads, and a sibling was killed. The bound of a queue, an event and a semaphore
    that counts are at zero because nothing was released yet, whoever has ended.
    """
    for segment, wanted in _wanted(index).items():
        first = wanted.waiting[0]
        dead = violent_deaths_near(index, first)
        stopped = () if dead else terminations_near(index, first)
        if not dead and not stopped:
            continue
        others = _others(index, segment)
        gone = dead or stopped
        code = {each for p in (*wanted.waiting, *gone) if (each := _reads_in(p)) is not None}
        if any(_may_hold(p, code) for p in others):
            continue
        if wanted.kind == "lock" and not all(_holds_nothing(index, each) for each in others):
            continue
        # A parent that renews the readers of a queue may have ended the holder before mpwatch came.
        is_known = wanted.kind == "queue" or any(map(_may_have_held, stopped))
        if stopped and not (is_known and all(map(_is_read, others))):
            continue
        yield _finding(segment, wanted, gone, index)


def _others(index: Index, segment: SegmentId) -> list[Process]:
    """The living processes that have a semaphore, or may have it, and do not wait for it."""
    users = semaphore_users(index).get(segment, ())
    return [
        each
        for each in index.snapshot.living()
        if (each.process in users or each.sample.segments is None)
        and _waits_for(each) != segment
        and each.sample.state != "Z"
    ]


def _wanted(index: Index) -> Mapping[SegmentId, _Wanted]:
    """The locks that main threads wait for, by semaphore, as far as stacks show what they are."""
    found: defaultdict[SegmentId, list[Process]] = defaultdict(list)
    for process in index.snapshot.living():
        segment = _waits_for(process)
        if segment is not None and (quiet_s(process, index) or 0.0) >= SEEN_S:
            found[segment].append(process)
    locks: dict[SegmentId, _Wanted] = {}
    for segment, waiting in found.items():
        ended = [
            process
            for process in index.snapshot.processes
            if process.ended is not None and _waits_for(process) == segment
        ]
        kinds = {_kind(index, each) for each in (*waiting, *ended)} - {None}
        since_s = index.snapshot.at_s - max(quiet_s(each, index) or 0.0 for each in waiting)
        replaced = []
        for process in sorted(ended, key=_ended_at_s, reverse=True):
            if not since_s - GAP_S <= _ended_at_s(process) <= index.snapshot.at_s:
                break
            thread = main_thread(process)
            waited_s = blocked_for_s(thread) if thread is not None else None
            since_s = min(since_s, _ended_at_s(process) - (waited_s or 0.0))
            replaced.append(process)
        lasted_s = index.snapshot.at_s - since_s
        if len(kinds) == 1 and lasted_s >= STUCK_S:
            kind: Kind = "queue" if "queue" in kinds else "lock"
            locks[segment] = _Wanted(kind, waiting, replaced, lasted_s)
    return locks


def _ended_at_s(process: Process) -> float:
    return process.ended.at_s if process.ended is not None else 0.0


def _waits_for(process: Process) -> SegmentId | None:
    """The semaphore at zero for which a main thread waits, or waited when last read."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.value or wait.timeout_s is not None:
        return None
    return wait.segment


def _kind(index: Index, process: Process) -> Kind | None:
    """What a main thread waits for; `None` if it is no lock, or if no stack of this wait shows it.

    Locks of queues, and those of `with lock:`, are taken in `__enter__`; acquire() is a function in
    C, with which a program waits for locks and for counts alike: there the name has to tell.
    """
    thread = main_thread(process)
    frames = own_frames(thread.stack) if thread is not None else ()
    if thread is None or (thread.stack_age_s or 0.0) > (blocked_for_s(thread) or 0.0) + SEEN_S:
        return None
    if innermost(frames, "synchronize.py:notify", "synchronize.py:wait") is not None:
        return None
    if calls(frames[:1], ENTERS):
        return "queue" if innermost(frames, "queues.py:get", "queues.py:put") else "lock"
    return "lock" if frames and is_named_a_lock(index, frames[0]) else None


def _reads_in(process: Process) -> tuple[str, str] | None:
    """The file and function of the user code that reads the queue."""
    thread = main_thread(process)
    frame = user_frame(thread.stack) if thread is not None else None
    return None if frame is None else (frame.file, frame.function)


def _is_read(process: Process) -> bool:
    """Whether it is known what each of its Python threads does."""
    return all(
        thread.waits_on is not None or thread.stack or thread.tid != process.pid
        for thread in process.threads
    )


def _may_have_held(process: Process) -> bool:
    """Whether a terminated process may have had a lock: it was in get(), or elsewhere unseen.

    That is also how processes are ended that hold nothing, so it says less than a kill.
    """
    thread = main_thread(process)
    frames = own_frames(thread.stack) if thread is not None else ()
    is_waiting = calls(frames[:1], ENTERS) or calls(frames, "synchronize.py:wait")
    return not frames or not is_waiting


def _holds_nothing(index: Index, process: Process) -> bool:
    """Whether a process is seen outside of any `with lock:`, or only waits for children to exit.

    Any other process may sleep inside of such a block.
    """
    return (
        process.role in SERVICE_ROLES
        or main_shape(process) == "joins-process"
        or is_seen_outside(index, process.process)
    )


def _may_hold(process: Process, readers_code: set[tuple[str, str]]) -> bool:
    """Whether a living process may hold the lock: it reads from a queue, or it runs.

    A process that reads in other code than those that wait, and than the dead processes did, reads
    another queue: for example a parent that sends work on one queue and collects results from
    another.
    """
    code = _reads_in(process)
    is_elsewhere = bool(readers_code) and code is not None and code not in readers_code
    for thread in process.threads:
        if thread.name == HOOK_THREAD:
            continue
        if is_busy(thread):
            return True
        if is_elsewhere and thread == main_thread(process):
            continue
        wait = thread.waits_on
        if wait is not None and wait.kind in ("pipe-read", "poll"):
            return True
        frames = own_frames(thread.stack)
        if calls(frames, "queues.py:get") and not calls(frames, "synchronize.py:__enter__"):
            return True
    return False


def _finding(
    segment: SegmentId, wanted: _Wanted, dead: tuple[Process, ...], index: Index
) -> Finding:
    """The finding for one semaphore; about the parent, where it has replaced those that waited."""
    waiting, is_queues = wanted.waiting, wanted.kind == "queue"
    head = family_head(index, waiting[0]) if wanted.replaced else None
    was_killed = any(p.ended and death_of(p.ended) != "shutdown" for p in dead)
    how = "killed" if was_killed else "terminated"
    held = sorted(filter(_may_have_held, dead), key=_ended_at_s) or list(dead)
    first = held[0]
    sender = sender_of(index, first, first.ended) if first.ended is not None else None
    what = "the lock of a queue" if is_queues else "a lock"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=waiting[0].process if head is None else head.process,
        subject=str(segment),
        summary=f"{all_called(waiting)} {wait_verb(waiting)} for {what} that a {how} process still "
        "held",
        evidence=(
            f"semaphore {segment} is 0, and has had waiters for {index.lasting(wanted.lasted_s)}",
            "no living process that maps it is reading or running",
            *ended_words(held, NAMED),
            *([f"{sender} has sent {called(first)} that signal"] if sender else []),
            *(last_seen(first) if _may_have_held(first) else (_BEFORE,)),
            *(_replaced_words(head, wanted.replaced) if head is not None else ()),
        ),
        cause=_CAUSE_QUEUE[how] if is_queues else _CAUSE_LOCK,
        advice=_ADVICE_QUEUE if is_queues else _ADVICE_LOCK,
    )


_BEFORE = "these waited for it themselves: one that ended before mpwatch observed the job had it"


def _replaced_words(head: Process, replaced: Sequence[Process]) -> Iterator[str]:
    yield (
        f"{all_called(replaced, NAMED)} waited for it as well until their end; {called(head)} has "
        "started others, which wait in their place"
    )


_CAUSE_QUEUE: Mapping[str, str] = {
    "killed": (
        "A reader of a queue holds the queue's lock while it waits for an item. Killed at that "
        "moment (SIGKILL, out of memory, a crash), it never releases the lock: semaphores are "
        "not released when their holder ends."
    ),
    "terminated": (
        "An idle reader of a queue is in get() and holds the lock of the queue's readers while it "
        "waits for an item. Process.terminate() ends it by SIGTERM at that line: the lock is not "
        "released when its holder ends. All other readers, and those that are started later, wait "
        "for it for ever, and the queue fills."
    ),
}
_ADVICE_QUEUE = (
    "Restart the job: nothing releases this lock, and new readers of the same queue wait for it "
    "too. Do not end a process by terminate() or SIGKILL while it may be in get(): let it end "
    "itself, by an item that tells it to or by a check of its age between get(timeout=...) calls. "
    "Or give each reader a queue or Pipe of its own, as a DataLoader does."
)
_CAUSE_LOCK = (
    "A process that a signal ends inside `with lock:` never releases the lock: the block is not "
    "exited, and semaphores are not released when their holder ends. Process.terminate() sends "
    "such a signal; SIGKILL and crashes have the same effect."
)
_ADVICE_LOCK = (
    "Restart the job: nothing releases this lock. Instead of terminate(), ask processes to stop "
    "with a Value or an Event that they check outside the lock, and join them; or take the "
    "lock with acquire(timeout=...), so that the others notice."
)
