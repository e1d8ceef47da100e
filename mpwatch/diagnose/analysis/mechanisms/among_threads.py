"""Why no thread of a process ends the wait of another one: in words, and what to change.

One that waits for a lock may have been interrupted by the handler of a signal while it held that
lock. Handlers of Python run in the main thread, between any two instructions of what it was doing.
From Python 3.11 on a stack shows which functions native code has called; a handler is one of those.
So are properties and callbacks, so that a handler is told only of a process that handles signals.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.findings import capital
from mpwatch.describe.frames import at_frame, frame_words, is_library, own_frames, program_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.describe.waits import FULL_QUEUE
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, Case, Mechanism, at_line
from mpwatch.diagnose.analysis.mechanisms.coroutines import unread_task, unsafe_wake
from mpwatch.diagnose.analysis.mechanisms.lost_results import held_up_words
from mpwatch.diagnose.analysis.mechanisms.unreleased import may_lose_permits, skipped_release
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    children_started_by,
)
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.source.unchecked_waits import UncheckedWait, missed_among
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    runs_event_loop,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.edges import surroundings
from mpwatch.diagnose.analysis.waits.futures import forked_without_executor
from mpwatch.diagnose.analysis.waits.lock_order import OppositeLocks, Waits, opposite_locks
from mpwatch.diagnose.analysis.waits.providers import Nested, nested_in, waits_for_lock
from mpwatch.diagnose.analysis.waits.threads import (
    AT_BARRIER,
    FOR_EVENT,
    FOR_ITEM,
    FOR_LOCK,
    FOR_RESULTS,
    FOR_ROOM,
    FOR_SEMAPHORE,
    FOR_THREAD,
    HANDLED,
    IDLE_IN_POOL,
    is_at_exit,
    others_that_wait,
    purpose,
    reads_own_end,
    sentence,
    threads_that_wait_for_each_other,
)
from mpwatch.diagnose.analysis.waits.verdicts import (
    ALL_THREADS,
    IDLE_LOOP,
    ONE_THREAD,
    ONLY_A_CALLBACK,
    ONLY_THREAD,
    OWN_BLOCK,
    OWN_LOCK,
    OWN_LOG,
    OWN_QUEUE,
    self_blocked,
)
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark


def waits_for_own_threads(case: Case) -> Mechanism | None:
    """Every thread of the last process waits for another thread of it."""
    last = case.chain.links[-1].process
    process = case.index.snapshot.get(last)
    if process is None or last is None or case.chain.conclusion not in (ONE_THREAD, ALL_THREADS):
        return None
    waiting = threads_that_wait_for_each_other(case.index, last)
    if not waiting:
        return None
    interrupted = waits_for_an_interrupted_holder(process, waiting[0])
    if interrupted is not None and {purpose(thread) for thread in waiting} == {FOR_LOCK}:
        return interrupted
    each = "; ".join(sentence(process, thread) for thread in waiting[:NAMED])
    more = f"; and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
    name = called(process)
    cause = f"In {name}, {each}{more}. "
    if (reader := _reader_of_own_end(case, process, waiting)) is not None:
        return _reads_own_end(name, cause, reader, waiting)
    known = (
        unsafe_wake(case.index, process)
        or next(filter(None, (_lost_signal(case.index, process, each) for each in waiting)), None)
        or _skipped_release(case.index, process, waiting)
        or _puts_into_what_it_empties(case.index, process, waiting)
        or (_waits_while_logging(process, waiting) if len(waiting) > 1 else None)
        or in_opposite_order(case.index, process)
        or held_up_words(case.index, process)
        or _missed(case.index, process, waiting)
    )
    if known is not None:
        return replace(known, cause=f"{cause}{known.cause}")
    if len(waiting) == 1:
        return _one_thread(case, process, waiting[0], cause)
    cause += (
        "Each of these waits ends only by what another thread of the process does, and none of "
        "its threads runs."
    )
    if runs_event_loop(waiting[0]):
        return _blocked_loop(name, cause, waiting)
    purposes = {purpose(thread) for thread in waiting}
    if AT_BARRIER in purposes:
        cause += f" {_BARRIER}"
    if is_at_exit(waiting[0]):
        return _at_exit(name, cause)
    return Mechanism(
        cause=cause,
        advice=" ".join(_advice_for(waiting, purposes)),
        headline=_headline(name, waiting),
    )


class _Emptying(Struct, frozen=True):
    """A thread that takes items out of the queue in which it waits for room."""

    thread: Thread
    loop: Mark
    """The loop that empties the queue."""
    way: Sequence[Frame]
    """From the line in that loop to the one that puts, outermost first."""


def _emptying(index: Index, thread: Thread) -> _Emptying | None:
    """The loop on the stack of a thread that empties the queue into which the thread puts."""
    frames = program_frames(thread.stack)
    if not frames:
        return None
    before = [
        mark
        for mark in marks(index, "put")
        if (mark.file, mark.function) == (frames[0].file, frames[0].function)
        and mark.statement.line <= frames[0].line
    ]
    last = max((mark.statement.line for mark in before), default=0)
    puts = {mark.about for mark in before if mark.statement.line == last}
    for depth, frame in enumerate(frames):
        for loop in marks(index, "empties"):
            is_here = (loop.file, loop.function) == (frame.file, frame.function)
            # A variable of one function is another one elsewhere.
            is_same = depth == 0 or ("." in loop.about and frame.file == frames[0].file)
            if is_here and is_same and loop.about in puts and loop.statement.line <= frame.line:
                return _Emptying(thread, loop, frames[depth::-1])
    return None


def _puts_into_what_it_empties(
    index: Index, process: Process, waiting: Sequence[Thread]
) -> Mechanism | None:
    """A thread waits for room in the queue that it alone empties.

    Where it has got there through calls, the queue may be that of another object of its class; of
    several such threads, each may wait for the next one.
    """
    for_room = [each for each in waiting if purpose(each) == FOR_ROOM]
    found = [each for thread in for_room if (each := _emptying(index, thread)) is not None]
    if not found or (len(found) > 1 and any(len(each.way) > 1 for each in found)):
        return None
    first = found[0]
    queue, (start, *between) = first.loop.about, first.way
    is_one = len(found) == 1
    who = f"each of these {len(found)} threads"
    if is_one:
        is_main = first.thread.tid == process.pid
        who = "the main thread" if is_main else f"thread {first.thread.name}"
    by = (
        next((each for each in between if each.file != start.file), *between[:1])
        if between
        else None
    )
    logs = any("/logging/" in each.file for each in first.thread.stack)
    line = source_of(index, by) if by is not None else None
    prints = line is not None and re.search(r"\bprint\(|\.write\(", line.statement.text) is not None
    why = (
        f", where it logs something that a handler puts into {queue}"
        if logs
        else f", where it prints, and what is printed goes into {queue}"
        if prints
        else ""
    )
    through = f" by way of {frame_words(by)}{why}" if by is not None else ""
    return Mechanism(
        cause=(
            f"Only {mark_words(first.loop)} takes items out of that queue, {queue}. {capital(who)} "
            f"runs it, and has come from {frame_words(start)} to a put() into the same queue"
            f"{through}. The queue is full, so {'it' if is_one else 'each of them'} waits for room "
            "that it would have to make itself, and every other thread that puts waits as well."
        ),
        advice=(
            f"Let a thread that empties {queue} never wait for room in it: there, use put_nowait() "
            "and drop the item or keep it aside (compare threading.current_thread() where others "
            "call the same function)"
            + (
                "; or let it print and log to what does not lead into that queue "
                "(sys.__stderr__, a logger without that handler and with propagate=False). "
                if logs or prints
                else ". "
            )
            + "A larger queue, or a faster receiver, only delays it."
        ),
        evidence=(f"{who}: {' -> '.join(map(frame_words, first.way))}",) if between else (),
        headline=(
            f"in {called(process)}, {who} waits for room in the full queue that it has to empty "
            f"itself, {queue}, at {frame_words(first.way[-1])}."
        ),
    )


def _reader_of_own_end(case: Case, process: Process, waiting: Sequence[Thread]) -> Thread | None:
    """The thread that reads a pipe to which no process but its own can write."""
    around = surroundings(case.index)
    return next((each for each in waiting if reads_own_end(around, process, each)), None)


def _reads_own_end(name: str, cause: str, reader: Thread, waiting: Sequence[Thread]) -> Mechanism:
    """A thread waits for data or the end of a pipe whose writing end only its process has."""
    return Mechanism(
        cause=(
            f"{cause}{name} itself keeps the writing end open, so that no end of file comes "
            "either: a reader gets one once all copies of the writing end are closed."
        ),
        advice=_ADVICE_OWN_END,
        headline=(
            f"{name} waits for its thread {reader.name}, which reads a pipe to which no "
            "process but itself can write."
            if len(waiting) > 1
            else ""
        ),
    )


def _at_exit(name: str, cause: str) -> Mechanism:
    """The interpreter joins a thread at the end of the program."""
    return Mechanism(
        cause=(
            f"{cause} The program itself has come to its end: Python joins all threads that are "
            "not daemons, and those of concurrent.futures, before it calls the functions of atexit."
        ),
        advice=_ADVICE_AT_EXIT,
        headline=f"{name} has come to its end and waits for a thread that does not end.",
    )


def _blocked_loop(name: str, cause: str, waiting: Sequence[Thread]) -> Mechanism:
    """A coroutine or callback blocks the event loop that would have to run on."""
    first, *others = [each for each in waiting if purpose(each) != IDLE_IN_POOL]
    purposes = {purpose(thread) for thread in (first, *others)}
    is_lock = purposes == {FOR_LOCK}
    why = LOCK_IN_COROUTINE if is_lock else ""
    if not purposes.isdisjoint(FOR_RESULTS):
        why = RESULT_OF_LOOP
    asks = next((each for each in others if purpose(each) in FOR_RESULTS), None)
    then = f", and thread {asks.name} {purpose(asks)}{at_line(asks)}" if asks is not None else ""
    return Mechanism(
        cause=f"{cause} {LOOP_BLOCKED} {why}".rstrip(),
        advice=ADVICE_LOOP if is_lock else ADVICE_AWAIT,
        headline=(
            f"a coroutine or callback blocks the event loop of {name}: it waits "
            f"{purpose(first)}{at_line(first)}{then}."
        ),
    )


def _headline(name: str, waiting: Sequence[Thread]) -> str:
    """What the main thread waits for, and what the thread that it joins waits for."""
    first, others = waiting[0], waiting[1:]
    kinds = {purpose(thread) for thread in others}
    if {purpose(thread) for thread in waiting} == {FOR_LOCK}:
        return f"threads of {name} wait for locks that the others of them hold."
    if purpose(first) != FOR_THREAD:
        if len(kinds) > 1:
            return f"{name} and its other threads all wait for each other."
        which = f"its thread {others[0].name} waits"
        if len(others) > 1:
            which = f"{len(others)} of its threads wait"
        return f"{name} waits {purpose(first)}, and {which} {kinds.pop()}: none of them runs."
    if len(kinds) > 1:
        return f"{name} waits for the end of a thread, and all its threads wait themselves."
    which = f"thread {others[0].name}, which waits"
    if len(others) > 1:
        which = f"threads, {len(others)} of which wait"
    return f"{name} waits for the end of {which} {kinds.pop()}."


def _advice_for(waiting: Sequence[Thread], purposes: Set[str]) -> Iterator[str]:
    """What to change, for each purpose that was observed."""
    if sum(purpose(thread) == FOR_LOCK for thread in waiting) > 1:
        yield (
            "Two threads that hold a lock each and want the other's have to take them in the same "
            "order."
        )
    if not purposes.isdisjoint(FOR_RESULTS):
        yield (
            "A task that waits for the result of another task needs a pool with a free worker for "
            "that one."
        )
    if FOR_ITEM in purposes:
        yield (
            "A thread that reads a queue ends by an item that tells it to: put one for each such "
            "thread before it is joined, also after an exception."
        )
    if FOR_ROOM in purposes:
        yield (
            "Take items out of the full queue until the thread that puts them has ended. Where the "
            "items are those that tell readers to end, put one for each reader, and no more: after "
            "the last of them has ended, the queue stays full."
        )
    if FOR_EVENT in purposes:
        yield (
            "Set the event in a finally block, before the thread that waits for it is joined. A "
            "notify() that comes before the wait is lost: use wait_for() of the condition."
        )
    if FOR_SEMAPHORE in purposes:
        yield (
            "Release the semaphore on every way out (with semaphore:, or a finally block): a "
            "return or an exception between acquire() and release() keeps a slot for good."
        )
    if AT_BARRIER in purposes:
        yield (
            "Call barrier.abort() where a thread fails, which ends the wait of the others with an "
            "exception, and read standard error for its traceback."
        )
    yield "With a timeout the wait becomes an error with its line."


def _one_thread(case: Case, process: Process, thread: Thread, cause: str) -> Mechanism:
    """Only one thread of a process is left, and it waits for another."""
    cause += "Only another thread of the process could end that, and there is none."
    name, what = called(process), purpose(thread)
    if runs_event_loop(thread):
        return _blocked_loop(name, cause, [thread])
    if what not in _MISSING:
        return Mechanism(cause=cause, advice=" ".join(_advice_for([thread], {what})))
    forked = [
        child
        for child in children_started_by(case.index, process)
        if child.role not in SERVICE_ROLES and child.sample.start_method == "fork"
    ]
    doing = _MISSING[what]
    died = _dead_threads(case, process)
    sending = [child for child in forked if _waits_to_send(case, child)]
    # Nor does a child that waits for this process use its copy.
    apart = [each for each in forked if each in sending or _waits_for(case, each, process)]
    if forked and not died and apart != forked:
        return Mechanism(
            cause=(
                f"{cause} What is made with threading or queue belongs to one process. "
                f"{all_called(forked)} {'were' if len(forked) > 1 else 'was'} forked and "
                f"{'have copies' if len(forked) > 1 else 'has a copy'} of it: a child that was to "
                f"{doing} does so in its copy, which does not show here. Or a thread of {name} was "
                "to do it, and has ended or was never started."
            ),
            advice=(
                "Between processes, use the Event, Condition or Queue of multiprocessing (of the "
                "same context as the processes) and pass it to them. If a thread was to do it, "
                "read standard error for its traceback."
            ),
            headline=(
                f"{name} waits {what} of its own{at_line(thread)}, and no thread of it is left to "
                f"{doing}."
            ),
        )
    unread = (
        f" {all_called(sending)} {wait_verb(sending)} for room to send, and "
        f"{name} takes nothing: likely that thread was to receive it."
        if sending
        else ""
    )
    return Mechanism(
        cause=(
            f"{cause} The thread that was to {doing} has ended or was never started in this "
            f"process.{unread} An exception in a thread ends that thread alone; its traceback is "
            "on standard error."
        ),
        evidence=died,
        advice=_ADVICE_THREAD_ENDED,
        headline=(
            f"{name} waits {what}{at_line(thread)}, and the thread that was to {doing} is gone."
        ),
    )


def _waits_to_send(case: Case, child: Process) -> bool:
    """Whether the main thread of a process waits for room in a queue, pipe or socket.

    Such a process sends through what is made for processes, and not into its copy of a queue.
    """
    return any(
        edge.waiter == child.process
        and edge.tid == child.pid
        and (edge.kind in ("pipe-write", "socket-write") or edge.what.startswith(FULL_QUEUE))
        for edge in case.waits.edges
    )


def _waits_for(case: Case, child: Process, parent: Process) -> bool:
    """Whether the main thread of a child waits for something that its parent would send."""
    return any(
        edge.waiter == child.process
        and edge.tid == child.pid
        and edge.kind in ("pipe-read", "socket-read")
        and parent.process in edge.providers
        for edge in case.waits.edges
    )


def _dead_threads(case: Case, process: Process) -> tuple[str, ...]:
    """The threads of a process that an exception has ended, as its hook has said."""
    return tuple(
        entry.words
        for entry in case.index.entries("thread-died")
        if entry.process == process.process
    )[-NAMED:]


def only_a_callback(case: Case) -> Mechanism | None:
    """A process waits for its own event or queue, and its Pool, which has no work, for tasks."""
    process = case.index.snapshot.get(case.chain.links[-1].process)
    if process is None or case.chain.conclusion != ONLY_A_CALLBACK:
        return None
    thread = next((each for each in process.threads if each.tid == process.pid), None)
    words = sentence(process, thread) if thread is not None else "the main thread waits"
    name = called(process)
    cause = (
        f"In {name}, {words}. Besides the threads of its Pool, no thread is there that could end "
        "that wait, and the Pool has nothing to do: all its workers are idle."
    )
    not_called = (
        "apply_async calls callback only for a task that returns, and error_callback for one that "
        "raises, of which nothing shows without it; a callback that raises ends the thread for "
        "results."
    )
    lost = _lost_signal(case.index, process, thread) if thread is not None else None
    if lost is not None:
        rare = f"If a callback was not called at all, that is another reason: {not_called}"
        return replace(lost, cause=f"{cause} {lost.cause} {rare}")
    return Mechanism(
        cause=f"{cause} A callback that was to do it was not called: {not_called}",
        advice=(
            "Pass error_callback, and let it count the failed task too (or note the error and set "
            "the event). Or keep what apply_async returns and call get() on each, which raises "
            "what the task has raised."
        ),
        headline=f"{name} waits for what a callback of its Pool was to do, and the Pool has no "
        "work left.",
    )


def _skipped_release(index: Index, process: Process, waiting: Sequence[Thread]) -> Mechanism | None:
    """Why threads wait for a lock of which no thread is at a line where it is held.

    Only where the function that takes it has a call between acquire() and release() that may raise.
    """
    found = skipped_release(index, list(filter(waits_for_lock, waiting)), process.threads)
    if found is None:
        return None
    frame, (taken, leaves, _, back, _) = found
    here = [each for each in waiting if user_frame(each.stack) == frame]
    these = f"{len(here)} threads of {called(process)} wait"
    if len(here) == 1:
        these = f"thread {here[0].name} of {called(process)} waits"
    lock = back.text.rpartition(".")[0]
    return Mechanism(
        cause=(
            f"`{taken.text}` (line {taken.line}) takes the lock and `{back.text}` (line "
            f"{back.line}) releases it, which is in no finally block. No thread is between the "
            f"two, so likely an exception from `{leaves.text}` (line {leaves.line}) or a line "
            "after it has left the function with the lock held, and a caller has caught it. Each "
            "thread that comes to the lock waits for ever."
        ),
        advice=(
            f"Write `with {lock}:` in place of the two calls, or put `{back.text}` into a finally "
            "block. The log has the exception, where the caller writes it: that was the moment at "
            "which the lock was lost. More threads, or a longer timeout of those that wait for "
            "them, do not help."
        ),
        headline=(
            f"{these} at {frame_words(frame)} for a lock that no thread is past: likely an "
            f"exception has skipped `{back.text}` of line {back.line}."
        ),
    )


def in_opposite_order(index: Index, process: Process) -> Mechanism | None:
    """Why two threads of a process wait for each other's lock, whatever its other threads do."""
    found = opposite_locks(index, process.process)
    if found is None:
        return None
    one, other = found.one, found.other
    first, second = (_thread_words(process, each.thread) for each in (one, other))
    places = [frame_words(each.wants.frame) for each in (one, other)]
    ways = [
        f"{words} took {_taking(each)} and waits at {frame_words(each.wants.frame)} for "
        f"`{each.wants.name}`"
        for words, each in ((first, one), (second, other))
    ]
    lasted = index.lasting(found.waited_s)
    opposite = (
        "Most likely each of them has, as its first lock, the second one of the other: both go "
        "through these lines with the same two objects in opposite order."
        if found.is_one_line
        else "Most likely these are the same two locks, taken in opposite order: each thread has "
        "the one that the other waits for."
    )
    return Mechanism(
        cause=(
            f"In {called(process)}, {ways[0]}; {ways[1]}. {opposite} Neither releases its lock "
            "before it has both, so these two wait for ever, and with them all that come to either "
            "lock."
        ),
        advice=_advice_on_order(found),
        evidence=(f"neither of the two threads has run for {lasted}",),
        headline=(
            f"{capital(first)} and {second} of {called(process)} wait for each other's lock, at "
            f"{places[0]}{'' if places[0] == places[1] else f' and {places[1]}'}."
        ),
    )


