"""Locks on files, and lock files, that a process has left behind and others wait for.

The function that takes a lock releases it: a holder that is no longer in that function has left it
by an exception or a return that skips the release.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, user_frame
from mpwatch.diagnose.analysis.waits.file_locks import TAKES
from mpwatch.diagnose.analysis.waits.verdicts import where
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread

_LOCK_NAME = re.compile(r"(^|[._-])lock$|\.lck$")
_HELPS = re.compile(rf"{TAKES.pattern}|begin|enter|transaction|connect|execute")
"""In the name of a function that may leave a lock taken by design."""


class KeptFile(NamedTuple):
    """A lock file that a process has open: it made the file, and others wait for its removal."""

    process: Process
    path: str


def kept_lock_file(poller: Process, waiters: Sequence[Process]) -> KeptFile | None:
    """A file with the name of a lock that a process has open which waits for one that polls.

    No lock of the kernel is on it: that it exists is the lock.
    """
    for waiter in waiters:
        fds = waiter.sample.fds
        locked = {lock.path for lock in fds.locks} if fds is not None else set()
        for link in (fds.links or ()) if fds is not None else ():
            is_lock = _LOCK_NAME.search(link.target.rpartition("/")[2].lower()) is not None
            is_kept = link.kind == "file" and is_lock and link.target not in locked
            if is_kept and not _has_open(poller, link.target):
                return KeptFile(waiter, link.target)
    return None


def _has_open(process: Process, path: str) -> bool:
    fds = process.sample.fds
    return fds is not None and any(link.target == path for link in fds.links or ())


def left_function(holder: Process, waiters: Sequence[Process]) -> Frame | None:
    """The line at which processes wait for a lock, if its holder is not in that function now.

    Returns:
        `None` where they wait in different functions, where the holder is in that one as well, or
        where a stack is not known: then the holder may be in the part that the lock is for.
    """
    places = [
        _takes_it_at(own_frames(main.stack)) for each in waiters if (main := main_thread(each))
    ]
    main = main_thread(holder)
    inside = own_frames(main.stack) if main is not None else ()
    first = places[0] if places else None
    if first is None or user_frame(inside) is None:
        return None
    function = (first.file, first.function)
    if any(each is None or (each.file, each.function) != function for each in places):
        return None
    return None if function in ((each.file, each.function) for each in inside) else first


def _takes_it_at(frames: Sequence[Frame]) -> Frame | None:
    """The innermost line of the program that is no helper which returns with the lock.

    Helpers are known by their name, or as what a context manager runs on entry.
    """
    for place, frame in enumerate(frames):
        if is_library(frame) or _HELPS.search(frame.function.lower()):
            continue
        if not calls(frames[place + 1 : place + 2], "contextlib.py:__enter__"):
            return frame
    return None


def cause_of_kept_file(poller: Process, now: str, kept: KeptFile) -> str:
    """That a process has left a lock file behind and waits for one that waits for its removal."""
    end, keeper = called(poller), called(kept.process)
    return (
        f"{keeper} has the lock file {kept.path} open, so it has made the file. It has gone on "
        f"without removing it and waits{where(kept.process).replace(', ', ' at ', 1)}, while {end} "
        f"{now}. If that loop waits until the file is gone, each waits for the "
        "other. A lock file stays where the lines that remove it are skipped: by an exception in "
        "the work that it guards, also one that a caller catches and only logs."
    )


def advice_of_kept_file(thread: Thread | None, kept: KeptFile) -> str:
    """Where a lock file has to be removed."""
    frames = own_frames(thread.stack) if thread is not None else ()
    mine = [frame for frame in frames if not is_library(frame)]
    caller = f", in {mine[1].function}() ({frame_words(mine[1])})" if len(mine) > 1 else ""
    limit = (
        f" Give the loop at {frame_words(mine[0])} a limit after which it raises." if mine else ""
    )
    return (
        f"Remove {kept.path.rpartition('/')[2]} in a finally block around the work that it "
        f"guards{caller}, and let an error of that work end the process. Or use fcntl.flock() (or "
        f"the package filelock), whose lock ends with the process that has it.{limit}"
    )


def cause_of_left_lock(
    holder: Process, now: str, path: str, taken: Frame, *, is_database: bool
) -> str:
    """That a process has a lock and is no longer where the others take it."""
    end = called(holder)
    if is_database:
        return (
            f"{end} has begun a transaction that writes to {path} and has not ended it. It {now}, "
            f"outside of {taken.function}(), in which the others wait to begin theirs. So most "
            "likely the transaction was left open: an exception or a return between BEGIN and "
            "COMMIT skips the COMMIT, and where a caller catches the exception, nothing shows it."
        )
    return (
        f"{end} has the lock on {path}, and {now}, outside of {taken.function}(), in which the "
        "others wait to take it. It has most likely left that function without releasing the lock: "
        "an exception or a return skips the line that would."
    )


def advice_of_left_lock(holder: Process, taken: Frame, *, is_database: bool) -> str:
    """Where a lock has to be released that was left behind."""
    end, place = called(holder), where(holder).removeprefix(", ")
    if is_database:
        return (
            f"End the transaction on every way out of {taken.function}() ({frame_words(taken)}): "
            "with connection: around its lines commits at their end and rolls back on an "
            "exception; or call rollback() in an except or finally block before anything is "
            f"raised. If {end} is meant to have a transaction open at {place}, commit before that "
            "line."
        )
    return (
        f"Release the lock on every way out of {taken.function}() ({frame_words(taken)}), in a "
        f"with or finally block. If {end} is meant to have it at {place}, do that part outside of "
        "the lock."
    )
