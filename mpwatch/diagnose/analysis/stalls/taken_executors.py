"""A thread pool whose tasks wait for further tasks of it, and that has no thread left for these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import Mechanism
from mpwatch.diagnose.analysis.process_queries import all_called, called, counted
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import threads_calling, user_frame
from mpwatch.diagnose.analysis.waits.chains import waiting_behind
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s
from mpwatch.diagnose.analysis.waits.futures import (
    POOL_THREAD,
    TakenPool,
    abandoned,
    taken_pools,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark

TAKEN_S = 10.0
"""A call that is about to return has let its pool go on before."""
SHOWN = 3
_SUBMITS = re.compile(r"([\w.]+)\.submit\(\s*([\w.]+)")


class TakenExecutor(Struct, frozen=True):
    """A ThreadPoolExecutor of which each thread has a task, and that waits for tasks in its queue.

    Named only where the source shows that the tasks which wait and those they wait for are given to
    the same executor, how many threads that has, and that nothing else ends what the others wait
    for.
    """

    process: Process
    pool: TakenPool
    made: Mark
    """What makes the executor."""
    name: str
    """As the function that waits writes it."""
    submits: tuple[Mark, ...]
    """What that function gives to the executor."""
    started: Mark
    """What has given it the task that waits."""
    for_s: float
    behind: tuple[Process, ...]
    """Processes that wait for this one, as far as chains of waits show."""

    @property
    def threads(self) -> tuple[Thread, ...]:
        """All of its threads, those that wait for results first."""
        return (*self.pool.waiting, *self.pool.others)


@derived
def taken_executors(index: Index) -> tuple[TakenExecutor, ...]:
    """The executors of a job that have no thread left for what their own tasks wait for.

    Without those of processes whose main thread waits for a result of them: `standing-still` has
    these.
    """
    having_pools = {each.process: each for each, _ in threads_calling(index, POOL_THREAD)}
    found = (
        _taken(index, process, pool)
        for process in having_pools.values()
        for pool in taken_pools(process)
        if abandoned(index, process.process) is None
    )
    return tuple(each for each in found if each is not None)


def _taken(index: Index, process: Process, pool: TakenPool) -> TakenExecutor | None:
    threads = (*pool.waiting, *pool.others)
    times = [blocked_for_s(each) for each in threads]
    is_inside = all(e.waits_on is not None and e.waits_on.kind == "futex" for e in threads)
    known = [each for each in times if each is not None]
    if not is_inside or len(known) < len(times) or min(known) < TAKEN_S:
        return None
    for thread in pool.waiting:
        frame = user_frame(thread.stack)
        if frame is None:
            continue
        for name, given in _given_in(index, frame).items():
            started = _started_by(index, thread, name, frame.file)
            made = _made(index, pool, name, frame.file)
            if started is None or made is None:
                continue
            tasks = _tasks(index, name, frame.file)
            if all(_ends_only_by(index, each, tasks, frame.file) for each in pool.others):
                waiters = waiting_behind(index, process)
                return TakenExecutor(
                    process, pool, made, name, tuple(given), started, min(known), waiters
                )
    return None


def _given_in(index: Index, frame: Frame) -> dict[str, list[Mark]]:
    """What the function of a frame gives to executors up to its line, by their names."""
    found: dict[str, list[Mark]] = {}
    for mark in sorted(marks(index, "submits"), key=lambda each: each.statement.line):
        submitted = _SUBMITS.search(mark.statement.text)
        is_of = (mark.file, mark.function) == (frame.file, frame.function)
        if submitted is not None and is_of and mark.statement.line <= frame.line:
            found.setdefault(submitted[1], []).append(mark)
    return found


def _started_by(index: Index, thread: Thread, name: str, file: str) -> Mark | None:
    """What has given the task of a thread to an executor of this name, in the same file."""
    frames = program_frames(thread.stack)
    task = frames[-1].function.rpartition(".")[2] if frames else ""
    for mark in marks(index, "submits"):
        submitted = _SUBMITS.search(mark.statement.text)
        if submitted is None or mark.file != file or submitted[1] != name:
            continue
        if submitted[2].rpartition(".")[2] == task:
            return mark
    return None


def _tasks(index: Index, name: str, file: str) -> frozenset[str]:
    """The functions that a file gives to an executor of this name."""
    found = (_SUBMITS.search(e.statement.text) for e in marks(index, "submits") if e.file == file)
    return frozenset(e[2].rpartition(".")[2] for e in found if e is not None and e[1] == name)


def _ends_only_by(index: Index, thread: Thread, tasks: frozenset[str], file: str) -> bool:
    """Whether only tasks of the same executor would end the wait of a thread, as names tell.

    One that waits for a message, or for what another thread puts, goes on by itself.
    """
    frame = user_frame(thread.stack)
    line = source_of(index, frame) if frame is not None else None
    ends = line.ended_by if line is not None else ()
    return bool(ends) and all(each.file == file and each.function in tasks for each in ends)


def _made(index: Index, pool: TakenPool, name: str, file: str) -> Mark | None:
    """What makes the executor of a name, if it can have no more threads than it has."""
    count = len(pool.waiting) + len(pool.others)
    for mark in marks(index, "makes-executor"):
        made, workers, prefix = mark.about.split(", ", 2)
        is_of = mark.file == file and made == name
        if is_of and workers == str(count) and (not prefix or prefix == pool.name):
            return mark
    return None


def processes_at_taken(index: Index) -> frozenset[ProcessId]:
    """The processes with such an executor."""
    return frozenset(each.process.process for each in taken_executors(index))


def explain_taken(index: Index, found: TakenExecutor) -> Mechanism:
    """Why the tasks do not go on, and what to change."""
    frame = user_frame(found.pool.waiting[0].stack)
    at, count = frame_words(frame) if frame is not None else "", len(found.threads)
    these, waits = _counts(found)
    own = f"{called(found.process)} has a deadlock in its ThreadPoolExecutor {found.name}"
    also = f"; {all_called(found.behind, SHOWN)} {_wait(found.behind)} for it"
    return Mechanism(
        headline=(
            f"{own}: all its {counted(count, 'thread')} are in tasks that wait, {these} of them at "
            f"{at} for tasks that they have submitted to the same executor"
            f"{also if found.behind else ''}"
        ),
        evidence=tuple(_evidence(index, found, at)),
        cause=(
            f"{mark_place(found.started)} gives {found.name} a task that itself submits tasks to "
            f"{found.name} ({', '.join(map(mark_place, found.submits[:SHOWN]))}) and waits at {at} "
            f"for their results. It has {counted(count, 'thread')} and no more "
            f"({mark_words(found.made)}). {waits} the tasks that are waited for lie in its queue, "
            "and no thread is free to run them. With few requests at a time there was one."
        ),
        advice=(
            f"Do not wait in a task of {found.name} for other tasks of it: run what is submitted "
            f"at {mark_place(found.started)} in the thread that calls it, or give each level an "
            "executor of its own, so that what waits and what is waited for never share threads. "
            "More max_workers only move the limit to more requests at a time; a time limit for "
            "the results, or a restart of those that wait for the process, frees no thread."
        ),
        is_certain=True,
    )


def _counts(found: TakenExecutor) -> tuple[str, str]:
    """How many threads wait for results; and what all of them do, as the start of a clause."""
    waiting, others = len(found.pool.waiting), len(found.pool.others)
    if not others:
        return "all", "All of them wait for results:"
    rest = f"{others} more {'waits' if others == 1 else 'wait'} for what other tasks of it do"
    return str(
        waiting
    ), f"{waiting} of them {'waits' if waiting == 1 else 'wait'} for results, {rest}:"


def _wait(processes: Sequence[Process]) -> str:
    return "waits" if len(processes) == 1 else "wait"


def _evidence(index: Index, found: TakenExecutor, at: str) -> Iterator[str]:
    threads = counted(len(found.threads), "thread")
    yield f"none of the {threads} of {found.name} has run for {index.lasting(found.for_s)}"
    places: dict[str, int] = {}
    for thread in found.threads:
        if (frame := user_frame(thread.stack)) is not None:
            places[frame_words(frame)] = places.get(frame_words(frame), 0) + 1
    for place, number in places.items():
        yield f"{number} of them {'is' if number == 1 else 'are'} at {place}"
    for mark in found.submits[:SHOWN]:
        yield f"waited for at {at}: {mark_words(mark)}"
    for each in found.behind[:SHOWN]:
        yield f"an effect: {called(each)} waits for {called(found.process)}"
