"""What a process does, in one line, from the best layer there is."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mpwatch.model.ids import Role
from mpwatch.model.samples import Ended, Frame, WaitedOn
from mpwatch.model.snapshot import Loader, Thread, WorkerLoad
from mpwatch.model.units import seconds_text

CURRENT_S = 2.5
"""A stack of a thread that runs says what it did; after so long it no longer says what it does."""

_LIBRARY_PARTS = ("site-packages", "dist-packages", "/lib/python3")
_WAIT_WORDS = {
    "pipe-read": "reads",
    "pipe-write": "blocked writing to",
    "socket-read": "reads",
    "socket-write": "blocked writing to",
    "accept": "accepts on",
    "semaphore": "waits for",
    "futex": "waits for a lock:",
    "child": "waits for the exit of",
    "poll": "polls",
    "timer": "sleeps",
    "disk": "in uninterruptible I/O",
    "signal": "waits for a signal",
    "stopped": "stopped",
}
_STATE_WORDS = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible I/O",
    "T": "stopped by a signal",
    "t": "stopped by a tracer",
    "Z": "zombie: ended, not reaped by its parent",
    "X": "ending",
    "I": "idle",
}


def doing(
    role: Role,
    state: str,
    threads: Sequence[Thread],
    worker: WorkerLoad | None,
    loaders: Sequence[Loader],
    ended: Ended | None,
) -> str:
    """One line about the process; hook before stack before system call before state."""
    if ended is not None:
        return f"ended: {ended.words}"
    if state in "ZTtX":
        return _STATE_WORDS.get(state, state)
    from_hook = _from_hook(role, worker, loaders)
    main = threads[0] if threads else None
    stack = stack_words(main.stack) if main and _is_current(main) else ""
    if from_hook:
        return (
            f"{from_hook}  {stack}" if stack and worker and worker.task is not None else from_hook
        )
    if stack:
        return stack
    if main is not None and main.waits_on is not None and state != "R":
        return wait_words(main.waits_on)
    return _STATE_WORDS.get(state, state)


def _is_current(thread: Thread) -> bool:
    """Whether the thread can still be where its stack says: it has not run since, or just now."""
    if thread.stack_age_s is None:
        return True
    return thread.stack_age_s <= CURRENT_S or (thread.still_s or 0.0) >= thread.stack_age_s


def _from_hook(role: Role, worker: WorkerLoad | None, loaders: Sequence[Loader]) -> str:
    if role == "loader-worker" and worker is not None:
        if worker.task is None:
            return "waits for work"
        since = f", {seconds_text(worker.task_since_s)}" if (worker.task_since_s or 0) >= 1 else ""
        index = f", index {worker.index}" if worker.index else ""
        return f"batch {worker.task}{index}{since}"
    waiting = [loader for loader in loaders if loader.waiting_since_s is not None]
    if waiting:
        loader = max(waiting, key=lambda each: each.waiting_since_s or 0.0)
        whom = "" if loader.owner_worker is None else f" from worker {loader.owner_worker}"
        batch = "a batch" if loader.next_task is None else f"batch {loader.next_task}"
        return f"waits for {batch}{whom}, {seconds_text(loader.waiting_since_s)}"
    return ""


def stack_words(frames: Sequence[Frame]) -> str:
    """The user's own line nearest to the top and what it calls: `data.py:31 decode -> ...`."""
    if not frames:
        return ""
    top = frames[0]
    own = next((frame for frame in frames if not _is_library(frame.file)), None)
    if own is None or own is top:
        return _frame_words(top)
    return f"{_frame_words(own)} -> {_frame_words(top)}"


def wait_words(waits_on: WaitedOn) -> str:
    """What a system call waits for, in words: `reads pipe:[18174]`."""
    words = _WAIT_WORDS.get(waits_on.kind, f"in {waits_on.call}")
    targets = ", ".join(waits_on.targets[:2])
    if len(waits_on.targets) > 2:
        targets += f" and {len(waits_on.targets) - 2} more"
    return f"{words} {targets}".strip()


def _frame_words(frame: Frame) -> str:
    return f"{os.path.basename(frame.file)}:{frame.line} {frame.function}"


def _is_library(file: str) -> bool:
    return file.startswith("<") or any(part in file for part in _LIBRARY_PARTS)
