"""Two that take from one queue until their own answer comes, and drop the answers of each other.

Both are in the same loop of the program now, of which the source shows that it drops what is not
its own. One of them waits for the lock of the queue's readers, which the other one has while it
waits for an item; or both wait for the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, Case, Mechanism
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.source_code import capital, marks
from mpwatch.diagnose.analysis.stack_patterns import calls, user_frame
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import READS, Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark

_TAKES = ("multiprocessing/queues.py:get", "multiprocessing/connection.py:recv")
_STATEMENT_LINES = 3
"""Lines of a statement that takes an item: a stack may be at any of them."""


class _Taker(NamedTuple):
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
            if each.thread is not one.thread and each.mark == one.mark and _is_same(one, each)
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
            for mark in loops:
                line = mark.statement.line
                is_there = (mark.file, mark.function) == (frame.file, frame.function)
                if is_there and line <= frame.line < line + _STATEMENT_LINES:
                    yield _Taker(process, thread, frame, mark)
                    break


def _is_same(one: _Taker, other: _Taker) -> bool:
    """Whether two take from one queue, by the pipe or lock for which they wait.

    A queue of threads shows neither: two threads at one line may have a queue each.
    """
    first, second = one.thread.waits_on, other.thread.waits_on
    if first is None or second is None:
        return False
    kinds = {first.kind, second.kind}
    if kinds == {"semaphore"}:
        return first.segment is not None and first.segment == second.segment
    if "semaphore" in kinds and not kinds.isdisjoint(READS):
        return True  # a reader has that lock only while it waits for an item
    return bool(first.targets) and first.targets == second.targets


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
            "which another one waits, and that never comes. What has answered is well, and waits "
            "for the next request; whatever waits for these is only held up."
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
