"""Which processes or threads can release a lock that others wait for, as far as stacks show it.

Every forked process maps the semaphores of its parent, and most of them never use these. What the
processes run shows more: the other parties of a barrier run the same function, and a process that
holds a lock is further down in the function that takes it. A lock of `threading` is a futex without
an owner, of which the kernel knows no holder either: a thread that is past the line of its process
in which another one waits, as in `with lock:` followed by a wait or a loop, is taken to have it.

The kernel does not know either which process has taken a semaphore; one that only maps it holds
nothing. But `with lock:` is left by every way but the end of the process: where every living
process that maps the semaphore is seen outside of such a block, the one that had it has ended, and
no living process will release it. Nor will one that waits for the semaphore inside of a block that
has taken it before, or after a call of `acquire()` without a `release()`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from mpwatch.describe.frames import at_frame, is_library, own_frames, program_frames
from mpwatch.describe.waits import FULL_QUEUE
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import all_links
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    WORK_ROLES,
    family_head,
    label_stem,
)
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    main_thread,
    own_threads,
    runs_event_loop,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.connections import accepts
from mpwatch.diagnose.analysis.waits.counts import awaited_counts, entering
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import FdLink, Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import SourceLine, Statement, TakenLock
from mpwatch.model.waits import SETTLED_S

BARRIER = "the other parties of a barrier"
"""Begins the name of the wait of a process that has reached a barrier."""
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

UNHELD = ", which no living process is seen to hold"
"""End of the name of a wait for such a lock."""
HELD_BY_WAITERS = ", which only processes that wait for it have"
"""Ends the name of the wait for a lock whose holder has ended."""
LEFT_S = 10.0
"""Processes are read one after the other: a lock that changes hands may be seen with none."""
ENTERS = "multiprocessing/synchronize.py:__enter__"
HELPERS = 3
"""Functions of the program between the header of a block and the wait for its lock, at most."""
_HEADER = re.compile(r"(?:async )?with (?P<taken>(?:\w+\.)*(?P<name>\w+))(?P<call>\()?")
_ACQUIRES = re.compile(
    r"(?:\w+ = |(?:if|while|assert) (?:not )?)?(?P<taken>(?:\w+\.)*(?P<name>\w+))\.acquire\("
)
_LOCK_NAME = re.compile(r"lock|sem|mutex|guard|cond|gate", re.IGNORECASE)
_MAY_BE_A_LOCK = re.compile(r"with [^(]+:$|lock|sem|mutex", re.IGNORECASE)
"""A header of `with` that takes what exists already; `with open(path) as file:` makes its own."""
_PAIR = 8
"""The inodes of the two pipes that `Popen` makes for a child lie next to each other."""


class _Facts(Struct, frozen=True):
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


class SemaphoreUse(Struct, frozen=True):
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

    One that waits for the semaphore as well will not release it; what runs the same as the one that
    waits takes part; a child of that one, or a parent that joins, likely does not. A parent maps
    the semaphore in any case, because it made it for its children. An event or a condition may be
    set by any of them: one that has done nothing for a while is said to be the one only where none
    does anything, because a cycle would be told of it. Where the wait is for a count to be 0, that
    is one of those that add to it and take from it in a loop. Room in a full queue comes from one
    that is in the get() of a queue rather than from one that is in no such call.

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

    thread = main_thread(process) if mine is not None and mine.what == EVENT else None
    counts = awaited_counts(index, thread) if thread is not None else []
    adding = {each.process.process for count, _ in counts for each in entering(index, count)}

    def rank(user: ProcessId) -> tuple[bool, ...]:
        use, other = uses.get(user), index.snapshot.get(user)
        if use is None or other is None:
            return (True,)
        return (
            not (mine is not None and _is_ahead(mine, use)),
            use.segment == segment,
            bool(adding) and user not in adding,
            mine is not None and mine.what == EVENT and _is_at_rest(index, other),
            mine is not None and mine.what == FULL_QUEUE and not use.facts.gets,
            use.joins,
            other.pid == process.sample.parent_pid,
            label_stem(other) != label_stem(process) and other.sample.parent_pid == process.pid,
        )

    return tuple(sorted(users, key=rank))


def _is_at_rest(index: Index, process: Process) -> bool:
    """Whether none of its threads, but that of a hook, has run for a while."""
    times = [each.still_s for each in own_threads(index, process)]
    return all(each is None or each >= SETTLED_S for each in times)


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


class ThreadLock(Struct, frozen=True):
    """A lock of `threading` for which threads of one process wait, and the thread that has it."""

    waiters: tuple[Thread, ...]
    """At least one: threads that have waited without a time limit, at the same line."""
    holder: Thread
    """The thread that is further down in the function in which they wait."""


@derived
def held_lock(index: Index, identity: ProcessId) -> ThreadLock | None:
    """The lock that keeps a process from answering others.

    Returns:
        `None` where the main thread is busy with something else than the lock or its threads, where
        no thread waits for a lock, or where the stacks do not show one thread that holds it.
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    if process is None or main is None:
        return None
    if not any(map(waits_for_lock, process.threads)):
        return None
    own = own_threads(index, process)
    waiting = [each for each in own if waits_for_lock(each)]
    if not waiting or not (main in waiting or _leaves_work_to_threads(process, main)):
        return None
    first = main if main in waiting else waiting[0]
    place = user_frame(first.stack)
    holders = [each for each in own if each is not first and _is_past(each, first)]
    if place is None or len(holders) != 1:
        return None
    return ThreadLock(tuple(t for t in waiting if user_frame(t.stack) == place), holders[0])