def _thread_words(process: Process, thread: Thread) -> str:
    return "the main thread" if thread.tid == process.pid else f"thread {thread.name}"


def _taking(waits: Waits) -> str:
    """`` `self.a` by `with self.a:` (line 12 of store.py, in add()) ``."""
    holds = waits.holds
    file = holds.frame.file.rpartition("/")[2]
    return (
        f"`{holds.name}` by `{holds.statement.text}` ({file}:{holds.statement.line}, in "
        f"{holds.frame.function}())"
    )


def _advice_on_order(found: OppositeLocks) -> str:
    if found.is_one_line:
        return (
            "Take the locks of two objects in an order that does not depend on which of them comes "
            "first: sort the two by a number or a key of their own (or by id()) before the outer "
            "block. An RLock does not help: these are two threads."
        )
    other = found.other
    return (
        "Take the two locks in one order everywhere: at "
        f"{frame_words(other.wants.frame)}, either take `{other.wants.name}` first, around "
        f"`{other.holds.statement.text}`, or leave that block before `{other.wants.name}` is "
        "needed. Or use one lock in place of the two. An RLock does not help: these are two "
        "threads."
    )


_HANDLE = "logging/__init__.py:handle"
_TAKES_HANDLER = ("logging/__init__.py:acquire", _HANDLE)
"""`Handler.handle` has the handler's lock while it formats and writes a record (CPython 3.10 to
3.14); to 3.12 it takes it by `acquire`, from 3.13 on in a line of its own."""


