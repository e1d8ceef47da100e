"""Processes or threads wait most of their time for one lock, so only one works at a time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec import Struct

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.describe.waits import SEMAPHORE
from mpwatch.diagnose.analysis.idle_time import is_stalled
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called, counted
from mpwatch.diagnose.analysis.source.lines import line_at, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import main_thread, outermost_first
from mpwatch.diagnose.analysis.throughput.held_locks import (
    SleepingHolder,
    WorkingHolder,
    sleeping_holders,
    working_holders,
)
from mpwatch.diagnose.analysis.throughput.shares import (
    doing_words,
    shares,
    times_faster,
    work_place,
    working_share,
)
from mpwatch.diagnose.analysis.waits.blockages import without_progress_s
from mpwatch.diagnose.analysis.waits.file_locks import DATABASES, LOCK_ON, USES_DATABASE, holders
from mpwatch.model.account import FUTURE_RESULT, RUNNING_KINDS, Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Statement

RULE = "lock-contention"
IS_OF_SHARES = True
WAITS_SHARE = 0.3
"""A process counts if it waits for the lock this part of its time."""
SEEN_SHARE = 0.1
"""Stacks have to show it taking a lock this part of its time. Without a stack the lock of a queue's
readers looks the same, and to wait there is to be idle."""
TURNS_SHARE = 0.02
"""A process that works less than this gets no turn: rules for hangs name that."""
ONE_AT_A_TIME = 1.35
"""What all of them work together, in units of one process' time; more is no mutual exclusion. The
part above 1 is work outside of the lock, and the error of the shares."""
KEPT_S = 10.0
"""After this time without progress of all that wait, rules for hangs name the lock's holder."""
WARNED_SHARE = 0.5
SHOWN = 4


class _Wait(Struct, frozen=True):
    """The waits of one process for one lock."""

    share: float
    place: str
    """The line that takes the lock, most of the time."""
    holders: frozenset[ProcessId]
    """The processes that were seen to hold it meanwhile, where the kernel shows that."""
    slept: float = 0.0
    """The part of the share that it slept between two attempts, at the line that takes the lock."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each lock for which two or more of them wait much of their time.

    All of them get turns. Together they work hardly more than one of them could: while one works,
    the others wait.
    """
    asleep = list(sleeping_holders(index))
    yield from map(_finding_of_sleep, asleep)
    places = {each.place for each in asleep}
    yield from (_finding_of_work(e) for e in working_holders(index) if e.place not in places)
    told = {each.lock for holder in asleep for each in holder.waiting}
    found: defaultdict[str, list[tuple[Process, _Wait]]] = defaultdict(list)
    for process in index.snapshot.living():
        if process.role not in SERVICE_ROLES:
            for lock, wait in _waits(index, process).items():
                found[lock].append((process, wait))
    for lock, waits in found.items():
        if lock in told:
            continue
        if (holder := _one_holder(index, lock, waits)) is not None:
            yield _finding_of_holder(index, lock, waits, holder)
            continue
        works = [working_share(index, process) - wait.slept for process, wait in waits]
        has_turns = sum(each >= TURNS_SHARE for each in works) >= 2
        if len(waits) < 2 or not has_turns or sum(works) > ONE_AT_A_TIME:
            continue
        waiting = [process for process, _ in waits]
        if _is_given_back_elsewhere(index, waits):
            continue
        if not _is_kept(index, waiting) and not _has_one_holder(waits):
            yield _finding(index, lock, waits, works)


_ACQUIRES = re.compile(r"(?:\w+ = )?(?:\w+\.)*(\w+)\.acquire\(")


def _is_given_back_elsewhere(index: Index, waits: Sequence[tuple[Process, _Wait]]) -> bool:
    """Whether what they wait for is a permit that other code gives back, and no lock.

    Its `release()` stands in another file only, in a function that does not take it: a count of
    what may be in flight. Who waits for it waits for whoever takes the items, and keeps nothing.
    """
    lines = (line_at(index, wait.place) for _, wait in waits)
    for line in {each for each in lines if each is not None}:
        taken = _ACQUIRES.match(line.statement.text)
        if taken is not None:
            found = [each for each in marks(index, "releases") if each.about == taken[1]]
            if found and all(each.file != line.file for each in found):
                return True
    return False


