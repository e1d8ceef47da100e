"""Main threads that join the threads of a thread pool at an end, and which of these still run.

At the end of `with ThreadPoolExecutor()`, in its shutdown(), and before Python exits, a main thread
joins them itself. asyncio.run does so by a thread of its own, `_do_shutdown`, and its main thread
waits in the event loop (CPython 3.10 to 3.14).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal, NamedTuple, TypeAlias

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, runs_event_loop
from mpwatch.diagnose.analysis.waits.edges import is_busy
from mpwatch.diagnose.analysis.waits.futures import POOL_THREAD
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Thread

JoinedBy: TypeAlias = Literal["asyncio", "shutdown", "exit"]
"""`asyncio`: at the end of asyncio.run, or by loop.shutdown_default_executor(). `shutdown`: by
shutdown() or the end of a with block. `exit`: by the interpreter, at its end."""
_JOIN = "threading.py:join"
_SHUTDOWN = "concurrent/futures/thread.py:shutdown"
_AT_EXIT = "concurrent/futures/thread.py:_python_exit"
_OF_LOOP = "asyncio/base_events.py:_do_shutdown"
_DEFAULT_EXECUTOR = "asyncio"
"""Begins the names of the threads of the default executor of an event loop."""


class JoinedExecutor(NamedTuple):
    """A thread pool at whose end a main thread waits."""

    by: JoinedBy
    running: tuple[Thread, ...]
    """The threads of it that are in a call, those that compute first."""

    @property
    def computes(self) -> bool:
        """Whether one of them runs."""
        return is_busy(self.running[0])


@derived
def joined_executor(index: Index, identity: ProcessId) -> JoinedExecutor | None:
    """The thread pool that the main thread of a process joins; `None` if it joins none.

    Nor where none of the threads of a pool is in a call: then it ends now.
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    by = _joined_by(process, main) if process is not None and main is not None else None
    if process is None or by is None:
        return None
    running = sorted(_running(process, by), key=lambda each: not is_busy(each))
    return JoinedExecutor(by, tuple(running)) if running else None


def _joined_by(process: Process, main: Thread) -> JoinedBy | None:
    frames = own_frames(main.stack)
    if is_busy(main):
        return None
    if calls(frames, _JOIN, _AT_EXIT):
        return "exit"
    if calls(frames, _JOIN, _SHUTDOWN):
        return "shutdown"
    if runs_event_loop(main) and any(
        calls(own_frames(each.stack), _JOIN, _SHUTDOWN, _OF_LOOP) for each in process.threads
    ):
        return "asyncio"
    return None


def _running(process: Process, by: JoinedBy) -> list[Thread]:
    """The threads in calls of the pool that is joined.

    Once a pool is shut down, its threads without a call end: one that has idle threads is another.
    """
    pools: defaultdict[str, list[Thread]] = defaultdict(list)
    for thread in process.threads:
        if calls(own_frames(thread.stack), POOL_THREAD):
            pools[thread.name.rpartition("_")[0]].append(thread)
    joined = {name: threads for name, threads in pools.items() if not any(map(_is_idle, threads))}
    own = {name: each for name, each in joined.items() if name.startswith(_DEFAULT_EXECUTOR)}
    if by == "asyncio" and own:
        joined = own
    elif by == "shutdown" and len(joined) > len(own):
        joined = {name: each for name, each in joined.items() if name not in own}
    if by == "shutdown" and len(joined) > 1:
        return []  # which of them is joined does not show
    return [thread for threads in joined.values() for thread in threads]


def _is_idle(thread: Thread) -> bool:
    """Whether a thread of a pool waits for a call."""
    return calls(own_frames(thread.stack)[:1], POOL_THREAD)
