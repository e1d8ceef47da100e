"""Threads that may wait for a GPU: the lock of torch's CUDA allocator may not be free then."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.diagnose.analysis.stack_patterns import collective_of
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread

INNERMOST = 4
"""Frames from the innermost in which a call of torch's CUDA module or of the driver is looked for.

`torch.cuda.synchronize` and `Stream.synchronize` are one frame in torch 2.1 to 2.13, with a context
manager below; py-spy adds the native frames of the runtime and the driver.
"""
STACK_AGE_S = 5.0
"""An older stack no longer says what a thread does now."""
ASLEEP_S = 2.0
"""A thread that sleeps in native code for less than this waits for ordinary kernels."""
_NATIVE = re.compile(r"(?:cuda|cu|nccl)[A-Z]\w*")
"""Functions of the CUDA runtime, the driver and NCCL: cudaFree, cuStreamSynchronize, ncclSend."""
_UNEXPLAINED_WAITS = ("futex", "poll", "unknown")
"""As which the blocking calls of the CUDA driver appear in `/proc/PID/task/TID/syscall`."""


def reason_not_to_lock_allocator(process: Process, at_s: float) -> str | None:
    """Why the lock of torch's CUDA allocator may not be free in a process; `None` if it should be.

    Args:
        process: A process with a hook.
        at_s: The time of the snapshot.
    """
    taken_s = [t.stack_at_s for t in process.threads if t.stack and t.stack_at_s is not None]
    if not taken_s:
        return "no stack of it was taken"
    if at_s - max(taken_s) > STACK_AGE_S:
        return f"its last stack is older than {STACK_AGE_S:g} s"
    for thread in process.threads:
        frame = cuda_call(thread)
        if frame is not None:
            return f"{thread.name} is in {frame_words(frame)}"
    return None


def cuda_call(thread: Thread) -> Frame | None:
    """The frame from which a thread calls CUDA, or may call it; `None` if it does not.

    A Python stack does not show calls into C, such as `loss.item()`. A thread that sleeps in native
    code below a frame of the program or of torch is therefore taken to wait for the GPU.
    """
    own = own_frames(thread.stack)
    if not own:
        return None
    for frame in own[:INNERMOST]:
        if _NATIVE.match(frame.function) or "/torch/cuda/" in frame.file:
            return frame
    if collective_of(tuple(own)) is not None:
        return own[0]
    return own[0] if _sleeps_unexplained(thread) and _calls_native(own) else None


def _sleeps_unexplained(thread: Thread) -> bool:
    if thread.state not in "SD" or (thread.still_s or 0.0) < ASLEEP_S:
        return False
    return thread.waits_on is None or thread.waits_on.kind in _UNEXPLAINED_WAITS


def _calls_native(own: Sequence[Frame]) -> bool:
    """Whether the innermost frame is of the program or of torch, not of the standard library."""
    return not is_library(own[0]) or "/torch/" in own[0].file