def _finding_of_sleep(holder: SleepingHolder) -> Finding:
    """Describe a lock that is held during a sleep."""
    waiting = holder.waiting
    mean = sum(each.share for each in waiting) / len(waiting)
    verb = "waits" if len(waiting) == 1 else "wait"
    sleep, inside = frame_words(holder.sleep), frame_words(holder.inside)
    through = "" if sleep == inside else f", called at {inside}"
    names = [
        f"thread {each.thread.name}" if holder.is_of_threads else called(each.process)
        for each in waiting
    ]
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=True,
        process=holder.process.process,
        others=tuple(dict.fromkeys(each.process.process for each in waiting)),
        subject=holder.place,
        summary=(
            f"{holder.waiting_words} {verb} {mean:.0%} of the time for the lock of {holder.place}, "
            f"inside of which {holder.name} sleeps"
        ),
        evidence=(
            *(
                f"{name}: {each.share:.0%} of the time waiting for it"
                for name, each in list(zip(names, waiting, strict=True))[:SHOWN]
            ),
            f"{holder.name} is in a sleep at {sleep}{through}; such sleeps take {holder.share:.0%} "
            "of the time",
        ),
        cause=(
            f"The lock is held during the sleep at {sleep}. All others wait until that is over, "
            "also those that would not have to sleep themselves, so that one at a time gets "
            "through, at the pace of the slowest."
        ),
        advice=(
            "Find out under the lock how long to wait, release it, sleep without it, and then take "
            "it again to check; or give each key (a host, an account, a bucket) a lock of its own. "
            "Nothing is wrong if each of them would have to sleep as long (one limit for all). "
            "More threads or processes do not help."
        ),
    )


def _finding_of_work(holder: WorkingHolder) -> Finding:
    """Describe a lock of threads that is held while one of them works."""
    waiting, name = holder.waiting, called(holder.process)
    mean = sum(each.share for each in waiting) / len(waiting)
    work, inside = frame_words(holder.work), frame_words(holder.inside)
    through = "" if work == inside else f", called at {inside}"
    does, count = _work_words(holder.does), counted(len(waiting), "thread")
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=True,
        process=holder.process.process,
        subject=holder.place,
        summary=(
            f"{count} of {name} wait at least {mean:.0%} of the time for the lock of "
            f"{holder.place}, inside of which one thread at a time {does} at {work}"
        ),
        evidence=(
            *(
                f"thread {each.thread.name}: {each.share:.0%} of the time waiting for it"
                for each in waiting[:SHOWN]
            ),
            f"thread {holder.thread.name} has it and is at {work}{through}; at lines inside of it "
            f"one of them {does} at least {holder.share:.0%} of the time",
            f"together they do as much as {holder.together:.1f} threads would that never wait",
        ),
        cause=(
            f"{holder.place} takes the lock, and what takes long is inside: {work}{through}. The "
            "others wait until that is over, so the threads do one after the other what they were "
            "started to do beside each other."
        ),
        advice=(
            f"Do what takes long at {work} before {holder.place} or after its end, and hold the "
            "lock only for what reads or changes shared data: read what is needed, release the "
            "lock, work, and take it again to store the result. Where the lock keeps one thing "
            "from being made twice, have one lock for each key. More threads do not help. Nothing "
            "is wrong if it guards something that can do one thing at a time, such as a device or "
            "a connection: then more of these help, or several requests in one."
        ),
    )


def _work_words(activity: Activity) -> str:
    """What a holder does, as a verb."""
    if activity.kind in RUNNING_KINDS or activity.target == "core":
        return "computes"
    if activity.kind == "sleeping":
        return "sleeps"
    if activity.what == FUTURE_RESULT:
        return f"waits for {FUTURE_RESULT}"
    return {
        "socket": "waits for an answer by a socket",
        "file": "waits for a disk or file server",
        "page-faults": "waits for pages that are not in memory",
    }.get(activity.target, "waits for another program")


def _is_kept(index: Index, waiting: Sequence[Process]) -> bool:
    """Whether none of these processes gets turns any more: another one keeps the lock.

    Their shares are those of the last minute, when they may have worked.
    """
    return all((without_progress_s(each, index) or 0.0) >= KEPT_S for each in waiting)