def _waits_while_logging(process: Process, waiting: Sequence[Thread]) -> Mechanism | None:
    """Why a thread that logs waits for one that waits while a record of its own is formatted."""
    for blocked in waiting:
        if not any(calls(own_frames(blocked.stack)[:1], each) for each in _TAKES_HANDLER):
            continue
        for holder in waiting:
            call = _logging_call(holder) if holder is not blocked else None
            inside, logs = user_frame(holder.stack), user_frame(blocked.stack)
            if call is None or inside is None or logs is None:
                continue
            one = "the main thread" if holder.tid == process.pid else f"thread {holder.name}"
            other = "the main thread" if blocked.tid == process.pid else f"thread {blocked.name}"
            return Mechanism(
                cause=(
                    f"logging formats a record of {one}, from {frame_words(call)}: it has the lock "
                    f"of a log handler meanwhile, and waits {purpose(holder)} at "
                    f"{frame_words(inside)}. "
                    f"{other.capitalize()} waits for the lock of a log handler at "
                    f"{frame_words(logs)}, most likely the same one, and most likely has what "
                    f"{one} waits for: the two take the same two locks in opposite order."
                ),
                advice=(
                    f"Take no lock in what logging calls while it formats (__str__, __repr__, a "
                    f"filter): make the text before the call at {frame_words(call)}, as in "
                    "log.info('%s', str(each)), or leave __str__ out of the lock. And do not log "
                    f"while the lock is held, as at {frame_words(logs)}. An RLock does not help: "
                    "these are two threads."
                ),
                headline=(
                    f"{one} of {called(process)} waits {purpose(holder)} at {frame_words(inside)} "
                    f"while logging formats its record ({frame_words(call)}), and {other} waits "
                    f"for the log handler at {frame_words(logs)}."
                ),
            )
    return None


