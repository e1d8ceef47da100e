"""Which processes or threads can release a lock that others wait for, as far as stacks show it.

Every forked process maps the semaphores of its parent, and most of them never use these. What the
processes run shows more: the other parties of a barrier run the same function, and whoever holds a
lock is further down in the function that takes it. A lock of `threading` is a futex without an
owner, of which the kernel knows no holder either: a thread that is past the line of its process in
which another one waits, as in `with lock:` followed by a wait or a loop, is taken to have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import WORK_ROLES, family_head, label_stem
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, own_threads, user_frame
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.waits import SETTLED_S

BARRIER = "the other parties of a barrier"
"""Begins the name of the wait of a process that has reached a barrier."""
FULL_QUEUE = "room in a full queue"
"""Begins the name of the wait of a process that puts into a queue with a bound."""
QUEUE_LOCK = "the lock of a queue's readers"
EVENT = "an event or condition"

_AT_BARRIER = (
    ("synchronize.py:wait", "threading.py:_wait", "threading.py:wait"),
    ("synchronize.py:wait", "threading.py:_enter", "threading.py:wait"),
)
"""`Barrier.wait` of multiprocessing (CPython 3.10 to 3.15): for the others to arrive, or to have
left the time before."""
_TAKES = re.compile(r"acquire|__enter__|^_?lock$")
"""In the name of a function that does nothing but take a lock."""
_SAME_S = 0.5
"""A stack is taken within this time of the reading that shows the wait."""
RECENT_S = 2.5
"""A stack of a running thread that is older does not show where it runs."""


class _Facts(NamedTuple):
    """What a stack says of a wait for a semaphore."""

    what: str
    """What it is for; empty where the stack does not say."""
    place: Frame | None
    """The innermost frame of the program's own code that is no wrapper of `acquire`."""
    inside: Mapping[tuple[str, str], int]
    """The line in each function of the program that it is in, by file and function."""
    gets: bool
    """Whether it is in `Queue.get`."""


_NO_FACTS = _Facts("", None, MappingProxyType({}), False)


class SemaphoreUse(NamedTuple):
    """What the main thread of one process does with semaphores, by its stack and system call."""

    segment: SegmentId | None
    """The semaphore that it waits for."""
    joins: bool
    """Whether it waits for a child to exit."""
    facts: _Facts

    @property
    def what(self) -> str:
        """What it waits for; empty where it waits for no semaphore or that is not known."""
        return self.facts.what if self.segment is not None else ""

    @property
    def reads_queue(self) -> bool:
        """Whether it is in `Queue.get`, and not waiting for the lock of its readers."""
        return self.facts.gets and self.segment is None


@derived
def semaphore_uses(index: Index) -> Mapping[ProcessId, SemaphoreUse]:
    """What each living process does with semaphores; asked once for all edges of a snapshot."""
    return {process.process: _use(index, process) for process in index.snapshot.living()}


def _use(index: Index, process: Process) -> SemaphoreUse:
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    if thread is None:
        return SemaphoreUse(None, False, _NO_FACTS)
    facts = _facts(index, thread.stack) if _is_new(thread) else _NO_FACTS
    if wait is None:
        return SemaphoreUse(None, False, facts)
    return SemaphoreUse(wait.segment, wait.kind == "child", facts)


def _is_new(thread: Thread) -> bool:
    """Whether a stack shows where a thread is now."""
    if thread.waits_on is None:
        return bool(thread.stack) and (thread.stack_age_s or 0.0) <= RECENT_S
    return is_of_this_wait(thread)


@derived
def _facts(index: Index, stack: tuple[Frame, ...]) -> _Facts:
    """As for `shape_in`: once for all processes with equal stacks."""
    del index
    frames = own_frames(stack)
    own = [frame for frame in frames if not is_library(frame)]
    return _Facts(
        what=_what(frames),
        place=next((each for each in own if not _TAKES.search(each.function)), None),
        inside={(frame.file, frame.function): frame.line for frame in reversed(own)},
        gets=calls(frames, "multiprocessing/queues.py:get"),
    )


