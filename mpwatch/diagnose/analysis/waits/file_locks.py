"""Which processes hold locks on files, wait for them, or try to take them again and again.

The kernel shows a process that is blocked in flock(2) or fcntl(2). Most programs do not block:
they try, sleep, and try again. Such a process has the file open and holds no lock on it, another
process holds one, and its stack says that it takes a lock; or the file is a database of SQLite,
which sleeps by itself between its attempts, inside of a statement that uses the database.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct

from mpwatch.describe.frames import is_library, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import HeldLock
from mpwatch.model.snapshot import Process, Thread

LOCK_ON = "the lock on "
"""Begins the name of the wait for a lock on a file whose path is known."""
LOCK_FILE = "a lock file"
"""Begins the name of a wait in the package filelock, which clients of model hubs use, or in torch's
`FileBaton` (torch 2.13), by which one process builds an extension for all."""
LIKELY = ", likely "
"""Precedes a path that is inferred from the locks that other processes hold."""

_FILELOCK = "filelock/_api.py:acquire"
_SLEEP_LIMIT_S = 10.0
"""A program that sleeps longer than this does not poll for a lock."""
_DATABASE_SLEEP_S = 0.11
"""SQLite sleeps at most 100 ms between two attempts (sqliteDefaultBusyCallback)."""
DATABASES = (".db", ".sqlite", ".sqlite3")
"""Ends of the names of SQLite's files."""
_DATABASES = (*DATABASES, "-wal", "-shm", "-journal")
TAKES = re.compile(r"acquire|(?<!c)(?<!b)(?<!un)lock")
"""In the name of a function or file that takes a lock; not in `clock`, `block`, or `unlock`."""
USES_DATABASE = re.compile(r"\.(?:execute\w*|commit|fetch\w+|backup|iterdump)\(")
"""In a statement of the program that calls sqlite3, and does not sleep by itself."""
_COMMITS_AT_END = re.compile(r"(?:async )?with ")
"""`with connection:` commits at its end, where a stack shows this line again."""
_PAUSES = re.compile(r"sleep|pause|wait")
"""In the name of a function of a library that sleeps for its caller."""


class Holder(Struct, frozen=True):
    """A process that holds a lock on a file."""

    process: ProcessId
    lock: HeldLock


@derived
def holders(index: Index) -> Mapping[str, tuple[Holder, ...]]:
    """The living processes that hold a lock on each file, by its path."""
    found: defaultdict[str, list[Holder]] = defaultdict(list)
    for process in index.snapshot.living():
        fds = process.sample.fds
        for lock in fds.locks if fds is not None else ():
            found[lock.path].append(Holder(process.process, lock))
    return {path: tuple(each) for path, each in found.items()}


def holders_for(index: Index, process: Process, path: str) -> tuple[ProcessId, ...]:
    """The other processes that hold a lock on a file; those with an exclusive one, if any has."""
    others = [each for each in holders(index).get(path, ()) if each.process != process.process]
    exclusive = [each for each in others if each.lock.is_exclusive]
    return tuple(dict.fromkeys(each.process for each in exclusive or others))


def holds_it_itself(index: Index, process: Process, path: str) -> bool:
    """Whether a process holds a lock of flock(2) on a file, by another descriptor of it."""
    return any(
        each.process == process.process and each.lock.call == "flock"
        for each in holders(index).get(path, ())
    )