def _logging_call(thread: Thread) -> Frame | None:
    """The line of the program that logs, of a thread inside a handler of logging; else `None`."""
    own = own_frames(thread.stack)
    at = next((n for n, frame in enumerate(own) if calls([frame], _HANDLE)), None)
    if at is None or all(is_library(frame) for frame in own[:at]):
        return None
    return next((frame for frame in own[at:] if not is_library(frame)), None)


def any_missed(case: Case) -> Mechanism | None:
    """A cycle in which some process waits for a condition that was notified before."""
    threads = {each.thread.tid: each for each in case.waiters if each.thread is not None}
    found = missed_among(case.index, [e.thread for e in threads.values() if e.thread is not None])
    return None if found is None else _of_missed(threads[found[0].tid].process, found[1])


def _missed(index: Index, process: Process, waiting: Sequence[Thread]) -> Mechanism | None:
    """Why threads, none of which waits for a lock, may wait for a condition for ever."""
    if any(purpose(each) == FOR_LOCK for each in waiting):
        return None
    found = missed_among(index, waiting)
    return None if found is None else _of_missed(process, found[1])


def _of_missed(process: Process, found: UncheckedWait) -> Mechanism:
    return Mechanism(
        cause=found.cause,
        advice=found.advice,
        headline=(
            f"{called(process)} waits at {frame_words(found.frame)} for a notification, without "
            "looking first whether what it waits for is there: likely it came before, and is lost."
        ),
    )


