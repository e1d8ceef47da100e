"""Stack frames in words, and which frames are the program's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from mpwatch.model.samples import Frame

_BY_VALUE = "<dynamic-code>"
"""The file of functions that cloudpickle (from 3.1 on) has sent as code: of the main program, which
the receiver cannot import."""
HOOK_PART = "/mpwatch/hook/"
_LIBRARY_FOLDER = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/")


def own_frames(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames that a process entered itself, innermost first.

    A forked child keeps its parent's frames below `BaseProcess._bootstrap` (multiprocessing/
    process.py, CPython 3.10 to 3.14), so with them every worker looks as if it started workers. A
    thread's own `_bootstrap` (threading.py) is not such a border.
    """
    for index, frame in enumerate(frames):
        if frame.function == "_bootstrap" and frame.file.endswith("process.py"):
            return frames if index + 1 == len(frames) else frames[: index + 1]
    return frames


def is_library(frame: Frame) -> bool:
    """Whether a frame is of the standard library, of an installed package, or of mpwatch's hook.

    That hook is no installed package where mpwatch runs from its source.
    """
    file = frame.file
    # Written out, as hundreds of frames are asked in each snapshot: 0.4 us, `any` takes 1.1.
    is_installed = "site-packages" in file or "dist-packages" in file or "/lib/python3" in file
    is_hook = HOOK_PART in file or "/mpwatch/attach/payload/" in file
    return is_installed or is_hook or (file.startswith("<") and file != _BY_VALUE)


def program_frames(frames: Sequence[Frame]) -> list[Frame]:
    """The own frames of the program itself, without those of libraries, innermost first."""
    return [frame for frame in own_frames(frames) if not is_library(frame)]


def frame_words(frame: Frame) -> str:
    """One frame in short: `data.py:31 decode`, or `data.py decode` where the line is unknown.

    In Python 3.11 and later a thread that jumps back to the start of a loop may have no line.
    """
    at = f":{frame.line}" if frame.line else ""
    return f"{frame.file.rpartition('/')[2]}{at} {frame.function}"


def at_frame(frame: Frame | None, before: str = " at ") -> str:
    """` at data.py:30 main`; empty for none."""
    return "" if frame is None else f"{before}{frame_words(frame)}"


def short_path(file: str) -> str:
    """`torch/utils/data/dataloader.py` for a library's file, another path as it is."""
    return _LIBRARY_FOLDER.sub("", file.removeprefix("<frozen ").removesuffix(">"))


def place_words(file: str, line: int) -> str:
    """Path and line of a frame: `torch/utils/data/dataloader.py:1328`; only the path for line 0."""
    return f"{short_path(file)}:{line}" if line else short_path(file)


_TASK_LOOPS = frozenset(("_worker_loop", "_process_worker", "worker"))
"""The functions in which workers of torch's DataLoader, of ProcessPoolExecutor and of Pool read
their tasks (torch 2.6 to 2.14, CPython 3.10 to 3.14)."""


def waits_for_task(stack: Sequence[Frame]) -> bool:
    """Whether a worker, innermost frame first, waits for its next task."""
    return any(
        inner.function == "get"
        and inner.file.endswith("/multiprocessing/queues.py")
        and outer.function in _TASK_LOOPS
        and is_library(outer)
        for inner, outer in pairwise(own_frames(stack))
    )


RAY_WORKER_FILE = "/ray/_private/worker.py"


_RAY_TRAIN_FILE = "/ray/train/v2/_internal/execution/worker_group/thread_runner.py"


def trains_for_ray(stack: Sequence[Frame]) -> bool:
    """Whether a thread runs the training function of a worker of Ray Train (2.60)."""
    return any(
        frame.function == "_run_target" and frame.file.endswith(_RAY_TRAIN_FILE) for frame in stack
    )


def waits_for_ray_call(stack: Sequence[Frame]) -> bool:
    """Whether the main thread of a Ray worker, innermost frame first, waits to be called (2.60)."""
    return bool(stack) and (
        stack[0].function == "main_loop" and stack[0].file.endswith(RAY_WORKER_FILE)
    )
