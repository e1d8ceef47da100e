"""Which process most likely has the lock that others wait for, and what it does meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.describe.waits import SEMAPHORE
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.kept_locks import (
    KeptFile,
    advice_of_left_lock,
    cause_of_left_lock,
    kept_lock_file,
    left_function,
)
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.source.lines import are_of_one_function, source_of
from mpwatch.diagnose.analysis.source.loops import is_until_told
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.diagnose.analysis.stalls.at_work import does, others_continue, place_of, rest_of_sleep
from mpwatch.diagnose.analysis.waits.blockages import Blockage
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.edges import semaphore_users
from mpwatch.diagnose.analysis.waits.file_locks import (
    LIKELY,
    LOCK_FILE,
    LOCK_ON,
    inherited_lock,
    is_database,
)
from mpwatch.diagnose.analysis.waits.providers import (
    ThreadLock,
    is_seen_outside,
    is_seen_to_hold,
    semaphore_uses,
    thread_words,
)
from mpwatch.diagnose.analysis.waits.verdicts import where
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Statement
from mpwatch.model.waits import WaitEdge

SHOWN_THREADS = 3


def kept_file_of(blockage: Blockage) -> KeptFile | None:
    """The lock file for whose removal a process likely polls, kept by one that waits for it."""
    if blockage.reason not in ("polls", "sleeps"):
        return None
    return kept_lock_file(blockage.process, blockage.waiters)


def locked_path(blockage: Blockage) -> str | None:
    """The path of the file whose lock leads to the last process; `None` for other waits."""
    what = blockage.edge.what if blockage.edge is not None else ""
    likely = f"{LOCK_FILE}{LIKELY}"
    prefix = next((each for each in (LOCK_ON, likely) if what.startswith(each)), None)
    return None if prefix is None else what.removeprefix(prefix)


def _wait_for_it(index: Index, blockage: Blockage) -> list[Process]:
    """Those of the processes that wait which wait for the lock itself."""
    what = blockage.edge.what if blockage.edge is not None else ""
    waiting = {edge.waiter for edge in wait_graph(index).edges if edge.what == what}
    return [each for each in blockage.waiters if each.process in waiting]


def _waits_for_itself(index: Index, blockage: Blockage, path: str) -> bool:
    """Whether the holder of a database's lock sleeps where the others try to get it."""
    if blockage.reason not in ("sleeps", "polls") or not is_database(index, path):
        return False
    place = where(blockage.process)
    return bool(place) and any(where(each) == place for each in blockage.waiters)


def is_held_unseen(index: Index, blockage: Blockage) -> bool:
    """Whether processes wait for a lock of multiprocessing whose holder nothing shows.

    The last process of the chain has the semaphore open, as all have that were started with it.
    """
    edge = blockage.edge
    if edge is None or edge.kind != "semaphore" or not edge.what.startswith(SEMAPHORE):
        return False
    segment = _segment(index, edge)
    end = blockage.process.process
    return segment is not None and not is_seen_to_hold(index, edge.waiter, end, segment)


def is_held_lock(index: Index, blockage: Blockage) -> bool:
    """Whether processes wait for a lock of multiprocessing that the last one is seen to hold."""
    edge = blockage.edge
    if edge is None or edge.kind != "semaphore" or not edge.what.startswith(SEMAPHORE):
        return False
    segment = _segment(index, edge)
    end = blockage.process.process
    return segment is not None and is_seen_to_hold(index, edge.waiter, end, segment)


def is_only_user(index: Index, blockage: Blockage) -> bool:
    """Whether of all that had a semaphore, only the last process can be the one that has it now."""
    edge = blockage.edge
    segment = _segment(index, edge) if edge is not None else None
    if edge is None or segment is None or ended_users(index, edge):
        return False
    if is_seen_outside(index, blockage.process.process):
        return False
    if any(
        each.ended is not None and not each.sample.segments for each in index.snapshot.processes
    ):
        return False  # what it had was not read
    uses = semaphore_uses(index)
    others = [
        user
        for user in semaphore_users(index).get(segment, ())
        if user != blockage.process.process
        and (process := index.snapshot.get(user)) is not None
        and process.role not in SERVICE_ROLES
    ]
    return all(uses[each].segment == segment or uses[each].joins for each in others)


