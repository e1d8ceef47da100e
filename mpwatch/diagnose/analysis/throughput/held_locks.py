"""Locks that are held during a sleep or long work, and the threads that wait for them meanwhile.

That all of them are at one lock is seen by the statement that takes it, and that a thread has it by
the block of that statement, which the thread is in.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library, own_frames, program_frames
from mpwatch.describe.waits import LOCK_OF_THREADS
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.source.lines import line_at, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.diagnose.analysis.throughput.shares import OBSERVED_S, READINGS, shares_apart
from mpwatch.model.account import (
    FUTURE_RESULT,
    OTHER,
    RUNNING_KINDS,
    Activity,
    ProcessAccount,
    Share,
    Target,
)
from mpwatch.model.samples import VFORKED, Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import SourceLine

WAITS_SHARE = 0.3
"""A thread counts if it waits for the lock this part of its time."""
SLEEPS_SHARE = 0.4
"""All threads together sleep at the line inside of the lock this part of the time, at least."""
THREADS_LIMIT = 64
"""Threads that are looked at in one process."""
_SLEEPS = re.compile(r"\bsleep\(")
_TAKES = re.compile(r"^(?:async )?with |\.acquire\(")


class Waiting(Struct, frozen=True):
    """A thread that waits to take the lock for much of its time."""

    process: Process
    thread: Thread
    share: float
    """Of its time, 0 to 1."""
    lock: str
    """What the account calls the lock: `semaphore 1b:88`."""


class SleepingHolder(Struct, frozen=True):
    """A thread that sleeps inside of a block that takes a lock, and those that wait for it."""

    process: Process
    thread: Thread
    taken: SourceLine
    """The statement that takes the lock."""
    inside: Frame
    """The line of its function that leads to the sleep."""
    sleep: Frame
    share: float
    """Of the time, in which it or another thread sleeps there, 0 to 1."""
    waiting: Sequence[Waiting]

    @property
    def is_of_threads(self) -> bool:
        """Whether all are threads of one process."""
        return {each.process.process for each in self.waiting} == {self.process.process}

    @property
    def place(self) -> str:
        """``` `with self.lock:` at limiter.py:48 acquire ```."""
        return f"`{self.taken.statement.text}` at {_place_of_line(self.taken)}"

    @property
    def name(self) -> str:
        """`thread fetch-1`, or the process where others are in other processes."""
        return f"thread {self.thread.name}" if self.is_of_threads else called(self.process)

    @property
    def waiting_words(self) -> str:
        """`3 threads of fetcher (41)`, or the processes."""
        if not self.is_of_threads:
            return all_called(
                {each.process.process: each.process for each in self.waiting}.values()
            )
        number = len(self.waiting)
        return f"{number} thread{'s' if number != 1 else ''} of {called(self.process)}"


def _place_of_line(line: SourceLine) -> str:
    return f"{line.file.rpartition('/')[2]}:{line.line} {line.function}"


class _Unit(Struct, frozen=True):
    """A thread with its account."""

    process: Process
    thread: Thread
    account: ProcessAccount
    number: int
    """Of the thread in the account."""

    @property
    def now(self) -> Activity:
        """What the last reading found."""
        return self.account.uncounted[self.number].now

    def shares(self) -> Sequence[Share]:
        """Of the last minute; empty where too little was seen."""
        tally = self.account.thread(self.number).last_minute()
        is_enough = tally.readings >= READINGS and tally.observed_s >= OBSERVED_S
        return tally.shares() if is_enough else ()


def sleeping_holders(index: Index) -> Iterator[SleepingHolder]:
    """The locks that are held during a sleep now, and that other threads wait for much of the time.

    That it is the same lock is seen by the statement that takes it, which may be that of several
    objects. Shares are made only of threads at a lock that a thread holds in a sleep: next to none
    in most jobs.
    """
    units = list(_units(index))
    at_lock: defaultdict[str, list[_Unit]] = defaultdict(list)
    for unit in units:
        if unit.now.target == "lock" and unit.now.place:
            at_lock[unit.now.place].append(unit)
    for place, waiting in at_lock.items():
        taken = line_at(index, place)
        if taken is None or not _TAKES.search(taken.statement.text):
            continue
        asleep = [(unit, at) for unit in units if (at := _inside(index, unit, taken)) is not None]
        # A stack may be older than what its thread does now.
        at_once = [each for each in asleep if each[0].now.kind == "sleeping"]
        if not asleep or len(at_once) > 1:
            continue  # several at a time are inside of a semaphore with a count
        unit, inside = (at_once or asleep)[0]
        others = [each for each in waiting if each.thread is not unit.thread]
        found = _holder(unit, inside, others, taken) if others else None
        if found is not None:
            yield found


def _units(index: Index) -> Iterator[_Unit]:
    """The threads that wait for a lock of which the line is known, or that may sleep."""
    for process in index.snapshot.living():
        account = index.snapshot.account.processes.get(process.process)
        if account is None or process.role in SERVICE_ROLES:
            continue
        threads = {each.tid: each for each in process.threads}
        for number, each in enumerate(account.uncounted[:THREADS_LIMIT]):
            thread = threads.get(each.tid)
            is_of_lock = each.now.target == "lock" or each.now.kind == "sleeping"
            if thread is not None and thread.stack and is_of_lock:
                yield _Unit(process, thread, account, number)


def _inside(index: Index, unit: _Unit, taken: SourceLine) -> tuple[Frame, Frame] | None:
    """The line of a function that leads to a sleep inside of what a statement takes, and that."""
    frames = program_frames(unit.thread.stack)
    sleep = source_of(index, frames[0]) if frames else None
    if sleep is None or not _SLEEPS.search(sleep.statement.text):
        return None
    for frame in frames:
        if (frame.file, frame.function) == (taken.file, taken.function):
            line = source_of(index, frame)
            if line is not None and taken.statement in (*line.within, *line.held):
                return frame, frames[0]
    return None


def _holder(
    unit: _Unit, inside: tuple[Frame, Frame], others: Sequence[_Unit], taken: SourceLine
) -> SleepingHolder | None:
    """The finding, if the others wait for much of their time, and sleeps take much of it."""
    taken_at = _place_of_line(taken)
    # A stack of many threads is older than what each of them does now: a sleep has their places.
    places = {frame_words(inside[1]), taken_at, ""}
    waiting = [
        Waiting(each.process, each.thread, share, activity.what)
        for each in others
        for activity, share in each.shares()
        if activity.target == "lock" and activity.place == taken_at and share >= WAITS_SHARE
    ]
    slept = sum(
        share
        for each in (unit, *others)
        for activity, share in each.shares()
        if activity.kind == "sleeping" and activity.place in places
    )
    if not waiting or slept < SLEEPS_SHARE:
        return None
    return SleepingHolder(unit.process, unit.thread, taken, *inside, min(1.0, slept), waiting)


# --- held during work ----------------------------------------------------------------------------

TAKES_SHARE, WORKS_SHARE = 0.3, 0.2
"""The parts of the time in which stacks show that a thread waits for the lock, and that any of them
works at lines inside of it; many waits are too short for a stack."""
ONE_AT_A_TIME = 1.35
"""What all of them do beside waiting for it, in units of one thread's time; more is no mutual
exclusion. The part above 1 is what they do outside of it, and the error of the shares."""
GIL_SHARE = 0.2
"""Threads that wait for the GIL for so much of their time have another reason to take turns."""
_RECEIVES = re.compile(r"\.(?:accept|poll|readline|recv\w*|receive\w*|select|wait)\(|\binput\(")
"""In a statement that waits for the next request, as the one thread does that looks for all."""
_WORKS: frozenset[Target] = frozenset(("child", "file", "page-faults", "socket"))
"""What a thread waits for that does something, in place of taking what others put."""


class WorkingHolder(Struct, frozen=True):
    """A thread that works inside of a block that takes a lock, and others that wait for it."""

    process: Process
    thread: Thread
    taken: SourceLine
    """The statement that takes the lock."""
    inside: Frame
    """The line of its function that leads to the work."""
    work: Frame
    """The innermost line of the program."""
    does: Activity
    """What takes most of the time there."""
    share: float
    """The part of the time in which a thread does that, 0 to 1."""
    waiting: Sequence[Waiting]
    """The threads that wait for the lock for much of their time; the holder may be one of them."""
    together: float
    """What all of them do beside waiting, in units of one thread's time."""

    @property
    def place(self) -> str:
        """``` `with self.lock:` at cache.py:48 get ```."""
        return f"`{self.taken.statement.text}` at {_place_of_line(self.taken)}"


