"""Locks between processes that no living process holds: the one that had it has ended.

The kernel does not know who has taken a semaphore, and whoever only maps one is no holder. But
`with lock:` is left by every way but the end of the process, so where every living process that
maps the semaphore is seen outside of such a block, none of them will release it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mpwatch.describe.frames import is_library, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import all_links
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES
from mpwatch.diagnose.analysis.source_code import source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, own_threads
from mpwatch.diagnose.analysis.waits.providers import (
    RECENT_S,
    is_of_this_wait,
    lock_holders,
    semaphore_uses,
)
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import FdLink, Frame
from mpwatch.model.snapshot import Process, Thread

UNHELD = ", which no living process is seen to hold"
"""End of the name of a wait for such a lock."""
LEFT_S = 10.0
"""Processes are read one after the other: a lock that changes hands may be seen with none."""
_ENTERS = "multiprocessing/synchronize.py:__enter__"
_MAY_BE_A_LOCK = re.compile(r"with [^(]+:$|lock|sem|mutex", re.IGNORECASE)
"""A header of `with` that takes what exists already; `with open(path) as file:` makes its own."""
_PAIR = 8
"""The inodes of the two pipes that `Popen` makes for a child lie next to each other."""


@derived
def is_left(index: Index, segment: SegmentId, users: tuple[ProcessId, ...]) -> bool:
    """Whether no living process holds a lock for which others wait, as far as stacks show it.

    Args:
        index: The snapshot.
        segment: The semaphore.
        users: All processes that map it.
    """
    if segment in lock_holders(index):
        return False
    uses = semaphore_uses(index)
    living = [each for each in map(index.snapshot.get, users) if each and not each.is_gone]
    waiting = [each for each in living if uses[each.process].segment == segment]
    others = [each for each in living if each not in waiting and each.role not in SERVICE_ROLES]
    return (
        bool(waiting)
        and all(_has_waited(index, each) for each in waiting)
        and all(is_seen_outside(index, each.process) for each in others)
    )


def _has_waited(index: Index, process: Process) -> bool:
    """Whether it has been about to enter one `with lock:` of the program for some time."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    if thread is None or wait is None or wait.value or wait.timeout_s is not None:
        return False
    frames = own_frames(thread.stack)
    if not calls(frames[:1], _ENTERS) or len(frames) < 2 or is_library(frames[1]):
        return False
    times = [each for each in (thread.still_s, thread.waits_s) if each is not None]
    has_waited = bool(times) and min(times) >= LEFT_S and is_of_this_wait(thread)
    return has_waited and all(_is_outside(index, frame) for frame in frames[2:])


@derived
def is_seen_outside(index: Index, identity: ProcessId) -> bool:
    """Whether no thread of a process is inside of a block that may hold a lock, by its source."""
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    if process is None or main is None or not main.stack or main.state == "R":
        return False
    return all(
        not thread.stack
        or (_is_new(thread) and all(_is_outside(index, each) for each in own_frames(thread.stack)))
        for thread in own_threads(index, process)
    )


def _is_new(thread: Thread) -> bool:
    """Whether a stack shows where a thread is now."""
    return is_of_this_wait(thread) or (thread.stack_age_s or 0.0) <= RECENT_S


def _is_outside(index: Index, frame: Frame) -> bool:
    """Whether a frame is a library's, or at a line around which no lock is taken by `with`."""
    if is_library(frame):
        return True
    line = source_of(index, frame)
    return line is not None and not any(
        each.text.startswith(("with ", "async with ")) and _MAY_BE_A_LOCK.search(each.text)
        for each in line.within
    )


@derived
def ended_children(index: Index, parent: ProcessId) -> int:
    """How many children of multiprocessing have ended of which a parent has kept the objects.

    For each child its parent has the reading end of one pipe (the sentinel) and the writing end of
    another, and the child alone has the other ends: `Popen._launch` of CPython 3.10 to 3.15, fork
    and spawn. 0 where descriptors could not be read.
    """
    held = all_links(index)
    living = [each for each in index.snapshot.living() if each.sample.state != "Z"]
    if parent not in held or any(each.process not in held for each in living):
        return 0
    readers = {link.inode for link in _ends(held.values()) if link.is_writable is False}
    writers = {link.inode for link in _ends(held.values()) if link.is_writable is True}
    own = sorted(_ends([held[parent]]), key=lambda each: each.fd)
    sentinels = [each for each in own if each.is_writable is False and each.inode not in writers]
    watched = [each for each in own if each.is_writable is True and each.inode not in readers]
    return sum(any(_is_pair(sentinel, each) for each in watched) for sentinel in sentinels)


def _ends(held: Iterable[Sequence[FdLink]]) -> list[FdLink]:
    return [link for links in held for link in links if link.kind == "pipe"]


def _is_pair(sentinel: FdLink, watched: FdLink) -> bool:
    """Whether two ends were made one after the other, in this order."""
    apart = (watched.inode or 0) - (sentinel.inode or 0)
    return 0 < apart <= _PAIR and watched.fd > sentinel.fd