def _segment(index: Index, edge: WaitEdge) -> SegmentId | None:
    """The semaphore that a wait is for."""
    waiter = index.snapshot.get(edge.waiter)
    thread = next((t for t in waiter.threads if t.tid == edge.tid), None) if waiter else None
    return thread.waits_on.segment if thread is not None and thread.waits_on is not None else None


def ended_users(index: Index, edge: WaitEdge) -> list[str]:
    """The processes that have ended and had the semaphore of a wait, with how they ended."""
    segment = _segment(index, edge)
    return [
        f"{called(process)} ({process.ended.words})"
        for process in index.snapshot.processes
        if process.ended is not None
        and any(use.segment == segment for use in process.sample.segments or ())
    ]


def cause_of_file_lock(index: Index, blockage: Blockage, path: str) -> str:
    """Which process has the lock on a file, and how it came by it."""
    end = called(blockage.process)
    held = inherited_lock(index, path, blockage.process.process)
    if held is None and _waits_for_itself(index, blockage, path):
        return (
            f"{end} holds the lock on {path}, and is at the same line as the processes that "
            "wait for it: likely it waits for its own lock, by a second connection to the "
            "database. A transaction of SQLite belongs to one connection, not to the process."
        )
    place = left_function(blockage.process, _wait_for_it(index, blockage))
    if held is None and place is not None:
        return cause_of_left_lock(
            blockage.process, place_of(blockage), path, place, is_database=is_database(index, path)
        )
    left = rest_of_sleep(blockage.thread) if blockage.reason == "sleeps" else ""
    is_plain = held is None and not is_database(index, path)
    kept = _kept_for_a_loop(index, blockage) if is_plain else None
    if kept is not None:
        waiting = _wait_for_it(index, blockage)
        return (
            f"{end} has taken the lock on {path} before the loop `{kept.loop.text}` of line "
            f"{kept.loop.line} in {kept.taken.function}() and keeps it through all rounds of that "
            f"loop. Now it {does(blockage)}{left}. {all_called(waiting)} came to the line that "
            f"takes it ({frame_words(kept.taken)}) later, and {_gets(waiting)} no further until "
            f"that loop has ended or {end} has exited."
        )
    return held or f"{end} holds the lock on {path} while it {does(blockage)}{left}."


def _gets(waiting: Sequence[Process]) -> str:
    return "gets" if len(waiting) == 1 else "get"


class _KeptForLoop(Struct, frozen=True):
    """A lock that its holder keeps for all rounds of a loop."""

    taken: Frame
    """Where another process waits to take it, in the function with the loop."""
    loop: Statement
    """Its header, which comes later in that function."""
    is_endless: bool
    """Whether nothing ends it from within, as far as its source shows."""


def _kept_for_a_loop(index: Index, blockage: Blockage) -> _KeptForLoop | None:
    """The loop that the holder of a lock is in, in the function in which others wait to take it.

    Their line is before the loop, so the holder was there once and has had the lock since. So does
    the active one of two processes of which the other one is a standby.
    """
    if blockage.reason not in ("computes", "polls", "sleeps"):
        return None
    waiting = tuple(each.process for each in _wait_for_it(index, blockage))
    return _loop_after_lock(index, blockage.process.process, waiting)


@derived
def _loop_after_lock(
    index: Index, holding: ProcessId, others: tuple[ProcessId, ...]
) -> _KeptForLoop | None:
    """See `_kept_for_a_loop`; severity, cause and advice of one finding ask it."""
    holder = index.snapshot.get(holding)
    holder_thread = main_thread(holder) if holder is not None else None
    found = (index.snapshot.get(each) for each in others)
    waiting = [thread for each in found if each is not None and (thread := main_thread(each))]
    if holder_thread is None or not waiting:
        return None
    theirs = [program_frames(thread.stack) for thread in waiting]
    first = [each for each in theirs[0] if source_of(index, each) is not None]
    for frame in program_frames(holder_thread.stack):
        taken = next((each for each in first if are_of_one_function(index, each, frame)), None)
        if taken is None or any(taken not in each for each in theirs[1:]):
            continue
        line = source_of(index, frame)
        if line is None:
            continue
        after = [each for each in line.within if each.line > taken.line]
        if after and (loop := after[0]).text.startswith(("for ", "while ")):
            is_retaken = any(each.text.startswith("with ") for each in after[1:])
            is_retaken |= any(each.line > loop.line for each in line.held)
            endless = line.endless
            is_endless = endless is not None and endless.header == loop and not endless.ends
            return None if is_retaken else _KeptForLoop(taken, loop, is_endless)
    return None