def _lost_signal(index: Index, process: Process, thread: Thread) -> Mechanism | None:
    """Why a thread waits for an event that was set before it was cleared."""
    frame = user_frame(thread.stack)
    line = source_of(index, frame) if frame is not None else None
    if frame is None or line is None or line.cleared is None or purpose(thread) != FOR_EVENT:
        return None
    at, clear = frame_words(frame), line.cleared
    return Mechanism(
        cause=(
            f"`{clear.text}` of line {clear.line} is right before the wait for the same event in "
            f"line {line.statement.line}: a set() between the last check of the program for work "
            f"and line {clear.line} is lost, and the wait is for one more. Likely the last set() "
            "was in that time."
        ),
        advice=(
            f"Clear the event first, then check what has arrived, then wait: move `{clear.text}` "
            "up, before what collects or checks the results. Or use a queue.Queue, or "
            "threading.Condition.wait_for() with what is waited for: they lose nothing. A timeout "
            "of the wait makes the loop look again."
        ),
        headline=(
            f"{called(process)} waits at {at} for an event that it clears right before, in line "
            f"{clear.line}: likely it was set before that, and that is lost."
        ),
    )


def idle_loop(case: Case) -> Mechanism | None:
    """An event loop of asyncio without anything to wait for but itself."""
    process = case.index.snapshot.get(case.chain.links[-1].process)
    if process is None or case.chain.conclusion != IDLE_LOOP:
        return None
    reading = [
        each for each in process.threads if reads_own_end(surroundings(case.index), process, each)
    ]
    if reading:
        what = (
            "an item of a queue" if calls(own_frames(reading[0].stack), "queues.py:get") else "data"
        )
        frame = user_frame(reading[0].stack)
        at = at_frame(frame)
        return Mechanism(
            cause=(
                f"A coroutine of {called(process)} awaits a call that runs in thread "
                f"{reading[0].name}, and that call waits for {what}{at}, which no other living "
                "process can send: the one that was to send it has ended, or was not started. The "
                "event loop has nothing else to do."
            ),
            advice=(
                "Look how the process at the other end ended. Give the call a limit "
                "(get(timeout=...), asyncio.wait_for), and check then whether that process lives."
            ),
            headline=f"thread {reading[0].name} of {called(process)} waits for {what} that no "
            "other living process can send, and its event loop for that thread.",
        )
    head = forked_without_executor(case.index, process)
    if head is not None:
        return Mechanism(
            cause=(
                f"{called(process)} was forked from {called(head)}, which has the threads of an "
                f"executor. A fork does not copy threads: what {called(process)} submits to that "
                "executor (run_in_executor, asyncio.to_thread) stays in its queue, and the event "
                "loop waits for it and for nothing else."
            ),
            advice=(
                "Create the executor in the child, not when a module is imported or before the "
                "fork; or start the children by spawn or forkserver."
            ),
            headline=f"{called(process)} waits for an executor whose threads were not forked.",
        )
    return _nothing_left(case.index, process)