def _has_one_holder(waits: Sequence[tuple[Process, _Wait]]) -> bool:
    """Whether always the same process had the lock, and not one of those that wait."""
    holders = frozenset[ProcessId]().union(*(wait.holders for _, wait in waits))
    return len(holders) == 1 and holders.isdisjoint(process.process for process, _ in waits)


def _one_holder(index: Index, lock: str, waits: Sequence[tuple[Process, _Wait]]) -> Process | None:
    """The process that had a database locked whenever the others waited; `None` if there is none.

    One process that does something for all under a lock file is as the program means it: only a
    database is there for all of them. What the holder itself waits for, rules for hangs name.
    """
    path = lock.removeprefix(LOCK_ON)
    if not lock.startswith(LOCK_ON) or not path.endswith(DATABASES) or not _has_one_holder(waits):
        return None
    holder = index.snapshot.get(next(iter(waits[0][1].holders), index.snapshot.root))
    if holder is None or holder.is_gone or sum(each.share for _, each in waits) < WARNED_SHARE:
        return None
    thread = main_thread(holder)
    wait = thread.waits_on if thread is not None else None
    is_asleep = wait is not None and wait.kind == "timer"
    return holder if is_asleep or not is_stalled(holder, index) else None


class _Holding(Struct, frozen=True):
    """Where the holder of a database is while it has the lock, as far as that is seen."""

    own: Sequence[Frame]
    """Its frames in the program, innermost first; empty where it does not have the lock now."""
    block: tuple[Frame, Statement] | None
    """The `with` statement around, which keeps the transaction open."""
    statement: Statement | None
    """What it runs of the database itself."""

    @property
    def place(self) -> str:
        """` at engine.py:56 checkpoint`, where the transaction is; empty where unknown."""
        if self.block is not None:
            return f" at {frame_words(self.block[0])}"
        return f" at {frame_words(self.own[-1])}" if self.own else ""

    def does(self, name: str) -> str:
        """What a process of this name does with the lock, as a sentence after a space."""
        if not self.own:
            return ""
        if self.statement is not None:
            return f" It runs `{self.statement.text}` there."
        block = self.block
        inside = f"is inside of `{block[1].text}` ({frame_words(block[0])})" if block else "has it"
        return (
            f" {name} {inside} and is busy with something else than the database there: "
            f"{frame_words(self.own[0])}."
        )


def _holding(index: Index, lock: str, holder: Process) -> _Holding:
    """Where the holder of a database is."""
    path, thread = lock.removeprefix(LOCK_ON), main_thread(holder)
    has_it = any(
        each.process == holder.process and each.lock.is_exclusive
        for file in (path, f"{path}-wal", f"{path}-shm", f"{path}-journal")
        for each in holders(index).get(file, ())
    )
    own = program_frames(thread.stack) if thread and has_it else []
    line = source_of(index, own[0]) if own else None
    is_statement = line is not None and USES_DATABASE.search(line.statement.text) is not None
    statement = line.statement if line is not None and is_statement else None
    return _Holding(own, _block(index, own), statement)


def _finding_of_holder(
    index: Index, lock: str, waits: Sequence[tuple[Process, _Wait]], holder: Process
) -> Finding:
    """A process that does something else while it has a database locked."""
    waiting, name = [process for process, _ in waits], called(holder)
    mean = sum(wait.share for _, wait in waits) / len(waits)
    holding = _holding(index, lock, holder)
    own = holding.own
    at = f": it is at {frame_words(own[0])}" if own else ""
    evidence = [
        f"{called(process)}: {wait.share:.0%} waiting for it at {wait.place}"
        for process, wait in waits[:SHOWN]
    ]
    if own:
        path_words = " <- ".join(map(frame_words, own[:SHOWN]))
        evidence.append(f"{name} has the lock now, and is at {path_words}")
    if words := doing_words(index, holder):
        evidence.append(f"{name}: {words}")
    verb = "waits" if len(waits) == 1 else "wait"
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if mean >= WARNED_SHARE and own else Severity.INFO,
        process=holder.process,
        others=tuple(each.process for each in waiting),
        subject=lock,
        summary=(
            f"{all_called(waiting)} {verb} {mean:.0%} of the time for {lock}, which {name} has "
            f"meanwhile{at}"
        ),
        evidence=tuple(evidence),
        cause=(
            "A transaction of SQLite that writes (BEGIN IMMEDIATE, or its first INSERT or UPDATE) "
            f"locks the whole database for all other writers until its commit.{holding.does(name)} "
            "The others can only wait for as long as that takes."
        ),
        advice=(
            "Write fewer rows in one transaction, or let one process write for all."
            if holding.statement is not None
            else f"Keep transactions short{holding.place}: do what takes time (files, archives, "
            "requests, sleeps) before the transaction begins or after its commit, with only the "
            "statements of the database inside. If a row has to be there first, commit it with a "
            "state of its own, and update it in a second short transaction. A longer timeout or "
            "journal_mode=WAL does not help: there is one writer at a time."
        ),
    )


