"""Which processes may hold the lock of torch's CUDA allocator, by their stacks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.samples import Frame, WaitedOn
from mpwatch.model.snapshot import Process, Thread
from mpwatch.tui.pages.gpu import STACK_AGE_S, reason_not_to_lock_allocator
from tests.builders.screen_job import IDLE_STACK, MAIN_STACK, NOW_S, WORKER_STACK, main_process

TRAIN = Frame("step", "/home/ada/train/train.py", 57)
TORCH = "/usr/lib/python3.11/site-packages/torch"
SYNCHRONIZE = Frame("synchronize", f"{TORCH}/cuda/__init__.py", 954)
EMPTY_CACHE = Frame("empty_cache", f"{TORCH}/cuda/memory.py", 170)
ALL_REDUCE = Frame("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 2500)
NATIVE = Frame("cuStreamSynchronize", "libcuda.so.1", 0)


def process(*stacks: tuple[Frame, ...], at_s: float = NOW_S, **main: object) -> Process:
    """A process with one thread per stack; the changes are made to the first."""
    threads = [
        Thread(100 + n, f"thread {n}", "R", stack=stack, stack_at_s=at_s, has_gil=not n)
        for n, stack in enumerate(stacks)
    ]
    threads[0] = replace(threads[0], **main)
    return replace(main_process(), threads=tuple(threads))


@pytest.mark.parametrize("stack", [(TRAIN,), MAIN_STACK, IDLE_STACK, WORKER_STACK])
def test_a_process_whose_threads_run_or_wait_in_python_may_be_asked(
    stack: tuple[Frame, ...],
) -> None:
    assert reason_not_to_lock_allocator(process(stack), NOW_S) is None
    idle = process(stack, IDLE_STACK)
    assert reason_not_to_lock_allocator(idle, NOW_S) is None


@pytest.mark.parametrize("has_gil", [False, None])
def test_a_thread_that_runs_native_code_without_the_gil_is_a_reason(has_gil: bool | None) -> None:
    """CUDA polls while it waits, also in the cudaFree with which the allocator makes room."""
    running = process((TRAIN,), has_gil=has_gil)

    assert "train.py:57" in str(reason_not_to_lock_allocator(running, NOW_S))


@pytest.mark.parametrize("frame", [SYNCHRONIZE, EMPTY_CACHE, ALL_REDUCE, NATIVE])
def test_a_thread_in_a_cuda_call_or_a_collective_is_a_reason(frame: Frame) -> None:
    reason = reason_not_to_lock_allocator(process((TRAIN,), (frame, TRAIN)), NOW_S)

    assert reason is not None
    assert "thread 1" in reason
    assert frame.function in reason


@pytest.mark.parametrize("waits_on", [None, WaitedOn("unknown", "ioctl"), WaitedOn("poll", "poll")])
def test_a_thread_asleep_in_native_code_below_the_program_is_a_reason(
    waits_on: WaitedOn | None,
) -> None:
    asleep = process((TRAIN,), state="S", still_s=3.0, waits_on=waits_on)

    assert "train.py:57" in str(reason_not_to_lock_allocator(asleep, NOW_S))


@pytest.mark.parametrize("kind", ["timer", "socket-read", "pipe-read"])
def test_a_thread_asleep_for_a_known_reason_is_none(kind: str) -> None:
    waits_on = WaitedOn(kind, "read")  # type: ignore[arg-type]
    asleep = process((TRAIN,), state="S", still_s=30.0, waits_on=waits_on)

    assert reason_not_to_lock_allocator(asleep, NOW_S) is None


def test_without_a_recent_stack_nothing_is_asked() -> None:
    old = process((TRAIN,), at_s=NOW_S - STACK_AGE_S - 1)

    assert "older" in str(reason_not_to_lock_allocator(old, NOW_S))
    assert "no stack" in str(reason_not_to_lock_allocator(process(()), NOW_S))
