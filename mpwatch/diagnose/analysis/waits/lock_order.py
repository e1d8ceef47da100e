"""Two threads of a process that take two locks in opposite order, and wait for each other.

The rest of the process may go on: its event loop answers, its other threads work. A lock of
`threading` is a futex without an owner, so a lock is told by how the program writes it: each thread
waits to take what the other one has taken in a block, or by a call of acquire(), that it is still
in. Two locks that are written alike may be different ones, so a conclusion is at best likely.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from msgspec import Struct

from mpwatch.describe.frames import program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.stack_patterns import own_threads
from mpwatch.diagnose.analysis.waits.providers import HELPERS, entry_of, owner_of, waits_for_lock
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import SourceLine, Statement

_THREADS = 32
"""Threads that wait for a lock, of which pairs are looked at."""
_COMMON = frozenset(("cond", "condition", "guard", "lock", "mu", "mutex", "rlock", "sem"))
"""Names that many locks of a program have."""


class Taken(Struct, frozen=True):
    """A statement that takes a lock, of a thread."""

    frame: Frame
    """The line at which the thread is in the function of that statement."""
    statement: Statement
    name: str
    """Of the lock, as written."""
    owner: str
    """The class that has it, for a `self.` of a known class."""


class Waits(Struct, frozen=True):
    """A thread that waits for one lock inside of a block of another."""

    thread: Thread
    wants: Taken
    holds: Taken


class OppositeLocks(Struct, frozen=True):
    """Two threads each of which waits for the lock that the other one has."""

    process: Process
    one: Waits
    other: Waits
    waited_s: float
    """How long both have waited."""

    @property
    def is_one_line(self) -> bool:
        """Whether both wait at one statement, which takes the locks of two objects in turn."""
        return self.one.wants.statement == self.other.wants.statement


@derived
def opposite_locks(index: Index, identity: ProcessId) -> OppositeLocks | None:
    """The first two threads of a process that wait for each other's lock, as far as names tell."""
    process = index.snapshot.get(identity)
    if process is None:
        return None
    if sum(map(waits_for_lock, process.threads)) < 2:
        return None  # as in most processes: whose threads they are takes longer to tell
    waiting = [each for each in own_threads(index, process) if waits_for_lock(each)][:_THREADS]
    if len(waiting) < 2:
        return None
    lines = {each.tid: _taken_by(index, each) for each in waiting}
    pairs = [
        (first, second)
        for one, other in combinations(waiting, 2)
        if not _is_one_futex(one, other)
        for first in lines[one.tid]
        for second in lines[other.tid]
        if _are_opposite(first, second) or _are_of_two_objects(first, second)
    ]
    entered = (
        [(thread.tid, each) for thread in process.threads for each in _entered(index, thread)]
        if pairs
        else []
    )
    for first, second in pairs:
        if not _is_entered_by_others(entered, first, second):
            waited_s = min(_waited_s(first.thread), _waited_s(second.thread))
            return OppositeLocks(process, first, second, waited_s)
    return None


def _waited_s(thread: Thread) -> float:
    still_s = thread.still_s or 0.0
    return still_s if thread.waits_s is None else min(still_s, thread.waits_s)


def _is_one_futex(one: Thread, other: Thread) -> bool:
    """Whether two threads wait for one lock: a third one has it.

    From CPython 3.14 on each thread waits at an address of its own, also for one lock.
    """
    addresses = [
        each.waits_on.address if each.waits_on is not None else None for each in (one, other)
    ]
    return addresses[0] is not None and addresses[0] == addresses[1]


def _taken_by(index: Index, thread: Thread) -> list[Waits]:
    """What a thread waits to take, with each lock that it has taken before."""
    own = program_frames(thread.stack)
    lines = [source_of(index, frame) for frame in own]
    place = _place_of_wait(own, lines)
    if place is None:
        return []
    wanted = _taken(lines[place], own[place], None)
    if wanted is None or "," in wanted.statement.text:
        return []  # which of several locks it waits for does not show
    found = []
    for frame, line in zip(own[place:], lines[place:], strict=True):
        for before in reversed((*line.within, *line.held) if line is not None else ()):
            held = _taken(line, frame, before)
            if held is not None and not _is_same(held, wanted):
                found.append(Waits(thread, wanted, held))
    return found


