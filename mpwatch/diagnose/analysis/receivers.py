"""Callbacks that run in the thread which receives the results of a pool.

A Pool calls `callback` and `error_callback` in its thread `_handle_results`, in ApplyResult._set; a
ProcessPoolExecutor, and loky's, call what Future.add_done_callback was given in their manager
thread, in Future._invoke_callbacks. Until such a callback has returned, that thread receives no
other result of the pool. Checked against CPython 3.10 to 3.14 and loky 3.5.

The thread `_handle_workers` of a Pool watches the pipe of its results as well. While one lies
there unread, its wait returns at once: it goes round and round, and does nothing by that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.describe.frames import own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.stack_patterns import calls, threads_calling, user_frame
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread

PoolKind: TypeAlias = Literal["Pool", "executor"]

_RECEIVES_OF_POOL = "pool.py:_handle_results"
_SETS = "pool.py:_set"
_WATCHES_WORKERS = "pool.py:_handle_workers"
_SENDS_TASKS = "pool.py:_handle_tasks"
MANAGERS = ("concurrent/futures/process.py:run", "process_executor.py:run")
"""What the manager threads of a ProcessPoolExecutor and of loky run."""
_INVOKES = "_base.py:_invoke_callbacks"
"""In `concurrent/futures/_base.py`, and in `loky/_base.py`."""


SPINS_PERCENT = 5.0
"""Of a core, which a thread that spins gets on any machine; one that waits takes none."""


class Callback(Struct, frozen=True):
    """A callback that runs in the thread which receives the results of a pool."""

    thread: Thread
    kind: PoolKind
    frames: tuple[Frame, ...]
    """From the innermost one to that of the callback itself."""

    @property
    def function(self) -> Frame | None:
        """The program's function that the pool has called; `None` if it is of a library."""
        own = program_frames(self.frames)
        return own[-1] if own else None


def receives_for(thread: Thread) -> PoolKind | None:
    """Of what kind of pool a thread receives the results; `None` of other threads."""
    own = own_frames(thread.stack)
    if calls(own, _RECEIVES_OF_POOL):
        return "Pool"
    return "executor" if any(calls(own, each) for each in MANAGERS) else None


def callback_in(thread: Thread) -> Callback | None:
    """The callback that a thread runs which receives the results of a pool."""
    kind = receives_for(thread)
    if kind is None:
        return None
    own = own_frames(thread.stack)
    border = _SETS if kind == "Pool" else _INVOKES
    place = next((n for n in range(len(own) - 1, 0, -1) if calls(own[n : n + 1], border)), 0)
    return Callback(thread, kind, tuple(own[:place])) if place else None


def callbacks_of(process: Process) -> list[Callback]:
    """The callbacks that run in threads of a process which receive the results of pools."""
    return [each for thread in process.threads if (each := callback_in(thread)) is not None]


def serves_at_rest(thread: Thread) -> bool:
    """Whether it is a thread of a Pool that runs no code of the program and sets no result.

    The one that sends tasks goes through iterables of the program.
    """
    own = own_frames(thread.stack)
    if not any(calls(own, each) for each in (_WATCHES_WORKERS, _SENDS_TASKS)):
        return False
    return user_frame(own) is None


@derived
def spinning(index: Index) -> Mapping[ProcessId, tuple[Thread, ...]]:
    """The threads of each process that watch the workers of a Pool whose results lie unread.

    They use up to a core, which gets nothing done; see above.
    """
    found: defaultdict[ProcessId, tuple[Thread, ...]] = defaultdict(tuple)
    for process, thread in threads_calling(index, _WATCHES_WORKERS):
        held_up = (each.kind == "Pool" and waits_for_ever(each) for each in callbacks_of(process))
        runs = thread.state == "R" or (thread.cpu_percent or 0.0) >= SPINS_PERCENT
        if runs and user_frame(thread.stack) is None and any(held_up):
            found[process.process] += (thread,)
    return dict(found)


def processes_with_callbacks(index: Index) -> Sequence[Process]:
    """The living processes in which such a callback runs."""
    found = [process for process, _ in threads_calling(index, _SETS, _INVOKES)]
    return list({each.process: each for each in found if callbacks_of(each)}.values())


def waits_for_ever(callback: Callback) -> bool:
    """Whether a callback waits without a time limit."""
    wait = callback.thread.waits_on
    return callback.thread.state != "R" and wait is not None and wait.timeout_s is None