_TRANSACTION = re.compile(
    r"^(?:async )?with .*(?:session|transaction|atomic|begin|connect|conn\b|cursor|lock|\bdb\b)",
    re.IGNORECASE,
)


def _block(index: Index, own: Sequence[Frame]) -> tuple[Frame, Statement] | None:
    """The innermost `with` statement of a transaction that a stack of the program is in."""
    for frame in own:
        line = source_of(index, frame)
        for statement in reversed(line.within if line is not None else ()):
            if _TRANSACTION.search(statement.text):
                return frame, statement
    return None


def _waits(index: Index, process: Process) -> Mapping[str, _Wait]:
    """The locks for which the main thread waits much of its time, as far as stacks show a lock."""
    total: defaultdict[str, float] = defaultdict(float)
    places: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    holders: defaultdict[str, set[ProcessId]] = defaultdict(set)
    sleeps: defaultdict[str, float] = defaultdict(float)
    queues = 0.0
    for activity, share in shares(index, process):
        if activity.kind == "sleeping":
            sleeps[activity.place] += share
        if activity.kind != "waiting":
            continue
        if activity.target == "queue":
            queues += share
        if activity.target == "lock" and activity.what.startswith((SEMAPHORE, LOCK_ON)):
            total[activity.what] += share
            if activity.what.startswith(LOCK_ON):
                holders[activity.what].update(activity.providers)
            if activity.place:
                places[activity.what][activity.place] += share
    found = {}
    for lock, share in total.items():
        if sum(places[lock].values()) < max(SEEN_SHARE, queues):
            continue
        # A lock on a file is tried again and again; its holder is not seen at each reading.
        slept = sum(map(sleeps.__getitem__, places[lock])) if lock.startswith(LOCK_ON) else 0.0
        if share + slept >= WAITS_SHARE:
            place = max(places[lock].items(), key=itemgetter(1))[0]
            found[lock] = _Wait(share + slept, place, frozenset(holders[lock]), slept)
    return found


class _Inside(Struct, frozen=True):
    """Work that a process does after the statement that took the lock, before it is released."""

    took: Statement
    """`with store.session() as session:`, or a call of acquire()."""
    frame: Frame
    """The function of `took`, at the line that leads to the work."""
    work: Frame
    """The innermost line of the program."""

    @property
    def taken(self) -> str:
        """``` `with self.lock:` at main.py:28 work ```."""
        return f"`{self.took.text}` at {frame_words(self.frame._replace(line=self.took.line))}"


def _inside(index: Index, waits: Sequence[tuple[Process, _Wait]]) -> _Inside | None:
    """Where the holder works, as far as present stacks show that it is inside of what others take.

    One process is at a line of a function that another one is behind: its `with` statement is
    around that one, or its call of acquire().
    """
    stacks = [(outermost_first(process), wait.place) for process, wait in waits]
    takers = [own for own, place in stacks if own and frame_words(own[-1]) == place]
    found = (_behind(index, own, taker) for own, _ in stacks for taker in takers if own)
    return next((each for each in found if each is not None), None)


def _behind(index: Index, own: Sequence[Frame], taker: Sequence[Frame]) -> _Inside | None:
    """What the last call that two stacks have in common shows of the one that does not wait."""
    for mine, its in zip(own, taker, strict=False):
        if (mine.file, mine.function) != (its.file, its.function):
            return None
        if mine.line == its.line:
            continue
        line, work = source_of(index, mine), source_of(index, own[-1])
        if line is None or (work is not None and USES_DATABASE.search(work.statement.text)):
            return None
        blocks = [each for each in line.within if each.text.startswith(("with ", "async with "))]
        took = next((each for each in (*blocks, *line.held) if each.line == its.line), None)
        return _Inside(took, mine, own[-1]) if took is not None else None
    return None


