"""Threads that wait for the GPU, and for how long.

CUDA polls while it waits: such a thread uses a core, in state R and without a system call, and
looks like one that computes. It is so by default (`cudaDeviceScheduleAuto`) for streams, events,
copies, `cudaFree` and a full queue of kernels; with `cudaDeviceScheduleBlockingSync` it waits on a
futex. torch releases the GIL for it (observed with driver 580, CUDA 13.0 and torch 2.11).
"""

from __future__ import annotations

import re

from mpwatch.describe.frames import is_library, own_frames
from mpwatch.describe.processes import is_on_gpu
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.account import NO_PLACE, OWN_CODE, Activity
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread

_SYNCHRONIZE = "synchronize"
"""Of a device, stream or event: `torch/cuda/__init__.py` and `streams.py` (torch 2.1 to 2.13)."""
_READS = re.compile(
    r"\.(?:item|tolist|cpu|synchronize)\(|\.to\(\s*[\"']cpu\b"
    r"|\.cuda\((?!.*non_blocking=True)"
    r"|\b(?:tensor|as_tensor|asarray)\(.*\bdevice\s*=\s*(?![\"']cpu\b)"
    r"|\.to\([^()]*\b(?:\w*device\w*|cuda|\w*rank|gpu)\b(?!.*non_blocking=True)"
)
"""Calls that copy a result of the GPU, or to the GPU from memory that is not pinned, and therefore
wait until all that was launched before is through."""


def waits_for_gpu(index: Index, process: Process, thread: Thread) -> bool:
    """Whether a thread waits for what it has launched on a GPU, by its newest stack.

    Certain in a function of torch that does nothing else; likely at a line that reads a result of
    the GPU, where the thread is in native code without the GIL.
    """
    wait = thread.waits_on
    is_blocked = thread.state == "S" and wait is not None and wait.kind == "futex"
    may_wait = thread.state == "R" or is_blocked
    if not may_wait or thread.has_gil or not thread.stack or not is_on_gpu(process):
        return False
    return _is_wait(index, thread.stack)


@derived
def _is_wait(index: Index, stack: tuple[Frame, ...]) -> bool:
    own = own_frames(stack)
    if not own:
        return False
    if "/torch/cuda/" in own[0].file:
        return own[0].function.rpartition(".")[2] == _SYNCHRONIZE
    line = None if is_library(own[0]) else source_of(index, own[0])
    return line is not None and _READS.search(line.statement.text) is not None


def waiting_for_gpu(place: str) -> Activity:
    """The activity of a thread that polls for the GPU at a line of the program."""
    return Activity("spinning", "", "gpu", place=place)


def gpu_wait_s(process: Process, index: Index, *, is_at_one_line: bool = False) -> float | None:
    """Seconds for which every reading has found the main thread waiting for the GPU.

    `None` if it does not now, or before the time of this reading is accounted for. A training whose
    steps are long waits like that as well: this is no sign of a fault by itself.

    Args:
        process: The process.
        index: The snapshot.
        is_at_one_line: Only as long as all these readings were of the line that it is at now.
    """
    thread = main_thread(process)
    account = index.snapshot.account.processes.get(process.process)
    if account is None or not account.uncounted or thread is None:
        return None
    main = account.uncounted[0]
    if main.now.target != "gpu" or not waits_for_gpu(index, process, thread):
        return None
    since_s = main.counted_s
    for bucket in reversed(main.buckets):
        seen = [each for each in bucket.tally.seen if each not in (NO_PLACE, OWN_CODE)]
        if any(each.target != "gpu" for each in seen):
            break
        if is_at_one_line and any(each.place not in ("", main.now.place) for each in seen):
            break
        since_s -= bucket.tally.observed_s
    return max(0.0, index.snapshot.at_s - since_s)
