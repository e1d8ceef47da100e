"""The meaning of Python stacks: functions of CPython and torch recognised by name, never by line.

Checked against torch 2.13 and CPython 3.11; line numbers move between versions, names rarely do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from mpwatch.describe.frames import is_library, own_frames, program_frames, trains_for_ray
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.model.account import COPYING, PICKLING, RECEIVING, SHARING, UNPICKLING
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark

Shape: TypeAlias = Literal[
    "",
    "worker-idle",
    "worker-fetching",
    "worker-collating",
    "worker-leaving",
    "waits-for-batch",
    "starts-workers",
    "shuts-workers-down",
    "feeder-idle",
    "feeder-sending",
    "pin-thread",
    "sharer",
    "lock-between-processes",
    "event-between-processes",
    "joins-process",
    "joins-thread",
    "joins-queue",
    "pool-result",
    "pool-idle",
    "queue-get",
    "collective",
    "imports-main",
    "lock-file",
    "debugger",
    "sleeps",
]
"""The empty shape is code of the user, or no stack at all."""

COLLECTIVES = frozenset(
    (
        "all_reduce",
        "all_reduce_coalesced",
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "monitored_barrier",
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "recv",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scatter",
        "scatter_object_list",
        "send",
    )
)
SETUP = "the set-up of DistributedDataParallel"
_SETUP = frozenset(("_verify_param_shape_across_processes", "_sync_module_states"))
_UTILS = "torch/distributed/utils.py"
"""Where a model is wrapped, all ranks compare its shapes and get the values of rank 0 (torch 2.1 to
2.13)."""
BUFFERS = "the broadcast of buffers in a forward pass"
"""DistributedDataParallel makes it at each forward pass in training (torch 2.13)."""
BUCKETS = "the broadcast of gradient buckets in a forward pass"
"""DistributedDataParallel makes it once, at the first forward pass after a backward pass, when it
orders its buckets anew (`Reducer::rebuild_buckets`, torch 2.1 to 2.13)."""
_FUNCTIONAL = "a functional collective"
_OF_STAGES = "a message between the stages of a pipeline"
_OF_CHECKPOINT = "the copy of a checkpoint"
BETWEEN_TWO = frozenset((_OF_STAGES, _OF_CHECKPOINT))
"""Of these waits, what two ranks do with each other."""
_NATIVE: Mapping[str, str] = {
    "torch/nn/parallel/distributed.py:_pre_forward": BUCKETS,
    "torch/nn/parallel/distributed.py:main_hook": BUCKETS,
    "torch/nn/parallel/distributed.py:_match_all_reduce_for_bwd_pass": "the Join context",
    "torch/nn/parallel/distributed.py:_check_global_requires_backward_grad_sync": (
        "the Join context"
    ),
    "torch/distributed/distributed_c10d.py:_coalescing_manager": "a batch of collectives",
    "torch/distributed/_functional_collectives.py:wait_tensor": _FUNCTIONAL,
    "torch/distributed/_functional_collectives_impl.py:_wait_tensor": _FUNCTIONAL,
    "torch/distributed/tensor/_shards_wrapper.py:handle_wait_tensor": _FUNCTIONAL,
    "torch/distributed/tensor/_tp_conv.py:_ring_send_recv_construct": _FUNCTIONAL,
    "torch/distributed/tensor/_tp_conv.py:_ring_send_recv_aggregate": _FUNCTIONAL,
    "torch/distributed/fsdp/_init_utils.py:_sync_module_params_and_buffers": (
        "the set-up of FullyShardedDataParallel"
    ),
    "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:foreach_all_gather_copy_out": (
        "the all_gather of parameters"
    ),
    "torch/distributed/fsdp/sharded_grad_scaler.py:unscale_": "the all_reduce of found_inf",
    "torch/distributed/optim/zero_redundancy_optimizer.py:_sync_params": (
        "the broadcast of parameters after a step"
    ),
    "torch/distributed/optim/zero_redundancy_optimizer.py:wait_for_broadcasts": (
        "the broadcast of parameters after a step"
    ),
    "torch/distributed/pipelining/schedules.py:_wait_batch_p2p": _OF_STAGES,
    "torch/distributed/_state_dict_utils.py:_broadcast_tensors": "the broadcast of a state dict",
    "torch/distributed/checkpoint/_pg_transport.py:send_checkpoint": _OF_CHECKPOINT,
    "torch/distributed/checkpoint/_pg_transport.py:recv_checkpoint": _OF_CHECKPOINT,
}
"""Functions of torch that wait for other ranks in native code which they call themselves, without a
public function of torch.distributed: torch 2.13. Their other work has frames of its own."""
_NATIVE_FUNCTIONS = frozenset(each.rpartition(":")[2] for each in _NATIVE)
_BETWEEN = (("torch/_ops.py", "__call__"), ("", "<listcomp>"))
"""Files and functions of frames of Python between such a function and the native code."""
_C10D = "distributed_c10d.py"
_WRAPPERS = (_C10D, "/c10d_logger.py", "/contextlib.py", "/nn/parallel/distributed.py")
"""Files between a collective and the public function of torch that calls it (torch 2.13)."""
_DDP = "/nn/parallel/distributed.py"
_SENDS_BUFFERS = frozenset(("_sync_buffers", "_sync_module_buffers"))


def _functions(frames: Sequence[Frame]) -> frozenset[str]:
    """The functions of a stack: most patterns name one that occurs nowhere in it."""
    return frozenset([_bare(frame) for frame in frames])


def functions_of(frames: Iterable[Frame | Mark]) -> frozenset[tuple[str, str]]:
    """The files and names of the functions that some frames or statements are in."""
    return frozenset((each.file, each.function) for each in frames)


def calls(frames: Sequence[Frame], *pattern: str) -> bool:
    """Whether frames occur in this order from the inside out, others in between allowed.

    Args:
        frames: Innermost first.
        pattern: Each `file.py:function`, or `:function` for any file.
    """
    if not frames:
        return False  # asked 650 times of 65 processes without stacks
    return _calls(frames, _functions(frames), [_parts(each) for each in pattern])


def _calls(
    frames: Sequence[Frame], functions: frozenset[str], wanted: Sequence[tuple[str, str]]
) -> bool:
    """As `calls`, for frames whose functions are known, and files and functions of a pattern."""
    if any(function and function not in functions for _, function in wanted):
        return False
    rest = iter(frames)
    return all(any(_is(frame, *each) for frame in rest) for each in wanted)


@derived
def _by_stack(index: Index) -> Mapping[tuple[Frame, ...], list[tuple[Process, Thread]]]:
    """The living threads that have a stack, by that stack."""
    found: dict[tuple[Frame, ...], list[tuple[Process, Thread]]] = {}
    for process in index.snapshot.living():
        for thread in process.threads:
            if thread.stack:
                found.setdefault(thread.stack, []).append((process, thread))
    return found


def threads_calling(index: Index, *patterns: str) -> list[tuple[Process, Thread]]:
    """The living threads whose own stack matches any of the patterns, in the order of the tree.

    A loader's main has a feeder thread for each worker, and all of them show the same stack: what
    it calls is looked up once for all of them.
    """
    matching = [
        threads
        for threads in _by_stack(index).values()
        if any(calls(own_frames(threads[0][1].stack), each) for each in patterns)
    ]
    if len(matching) < 2:
        return matching[0] if matching else []
    places = {process.process: n for n, process in enumerate(index.snapshot.processes)}
    return sorted(
        (pair for threads in matching for pair in threads), key=lambda pair: places[pair[0].process]
    )


def innermost(frames: Sequence[Frame], *pattern: str) -> Frame | None:
    """The innermost frame that matches any of the patterns."""
    wanted = [_parts(each) for each in pattern]
    return next((f for f in frames if any(_is(f, *each) for each in wanted)), None)


def _parts(pattern: str) -> tuple[str, str]:
    """The file and the function of a pattern."""
    file, _, function = pattern.rpartition(":")
    return file, function


def _bare(frame: Frame) -> str:
    """The function of a frame; py-spy and CPython from 3.11 on may qualify a name by its class."""
    return frame.function.rpartition(".")[2]


def _is(frame: Frame, file: str, function: str) -> bool:
    """Whether a frame is of a function in a file; file names are compared by their end."""
    if function and _bare(frame) != function:
        return False
    return not file or frame.file == file or frame.file.endswith(f"/{file}")


JOINS_RANKS = "torch/multiprocessing/spawn.py:join"
"""What waits for the exits of the ranks of mp.spawn and mp.start_processes (torch 2.1 to 2.13)."""
TASK_LOOPS = (
    "pool.py:worker",
    "concurrent/futures/process.py:_process_worker",
    "process_executor.py:_process_worker",
)
"""What the workers of a Pool, of a ProcessPoolExecutor and of loky run: CPython 3.10 to 3.14, loky
3.5. Each takes its tasks from a queue that it shares with the others."""

_SHAPES: tuple[tuple[Shape, tuple[tuple[str, ...], ...]], ...] = (
    ("debugger", (("pdb.py:cmdloop",), ("bdb.py:trace_dispatch",), ("pydevd.py:",))),
    ("joins-queue", (("threading.py:join", "queues.py:_finalize_join"),)),
    (
        "worker-leaving",
        (("queues.py:join_thread", "worker.py:_worker_loop"), ("util.py:_exit_function",)),
    ),
    ("worker-fetching", (("fetch.py:fetch", "worker.py:_worker_loop"),)),
    ("worker-idle", (("queues.py:get", "worker.py:_worker_loop"),)),
    ("shuts-workers-down", (("dataloader.py:_shutdown_workers",),)),
    ("waits-for-batch", (("dataloader.py:_try_get_data",), ("dataloader.py:_get_data",))),
    ("starts-workers", (("process.py:start", "dataloader.py:__init__"),)),
    ("feeder-idle", (("threading.py:wait", "queues.py:_feed"),)),
    ("feeder-sending", (("queues.py:_feed",),)),
    ("pin-thread", (("pin_memory.py:_pin_memory_loop",),)),
    ("sharer", (("resource_sharer.py:_serve",),)),
    (
        "event-between-processes",
        (
            ("synchronize.py:wait",),
            ("synchronize.py:notify",),
            ("synchronize.py:wait_for",),
        ),
    ),
    ("pool-idle", tuple(("queues.py:get", each) for each in TASK_LOOPS)),
    ("lock-between-processes", (("synchronize.py:__enter__",),)),
    (
        "pool-result",
        (("pool.py:wait",), ("threading.py:wait", "pool.py:next"), ("pool.py:join",)),
    ),
    ("joins-process", (("process.py:join",), ("popen_fork.py:wait",), (JOINS_RANKS,))),
    ("joins-thread", (("threading.py:join",),)),
    ("imports-main", (("spawn.py:_fixup_main_from_path",), ("spawn.py:_fixup_main_from_name",))),
    ("queue-get", (("queues.py:get",),)),
    ("lock-file", (("filelock/_api.py:acquire",), ("torch/utils/file_baton.py:wait",))),
)


_PARSED = tuple(
    (shape, tuple(tuple(map(_parts, pattern)) for pattern in patterns))
    for shape, patterns in _SHAPES
)


@derived
def shape_in(index: Index, frames: tuple[Frame, ...]) -> Shape:
    """As `shape_of`, once for all threads of a snapshot with equal stacks."""
    del index
    return shape_of(frames)


def shape_of(frames: Sequence[Frame]) -> Shape:
    """The shape of a stack; the empty shape if it is not one of those recognised."""
    own = own_frames(frames)
    if not own:
        return ""
    if collective_of(own) is not None:
        return "collective"
    functions = _functions(own)
    for shape, patterns in _PARSED:
        if any(_calls(own, functions, pattern) for pattern in patterns):
            if shape == "worker-fetching" and calls(own, "collate.py:", "fetch.py:fetch"):
                return "worker-collating"
            if shape == "pool-idle" and _runs_a_task(own):
                continue  # the task itself reads a queue
            return shape
    return ""


def _runs_a_task(frames: Sequence[Frame]) -> bool:
    """Whether a worker of a pool is in code of the program, which the pool calls."""
    loops = [_parts(each) for each in TASK_LOOPS]
    worker = next((n for n, f in enumerate(frames) if any(_is(f, *each) for each in loops)), 0)
    return any(not is_library(frame) for frame in frames[:worker])


def collective_of(frames: Sequence[Frame]) -> str | None:
    """Name of the collective that a rank is in, as it was called; `None` if it is in none.

    `gather_object`, not the `all_gather` of sizes that it begins with; `BUFFERS` in the forward
    pass of DistributedDataParallel, `SETUP` where it is made. Where torch waits for the ranks in
    native code, what it waits in (`BUCKETS`).
    """
    if (native := _native_wait(frames)) is not None:
        return native
    found = None
    for frame in frames:
        if frame.function in COLLECTIVES and frame.file.endswith(_C10D):
            found = frame.function
        elif found is not None and not frame.file.endswith(_WRAPPERS):
            break
        elif frame.function in _SENDS_BUFFERS and frame.file.endswith(_DDP):
            return BUFFERS
        elif frame.function in _SETUP and frame.file.endswith(_UTILS):
            return SETUP
    return found


def _native_wait(frames: Sequence[Frame]) -> str | None:
    """What the innermost function of torch waits for in native code, by `_NATIVE`."""
    for frame in frames[:2]:
        if _bare(frame) in _NATIVE_FUNCTIONS:
            named = f"/{frame.file}:{_bare(frame)}"
            return next((name for key, name in _NATIVE.items() if named.endswith(f"/{key}")), None)
        if not any(_is(frame, *each) for each in _BETWEEN):
            return None
    return None


_TRANSFERS: Mapping[str, str] = {
    "multiprocessing/reduction.py:dumps": PICKLING,
    "loky/backend/reduction.py:dumps": PICKLING,
    "loky/backend/reduction.py:dump": PICKLING,
    "cloudpickle.py:dumps": PICKLING,
    "cloudpickle_fast.py:dumps": PICKLING,
    "torch/multiprocessing/queue.py:send": PICKLING,
    "torch/multiprocessing/queue.py:recv": UNPICKLING,
    "multiprocessing/queues.py:get": UNPICKLING,
    "multiprocessing/connection.py:recv": UNPICKLING,
    "multiprocessing/connection.py:_send": COPYING,
    "multiprocessing/connection.py:_recv": COPYING,
    "multiprocessing/resource_sharer.py:detach": RECEIVING,
    "multiprocessing/resource_sharer.py:_serve": SHARING,
    "torch/multiprocessing/reductions.py:reduce_storage": SHARING,
    "torch/multiprocessing/reductions.py:reduce_tensor": SHARING,
    "torch/multiprocessing/reductions.py:rebuild_storage_fd": RECEIVING,
    "torch/multiprocessing/reductions.py:rebuild_storage_filename": RECEIVING,
    "torch/multiprocessing/reductions.py:rebuild_tensor": RECEIVING,
}
"""What a stack with this function does to pass an object to another process.

