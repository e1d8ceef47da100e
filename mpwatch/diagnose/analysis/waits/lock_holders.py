"""Which thread of a process holds the lock that other threads of it wait for, as stacks show it.

The kernel does not know who holds a lock of `threading`: such a lock is a futex without an owner.
A thread that is further down in the function in which another one waits has passed the line that
takes the lock, as in `with lock:` followed by a wait or a loop.
"""

from __future__ import annotations

from typing import NamedTuple

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, own_threads, user_frame
from mpwatch.diagnose.analysis.waits.providers import is_of_this_wait
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.waits import SETTLED_S

_RESTS = ("threading.py:join", "threading.py:_shutdown", "threading.py:wait", "signal.py:")
"""Functions in which the main thread of a server waits while its threads do the work."""


class HeldLock(NamedTuple):
    """A lock of `threading` for which threads of one process wait, and the thread that has it."""

    waiters: tuple[Thread, ...]
    """At least one: threads that have waited without a time limit, at the same line."""
    holder: Thread
    """The thread that is further down in the function in which they wait."""


@derived
def held_lock(index: Index, identity: ProcessId) -> HeldLock | None:
    """The lock that keeps a process from answering others.

    Returns:
        `None` where the main thread is busy with something else than the lock or its threads, where
        no thread waits for a lock, or where the stacks do not show one thread that holds it.
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    if process is None or main is None:
        return None
    own = own_threads(index, process)
    waiting = [each for each in own if waits_for_lock(each)]
    if not waiting or not (main in waiting or _leaves_work_to_threads(main)):
        return None
    first = main if main in waiting else waiting[0]
    place = user_frame(first.stack)
    holders = [each for each in own if each is not first and _is_past(each, first)]
    if place is None or len(holders) != 1:
        return None
    return HeldLock(tuple(t for t in waiting if user_frame(t.stack) == place), holders[0])


def waits_for_lock(thread: Thread) -> bool:
    """Whether a thread has waited for some time to take a lock in a line of the program.

    A lock is taken in C; a queue, an event or a future has frames of the library above the line.
    """
    wait, own = thread.waits_on, own_frames(thread.stack)
    if wait is None or wait.kind != "futex" or wait.timeout_s is not None or not own:
        return False
    if is_library(own[0]) or not is_of_this_wait(thread):
        return False
    return min(thread.still_s or 0.0, thread.waits_s or SETTLED_S) >= SETTLED_S


def _leaves_work_to_threads(main: Thread) -> bool:
    """Whether a main thread waits for clients, a signal or its threads, and answers nobody."""
    wait = main.waits_on
    if wait is None:
        return False
    if wait.kind in ("accept", "signal"):
        return True
    return wait.kind == "futex" and any(calls(own_frames(main.stack), each) for each in _RESTS)


def _is_past(thread: Thread, waiter: Thread) -> bool:
    """Whether a thread is in the function in which another one waits, at a later line."""
    place = user_frame(waiter.stack)
    if place is None or not _is_new(thread):
        return False
    return any(
        (frame.file, frame.function) == (place.file, place.function) and frame.line > place.line
        for frame in own_frames(thread.stack)
    )


def _is_new(thread: Thread) -> bool:
    """Whether a stack shows where a thread is: a loop that sleeps at one line stays there."""
    is_asleep = thread.waits_on is not None and thread.waits_on.kind == "timer"
    return bool(thread.stack) and (is_asleep or is_of_this_wait(thread))


def words_of(process: Process, lock: HeldLock) -> str:
    """`its thread serve-2, with the lock for which 2 threads wait at replay.py:22 serve`."""
    count, frame = len(lock.waiters), user_frame(lock.waiters[0].stack)
    at = "" if frame is None else f" at {frame_words(frame)}"
    if lock.waiters[0].tid == process.pid:
        those = "the main thread waits"
    else:
        those = f"{count} threads wait" if count > 1 else "another thread waits"
    return f"{thread_words(process, lock.holder)}, likely with the lock for which {those}{at}"


def thread_words(process: Process, thread: Thread) -> str:
    """`the main thread`, `its thread serve-2`."""
    return "the main thread" if thread.tid == process.pid else f"its thread {thread.name}"