def retried_lock(index: Index, process: Process, thread: Thread) -> tuple[str, str] | None:
    """The lock that a sleeping thread tries to take again and again.

    Returns:
        The name of the wait, and the path of the file; `None` where nothing shows such a lock.
    """
    wait = thread.waits_on
    if wait is None or wait.kind != "timer" or process.sample.fds is None:
        return None
    held = holders(index)
    if not held:
        return None
    if wait.timeout_s is not None and wait.timeout_s > _SLEEP_LIMIT_S:
        return None
    takes = _takes_a_lock(thread)
    is_short = (
        wait.timeout_s is not None
        and wait.timeout_s <= _DATABASE_SLEEP_S
        and _uses_database(index, thread)
    )
    for path in dict.fromkeys(link.target for link in process.sample.links):
        if path not in held:
            continue
        is_tried = takes and not _has_lock(index, process, path)
        if is_tried or (is_short and _is_locked_database(index, process, path)):
            return f"{LOCK_ON}{_database(path)}", path
    if not calls(own_frames(thread.stack), _FILELOCK):
        return None
    # That package opens the file for each attempt.
    paths = [path for path in held if holders_for(index, process, path) and path.endswith("lock")]
    return (f"{LOCK_FILE}{LIKELY}{paths[0]}", paths[0]) if len(paths) == 1 else None


def _takes_a_lock(thread: Thread) -> bool:
    """Whether the innermost function of a stack that sleeps takes a lock, by its name."""
    frames = own_frames(thread.stack)
    for frame in frames:
        words = f"{frame.function} {frame.file.rpartition('/')[2]}".lower()
        if TAKES.search(words):
            return True
        if not is_library(frame):
            return False
    return False


def _uses_database(index: Index, thread: Thread) -> bool:
    """Whether a sleep may be SQLite's own, by the innermost line of a stack.

    A forked process has the database of its parent open, whatever it sleeps for. What a line of the
    program does is known from its source only.
    """
    frame = next(iter(own_frames(thread.stack)), None)
    if frame is None:
        return False
    if is_library(frame):
        return not _PAUSES.search(frame.function.lower())
    line = source_of(index, frame)
    text = line.statement.text if line is not None else ""
    return bool(USES_DATABASE.search(text) or _COMMITS_AT_END.match(text))


def _has_lock(index: Index, process: Process, path: str) -> bool:
    return any(each.process == process.process for each in holders(index)[path])


def _is_locked_database(index: Index, process: Process, path: str) -> bool:
    """Whether a file is SQLite's, and another process alone has an exclusive lock on part of it.

    A connection that reads has a shared lock all the time.
    """
    exclusive = {
        each.process
        for each in holders(index)[path]
        if each.lock.call == "fcntl" and each.lock.is_exclusive
    }
    return path.endswith(_DATABASES) and bool(exclusive) and process.process not in exclusive


def is_database(index: Index, path: str) -> bool:
    """Whether the locks held on a file are those of SQLite."""
    files = (path, f"{path}-shm", f"{path}-wal", f"{path}-journal")
    return path.endswith(DATABASES) and any(
        each.lock.call == "fcntl" for file in files for each in holders(index).get(file, ())
    )


def _database(path: str) -> str:
    """The path of the database that one of SQLite's files belongs to."""
    for ending in ("-wal", "-shm", "-journal"):
        path = path.removesuffix(ending)
    return path


def inherited_lock(index: Index, path: str, holder: ProcessId) -> str | None:
    """What to say of a lock that a process holds by a descriptor it has inherited.

    Returns:
        A sentence; `None` where it took the lock itself, or that is unknown.
    """
    lock = next(
        (each.lock for each in holders(index).get(path, ()) if each.process == holder), None
    )
    process = index.snapshot.get(holder)
    if lock is None or process is None or lock.call != "flock" or lock.pid in (None, holder.pid):
        return None
    taker = next((p for p in index.snapshot.processes if p.pid == lock.pid), None)
    name = called(taker) if taker is not None else f"process {lock.pid}"
    still = taker is not None and any(
        each.process == taker.process for each in holders(index).get(path, ())
    )
    closed = (
        "holds it as well"
        if still
        else "has ended"
        if taker is None or taker.is_gone
        else "has closed its own descriptor since, which does not release the lock"
    )
    return (
        f"{name} took this lock with flock() and {closed}. {called(process)} has inherited the open"
        " file, and the lock stays until the last copy of the descriptor is closed."
    )


def has_open(process: Process, path: str) -> bool:
    """Whether a process has a descriptor of a file."""
    return any(link.target == path for link in process.sample.links)