`queues.py:get` and `connection.py:recv` call `loads` of C themselves: while they unpickle, no frame
of the standard library is above them (CPython 3.10 to 3.14, torch 2.13, loky 3.5).
"""
_WAITS_WITHIN = frozenset(("poll", "_poll", "wait", "select", "acquire", "__enter__"))
"""Functions above `queues.py:get` and `connection.py:recv` while there is no message yet."""
_TRANSFER_FUNCTIONS = frozenset(each.rpartition(":")[2] for each in _TRANSFERS)


def transfer_of(frames: Sequence[Frame]) -> str:
    """What a running thread does to pass objects between processes: one of `TRANSFERS`.

    Args:
        frames: Of its own stack, innermost first.

    Returns:
        The innermost such work; empty if there is none, or if the stack is of a wait.
    """
    if not _functions(frames) & _TRANSFER_FUNCTIONS:
        return ""
    found = ""
    for frame in frames:
        function = _bare(frame)
        if function in _WAITS_WITHIN and is_library(frame):
            return found
        if function in _TRANSFER_FUNCTIONS:
            file = "/" + frame.file
            for pattern, work in _TRANSFERS.items():
                name, _, called = pattern.rpartition(":")
                # A descriptor is asked for by messages; other messages have been pickled before.
                if called == function and file.endswith("/" + name):
                    if work != COPYING and (not found or work in (SHARING, RECEIVING)):
                        return work
                    found = found or work
    return found


def since_receipt(stack: Sequence[Frame]) -> Sequence[Frame]:
    """The frames of a stack from the call that receives an object, without what unpickles it.

    A thread that reads is not in `__setstate__()` of what it reads: such a stack was taken before
    or after. All of the frames where no object is unpickled.
    """
    if transfer_of(own_frames(stack)) != UNPICKLING:
        return stack
    for number, frame in enumerate(stack):
        file, function = "/" + frame.file, _bare(frame)
        if any(
            work == UNPICKLING and f"{file}:{function}".endswith(f"/{pattern}")
            for pattern, work in _TRANSFERS.items()
        ):
            return stack[number:]
    return stack


def main_thread(process: Process) -> Thread | None:
    """The thread whose id is the process's, or the first.

    In a worker of Ray Train the one that trains: the first waits to be called beside it.
    """
    if process.role == "ray-worker":
        for thread in process.threads:
            if trains_for_ray(thread.stack):
                return thread
    pid = process.process.pid
    for thread in process.threads:
        if thread.tid == pid:
            return thread
    return process.threads[0] if process.threads else None


def outermost_first(process: Process) -> list[Frame]:
    """The program's own frames of a main thread, as they have called each other."""
    thread = main_thread(process)
    return program_frames(thread.stack)[::-1] if thread is not None else []