def waits_for_lock(thread: Thread) -> bool:
    """Whether a thread has waited for some time to take a lock in a line of the program.

    A lock is taken in C; a queue, an event or a future has frames of the library above the line.
    """
    wait = thread.waits_on
    if wait is None or wait.kind != "futex" or wait.timeout_s is not None or not thread.stack:
        return False
    own = own_frames(thread.stack)
    if not own or is_library(own[0]) or not is_of_this_wait(thread):
        return False
    return min(thread.still_s or 0.0, thread.waits_s or SETTLED_S) >= SETTLED_S


def _leaves_work_to_threads(process: Process, main: Thread) -> bool:
    """Whether a main thread waits for clients, a signal or its threads, and answers nobody."""
    wait = main.waits_on
    if wait is None:
        return False
    is_loop = runs_event_loop(main)
    if wait.kind in ("accept", "signal") or (accepts(process, main) and not is_loop):
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


def words_of(process: Process, lock: ThreadLock) -> str:
    """`its thread serve-2, with the lock for which 2 threads wait at replay.py:22 serve`."""
    count, frame = len(lock.waiters), user_frame(lock.waiters[0].stack)
    at = at_frame(frame)
    if lock.waiters[0].tid == process.pid:
        those = "the main thread waits"
    else:
        those = f"{count} threads wait" if count > 1 else "another thread waits"
    return f"{thread_words(process, lock.holder)}, likely with the lock for which {those}{at}"


def thread_words(process: Process, thread: Thread) -> str:
    """`the main thread`, `its thread serve-2`."""
    return "the main thread" if thread.tid == process.pid else f"its thread {thread.name}"


@derived
def is_left(index: Index, segment: SegmentId, users: tuple[ProcessId, ...]) -> bool:
    """Whether no living process holds a lock for which others wait, as far as stacks show it.

    Args:
        index: The snapshot.
        segment: The semaphore.
        users: All processes that map it.
    """
    if segment in lock_holders(index):
        return False
    waiting, others = _living_users(index, segment, users)
    return (
        bool(waiting)
        and all(_has_waited(index, each) for each in waiting)
        and all(is_seen_outside(index, each.process) for each in others)
    )


def _living_users(
    index: Index, segment: SegmentId, users: Sequence[ProcessId]
) -> tuple[list[Process], list[Process]]:
    """The living processes that map a semaphore: those that wait for it, and the others."""
    uses = semaphore_uses(index)
    living = [each for each in map(index.snapshot.get, users) if each and not each.is_gone]
    waiting = [each for each in living if uses[each.process].segment == segment]
    others = [each for each in living if each not in waiting and each.role not in SERVICE_ROLES]
    return waiting, others


def _has_waited(index: Index, process: Process) -> bool:
    """Whether it has been about to enter one `with lock:` of the program for some time."""
    thread = main_thread(process)
    if thread is None or not _waits_long(process) or not is_of_this_wait(thread):
        return False
    frames = own_frames(thread.stack)
    if not calls(frames[:1], ENTERS) or len(frames) < 2 or is_library(frames[1]):
        return False
    return all(_is_outside(index, frame) for frame in frames[2:])


