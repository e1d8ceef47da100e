"""Locks, semaphores, events and conditions between processes that none of them will release.

And counters that none of them will count further.

Every living process that has the semaphore waits: for the semaphore itself, or for one that does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.describe.waits import SEMAPHORE
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import (
    Case,
    Mechanism,
    Waiter,
    at_line,
    awaited,
    ended_words,
)
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    children_started_by,
    counted,
    family_head,
    label_stem,
)
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, user_frame
from mpwatch.diagnose.analysis.waits.providers import (
    EVENT,
    HELD_BY_WAITERS,
    UNHELD,
    Nested,
    ended_children,
    is_seen_outside,
    lock_holders,
    nested_claim,
    semaphore_uses,
)
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark, Skip, Statement

NAMED = 3
WAY = 5
"""Calls shown between the first and the second time that a lock is taken."""


def unreleased(case: Case) -> Mechanism | None:
    """Why no process releases, sets or notifies what the processes of a cycle wait for."""
    for waiter in case.waiters:
        segment = _segment(waiter)
        if segment is None:
            continue
        here = waiting_for(case, segment)
        others = [each for each in case.waiters if each.process not in here]
        if any(_segment(each) is not None for each in others):
            return None  # two semaphores: which process has which is not known
        gone = ended_users(case, segment, here)
        if waiter.edge.what.startswith(EVENT):
            return _never_set(case, waiter, here, others, gone)
        if waiter.edge.what.startswith(SEMAPHORE):
            return _never_released(case, segment, here, others, gone)
    return None


def left(case: Case) -> Mechanism | None:
    """Why no process releases a lock that none of the living ones has."""
    last = case.waiters[-1] if case.waiters else None
    segment = _segment(last) if last is not None and last.edge.what.endswith(UNHELD) else None
    if segment is None:
        return None
    here = waiting_for(case, segment)
    gone = ended_users(case, segment, here)
    heads = {head.process: head for each in here if (head := family_head(case.index, each))}
    before = [(head, count) for head in heads.values() if (count := _ended_before(case, head))]
    is_known = bool(gone or before)
    if not is_known and (skipped := _by_exception(case, here, (), gone)) is not None:
        return skipped
    names, wait = all_called(here), wait_verb(here)
    likely = "one of those that have ended" if len(gone) != 1 or before else called(gone[0])
    return Mechanism(
        cause=(
            "Every living process that has this lock is seen outside of a block that takes it. "
            + (
                f"Most likely {likely} was killed inside of it"
                if is_known
                else "Either a process was killed inside of it, before mpwatch observed the job, "
                "or acquire() was called without release()"
            )
            + ": a process that a signal ends does not leave its `with lock:` (SIGKILL, "
            "terminate(), a crash, the kernel for lack of memory), and nothing releases a "
            "semaphore when its holder ends."
        ),
        advice=_ADVICE_LEFT,
        evidence=(
            *ended_words(gone, NAMED),
            *(_ended_before_words(head, count) for head, count in before),
        ),
        headline=(
            f"{names} {wait} for a lock whose holder has ended."
            if is_known
            else f"{names} {wait} for a lock that no living process is seen to hold."
        ),
    )


def taken_twice(case: Case) -> Mechanism | None:
    """Why no process releases a semaphore that only processes have which want it once more."""
    last = case.waiters[-1] if case.waiters else None
    segment = _segment(last) if last is not None else None
    if last is None or segment is None or not last.edge.what.endswith(HELD_BY_WAITERS):
        return None
    here = waiting_for(case, segment)
    claims = [(each, nested_claim(case.index, each.process)) for each in here]
    holders = [(process, claim) for process, claim in claims if claim is not None]
    first = holders[0][1]
    names = all_called([each for each, _ in holders])
    file = first.outer.file.rpartition("/")[2]
    block = f"`{first.taken.text}` ({file}:{first.taken.line})"
    before = f"have called {block} and not released it yet"
    until = f"release what {block} has taken"
    if first.is_block:
        before = f"have entered {block} and have not left it"
        until = f"leave {block}"
    if len(holders) == 1:
        before = before.replace("have ", "has ")
    again = frame_words(first.inner)
    rest = [each for each, claim in claims if claim is None]
    others = f" {all_called(rest)} {wait_verb(rest)} for it too." if rest else ""
    return Mechanism(
        cause=(
            f"{names} {before}: called from there, {again} takes the same lock or semaphore once "
            f"more.{others} Every other process that has it is seen outside of such a block, so "
            "what is taken is taken by those that wait, and none of them gets to release it."
        ),
        advice=(
            f"Do not take it a second time: {until} before the call that reaches {again}, or let "
            "the inner part run under what the outer one has taken. A larger count of a semaphore "
            "only helps as long as fewer processes than that have taken it at once; in place of a "
            "Lock, an RLock may be taken again by the process that has it. A timeout of acquire() "
            "turns the wait into an error."
        ),
        evidence=tuple(
            f"{called(process)} is {'inside of' if claim.is_block else 'past'} "
            f"`{claim.taken.text}` at {frame_words(claim.outer)}, "
            f"and waits{at_line(main_thread(process))}{_way(claim)}"
            for process, claim in holders[:NAMED]
        ),
        headline=(
            f"{all_called(here)} {wait_verb(here)} for a lock or semaphore that "
            f"{_they(here) if not rest else names} took at {file}:{first.taken.line} and "
            f"{_want(holders)} once more at {again}."
        ),
    )


def _way(claim: Nested) -> str:
    """How the second call was reached, where that shows more than its two ends."""
    inner, *between = claim.way[:WAY]
    if len(claim.way) < 2:
        return ""
    return f", by {' <- '.join(map(frame_words, (inner, *between)))}"


_BACK = re.compile(r"(?P<name>\w+)\.(?:put\w*|send\w*|release|give\w*|free|push|task_done)\(")
_WAITS_FOR = r"\b{name}\.(?:get|recv|acquire|take|pop|claim|borrow|join)\w*\("


def not_given_back(case: Case) -> Mechanism | None:
    """What a process of a cycle takes and does not give back on one way through its function.

    Told only where another process waits for just that: by the name of what it is given back to.
    """
    for waiter in case.waiters:
        for file, skip in _skips(case, waiter):
            back = _BACK.search(skip.back.text)
            awaited = re.compile(_WAITS_FOR.format(name=back["name"])) if back is not None else None
            waiting = [each for each in case.waiters if awaited and _is_at(case, each, awaited)]
            if waiting:
                return _kept_back(case, waiter, file, skip, waiting)
    return None


def _skips(case: Case, waiter: Waiter) -> Iterator[tuple[str, Skip]]:
    """The ways past a statement that gives back, in the functions that a process is in."""
    for frame in own_frames(waiter.thread.stack) if waiter.thread is not None else ():
        line = source_of(case.index, frame) if not is_library(frame) else None
        for skip in line.skips if line is not None else ():
            if not skip.by_error:
                yield frame.file.rpartition("/")[2], skip


def _is_at(case: Case, waiter: Waiter, awaited: re.Pattern[str]) -> bool:
    """Whether a process is in a statement of the program that waits for this."""
    frames = own_frames(waiter.thread.stack) if waiter.thread is not None else ()
    lines = (source_of(case.index, frame) for frame in frames if not is_library(frame))
    return any(line is not None and awaited.search(line.statement.text) for line in lines)


def _kept_back(
    case: Case, waiter: Waiter, file: str, skip: Skip, waiting: Sequence[Waiter]
) -> Mechanism:
    """That what others wait for may have been dropped by one that took it."""
    taker, back = called(waiter.process), f"`{skip.back.text}` of line {skip.back.line}"
    leaves = f"`{skip.leaves.text.partition(': ')[2] or skip.leaves.text}`"
    under = (
        f" (under `{skip.under.text}` of line {skip.under.line})" if skip.under is not None else ""
    )
    names = all_called([each.process for each in waiting], NAMED)
    wait = wait_verb(waiting)
    return Mechanism(
        cause=(
            f"Likely {taker} has not given back what it took: it takes by `{skip.taken.text}` "
            f"({file}:{skip.taken.line}) and gives back by {back}, which {leaves} in line "
            f"{skip.leaves.line}{under} skips. {names} {wait} for just that"
            f"{at_line(waiting[0].thread)}. Each time there is one less, and when none is left, "
            f"those that need one and {taker}, which needs what they make of it, wait for each "
            "other."
        ),
        advice=(
            f"Give it back before line {skip.leaves.line} of {file} as well: `{skip.back.text}`, "
            "or put that into a finally block around everything that is done with it. More of "
            "them, or a restart, only delays the stop. With get(timeout=...) the wait becomes an "
            "error."
        ),
        headline=(
            f"{all_called([each.process for each in case.waiters], NAMED)} wait for each other: "
            f"likely {leaves} at {file}:{skip.leaves.line} skips {back}, which gives back what "
            f"{names} {wait} for."
        ),
    )


class Uncounted(Struct, frozen=True):
    """A loop that waits for a counter, and what passes over the statement that counts."""

    loop: Statement
    place: Frame
    """Where the loop waits."""
    mark: Mark

    @property
    def counter(self) -> str:
        """As the program writes it, `unfinished.value`."""
        return self.mark.about.partition(", ")[0]

    @property
    def headline(self) -> str:
        """What is missing, after the name of the process that waits."""
        return (
            f"waits at {frame_words(self.place)} in a loop until {self.counter} has the right "
            f"value, and most likely an exception has left out `{self.mark.statement.text}` at "
            f"{mark_place(self.mark)}."
        )

    @property
    def cause(self) -> str:
        """Why the loop does not end."""
        _, line, handler = self.mark.about.split(", ", 2)
        clause, _, at = handler.rpartition(" in line ")
        file = self.mark.file.rpartition("/")[2]
        return (
            f"The loop `{self.loop.text}` ({self.place.file.rpartition('/')[2]}:{self.loop.line}) "
            f"ends by the counter {self.counter}, and no process is left at work that changes it. "
            f"Most likely it misses those that failed: {mark_words(self.mark)} counts only after "
            f"{file}:{line} and the lines below have gone well, and an exception from there goes "
            f"to `{clause}` ({file}:{at}), which goes on with the next without counting. So each "
            "failure leaves the counter wrong for good."
        )

    @property
    def advice(self) -> str:
        """What to change."""
        at = self.mark.about.rpartition(" in line ")[2]
        return (
            f"Count in a finally block around what may fail, so that a failure counts as done as "
            f"well (or send an answer for each item, also for one that failed, and count those). "
            f"Then look for the exceptions that line {at} of {self.mark.file.rpartition('/')[2]} "
            "has caught, in the log. More workers, a longer timeout of get() or a restart of the "
            "workers does not help: there is nothing left for them to take."
        )


def uncounted_in(index: Index, process: Process) -> Uncounted | None:
    """The counter for which the main thread of a process waits in a loop, and that may be wrong.

    Only where nothing is in the function that counts: what is not yet done would be counted.
    """
    thread, found = main_thread(process), marks(index, "uncounted")
    frame = user_frame(thread.stack) if thread is not None and found else None
    line = source_of(index, frame) if frame is not None else None
    if frame is None or line is None:
        return None
    loops = [line.until.header] if line.until is not None else []
    loops += [each for each in reversed(line.within) if each.text.startswith("while ")]
    for mark in found:
        counter = ".".join(mark.about.partition(", ")[0].split(".")[-2:])
        asks = re.compile(rf"\b{re.escape(counter)}\b")
        loop = next((each for each in loops if asks.search(each.text)), None)
        if loop is not None and not _is_run(index, mark):
            return Uncounted(loop, frame, mark)
    return None


def _is_run(index: Index, mark: Mark) -> bool:
    """Whether any thread of the job is in the function of a mark."""
    return any(
        (frame.file, frame.function.rpartition(".")[2]) == (mark.file, mark.function)
        for process in index.snapshot.living()
        for thread in process.threads
        for frame in thread.stack
    )


def uncounted(case: Case) -> Mechanism | None:
    """A process of a cycle waits in a loop for a counter that a failure has left wrong."""
    for waiter in case.waiters:
        found = uncounted_in(case.index, waiter.process)
        if found is not None:
            others = [each.process for each in case.waiters if each is not waiter]
            idle = f"{all_called(others, NAMED)} {wait_verb(others)} for work meanwhile"
            return Mechanism(
                cause=f"{found.cause} {idle}.",
                advice=found.advice,
                headline=f"{called(waiter.process)} {found.headline}",
            )
    return None


def _they(processes: Sequence[Process]) -> str:
    return "it" if len(processes) == 1 else "they"


def _want(holders: Sequence[object]) -> str:
    return "wants" if len(holders) == 1 else "want"


def _ended_before(case: Case, head: Process) -> int:
    """How many children of a process ended that were never seen."""
    seen = [each for each in children_started_by(case.index, head) if each.ended is not None]
    return max(0, ended_children(case.index, head.process) - len(seen))


def _ended_before_words(head: Process, count: int) -> str:
    return (
        f"{called(head)} has started {counted(count, 'child', 'children')} that ended before "
        "mpwatch observed the job: it still has the pipes to such a child"
    )


def _segment(waiter: Waiter) -> SegmentId | None:
    wait = waiter.thread.waits_on if waiter.thread is not None else None
    return wait.segment if wait is not None and wait.kind == "semaphore" else None


def waiting_for(case: Case, segment: SegmentId) -> list[Process]:
    """The living processes whose main threads wait for a semaphore."""
    uses = semaphore_uses(case.index)
    living = case.index.snapshot.living()
    return [each for each in living if uses[each.process].segment == segment]


def ended_users(case: Case, segment: SegmentId, here: Sequence[Process]) -> list[Process]:
    """The ended processes that had a semaphore, or that were started with or by those that wait.

    Which semaphores a process had is not known where it ended before its mappings were read.
    """
    heads = [head for each in here if (head := family_head(case.index, each)) is not None]
    started = {
        child.process for each in (*heads, *here) for child in children_started_by(case.index, each)
    }
    return [
        each
        for each in case.index.snapshot.processes
        if each.ended is not None
        and each.role not in SERVICE_ROLES
        and (
            any(use.segment == segment for use in each.sample.segments)
            if each.sample.segments
            else each.process in started
        )
    ]


def _never_set(
    case: Case,
    waiter: Waiter,
    here: Sequence[Process],
    others: Sequence[Waiter],
    gone: Sequence[Process],
) -> Mechanism:
    """An event or condition for which every process waits, or waits for those."""
    frames = own_frames(waiter.thread.stack) if waiter.thread is not None else ()
    pair = ("multiprocessing/synchronize.py:wait",) * 2
    is_event = calls(frames, *pair)  # Event.wait calls Condition.wait
    noun, verb = ("event", "sets") if is_event else ("condition", "notifies")
    stems = {label_stem(each) for each in here}
    setters = [each for each in gone if label_stem(each) not in stems]
    cause = _where_the_others_wait(case, others)
    if setters:
        which = "It was" if len(setters) == 1 else "One of them was"
        cause += (
            f"{_ends(setters)}. {which} likely to do it, and ended before: an exception that was "
            "only logged, or a return, skips the lines after it."
        )
    elif is_event:
        cause += (
            "The process that was to set it has ended (an exit before mpwatch observed the job "
            "does not show), was not started, or has not reached that line."
        )
    else:
        cause += (
            "A notify() wakes only those that wait at that moment: one that came before a process "
            "called wait() is lost for that process."
        )
    wait = wait_verb(here)
    for_whom = f"; {all_called(setters, NAMED)} ended without doing it" if setters else ""
    return Mechanism(
        cause=cause,
        advice=_ADVICE_EVENT if is_event else _ADVICE_CONDITION,
        evidence=ended_words(gone, NAMED),
        headline=(
            f"{all_called(here)} {wait} for {'an' if is_event else 'a'} {noun} that no process "
            f"{verb}{for_whom}."
        ),
    )


def unset_alone(case: Case) -> Mechanism | None:
    """An event or condition that no living process has but the one that waits for it."""
    last = case.waiters[-1] if case.waiters else None
    segment = _segment(last) if last is not None else None
    if last is None or segment is None or not last.edge.what.startswith(EVENT):
        return None
    if case.chain.links[-1].process != last.process.process:
        return None
    here = [last.process]
    found = _never_set(case, last, here, [], ended_users(case, segment, here))
    before = _ended_before(case, last.process)
    return replace(
        found,
        cause=f"{case.chain.conclusion} {found.cause}",
        evidence=(
            *found.evidence,
            *([_ended_before_words(last.process, before)] if before else []),
        ),
    )


def _never_released(
    case: Case,
    segment: SegmentId,
    here: Sequence[Process],
    others: Sequence[Waiter],
    gone: Sequence[Process],
) -> Mechanism:
    """A lock or semaphore that no process that could run has."""
    names, wait = all_called(here), wait_verb(here)
    holder = case.index.snapshot.get(lock_holders(case.index).get(segment))
    known = next((each for each in others if holder is not None and each.process == holder), None)
    if known is not None:
        return Mechanism(
            cause=(
                f"{_waits_words(case, known)}, and holds this lock meanwhile, as its hook reports. "
                f"{names} cannot continue without the lock, and so never do what it waits for."
            ),
            advice=_ADVICE_HOLDER,
            headline=f"{names} {wait} for a lock that {called(known.process)} holds while it waits "
            "for them.",
            is_certain=True,
        )
    is_block = all(_enters_a_block(each) for each in here)
    away = [
        each
        for each in others
        if each.edge.kind != "child" and not is_seen_outside(case.index, each.process.process)
    ]
    if is_block and away and not gone:
        return Mechanism(
            cause=(
                f"{_where_the_others_wait(case, others)}No other process is at work inside of the "
                f"with block, and none that had this lock is known to have ended. So "
                f"{called(away[0].process)} holds it while it waits, and {names} cannot do what it "
                "waits for."
            ),
            advice=_ADVICE_HOLDER,
            headline=f"{names} {wait} for a lock that {called(away[0].process)} most likely holds "
            "while it waits for them.",
        )
    return _by_exception(case, here, others, gone) or _left_taken(
        case, here, others, next(iter((*away, *others)), None), gone, is_block=is_block
    )


def _left_taken(
    case: Case,
    here: Sequence[Process],
    others: Sequence[Waiter],
    candidate: Waiter | None,
    gone: Sequence[Process],
    *,
    is_block: bool,
) -> Mechanism:
    """A lock or semaphore of which only is known that no process at work has it."""
    names, wait = all_called(here), wait_verb(here)
    either = (
        f"Either {called(candidate.process)} holds it while it waits, or a" if candidate else "A"
    )
    left = (
        "that has ended took it: a process that is killed inside of a with block does not release "
        "it."
        if is_block
        else "took it and did not release it: a return or an exception between acquire() and "
        "release() leaves it taken, and so does the end of a process that has it."
    )
    return Mechanism(
        cause=(
            f"{_where_the_others_wait(case, others)}No process is at work between taking and "
            f"releasing it. {either} process {left}"
        ),
        advice=_ADVICE_BLOCK if is_block else _ADVICE_ACQUIRE,
        evidence=ended_words(gone, NAMED),
        headline=f"{names} {wait} for a lock or semaphore that no process releases.",
    )


class SkippedRelease(NamedTuple):
    """A call between taking a lock and releasing it whose exception leaves it taken."""

    frame: Frame
    """Where a thread waits for the lock."""
    skip: Skip


def skipped_release(
    index: Index, waiting: Sequence[Thread], others: Sequence[Thread]
) -> SkippedRelease | None:
    """Where threads wait for a lock that their own function does not release after an exception.

    Args:
        index: The job.
        waiting: Threads that wait for the lock.
        others: All that may have it: it is not lost as long as one of them is past the line that
            takes it.
    """
    for thread in waiting:
        frame = user_frame(thread.stack)
        line = source_of(index, frame) if frame is not None else None
        for skip in line.skips if line is not None else ():
            if frame is None or line is None:
                continue
            is_here = skip.by_error and skip.taken.line == line.statement.line
            held = range(skip.taken.line + 1, skip.back.line + 1)
            if is_here and not any(_is_in(each, frame, held) for each in others):
                return SkippedRelease(frame, skip)
    return None


def _is_in(thread: Thread, where: Frame, lines: range) -> bool:
    """Whether a thread is at some lines of a function, or further down from them."""
    return any(
        (each.file, each.function) == (where.file, where.function) and each.line in lines
        for each in thread.stack
    )


def _by_exception(
    case: Case, here: Sequence[Process], others: Sequence[Waiter], gone: Sequence[Process]
) -> Mechanism | None:
    """That an exception between acquire() and release() has left a lock or semaphore taken.

    Not where a signal has ended a process that had it: that one may not have released it.
    """
    if any(each.ended is not None and each.ended.signal is not None for each in gone):
        return None
    waiting = [thread for each in here if (thread := main_thread(each)) is not None]
    living = [thread for each in case.index.snapshot.living() for thread in each.threads]
    found = skipped_release(case.index, waiting, living)
    names, wait = all_called(here), wait_verb(here)
    if found is None:
        lost = next(filter(None, (lost_permits(case.index, each) for each in here)), None)
        if lost is None:
            return None
        return Mechanism(
            cause=f"{_where_the_others_wait(case, others)}{lost.cause}",
            advice=lost.advice,
            evidence=(lost.evidence,),
            headline=f"{names} {wait} for a lock or semaphore that no process releases: most "
            f"likely {lost.how}.",
        )
    taken, leaves, back = found.skip.taken, found.skip.leaves, found.skip.back
    file = found.frame.file.rpartition("/")[2]
    lock = back.text.rpartition(".")[0]
    caught = _caught_at(case.index, waiting, found.frame)
    return Mechanism(
        cause=(
            f"{_where_the_others_wait(case, others)}`{taken.text}` ({file}:{taken.line}) takes it "
            f"and `{back.text}` (line {back.line}) releases it, which is in no finally block. No "
            "process is between the two: most likely an exception from "
            f"`{leaves.text}` (line {leaves.line}) or a line after it has skipped the release, and "
            f"{caught or 'a caller'} has caught it. Each such exception leaves it taken once more, "
            "and when it is taken as often as it may be, every process that comes to it waits for "
            "ever."
        ),
        advice=(
            f"Write `with {lock}:` in place of the two calls, or put `{back.text}` into a finally "
            f"block. Look in the log for exceptions from line {leaves.line} on. A larger number of "
            "permits or a restart only postpones it."
        ),
        headline=(
            f"{names} {wait} at {frame_words(found.frame)} for a lock or semaphore that no process "
            f"is past: most likely an exception at {file}:{leaves.line} has skipped `{back.text}` "
            f"of line {back.line}."
        ),
    )


def _caught_at(index: Index, waiting: Sequence[Thread], below: Frame) -> str:
    """The clause that catches any exception of a function in its callers; empty for none seen.

    ``` `except Exception as error:` (worker.py:54 run) ```.
    """
    for thread in waiting:
        frames = own_frames(thread.stack)
        callers = frames[frames.index(below) + 1 :] if below in frames else ()
        for frame in callers:
            for mark in marks(index, "swallows"):
                first, last = map(int, mark.about.split("-"))
                is_it = (mark.file, mark.function) == (frame.file, frame.function)
                if is_it and first <= frame.line <= last:
                    return f"`{mark.statement.text}` ({mark_place(mark)})"
    return ""


def _enters_a_block(process: Process) -> bool:
    """Whether it is about to enter `with lock:`, whose end releases the lock in any case."""
    thread = next((each for each in process.threads if each.tid == process.pid), None)
    return thread is not None and calls(
        own_frames(thread.stack)[:1], "multiprocessing/synchronize.py:__enter__"
    )


def _where_the_others_wait(case: Case, others: Sequence[Waiter]) -> str:
    words = "; ".join(_waits_words(case, each) for each in others[:NAMED])
    return f"{words}. " if words else ""


def _waits_words(case: Case, waiter: Waiter) -> str:
    """`main (12) waits for the exit of worker 0 (13) at train.py:20 main`."""
    place = at_line(main_thread(waiter.process))
    return f"{called(waiter.process)} waits for {awaited(case, waiter)}{place}"


def _ends(gone: Sequence[Process]) -> str:
    have = "has" if len(gone) == 1 else "have"
    return f"{all_called(gone, NAMED)} {have} ended"


_ADVICE_EVENT = (
    "Set the event in a finally block, so that those that wait go on and see the failure. Or wait "
    "in a loop with event.wait(timeout) that also checks whether the process that is to set it is "
    "alive, and look at the exit codes in the parent."
)
_ADVICE_CONDITION = (
    "Wait for a state, not for the call: change a shared value under the lock before notify_all(), "
    "and use condition.wait_for(lambda: ...) with a timeout, which returns at once if the state is "
    "there already."
)
_ADVICE_LEFT = (
    "Restart the job: nothing releases this lock. Look which line kills processes (kill(), "
    "terminate(), a watchdog, a memory limit): ask them to end by an Event or a message that they "
    "check outside of the lock instead, and keep slow or large work out of the block. With "
    "acquire(timeout=...) the others notice. With the hook (mpwatch run) it is known which process "
    "ended, and how."
)
_ADVICE_HOLDER = (
    "Release the lock before the wait: do in the with block only what needs the lock. With "
    "acquire(timeout=...) the wait of the others becomes an error with its line."
)
_ADVICE_ACQUIRE = (
    "Use with lock: (or release() in a finally block) at the lines above, so that every way out "
    "releases it; acquire(timeout=...) makes the wait an error. With the hook (mpwatch run) the "
    "holder of a lock is known."
)
_ADVICE_BLOCK = (
    "Do not end processes by terminate() or kill() while they may hold it: tell them to end by an "
    "event or a message. Do not wait for another process inside of the block. With the hook "
    "(mpwatch run) the holder of a lock is known."
)


class LostPermits(Struct, frozen=True):
    """What the source shows to pass over the release of what was acquired."""

    evidence: str
    cause: str
    advice: str
    how: str
    """What passes over it, as a clause."""


_ACQUIRES = re.compile(r"(\w+)\.acquire\(")


def lost_permits(index: Index, process: Process) -> LostPermits | None:
    """Why a thread of a process waits in acquire() for ever, as its source may show.

    By the name that both lines have for the semaphore or lock.
    """
    found = marks(index, "unreleased")
    for thread in process.threads if found else ():
        frame = user_frame(thread.stack)
        line = source_of(index, frame) if frame is not None and not is_library(frame) else None
        taken = _ACQUIRES.search(line.statement.text) if line is not None else None
        for mark in found if taken is not None else ():
            name, _, acquired = mark.about.rpartition(", ")
            if taken is not None and frame is not None and name.rpartition(".")[2] == taken[1]:
                return _lost(mark, name, acquired, f"waits at {frame_words(frame)}: ")
    return None


def may_lose_permits(index: Index) -> LostPermits | None:
    """The only place of the program that passes over a release, where no stack shows a wait.

    A coroutine that waits is on no stack.
    """
    found = marks(index, "unreleased")
    if len({mark.about for mark in found}) != 1:
        return None
    name, _, acquired = found[0].about.rpartition(", ")
    return _lost(found[0], name, acquired, "")


def _lost(mark: Mark, name: str, acquired: str, waits: str) -> LostPermits:
    """What skips the release, in words; `waits` is what a stack shows of the wait, or empty."""
    error = f"an exception at {mark_words(mark)} leaves out the release of {name}"
    if acquired != "0":
        how = f"{error}, which line {acquired} has acquired"
    elif mark.statement.text.startswith("if "):
        how = f"{mark_words(mark)} goes on to the next round without the release of {name} below it"
    else:
        how = f"{error} below it, and the `except` clause around it does not release it"
    sure = "Most likely" if waits else "Possible"
    return LostPermits(
        f"{waits}{how}",
        f"{sure}: {how}, so that it is one permit short from then on. Once none is left, "
        f"each acquire() of {name} waits for ever, and what comes after it is done no more.",
        f"Release {name} on every way: `with {name}:` (async with), or a finally block around what "
        "comes after acquire(); and before each continue and return. A larger number of permits "
        "or a timeout only postpones it.",
        how,
    )