def working_holders(index: Index) -> Iterator[WorkingHolder]:
    """The locks of threads that are held during work now, while two or more others take turns.

    Not where the work is computing in Python: the GIL lets one thread at a time do that anyway. Nor
    where the holder waits for what comes next, as one of several idle threads does for all.
    """
    for process in index.snapshot.living():
        account = index.snapshot.account.processes.get(process.process)
        if account is None or process.role in SERVICE_ROLES or not _may_wait(account):
            continue
        threads = {each.tid: each for each in process.threads if each.stack}
        units = [
            _Unit(process, threads[each.tid], account, number)
            for number, each in enumerate(account.uncounted[:THREADS_LIMIT])
            if each.tid in threads
        ]
        for place in dict.fromkeys(unit.now.place for unit in units if _is_at_lock(unit)):
            taken = line_at(index, place)
            if taken is not None and _TAKES.search(taken.statement.text):
                holder = _working_holder(index, units, taken)
                if holder is not None:
                    yield holder


def _may_wait(account: ProcessAccount) -> bool:
    return any(each.now.what == LOCK_OF_THREADS for each in account.uncounted)


def _is_at_lock(unit: _Unit) -> bool:
    """Whether a thread waits for a plain lock: no condition, semaphore or pool of connections."""
    if unit.now.what != LOCK_OF_THREADS or not unit.now.place:
        return False
    first = own_frames(unit.thread.stack)[0]
    return not is_library(first) or calls((first,), "threading.py:__enter__")