def _nothing_left(index: Index, process: Process) -> Mechanism:
    """No timer, connection or thread is left that could wake up the event loop of a process."""
    state = "no other thread could call into it"
    if others_that_wait(index, process, None):
        state = "its other threads wait as well"
    start = (
        f"The event loop of {called(process)} watches no file or connection but its own wake-up "
        f"socket and has no timer, and {state}"
    )
    known = unsafe_wake(index, process) or unread_task(index, process)
    if known is not None:
        return replace(known, cause=f"{start}. {known.cause}")
    lost = may_lose_permits(index)
    what = "another task, a queue, lock, event or future that nothing completes"
    return Mechanism(
        cause=(
            f"{start}. So each of its tasks awaits {what}. A task that raised has ended, and "
            "nothing is printed until it is awaited."
            f"{f' {lost.cause}' if lost is not None else ''}"
        ),
        advice=lost.advice
        if lost is not None
        else (
            "Await or gather the tasks that are started, so that their exceptions arrive (a "
            "TaskGroup ends the others, too). Give the awaits a limit (asyncio.wait_for), and put "
            "the end mark of a queue in a finally block."
        ),
        evidence=(lost.evidence,) if lost is not None else (),
        headline=f"no task of the event loop of {called(process)} can continue: each awaits "
        "another.",
    )