def may_have_standby(index: Index, blockage: Blockage) -> bool:
    """Whether the holder of a lock on a file keeps it while it works until it is told to end.

    One that waits for that lock is meant to wait so long, or no other one is to work at all.
    """
    kept = _kept_for_a_loop(index, blockage)
    return kept is not None and (kept.is_endless or is_until_told(kept.loop.text))


def advice_of_file_lock(index: Index, blockage: Blockage, path: str) -> str:
    """What to change where processes wait for the lock on a file."""
    if inherited_lock(index, path, blockage.process.process) is not None:
        return _ADVICE_HEIR
    if _waits_for_itself(index, blockage, path):
        return _ADVICE_OWN_DATABASE
    left = left_function(blockage.process, _wait_for_it(index, blockage))
    if left is not None:
        return advice_of_left_lock(blockage.process, left, is_database=is_database(index, path))
    kept = None if is_database(index, path) else _kept_for_a_loop(index, blockage)
    if kept is not None:
        end, waiting = called(blockage.process), _wait_for_it(index, blockage)
        others, stands = all_called(waiting), "is" if len(waiting) == 1 else "are"
        return (
            f"Nothing is wrong if {others} {stands} to stand by and take over when {end} ends: the "
            "kernel releases such a lock when the process that has it exits, also when it is "
            "killed. Then a limit for the wait, or ending the process that waits, only takes the "
            "standby away. If they are to work at the same time, take the lock in each round, "
            f"only around what they share. If {end} waits in that loop for something that {others} "
            f"{stands} to do, none of them gets on: that has to be done before the lock is taken."
        )
    return _ADVICE_DATABASE if is_database(index, path) else ADVICE_HELD


def cause_of_unseen_holder(index: Index, blockage: Blockage) -> str:
    """Which process may hold a lock of multiprocessing whose holder nothing shows."""
    end = called(blockage.process)
    if is_only_user(index, blockage):
        return (
            f"{end} is the only living process that has this lock and neither waits for it nor "
            "joins one that does, and no process that had it is known to have ended. So it holds "
            f"the lock while it {does(blockage)}, or is the one that has to release it."
        )
    return (
        f"The kernel does not show which process holds such a lock. If {end} does not hold it at "
        "that line, a process that has ended took it and did not release it: a lock of "
        "multiprocessing stays locked when its holder is killed, and the others wait for ever."
    )


def cause_of_lock(blockage: Blockage, lock: ThreadLock) -> str:
    """Which thread keeps others of its process from their work."""
    process, count = blockage.process, len(lock.waiters)
    holder = thread_words(process, lock.holder)
    names = ", ".join(each.name for each in lock.waiters[:SHOWN_THREADS])
    those = f"{count} threads ({names})" if count > 1 else thread_words(process, lock.waiters[0])
    wait = "wait" if count > 1 else "waits"
    return (
        f"In {called(process)}, {holder} is further down in the function in which {those} {wait} "
        "to take a lock, so likely it has that lock. Until it is released, none of them "
        f"gets on with its work. {others_continue(blockage)}".strip()
    )


_ADVICE_HEIR = (
    "Unlock the file before it is closed (fcntl.flock(fd, fcntl.LOCK_UN)): that releases the lock "
    "for all copies of the descriptor. Or start the child before the lock is taken, or close the "
    "descriptor in the child."
)
_ADVICE_DATABASE = (
    "Commit or roll back before the slow part, so that a transaction that writes is short; the "
    "others raise 'database is locked' when the timeout of their connection is over."
)
_ADVICE_OWN_DATABASE = (
    "Use the connection that began the transaction for everything inside of it, or commit before "
    "a function is called that opens a connection of its own."
)
ADVICE_HELD = (
    "Look at the line where the holder is: do the slow part outside of the lock, and release the "
    "lock in a finally or a with block. Give the attempts of the others a limit, after which they "
    "raise."
)
ADVICE_UNSEEN = (
    "Look whether a process that uses this lock was killed (terminate(), kill(), a watchdog, the "
    "kernel for memory). End such processes by a message or an event instead, or let the others "
    "acquire with a timeout. With the hook (mpwatch run) the holder is known."
)
ADVICE_INSIDE_LOCK = (
    "Do not wait while a lock is held: if what the thread waits for comes from a thread that needs "
    "the lock, neither continues. threading.Condition.wait_for() releases its lock meanwhile; or "
    "wait first and take the lock for the change only."
)