def writes_output(process: Process) -> bool:
    """Whether its main thread waits for room in the pipe of its standard output or error."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    return wait is not None and wait.kind == "pipe-write" and wait.fds in ((1,), (2,))


def current_collective(process: Process) -> str | None:
    """The collective that its main thread is in; `None` if in none."""
    thread = main_thread(process)
    if thread is None or has_left_collective(thread):
        return None
    return collective_of(own_frames(thread.stack))


def has_left_collective(thread: Thread) -> bool:
    """Whether a thread sleeps by now, whatever collective its last stack has shown.

    To go from the wait in a collective to a sleep takes no cpu time that could be measured, so that
    no new stack is taken at once.
    """
    return thread.waits_on is not None and thread.waits_on.kind == "timer"


HOOK_THREAD = "mpwatch-hook"
_HELPERS: frozenset[Shape] = frozenset(("sharer", "feeder-idle"))


def own_threads(index: Index, process: Process) -> tuple[Thread, ...]:
    """The threads that could end a wait inside their process.

    Neither the hook's can, nor helpers of multiprocessing at rest: a queue's feeder with nothing
    to send, the server of descriptors.
    """
    return tuple(
        thread
        for thread in process.threads
        if thread.name != HOOK_THREAD and not _is_idle_helper(index, thread)
    )


def _is_idle_helper(index: Index, thread: Thread) -> bool:
    """Whether a thread is a helper with nothing to do, by its stack and its present wait."""
    if thread.state != "S" or shape_in(index, thread.stack) not in _HELPERS:
        return False
    return thread.waits_on is None or thread.waits_on.kind in ("futex", "accept", "unknown")


def main_shape(process: Process) -> Shape:
    """The shape of the main thread's stack."""
    thread = main_thread(process)
    return "" if thread is None else shape_of(thread.stack)