_MISSING: Mapping[str, str] = {
    FOR_ITEM: "put it",
    FOR_ROOM: "take items out",
    FOR_EVENT: "set it",
    FOR_SEMAPHORE: "release it",
}
"""What another thread would have to do, by the purpose of a wait."""
_BARRIER = (
    "A barrier opens when as many threads have called wait() as it was made for; one that has "
    "ended does not call it, and an exception ends a thread alone."
)
LOOP_BLOCKED = "The thread runs an event loop of asyncio: while it waits, no coroutine runs."
LOCK_IN_COROUTINE = (
    "A coroutine that has taken a lock of threading and is in an await cannot come back to release "
    "it."
)
RESULT_OF_LOOP = (
    "The result of asyncio.run_coroutine_threadsafe comes from that loop: a wait for it in the "
    "loop's own thread, or in a thread for which the loop waits, never ends."
)
ADVICE_AWAIT = (
    "Do not block in a coroutine or callback: await the coroutine itself in place of result(), and "
    "run what blocks, such as a join, in a thread that the loop awaits (await asyncio.to_thread, "
    "run_in_executor)."
)
ADVICE_LOOP = (
    "Use asyncio.Lock in coroutines, or do not await anything while a lock of threading is held; "
    "take blocking locks in a thread (asyncio.to_thread)."
)
_ADVICE_OWN_END = (
    "Close the writing end in this process once the child that writes has been started "
    "(writer.close()). Or let the writer send an item that tells the reader to end."
)
_ADVICE_THREAD_ENDED = (
    "Read standard error for the traceback of the thread. In the thread, catch exceptions and pass "
    "them on (put the exception or an end mark in a finally block), so that the reader ends too; a "
    "get() with a timeout can check whether the thread is alive."
)
_ADVICE_AT_EXIT = (
    "Tell the thread to end before the last line of the program (put the item that ends its loop, "
    "set its event, shut its pool down), not in a function of atexit or __del__, which come later; "
    "or start it with daemon=True if it may be cut off at any line."
)


_FRAMES_SHOWN = 8
_HANDLER = re.compile(r"(^|_)(on|handle|handler|sig\w*)(_|$)")
"""In the name of a handler, where the stack does not show what native code has called."""


class Interruption(Struct, frozen=True):
    """Where the handler of a signal runs."""

    handler: Frame
    inside: Frame
    """The line that it has interrupted."""
    signals: str
    """Those that the process handles: `SIGUSR1 or SIGTERM`."""


def interruption(process: Process, thread: Thread) -> Interruption | None:
    """The outermost function of a stack that the handler of a signal has interrupted, if any."""
    caught = (process.sample.signals_caught or 0) & HANDLED
    if not caught or thread.tid != process.pid:
        return None
    own = own_frames(thread.stack)
    shows_native = any(frame.from_native for frame in own)
    found = None
    for above, below in pairwise(own):
        if is_library(above) or is_library(below) or above.function.startswith(("_" * 2, "<")):
            continue
        is_named = _HANDLER.search(above.function.lower()) is not None
        if above.from_native if shows_native else is_named:
            found = above, below
    if found is None:
        return None
    names = [each.name for each in signal.Signals if caught >> (each - 1) & 1]
    return Interruption(*found, " or ".join(names))


def waits_for_an_interrupted_holder(process: Process, thread: Thread) -> Mechanism | None:
    """Why a thread waits for a lock that it has taken itself, below the handler of a signal."""
    found, place = interruption(process, thread), user_frame(thread.stack)
    if found is None or place is None or not waits_for_lock(thread):
        return None
    name, handler = called(process), frame_words(found.handler)
    mine = program_frames(thread.stack)
    stack = list(dict.fromkeys(map(frame_words, mine)))  # a handler may interrupt itself
    return Mechanism(
        cause=(
            f"{found.handler.function}() runs in the middle of {frame_words(found.inside)}, as "
            f"the handler of a signal does; {name} handles {found.signals}. It waits at "
            f"{frame_words(place)} to take a lock that {found.inside.function}() most likely "
            "holds: that one goes on, and can release the lock, only when the handler returns. A "
            "Lock cannot be taken twice, not even by its holder."
        ),
        advice=(
            f"Let the handler ({handler}) only set a flag, and do its work between two calls of "
            f"{found.inside.function}(), where the lock is not held. An RLock would let the "
            "handler see the half-done change that the lock protects."
        ),
        evidence=(f"its stack, innermost first: {' <- '.join(stack[:_FRAMES_SHOWN])}",),
        headline=(
            f"{name} waits at {frame_words(place)} for a lock that it most likely holds itself: a "
            f"signal handler ({handler}) has interrupted {found.inside.function}()."
        ),
    )


# --- locks that a thread has itself -------------------------------------------------------------