def _place_of_wait(own: Sequence[Frame], lines: Sequence[SourceLine | None]) -> int | None:
    """The frame whose statement takes the lock: the innermost, or the caller of a helper."""
    for place, line in enumerate(lines[:HELPERS]):
        entered = entry_of(line.statement) if line is not None else None
        if entered is not None:
            name = own[place - 1].function if place else "acquire"
            return place if name in (entered.name, "__enter__", "acquire") else None
    return None


def _taken(line: SourceLine | None, frame: Frame, statement: Statement | None) -> Taken | None:
    """What a statement of the function of a frame takes; that at the frame without one."""
    if line is None:
        return None
    entry = entry_of(statement or line.statement)
    if entry is None or entry.is_made:
        return None
    return Taken(frame, statement or line.statement, entry.taken, owner_of(line, statement))


def _is_same(one: Taken, other: Taken) -> bool:
    """Whether two statements most likely take one lock: its name, or the end of it, is the same."""
    shorter, longer = sorted((_parts(one), _parts(other)), key=len)
    if longer[len(longer) - len(shorter) :] != shorter:
        return False
    is_told = len(shorter) > 1 or shorter[0] not in _COMMON
    is_one_file = one.frame.file == other.frame.file
    return is_told or (is_one_file and one.name == other.name and not one.name.startswith("self."))


def _parts(taken: Taken) -> tuple[str, ...]:
    """`("store", "lock")` of `self._lock` of a class Store, and of `self.store.lock` of another."""
    parts = [each.strip("_").lower() for each in taken.name.split(".")]
    if parts[0] == "self":
        parts[:1] = [taken.owner.strip("_").lower()] if taken.owner else []
    return tuple(parts) or ("self",)


def _are_opposite(one: Waits, other: Waits) -> bool:
    return (
        _is_same(one.wants, other.holds)
        and _is_same(other.wants, one.holds)
        and not _is_same(one.wants, other.wants)
    )


def _are_of_two_objects(one: Waits, other: Waits) -> bool:
    """Whether two threads are at one statement in one block, for the locks of other objects.

    `with source.lock: with target.lock:`, for (a, b) and for (b, a): the locks have one attribute.
    """
    wants, holds = one.wants, one.holds
    is_one_place = wants.statement == other.wants.statement and wants.frame == other.wants.frame
    attributes = [each.name.rpartition(".") for each in (wants, holds)]
    is_attribute = attributes[0][2] == attributes[1][2] and all(each[0] for each in attributes)
    addresses = [
        each.thread.waits_on.address if each.thread.waits_on is not None else None
        for each in (one, other)
    ]
    return (
        is_one_place
        and holds.statement == other.holds.statement
        and is_attribute
        and None not in addresses
    )


def _is_entered_by_others(entered: Sequence[tuple[int, Taken]], one: Waits, other: Waits) -> bool:
    """Whether a further thread is in a block of a lock like theirs, so that it may have it.

    It may be that of another object of the class.
    """
    known, wants = (one.thread.tid, other.thread.tid), (one.wants, other.wants)
    attribute = one.wants.name.rpartition(".")[2] if _are_of_two_objects(one, other) else None
    return any(
        tid not in known
        and (
            taken.name.rpartition(".")[2] == attribute
            or any(_is_same(taken, each) for each in wants)
        )
        for tid, taken in entered
    )


def _entered(index: Index, thread: Thread) -> Iterator[Taken]:
    for frame in program_frames(thread.stack):
        line = source_of(index, frame)
        for before in (*line.within, *line.held) if line is not None else ():
            if (taken := _taken(line, frame, before)) is not None:
                yield taken