def is_of_this_wait(thread: Thread) -> bool:
    """Whether the stack of a thread was taken during its present wait, as far as times show it."""
    if not thread.stack:
        return False
    if thread.stack_age_s is None or thread.waits_s is None:
        return True
    return thread.stack_age_s <= thread.waits_s + _SAME_S


def _what(frames: Sequence[Frame]) -> str:
    """The purpose of a semaphore, by the functions of the library that wait for it."""
    if any(calls(frames, *pattern) for pattern in _AT_BARRIER):
        return BARRIER
    if calls(frames, "synchronize.py:wait"):
        return EVENT
    if calls(frames, "multiprocessing/queues.py:get"):
        return QUEUE_LOCK
    if calls(frames[:1], "multiprocessing/queues.py:put"):
        return FULL_QUEUE  # SimpleQueue.put and its lock have a frame of the lock above
    return ""


@derived
def lock_holders(index: Index) -> Mapping[SegmentId, ProcessId]:
    """The process that holds each lock between processes, as far as hooks have reported it.

    A hook is asked about once a second, so it says nothing of locks that are held for less.
    """
    found: dict[SegmentId, ProcessId] = {}
    for process in index.snapshot.living():
        gauge = process.gauges.get("locks")
        held = gauge.get("held") if isinstance(gauge, Mapping) else None
        if not isinstance(held, Sequence):
            continue
        addresses = {each for each in held if isinstance(each, int)}
        for use in process.sample.segments or () if addresses else ():
            for begin, end in use.ranges:
                if use.kind == "semaphore" and any(begin <= each < end for each in addresses):
                    found[use.segment] = process.process
    return found


def likeliest_first(
    index: Index, process: Process, users: Sequence[ProcessId], segment: SegmentId
) -> tuple[ProcessId, ...]:
    """The processes that may release a semaphore, the likeliest first.

    Who waits for the semaphore as well will not release it; what runs the same as the one that
    waits takes part; a child of that one, or a parent that joins, likely does not. A parent maps
    the semaphore in any case, because it made it for its children.

    Args:
        index: The snapshot.
        process: The one that waits for it.
        users: The other processes that map it.
        segment: The semaphore.

    Returns:
        The holder alone, of a lock whose holder is known; those that have not reached it, of a
        barrier at which some of the processes that run the same have not arrived; otherwise all
        users.
    """
    holder = lock_holders(index).get(segment)
    if holder is not None and holder != process.process:
        return (holder,)
    uses = semaphore_uses(index)
    mine = uses.get(process.process)
    if mine is not None and mine.what == BARRIER:
        late = _late(index, process, users, segment)
        if late:
            return late

    def rank(user: ProcessId) -> tuple[bool, ...]:
        use, other = uses.get(user), index.snapshot.get(user)
        if use is None or other is None:
            return (True,)
        return (
            not (mine is not None and _is_ahead(mine, use)),
            use.segment == segment,
            use.joins,
            other.pid == process.sample.parent_pid,
            label_stem(other) != label_stem(process) and other.sample.parent_pid == process.pid,
        )

    return tuple(sorted(users, key=rank))


def is_seen_to_hold(index: Index, waiter: ProcessId, other: ProcessId, segment: SegmentId) -> bool:
    """Whether a hook or a stack shows that a process has the semaphore that another waits for."""
    if segment in lock_holders(index):
        return lock_holders(index)[segment] == other
    uses = semaphore_uses(index)
    mine, its = uses.get(waiter), uses.get(other)
    return mine is not None and its is not None and _is_ahead(mine, its)


def _late(
    index: Index, process: Process, users: Sequence[ProcessId], segment: SegmentId
) -> tuple[ProcessId, ...]:
    """The processes that run the same as one at a barrier, and are not at that barrier."""
    uses, head = semaphore_uses(index), family_head(index, process)
    stem = label_stem(process)
    found = []
    for user in users:
        other = index.snapshot.get(user)
        if other is None or uses[user].segment == segment or other.role not in WORK_ROLES:
            continue
        if label_stem(other) == stem and family_head(index, other) == head:
            found.append(user)
    return tuple(found)


