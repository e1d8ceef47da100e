"""Readers that take items out of a queue and do not go on: they drop them, or wait for more.

Of two that take from one queue until their own answer comes, each may drop the answer of the other.
Both are in the same loop of the program now, of which the source shows that it drops what is not
its own. One of them waits for the lock of the queue's readers, which the other one has while it
waits for an item; or both wait for the same.

A process that collects items until it has a whole batch waits for the last part of it, which never
comes where those that send wait for the results of what they have sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from mpwatch.describe.findings import capital
from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, Case, Mechanism
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.source.lines import marks, source_of
from mpwatch.diagnose.analysis.source.loops import collecting_loop
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    main_thread,
    shape_in,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.providers import QUEUE_LOCK
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import READS, Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark, Statement

_TAKES = ("multiprocessing/queues.py:get", "multiprocessing/connection.py:recv")


class _Taker(Struct, frozen=True):
    """A thread that waits for its own item in such a loop."""

    process: Process
    thread: Thread
    frame: Frame
    mark: Mark


def dropped_answers(case: Case) -> Mechanism | None:
    """Why a process of a cycle or dead end waits for an answer that another reader has dropped."""
    last = case.index.snapshot.get(case.chain.links[-1].process)
    if case.chain.verdict == "dead-end" and (last is None or last.ended is not None):
        return None
    found = (dropped_answers_of(case.index, each.process) for each in case.waiters)
    return next(filter(None, found), None)


def dropped_answers_of(index: Index, process: Process) -> Mechanism | None:
    """As `dropped_answers`, for one process that waits."""
    here = [each for each in _takers(index) if each.process.process == process.process]
    for one in here:
        others = [
            each
            for each in _takers(index)
            if each.thread is not one.thread
            and each.mark == one.mark
            and _is_same(index, one, each)
        ]
        if others:
            return _mechanism((one, *others))
    return None


@derived
def _takers(index: Index) -> tuple[_Taker, ...]:
    """All threads of the job that wait for an item in a loop that drops what is not its own."""
    loops = marks(index, "takes-own")
    return tuple(_found_takers(index, loops)) if loops else ()


def _found_takers(index: Index, loops: Sequence[Mark]) -> Iterator[_Taker]:
    for process in index.snapshot.living():
        for thread in process.threads:
            frame = user_frame(thread.stack)
            own = own_frames(thread.stack)
            if frame is None or thread.waits_on is None or not any(calls(own, e) for e in _TAKES):
                continue
            line = source_of(index, frame)
            at = frame.line if line is None else line.statement.line
            here = (frame.file, frame.function, at)
            for mark in loops:
                if (mark.file, mark.function, mark.statement.line) == here:
                    yield _Taker(process, thread, frame, mark)
                    break


def _is_same(index: Index, one: _Taker, other: _Taker) -> bool:
    """Whether two take from one queue, by the pipe or lock for which they wait.

    A queue of threads shows neither: two threads at one line may have a queue each. A reader has
    the lock of a queue's readers only while it waits for an item; that it is the lock of this queue
    is known where no other thread of the job waits in a Queue.get of the program.
    """
    first, second = one.thread.waits_on, other.thread.waits_on
    if first is None or second is None:
        return False
    kinds = {first.kind, second.kind}
    if kinds == {"semaphore"}:
        return first.segment is not None and first.segment == second.segment
    if "semaphore" in kinds and not kinds.isdisjoint(READS):
        return _in_queue_get(index) == 1
    return bool(first.targets) and first.targets == second.targets


@derived
def _in_queue_get(index: Index) -> int:
    """How many threads of the job wait for an item in Queue.get; each has the lock of a queue.

    An idle worker of a pool or of a DataLoader has that of a queue of its library.
    """
    return sum(
        thread.waits_on is not None
        and thread.waits_on.kind in READS
        and shape_in(index, thread.stack) == "queue-get"
        for process in index.snapshot.living()
        for thread in process.threads
    )


def _mechanism(takers: Sequence[_Taker]) -> Mechanism:
    first = takers[0]
    queue, _, own = first.mark.about.rpartition(", ")
    at, statement = frame_words(first.frame), first.mark.statement
    names = [_words(each, takers) for each in takers[:NAMED]]
    whom = f"{', '.join(names[:-1])} and {names[-1]}"
    is_threads = len(_processes(takers)) == 1
    lock = "a threading.Lock" if is_threads else "a lock of multiprocessing"
    kind = f"{len(takers)} threads of {called(first.process)}" if is_threads else whom
    return Mechanism(
        cause=(
            f"{capital(whom)} are in the same loop at {at}: `{statement.text}` takes the next item "
            f"of {queue}, whichever of them it is for, and the loop drops each that is not equal "
            f"to its own {own}. So most likely one of them has taken and dropped the answer for "
            "which another one waits, and that never comes. The process that answered is "
            "healthy and waits for the next request; whatever waits for these is only held up."
        ),
        advice=(
            f"Hold {lock} from sending the request until its own answer has come, so that one of "
            f"them at a time uses {queue}. Or let a single reader take all answers and hand each "
            "on by its number (a dict of futures), or give each caller a queue of its own. A time "
            "limit of the wait only makes an error of it; a restart or a larger queue does not "
            "help."
        ),
        evidence=tuple(
            f"{_words(each, takers)} waits at {frame_words(each.frame)}" for each in takers[:NAMED]
        ),
        headline=(
            f"{kind} wait at {at} for their own answers from one queue, {queue}, and drop those of "
            "each other: likely the answer that one waits for is gone."
        ),
    )


def _processes(takers: Sequence[_Taker]) -> set[ProcessId]:
    return {each.process.process for each in takers}


def _words(taker: _Taker, takers: Sequence[_Taker]) -> str:
    """`the main thread of main (100)`, or only the process where they are of several."""
    if len(_processes(takers)) == len(takers):
        return called(taker.process)
    is_main = taker.thread.tid == taker.process.pid
    which = "the main thread" if is_main else f"thread {taker.thread.name}"
    return f"{which} of {called(taker.process)}"


def part_batch(case: Case) -> Mechanism | None:
    """The mechanism where a reader collects a batch, and who would send more waits as well.

    Those that send are other readers: what they wait for are the results of what was sent.
    """
    readers = list(_readers(case))
    for process, frame, header, size in readers:
        same = [
            each[0] for each in readers if (each[1].file, each[1].line) == (frame.file, frame.line)
        ]
        others = [each for each in _waiting(case) if each.process not in {s.process for s in same}]
        if not others:
            continue
        at = [
            f"{called(each)} at {frame_words(f)}" for each in others[:NAMED] if (f := _frame(each))
        ]
        names = all_called(others)
        verb = "waits" if len(others) == 1 else "wait"
        return Mechanism(
            cause=(
                f"{called(process)} collects {size} items before it goes on (`{header.text}` of "
                f"line {header.line}), and gets no more: whoever would send the next ones waits "
                f"itself, to receive ({', '.join(at)}). Most likely what was sent is no multiple "
                f"of {size}, and the sender waits for all results of it before it sends more."
            ),
            advice=(
                "Let the sender mark the end of each part with an item that closes the batch, or "
                "let the reader go on with what it has after a short get(timeout=...), and send "
                "the results of a batch that is not full as well. More processes or larger queues "
                "do not help."
            ),
            headline=(
                f"{all_called(same)} {'waits' if len(same) == 1 else 'wait'} for more items of a "
                f"batch, and {names} {verb} to receive, likely the results of what was sent."
            ),
        )
    return None


def _frame(process: Process) -> Frame | None:
    thread = main_thread(process)
    return user_frame(thread.stack) if thread is not None else None


def _waiting(case: Case) -> list[Process]:
    """The processes of the job whose main thread waits to receive something."""
    ids = {
        (edge.waiter, edge.tid)
        for edge in case.waits.edges
        if edge.kind in READS or edge.what.startswith(QUEUE_LOCK)
    }
    return [
        each
        for each in case.index.snapshot.living()
        if each.role not in SERVICE_ROLES and (each.process, each.pid) in ids
    ]


def _readers(case: Case) -> Iterator[tuple[Process, Frame, Statement, str]]:
    """Those of them that collect items, each with its line, the loop and how many it collects."""
    for process in _waiting(case):
        frame = _frame(process)
        line = source_of(case.index, frame) if frame is not None else None
        found = collecting_loop(line)
        if frame is not None and found is not None:
            yield process, frame, *found