def own_lock(case: Case) -> Mechanism | None:
    """A thread waits for a lock that it has taken itself."""
    if case.chain.conclusion not in (OWN_LOCK, OWN_BLOCK):
        return None
    if (interrupted := _interrupted(case)) is not None:
        return interrupted
    last = case.waiters[-1] if case.waiters else None
    blocked = self_blocked(case.index, last.process.process) if last is not None else None
    nested = nested_in(case.index, blocked.thread) if blocked is not None else None
    if nested is not None:
        outer = f"`{nested.taken.text}` of line {nested.taken.line} in {nested.outer.function}()"
        before = (
            f"It is still inside of {outer}, which took the lock,"
            if nested.is_block
            else f"It has taken the lock by {outer}, has not released it"
        )
        how = (
            f"{before} and waits at {frame_words(nested.inner)} to take it again: a Lock cannot be "
            f"taken twice, not even by its holder.{_way_of(nested)}"
        )
        if last is not None and blocked is not None and blocked.thread is not last.thread:
            how = f"Its thread {blocked.thread.name} blocks itself. {how}"
    else:
        how = (
            "The thread is in the same function twice and waits for a lock that no other process "
            "or thread can hold: it took the lock before, and a Lock cannot be taken twice, not "
            "even by its holder."
        )
    return Mechanism(
        cause=how,
        advice=(
            "Use an RLock, or release the lock before the call that takes it again; a private "
            "function that expects the lock to be held avoids the second acquire."
        ),
    )


def _way_of(nested: Nested) -> str:
    """The calls by which a function comes back to a lock that it holds."""
    between = [each.function for each in reversed(nested.way[1:-1])]
    if not between:
        return ""
    return f" It comes there by way of {'(), '.join(between)}()."


def _interrupted(case: Case) -> Mechanism | None:
    """The handler of a signal waits for what the function that it has interrupted holds."""
    last = case.waiters[-1] if case.waiters else None
    if last is None or last.thread is None:
        return None
    return waits_for_an_interrupted_holder(last.process, last.thread)


def own_log(case: Case) -> Mechanism | None:
    """A handler of multiprocessing's own logger waits for the lock of its queue."""
    if case.chain.conclusion != OWN_LOG:
        return None
    found = marks(case.index, "queue-handler")
    where = f" {mark_words(found[0])} adds that handler." if len(found) == 1 else ""
    return Mechanism(
        cause=(
            "put() of a queue of multiprocessing holds a lock of the queue while it starts its "
            "feeder thread, and logs that by multiprocessing's own logger. A handler of that "
            f"logger puts the record into the queue again, and waits for the lock for ever.{where}"
        ),
        advice=(
            "Add the QueueHandler to a logger of your own in place of "
            "multiprocessing.get_logger(), or set the level of that logger above DEBUG."
        ),
    )


def own_queue(case: Case) -> Mechanism | None:
    """A method of queue.Queue was interrupted by a use of the same queue."""
    if case.chain.conclusion != OWN_QUEUE:
        return None
    return Mechanism(
        cause=(
            "The thread was inside of a method of queue.Queue, which holds the lock of the queue, "
            "when a function that uses the same queue interrupted it. That lock cannot be taken "
            "twice, not even by its holder."
        ),
        advice=(
            "Use queue.SimpleQueue, whose put() may be called from signal handlers and finalizers; "
            "or only set a flag there, and do the rest in the main loop."
        ),
    )


def only_thread(case: Case) -> Mechanism | None:
    """The only thread of a process waits for a lock that another thread would release."""
    if case.chain.conclusion != ONLY_THREAD:
        return None
    if (interrupted := _interrupted(case)) is not None:
        return interrupted
    last = case.waiters[-1].thread if case.waiters else None
    if last is not None and runs_event_loop(last):
        evidence = tuple(_frames_of_main(case))
        cause = f"{LOOP_BLOCKED} {LOCK_IN_COROUTINE}"
        return Mechanism(cause=cause, advice=ADVICE_LOOP, evidence=evidence)
    return Mechanism(
        cause=(
            "A Lock that is taken twice by one thread blocks it for ever, also where the second "
            "time is in a function that has interrupted the first: a signal handler, a finalizer "
            "or a callback. A thread that ends without releasing a lock leaves it locked."
        ),
        advice=(
            "Release the lock in a with or finally block. Where the functions at the lines of this "
            "stack call each other, use an RLock; in a signal handler only set a flag."
        ),
        evidence=tuple(_frames_of_main(case)),
    )


def _frames_of_main(case: Case) -> Iterator[str]:
    """The program's own frames of a thread that waits, the innermost first."""
    last = case.waiters[-1] if case.waiters else None
    frames = own_frames(last.thread.stack) if last is not None and last.thread is not None else ()
    mine = [frame_words(frame) for frame in frames if not is_library(frame)]
    if len(mine) > 1:
        yield f"its stack, innermost first: {' <- '.join(mine[:NAMED])}"