def _finding(
    index: Index, lock: str, waits: Sequence[tuple[Process, _Wait]], works: Sequence[float]
) -> Finding:
    """Describe the processes, their waits, and where they work meanwhile."""
    processes = [process for process, _ in waits]
    mean = sum(wait.share for _, wait in waits) / len(waits)
    name = _name(lock)
    is_database = lock.startswith(LOCK_ON) and lock.endswith(DATABASES)
    place, inside = work_place(index, processes), _inside(index, waits)
    at = f", at {place.words}" if place is not None else ""
    evidence = [
        f"{called(process)}: {wait.share:.0%} waiting for it at {wait.place}, {work:.0%} at work"
        for (process, wait), work in list(zip(waits, works, strict=True))[:SHOWN]
    ]
    if len(waits) > SHOWN:
        evidence.append(f"{len(waits) - SHOWN} more wait for it as much")
    evidence.append(
        f"together they work as much as {sum(works):.1f} processes would that never wait"
        f"{f'; most of it at {place.words}' if place is not None else ''}"
    )
    evidence.append(
        f"without these waits they would be at most {times_faster(mean)} as fast, if there are "
        "cores for all of them"
    )
    return Finding(
        rule=RULE,
        severity=_severity(index, waits, works),
        process=processes[0].process,
        others=tuple(each.process for each in processes[1:]),
        subject=lock,
        summary=(
            f"{counted(len(waits), 'process', 'processes')} wait {mean:.0%} of the time for "
            f"{name}: one of them works at a time{at}"
        ),
        evidence=tuple(evidence),
        cause=_cause(name, inside, is_database),
        advice=_advice(waits[0][1].place, inside, is_database),
    )


def _cause(name: str, inside: _Inside | None, is_database: bool) -> str:
    """Why the processes work one after the other.

    Args:
        name: The lock in words.
        inside: What is done while it is held, where that is seen.
        is_database: Whether it is that of a database.
    """
    held = f"They share {name} and hold it while they work, so they work one after the other."
    until = "until its commit is on the disk, however few rows it has"
    if inside is not None:
        calls, work = frame_words(inside.frame), frame_words(inside.work)
        through = "" if calls == work else f", called at {calls}"
        held += f" {inside.taken} takes it, and what takes long is inside: {work}{through}."
        until = "until its commit"
    if is_database:
        held += f" A transaction of SQLite that writes locks the whole file {until}."
    return f"{held} More processes do not make this faster."


def _advice(taken_at: str, inside: _Inside | None, is_database: bool) -> str:
    """What to do about it; see `_cause`, and the line at which most of them wait."""
    if inside is not None:
        only = "the statements of the database" if is_database else "what reads or changes that"
        no_help = ", a longer timeout or journal_mode=WAL do" if is_database else " do"
        return (
            f"Do what takes long at {frame_words(inside.work)} before {inside.taken} or after its "
            f"end, and hold the lock only for {only}: read what is needed, work without the lock, "
            f"and then take it to store the result. More processes{no_help} not help: only one of "
            "them has it at a time."
        )
    if is_database:
        return (
            "Commit once for many rows (a few hundred, or a whole task) instead of for each one at "
            f"{taken_at}; PRAGMA journal_mode=WAL makes a commit cheaper. Or send the rows to one "
            "process that writes them."
        )
    return (
        "Work without the lock, and take it only to read or change what is shared: look at what is "
        f"done after {taken_at}. Or give each process its own part of the data, and combine the "
        "parts at the end."
    )


def _severity(
    index: Index, waits: Sequence[tuple[Process, _Wait]], works: Sequence[float]
) -> Severity:
    """Information where the wait costs little, or where the holder of the lock mostly sleeps.

    A pause that a program makes while it has a lock is most often meant: a limit to a rate.
    """
    mean = sum(wait.share for _, wait in waits) / len(waits)
    slept = sum(
        each.share
        for process, _ in waits
        for each in shares(index, process)
        if each.activity.kind == "sleeping"
    ) - sum(wait.slept for _, wait in waits)
    is_costly = mean >= WARNED_SHARE and slept < sum(works) / 2
    return Severity.WARNING if is_costly else Severity.INFO


def _name(lock: str) -> str:
    """The lock in words."""
    if lock.startswith(LOCK_ON):
        return lock
    return f"one lock ({lock})"