def _working_holder(
    index: Index, units: Sequence[_Unit], taken: SourceLine
) -> WorkingHolder | None:
    """The one thread that is inside of a lock, if the others wait while it works there."""
    found = [(unit, at) for unit in units if (at := _works_inside(index, unit, taken)) is not None]
    if len(found) != 1:
        return None  # several at a time are at several locks, or at a semaphore with a count
    unit, (inside, work) = found[0]
    taken_at = _place_of_line(taken)
    shares = {e.thread.tid: shares_apart(e.account.thread(e.number)) for e in units}
    waiting = [
        Waiting(each.process, each.thread, waited, LOCK_OF_THREADS)
        for each in units
        if (waited := _waited(shares[each.thread.tid], taken_at)) >= TAKES_SHARE
    ]
    group = {each.thread.tid for each in waiting} | {unit.thread.tid}
    of_group = [share for tid in group for share in shares[tid]]
    if len(waiting) < 2 or sum(s.share for s in of_group if s.activity.target == "gil") > GIL_SHARE:
        return None
    is_program = calls(own_frames(unit.thread.stack), "subprocess.py:")
    working = [each for each in of_group if _is_of_work(each.activity, is_program=is_program)]
    there = [s for s in working if _is_there(index, s.activity.place, taken, work)]
    together, share = (sum(each.share for each in some) for some in (working, there))
    together += sum(each.share for each in of_group if each.activity.what == OTHER)
    in_python = sum(each.share for each in there if each.activity.what == "Python code")
    if share < WORKS_SHARE or together > ONE_AT_A_TIME or 2 * in_python > share:
        return None
    does = max(there, key=lambda each: each.share).activity
    line = source_of(index, work)
    is_wait = does.kind not in RUNNING_KINDS
    if is_wait and (line is None or _receives_next(line)):
        return None
    return WorkingHolder(
        unit.process, unit.thread, taken, inside, work, does, min(1.0, share), waiting, together
    )


def _receives_next(line: SourceLine) -> bool:
    """Whether a statement waits for what comes next, and not for the answer to what was sent."""
    return line.asked is None and _RECEIVES.search(line.statement.text) is not None


def _waited(found: Sequence[Share], taken_at: str) -> float:
    """The share of a thread's time in which it waits for the lock that a line takes."""
    return sum(
        each.share
        for each in found
        if each.activity.what == LOCK_OF_THREADS and each.activity.place == taken_at
    )


def _works_inside(index: Index, unit: _Unit, taken: SourceLine) -> tuple[Frame, Frame] | None:
    """The line that leads out of the block that takes a lock, and the innermost of the program.

    `None` also for a thread that waits for a condition there, and so has released the lock.
    """
    frames = program_frames(unit.thread.stack)
    if calls(own_frames(unit.thread.stack)[:4], "threading.py:wait"):
        return None
    for frame in frames:
        if (frame.file, frame.function) == (taken.file, taken.function):
            line = source_of(index, frame)
            if line is not None and taken.statement in (*line.within, *line.held):
                return frame, frames[0]
    return None


def _is_of_work(activity: Activity, *, is_program: bool) -> bool:
    """Whether a thread does something, and waits neither for another thread nor for a message.

    Args:
        activity: What it does.
        is_program: Whether the holder is in `subprocess`: then a pipe is that of a program.
    """
    if activity.kind in (*RUNNING_KINDS, "sleeping") or activity.target in ("core", *_WORKS):
        return True
    if activity.what == FUTURE_RESULT:
        return True
    return is_program and (activity.target == "pipe" or activity.what == VFORKED)


def _is_there(index: Index, place: str, taken: SourceLine, work: Frame) -> bool:
    """Whether a place in words is inside of a block, or where the thread works that is in it."""
    if place == frame_words(work):
        return True
    line = line_at(index, place) if place else None
    return line is not None and taken.statement in (*line.within, *line.held)