def has_stacks(process: Process) -> bool:
    """Whether any stack of it was taken."""
    return any(thread.stack for thread in process.threads)


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code, equal for all threads that are at one line."""
    found = next((frame for frame in own_frames(frames) if not is_library(frame)), None)
    if found is None or not (found.locals or found.from_native):
        return found
    return found._replace(locals=(), from_native=False)


CUDA_FRAMES = 4
"""Frames from the innermost in which a call of torch's CUDA module or of the driver is looked for.

`torch.cuda.synchronize` and `Stream.synchronize` are one frame in torch 2.1 to 2.13, with a context
manager below; py-spy adds the native frames of the runtime and the driver.
"""
ASLEEP_S = 2.0
"""A thread that sleeps in native code for less than this waits for ordinary kernels."""
_CUDA_CALL = re.compile(r"(?:cuda|cu|nccl)[A-Z]\w*")
"""Functions of the CUDA runtime, the driver and NCCL: cudaFree, cuStreamSynchronize, ncclSend."""
_UNEXPLAINED_WAITS = ("futex", "poll", "unknown")
"""As which the blocking calls of the CUDA driver appear in `/proc/PID/task/TID/syscall`, where it
does not poll."""


def cuda_call(thread: Thread) -> Frame | None:
    """The frame from which a thread calls CUDA, or may call it; `None` if it does not.

    A Python stack does not show calls into C, such as `loss.item()`, or the `cudaFree` with which
    the allocator makes room. By default CUDA polls there, without the GIL. A thread that runs
    without it, or sleeps, in native code below a frame of the program or of torch is therefore
    taken to wait for the GPU.
    """
    own = own_frames(thread.stack)
    if not own:
        return None
    for frame in own[:CUDA_FRAMES]:
        if _CUDA_CALL.match(frame.function) or "/torch/cuda/" in frame.file:
            return frame
    if collective_of(tuple(own)) is not None:
        return own[0]
    may_wait = _may_poll(thread) or _sleeps_unexplained(thread)
    return own[0] if may_wait and _calls_native(own) else None


def _may_poll(thread: Thread) -> bool:
    return thread.state == "R" and thread.has_gil is not True


def _sleeps_unexplained(thread: Thread) -> bool:
    if thread.state not in "SD" or (thread.still_s or 0.0) < ASLEEP_S:
        return False
    return thread.waits_on is None or thread.waits_on.kind in _UNEXPLAINED_WAITS


def _calls_native(own: Sequence[Frame]) -> bool:
    """Whether the innermost frame is of the program or of torch, not of the standard library."""
    return not is_library(own[0]) or "/torch/" in own[0].file


def runs_event_loop(thread: Thread) -> bool:
    """Whether a thread waits in the event loop of asyncio, or in what that runs."""
    return calls(own_frames(thread.stack), _EVENT_LOOP)


_EVENT_LOOP = "asyncio/base_events.py:_run_once"