class Nested(Struct, frozen=True):
    """A lock that a thread has taken and not released, and that it is about to take once more."""

    outer: Frame
    taken: Statement
    """The header of the block that it is in, or the call of `acquire()` that it has made."""
    inner: Frame
    """The line at which it waits to take it again."""
    way: tuple[Frame, ...]
    """The frames of the program from the second one to the first, both included."""

    @property
    def is_block(self) -> bool:
        """Whether it is in a `with` block, which releases the lock at its end in any case."""
        return _HEADER.match(self.taken.text) is not None


class Entry(Struct, frozen=True):
    """What a statement takes as a lock."""

    taken: str
    """`self.slots`."""
    name: str
    """`slots`: the function that is called, or the last part of a lock's name."""
    is_made: bool
    """Whether the lock is what a call returns, `with slots.claim(name):`."""


def entry_of(line: Statement | None) -> Entry | None:
    """What a statement takes as a lock; `None` where it takes none."""
    if line is None:
        return None
    header = _HEADER.match(line.text)
    if header is not None and not line.text.partition(header["taken"])[2].startswith(".acquire("):
        return Entry(header["taken"], header["name"], bool(header["call"]))
    call = _ACQUIRES.match(line.text)
    return Entry(call["taken"], call["name"], False) if call is not None else None


_IS_A_LOCK = re.compile(r"lock|mutex", re.IGNORECASE)


def is_named_a_lock(index: Index, frame: Frame) -> bool:
    """Whether a line of the program calls acquire() of something with the name of a lock.

    What counts (slots, permits, a semaphore) is released by others than those that acquire it.
    """
    line = source_of(index, frame) if not is_library(frame) else None
    call = _ACQUIRES.match(line.statement.text) if line is not None else None
    return call is not None and _IS_A_LOCK.search(call["taken"]) is not None


@derived
def nested_claim(index: Index, identity: ProcessId) -> Nested | None:
    """Where a process that waits for a semaphore has taken it before, as far as its source shows.

    A lock is told by the function that `with` calls for it (`with slots.claim(name):`), which a
    program has for one purpose; where none is called, by its whole name in one and the same file.
    """
    process = index.snapshot.get(identity)
    thread = main_thread(process) if process is not None else None
    return None if thread is None else nested_in(index, thread)


def nested_in(index: Index, thread: Thread) -> Nested | None:
    """As `nested_claim`, of one thread: also for a lock of `threading`."""
    if not is_of_this_wait(thread):
        return None
    own = program_frames(thread.stack)
    lines = [source_of(index, frame) for frame in own]
    for place, line in enumerate(lines[:HELPERS]):
        entered = entry_of(line.statement) if line is not None else None
        if entered is None:
            continue
        if place and own[place - 1].function not in (entered.name, "__enter__", "acquire"):
            return None  # it waits in an argument of the call
        found = _taken_before(entered, own, lines, place)
        if found is not None:
            return found
    return None


def _taken_before(
    entered: Entry, own: Sequence[Frame], lines: Sequence[SourceLine | None], place: int
) -> Nested | None:
    """The statement by which a thread has taken what it is about to take.

    Args:
        entered: What it is about to take.
        own: The frames of the program, innermost first.
        lines: Their lines.
        place: The frame in which it waits.
    """
    for number in range(place, len(own)):
        line, is_one_file = lines[number], own[number].file == own[place].file
        for before in reversed((*line.within, *line.held) if line is not None else ()):
            other = entry_of(before)
            if other is None or not _is_same(entered, other, is_one_file):
                continue
            if is_one_file and owner_of(line, before) != owner_of(lines[place], None):
                continue  # the `self` of another class
            name = entered.taken
            if "." not in name and not _is_one_argument(name, own, lines, place, number):
                continue
            return Nested(own[number], before, own[place], tuple(own[place : number + 1]))
    return None


def _is_one_argument(
    name: str, own: Sequence[Frame], lines: Sequence[SourceLine | None], place: int, number: int
) -> bool:
    """Whether two calls of one function were given the same lock, by what their callers pass.

    True for two functions, and within one call: there a name is of one lock.

    Args:
        name: Of the lock in the function.
        own: The frames of the program, innermost first.
        lines: Their lines.
        place: The later call.
        number: The earlier one.
    """
    here, there = own[place], own[number]
    if place == number or (here.file, here.function) != (there.file, there.function):
        return True
    if place + 1 == number:  # it calls itself
        return name in _arguments(lines[number], here.function)
    passed = [
        _arguments(lines[each + 1], here.function) if each + 1 < len(lines) else []
        for each in (place, number)
    ]
    pairs = list(zip(*passed, strict=False))
    locks = [pair for pair in pairs if any(map(_LOCK_NAME.search, pair))] or pairs[:1]
    return bool(locks) and all(one == other for one, other in locks)