def _is_ahead(waiter: SemaphoreUse, other: SemaphoreUse) -> bool:
    """Whether another process has what one waits for, or is further down in the same function.

    A reader of a queue keeps the lock of its readers while it waits for an item.
    """
    if other.segment == waiter.segment:
        return False
    if waiter.what == QUEUE_LOCK:
        return other.reads_queue
    place = waiter.facts.place
    if waiter.what or place is None:
        return False
    line = other.facts.inside.get((place.file, place.function))
    return line is not None and line > place.line


_RESTS = ("threading.py:join", "threading.py:_shutdown", "threading.py:wait", "signal.py:")
"""Functions in which the main thread of a server waits while its threads do the work."""


class HeldLock(NamedTuple):
    """A lock of `threading` for which threads of one process wait, and the thread that has it."""

    waiters: tuple[Thread, ...]
    """At least one: threads that have waited without a time limit, at the same line."""
    holder: Thread
    """The thread that is further down in the function in which they wait."""


@derived
def held_lock(index: Index, identity: ProcessId) -> HeldLock | None:
    """The lock that keeps a process from answering others.

    Returns:
        `None` where the main thread is busy with something else than the lock or its threads, where
        no thread waits for a lock, or where the stacks do not show one thread that holds it.
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    if process is None or main is None:
        return None
    own = own_threads(index, process)
    waiting = [each for each in own if waits_for_lock(each)]
    if not waiting or not (main in waiting or _leaves_work_to_threads(main)):
        return None
    first = main if main in waiting else waiting[0]
    place = user_frame(first.stack)
    holders = [each for each in own if each is not first and _is_past(each, first)]
    if place is None or len(holders) != 1:
        return None
    return HeldLock(tuple(t for t in waiting if user_frame(t.stack) == place), holders[0])


def waits_for_lock(thread: Thread) -> bool:
    """Whether a thread has waited for some time to take a lock in a line of the program.

    A lock is taken in C; a queue, an event or a future has frames of the library above the line.
    """
    wait, own = thread.waits_on, own_frames(thread.stack)
    if wait is None or wait.kind != "futex" or wait.timeout_s is not None or not own:
        return False
    if is_library(own[0]) or not is_of_this_wait(thread):
        return False
    return min(thread.still_s or 0.0, thread.waits_s or SETTLED_S) >= SETTLED_S


def _leaves_work_to_threads(main: Thread) -> bool:
    """Whether a main thread waits for clients, a signal or its threads, and answers nobody."""
    wait = main.waits_on
    if wait is None:
        return False
    if wait.kind in ("accept", "signal"):
        return True
    return wait.kind == "futex" and any(calls(own_frames(main.stack), each) for each in _RESTS)


def _is_past(thread: Thread, waiter: Thread) -> bool:
    """Whether a thread is in the function in which another one waits, at a later line."""
    place = user_frame(waiter.stack)
    if place is None or not _shows_its_line(thread):
        return False
    return any(
        (frame.file, frame.function) == (place.file, place.function) and frame.line > place.line
        for frame in own_frames(thread.stack)
    )


def _shows_its_line(thread: Thread) -> bool:
    """Whether a stack shows where a thread is: a loop that sleeps at one line stays there."""
    is_asleep = thread.waits_on is not None and thread.waits_on.kind == "timer"
    return bool(thread.stack) and (is_asleep or is_of_this_wait(thread))


def words_of(process: Process, lock: HeldLock) -> str:
    """`its thread serve-2, with the lock for which 2 threads wait at replay.py:22 serve`."""
    count, frame = len(lock.waiters), user_frame(lock.waiters[0].stack)
    at = "" if frame is None else f" at {frame_words(frame)}"
    if lock.waiters[0].tid == process.pid:
        those = "the main thread waits"
    else:
        those = f"{count} threads wait" if count > 1 else "another thread waits"
    return f"{thread_words(process, lock.holder)}, likely with the lock for which {those}{at}"


def thread_words(process: Process, thread: Thread) -> str:
    """`the main thread`, `its thread serve-2`."""
    return "the main thread" if thread.tid == process.pid else f"its thread {thread.name}"
