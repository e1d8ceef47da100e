"""Waits among the threads of one process, which no other process can end.

A lock, condition or queue of `threading` is a futex of its process alone. If every thread of the
process waits for one without a time limit, none of them is left to wake another.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, own_threads, user_frame
from mpwatch.diagnose.analysis.waits.edges import stands_for_s
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Thread

_WAKES_NOBODY = ("tqdm/_monitor.py:run",)
"""Threads that wake up now and then, and never end the wait of another thread."""
_HANDLED = sum(1 << (number - 1) for number in (1, 10, 12, 14, 15, 26, 27))
"""SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGVTALRM and SIGPROF in a mask of signals: those
whose handlers programs use to set an event. Python itself catches SIGINT in every program."""
SETTLED_S = 2.0
"""Threads are read one after the other: two that hand work to each other may both seem to wait."""
_PURPOSES: Sequence[tuple[tuple[str, ...], str]] = (
    (("threading.py:_shutdown",), "for the threads that have to end before the program can"),
    (("threading.py:join",), "for the end of another thread"),
    (("queue.py:get",), "for an item of a queue"),
    (("queue.py:put",), "for room in a full queue"),
    (("_base.py:result",), "for the result of a future"),
    (("_base.py:wait",), "for the results of futures"),
    (("_base.py:as_completed",), "for the results of futures"),
    (("threading.py:_wait", "threading.py:wait"), "at a barrier"),
    (("threading.py:wait",), "for an event or condition"),
)
"""What a thread waits for, by functions of the standard library on its stack (CPython 3.10 to
3.14), the first that is there."""


@derived
def threads_that_wait_for_each_other(index: Index, identity: ProcessId) -> tuple[Thread, ...]:
    """The Python threads of a process in which no thread is left to end the wait of another.

    Args:
        index: The snapshot.
        identity: The process.

    Returns:
        Nothing if a thread runs, has run within two seconds, waits with a time limit, waits for
        what comes from outside of the process (a pipe, a child), could not be read, or if a
        signal's handler may end the wait.
    """
    process = index.snapshot.get(identity)
    if process is None or not _is_complete(process):
        return ()
    own = own_threads(index, process)
    if not all(_waits_for_ever(each) or calls(each.stack, *_WAKES_NOBODY) for each in own):
        return ()
    main = main_thread(process)
    if main is None or not main.stack or _may_be_woken_by_a_signal(process, main):
        return ()
    return tuple(each for each in own if each.stack and not calls(each.stack, *_WAKES_NOBODY))


def _is_complete(process: Process) -> bool:
    """Whether all threads of a process were read."""
    count = process.sample.thread_count
    return count is not None and 0 < count <= len(process.threads)


def _waits_for_ever(thread: Thread) -> bool:
    wait = thread.waits_on
    if wait is None or wait.kind != "futex" or wait.timeout_s is not None:
        return False
    return (stands_for_s(thread) or 0.0) >= SETTLED_S


def _may_be_woken_by_a_signal(process: Process, main: Thread) -> bool:
    """Whether a handler may set the event that the main thread waits for.

    Handlers of Python run in the main thread; a server may wait like this for SIGTERM.
    """
    caught = process.sample.signals_caught
    waits_for_event = purpose(main) == "for an event or condition"
    return waits_for_event and (caught is None or bool(caught & _HANDLED))


def purpose(thread: Thread) -> str:
    """What a thread that waits for another thread waits for: `for an item of a queue`."""
    frames = own_frames(thread.stack)
    if calls(frames[:1], "concurrent/futures/thread.py:_worker"):
        return "for work, idle in its pool"
    return next((words for pattern, words in _PURPOSES if calls(frames, *pattern)), "for a lock")


def is_at_exit(thread: Thread) -> bool:
    """Whether the interpreter has come to its end and joins the threads that still run."""
    return calls(own_frames(thread.stack), "threading.py:_shutdown")


def sentence(process: Process, thread: Thread) -> str:
    """`thread loader_0 waits for an item of a queue at robot.py:20 serve`."""
    who = "the main thread" if thread.tid == process.pid else f"thread {thread.name}"
    frame = user_frame(thread.stack)
    where = f" at {frame_words(frame)}" if frame is not None else ""
    what = purpose(thread)
    return f"{who} waits {what}{where}"