def _arguments(line: SourceLine | None, function: str) -> Sequence[str]:
    """What a line passes to a function: `["self.lock", "self._write"]`."""
    try:
        tree = ast.parse(line.statement.text if line is not None else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # a part of a statement: it is cut
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == function:
            return [ast.unparse(each) for each in (*node.args, *(k.value for k in node.keywords))]
    return []


def owner_of(line: SourceLine | None, header: Statement | None) -> str:
    """The class whose `self` the lock of a header belongs to; empty where it belongs to none."""
    found = taken_at(line, header or line.statement) if line is not None else None
    return found.owner if found is not None and found.name.startswith("self.") else ""


def taken_at(line: SourceLine, statement: Statement) -> TakenLock | None:
    """What a statement of the function of a line takes; `None` if it takes no lock."""
    return next((each for each in line.locks if each.statement == statement), None)


def _is_same(entered: Entry, other: Entry, is_one_file: bool) -> bool:
    """Whether two statements take the same lock."""
    if entered.is_made != other.is_made:
        return False
    if entered.is_made:
        return entered.name == other.name
    return is_one_file and entered.taken == other.taken


@derived
def is_held_by_waiters(index: Index, segment: SegmentId, users: tuple[ProcessId, ...]) -> bool:
    """Whether all that may have a semaphore wait for it, and some have taken it before.

    Args:
        index: The snapshot.
        segment: The semaphore.
        users: All processes that map it.
    """
    waiting, others = _living_users(index, segment, users)
    return (
        any(nested_claim(index, each.process) is not None for each in waiting)
        and all(_waits_long(each) for each in waiting)
        and all(is_seen_outside(index, each.process) for each in others)
    )


def _waits_long(process: Process) -> bool:
    """Whether its main thread has waited for `LEFT_S`, without a time limit."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    if thread is None or wait is None or wait.value or wait.timeout_s is not None:
        return False
    times = [each for each in (thread.still_s, thread.waits_s) if each is not None]
    return bool(times) and min(times) >= LEFT_S


@derived
def is_seen_outside(index: Index, identity: ProcessId) -> bool:
    """Whether no thread of a process is inside of a block that may hold a lock, by its source."""
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    if process is None or main is None or not main.stack or main.state == "R":
        return False
    return all(
        not thread.stack
        or (_is_new(thread) and all(_is_outside(index, each) for each in own_frames(thread.stack)))
        for thread in own_threads(index, process)
    )


def _is_outside(index: Index, frame: Frame) -> bool:
    """Whether a frame is a library's, or at a line before which no lock is taken and kept."""
    if is_library(frame):
        return True
    line = source_of(index, frame)
    return (
        line is not None
        and not line.held
        and not any(
            each.text.startswith(("with ", "async with ")) and _MAY_BE_A_LOCK.search(each.text)
            for each in line.within
        )
    )


@derived
def ended_children(index: Index, parent: ProcessId) -> int:
    """How many children of multiprocessing have ended of which a parent has kept the objects.

    For each child its parent has the reading end of one pipe (the sentinel) and the writing end of
    another, and the child alone has the other ends: `Popen._launch` of CPython 3.10 to 3.15, fork
    and spawn. 0 where descriptors could not be read.
    """
    held = all_links(index)
    living = [each for each in index.snapshot.living() if each.sample.state != "Z"]
    if parent not in held or any(each.process not in held for each in living):
        return 0
    readers = {link.channel for link in _ends(held.values()) if link.is_writable is False}
    writers = {link.channel for link in _ends(held.values()) if link.is_writable is True}
    own = sorted(_ends([held[parent]]), key=lambda each: each.fd)
    sentinels = [each for each in own if each.is_writable is False and each.channel not in writers]
    watched = [each for each in own if each.is_writable is True and each.channel not in readers]
    return sum(any(_is_pair(sentinel, each) for each in watched) for sentinel in sentinels)


def _ends(held: Iterable[Sequence[FdLink]]) -> list[FdLink]:
    return [link for links in held for link in links if link.kind == "pipe"]


def _is_pair(sentinel: FdLink, watched: FdLink) -> bool:
    """Whether two ends were made one after the other, in this order."""
    apart = (watched.inode or 0) - (sentinel.inode or 0)
    return 0 < apart <= _PAIR and watched.fd > sentinel.fd
