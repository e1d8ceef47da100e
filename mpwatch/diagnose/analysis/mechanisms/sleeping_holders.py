"""A lock that is held during a sleep, while other threads or processes wait to take it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.shares import OBSERVED_S, READINGS
from mpwatch.diagnose.analysis.source_code import line_at, source_of
from mpwatch.model.account import Activity, ProcessAccount, Share
from mpwatch.model.samples import Frame
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


class Waiting(NamedTuple):
    """A thread that waits to take the lock for much of its time."""

    process: Process
    thread: Thread
    share: float
    """Of its time, 0 to 1."""
    lock: str
    """What the account calls the lock: `semaphore 1b:88`."""


class SleepingHolder(NamedTuple):
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
        return f"`{self.taken.statement.text}` at {_place(self.taken)}"

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


def _place(line: SourceLine) -> str:
    return f"{line.file.rpartition('/')[2]}:{line.line} {line.function}"


class _Unit(NamedTuple):
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
    taken_at = _place(taken)
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
