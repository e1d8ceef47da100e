"""One process of the snapshot, joined from its samples, its hook and its stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mpwatch.describe.frames import (
    HOOK_PART,
    frame_words,
    is_library,
    own_frames,
    trains_for_ray,
    waits_for_ray_call,
    waits_for_task,
)
from mpwatch.describe.processes import role_name, state_explanation
from mpwatch.describe.waits import LOCK_OF_THREADS, object_words, resource_words
from mpwatch.model.cmdline import python_program
from mpwatch.model.ids import Role
from mpwatch.model.samples import (
    FILE_LOCK_CALLS,
    OPENS,
    Ended,
    Frame,
    GpuSample,
    MixedFrame,
    ProcSample,
    StackSample,
    ThreadSample,
    WaitedOn,
    WaitKind,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.snapshot import GpuUse, Hook, Loader, Process, Thread, Trends, WorkerLoad
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import RPC_THREAD
from mpwatch.observe.state.child_targets import Task
from mpwatch.observe.state.hook_state import HookRecord
from mpwatch.observe.state.process_table import ProcessRecord

NO_HOOK = Hook()


def label(sample: ProcSample, task: Task | None = None) -> str:
    """The label of the process: `main`, `worker 3`, `rank 1`, `evaluate.py`, `actor 2`.

    Args:
        sample: Of the process.
        task: What it runs and its number, if it was started by multiprocessing.
    """
    if task is not None and sample.role in ("spawned", "pool-worker", "other"):
        target, number = task
        return target.label(number)
    if sample.role == "ray-worker":
        return _ray_label(sample)
    if sample.role != "other":
        return role_name(sample.role, sample.worker_id, sample.rank)
    if sample.is_python and len(sample.cmdline) == 1 and "/" not in sample.cmdline[0]:
        return clean(sample.cmdline[0], 60)  # a title that the program has set: `ray::Actor.step`
    program = python_program(sample.cmdline) if sample.is_python else None
    return program.name if program and program.kind in ("script", "module") else sample.name


def _ray_label(sample: ProcSample) -> str:
    """What a worker of Ray runs, by its title: `Trainer.step`, `idle ray worker`."""
    title = sample.cmdline[0].strip() if sample.cmdline else ""
    task = title.removeprefix("ray::")
    if task == title:
        return "starting ray worker"
    return "idle ray worker" if task == "IDLE" else clean(task, 60)


def frames_without_hook(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The own frames of a process, without those of the hook in it."""
    own = tuple(own_frames(frames))
    if any(HOOK_PART in frame.file for frame in own):
        own = tuple(frame for frame in own if HOOK_PART not in frame.file)
    return own


def mixed_without_hook(mixed: tuple[MixedFrame, ...]) -> tuple[MixedFrame, ...]:
    """As `frames_without_hook`, for a stack with native frames."""
    own = own_frames([each.frame for each in mixed])
    return tuple([each for each in mixed[: len(own)] if HOOK_PART not in each.frame.file])


def build_process(
    record: ProcessRecord,
    hook: HookRecord | None,
    gpus: Sequence[GpuSample],
    trends: Trends,
    at_s: float,
    ticks_per_s: int,
    *,
    depth: int = 0,
    task: Task | None = None,
) -> Process:
    """The process as snapshots show it."""
    sample = record.sample
    if task is not None and sample.role in ("spawned", "other"):
        target, number = task
        rank = number if target.is_rank and sample.rank is None else sample.rank
        sample = replace(sample, role=target.role or "spawned", rank=rank)
    now_ns = int(at_s * 1e9)
    shown_hook = hook.hook() if hook else NO_HOOK
    if hook is not None and not hook.has_reported:
        hook = None
    may_fetch = record.sample.role in ("loader-worker", "spawned")
    worker = hook.worker_load(now_ns) if hook and may_fetch else None
    loaders = hook.loaders(now_ns) if hook else ()
    if worker is not None:
        # A short-lived worker was read before its threads had the name that shows its role.
        sample = replace(sample, role="loader-worker", worker_id=worker.worker_id)
    threads = _threads(record, ticks_per_s)
    problems = sample.problems
    if record.stacks_problem:
        problems = (*problems, f"stacks: {record.stacks_problem}")
    return Process(
        process=sample.process,
        sample=sample,
        parent=record.parent,
        original_parent=record.original_parent,
        role=sample.role,
        label=label(sample, task),
        cpu_percent=record.cpu_percent(ticks_per_s),
        private_bytes=sample.memory.private_bytes if sample.memory else None,
        depth=depth,
        shm_bytes=record.shm_bytes,
        threads=threads,
        start_method=sample.start_method or (hook.start_method() if hook else None),
        sharing_strategy=hook.strategy if hook else None,
        shared_cache=hook.shared_cache() if hook else None,
        loader=worker,
        gpus=_gpu_uses(sample.process.pid, gpus, hook),
        doing=doing(sample.role, sample.state, threads, worker, loaders, record.ended),
        stacks_cost_s=record.stacks_cost_s,
        trends=trends,
        ended=record.ended,
        gauges=hook.gauges if hook else {},
        problems=problems,
        hook=shown_hook,
    )


def _threads(record: ProcessRecord, ticks_per_s: int) -> tuple[Thread, ...]:
    sample, earlier = record.sample, record.earlier
    elapsed_s = sample.at_s - earlier.at_s if earlier else 0.0
    before = {thread.tid: thread for thread in (earlier.threads or ())} if earlier else {}
    stacks = _with_remote_calls(record)
    return tuple(
        [
            _thread(
                thread,
                before.get(thread.tid),
                elapsed_s * ticks_per_s,
                stacks.get(thread.tid),
                record.times_s(thread),
                record.confirmed_s,
            )
            for thread in sample.threads or ()
        ]
    )


def _with_remote_calls(record: ProcessRecord) -> Mapping[int, StackSample]:
    """The stacks by thread, with those of remote calls, which run in threads of native code.

    The hook does not know the ids of such threads. They are those of the pool for remote calls that
    have no other stack; which one has which is known where each of them has one.
    """
    calls = [
        stack
        for tid, stack in record.stacks.items()
        if tid < 0 and stack.frames and _runs_remote_call(stack.frames[-1])
    ]
    if not calls:
        return record.stacks
    free = [
        thread.tid
        for thread in record.sample.threads or ()
        if thread.name == RPC_THREAD and thread.tid not in record.stacks
    ]
    return {**record.stacks, **dict(zip(free, calls, strict=False))}


def _runs_remote_call(outermost: Frame) -> bool:
    """Whether torch.distributed.rpc has called what a thread runs (torch 2.1 to 2.13)."""
    is_there = outermost.file.endswith("torch/distributed/rpc/internal.py")
    return is_there and outermost.function == "_run_function"


def _thread(
    thread: ThreadSample,
    before: ThreadSample | None,
    elapsed_ticks: float,
    stack: StackSample | None,
    times_s: tuple[float | None, float | None, float | None],
    at_s: float,
) -> Thread:
    still_s, waits_s, futex_s = times_s
    percent = None
    if before is not None and thread.cpu_ticks is not None and before.cpu_ticks is not None:
        ticks = thread.cpu_ticks - before.cpu_ticks
        percent = 100 * ticks / elapsed_ticks if elapsed_ticks > 0 else None
    if stack is None:
        return Thread(
            tid=thread.tid,
            name=thread.name,
            state=thread.state,
            wchan=thread.wchan,
            cpu_percent=percent,
            waits_on=thread.waits_on,
            still_s=still_s,
            waits_s=waits_s,
            futex_s=futex_s,
        )
    return Thread(
        tid=thread.tid,
        # The kernel cuts names at 15 characters; a stack knows Python's own.
        name=stack.thread_name or thread.name,
        state=thread.state,
        wchan=thread.wchan,
        cpu_percent=percent,
        waits_on=thread.waits_on,
        stack=stack.frames,
        mixed=stack.mixed,
        stack_source=stack.source,
        stack_at_s=stack.at_s,
        stack_age_s=max(0.0, at_s - stack.at_s),
        has_gil=stack.has_gil,
        is_active=stack.is_active,
        still_s=still_s,
        waits_s=waits_s,
        futex_s=futex_s,
    )


def _gpu_uses(pid: int, gpus: Sequence[GpuSample], hook: HookRecord | None) -> tuple[GpuUse, ...]:
    from_hook = {use.index: use for use in hook.gpu_uses()} if hook else {}
    uses = []
    for gpu in gpus:
        for process in gpu.processes:
            if process.pid == pid:
                known = from_hook.pop(gpu.index, None)
                uses.append(
                    GpuUse(
                        index=gpu.index,
                        memory_bytes=process.memory_bytes,
                        allocated_bytes=known.allocated_bytes if known else None,
                        reserved_bytes=known.reserved_bytes if known else None,
                        read_at_s=known.read_at_s if known else None,
                    )
                )
    return (*uses, *from_hook.values())


CURRENT_S = 2.5
"""The stack of a running thread that is older than this is not shown as what the thread does."""

_STATES: Mapping[WaitKind, str] = {
    "timer": "sleeps",
    "disk": "in uninterruptible sleep",
    "signal": "waits for a signal",
    "stopped": "stopped",
}
"""Waits without a target."""


WAITS_FOR_WORK = "waits for work"


def doing(
    role: Role,
    state: str,
    threads: Sequence[Thread],
    worker: WorkerLoad | None,
    loaders: Sequence[Loader],
    ended: Ended | None,
) -> str:
    """What the process does, in one line: by its hook, its stack, its system call or its state."""
    if ended is not None:
        return f"ended: {ended.words}"
    if state in "ZTtX":
        return state_explanation(state)
    from_hook = _from_hook(role, worker, loaders)
    main = threads[0] if threads else None
    if role == "ray-worker":
        main = next((each for each in threads if trains_for_ray(each.stack)), main)
    if role == "ray-worker" and main is not None and waits_for_ray_call(main.stack):
        return "waits to be called"
    stack = stack_words(main.stack) if main and _is_current(main) else ""
    if from_hook:
        return (
            f"{from_hook}  {stack}" if stack and worker and worker.task is not None else from_hook
        )
    if stack and main is not None and waits_for_task(main.stack):
        return WAITS_FOR_WORK
    if stack and main is not None:
        named = _named_wait(main.waits_on) if state != "R" else ""
        return f"{stack}, waits for {named}" if named else stack
    if main is not None and main.waits_on is not None and state != "R":
        return wait_words(main.waits_on)
    return state_explanation(state)


def _named_wait(wait: WaitedOn | None) -> str:
    """The file that a thread waits for, which its stack does not show; empty for other waits."""
    if wait is None or not wait.targets:
        return ""
    if wait.call in FILE_LOCK_CALLS:
        return f"the lock on {wait.targets[0]}"
    return wait.targets[0] if wait.targets[0].startswith(OPENS) else ""


def _is_current(thread: Thread) -> bool:
    """Whether the thread can still be where its stack says: it has not run since, or hardly."""
    if thread.stack_age_s is None:
        return True
    return thread.stack_age_s <= CURRENT_S or (thread.still_s or 0.0) >= thread.stack_age_s


def _from_hook(role: Role, worker: WorkerLoad | None, loaders: Sequence[Loader]) -> str:
    if role == "loader-worker" and worker is not None:
        if worker.task is None:
            return WAITS_FOR_WORK
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
    own = next((frame for frame in frames if not is_library(frame)), None)
    if own is None or own is top:
        return frame_words(top)
    return f"{frame_words(own)} -> {frame_words(top)}"


def wait_words(waits_on: WaitedOn) -> str:
    """What a system call waits for, in words: `waits for data on pipe 18174`."""
    if waits_on.kind in _STATES:
        return _STATES[waits_on.kind]
    targets = ", ".join(resource_words(target) for target in waits_on.targets[:2])
    if len(waits_on.targets) > 2:
        targets += f" and {len(waits_on.targets) - 2} more"
    match waits_on.kind:
        case "child":
            return f"waits for the exit of {targets.replace('pid ', '') or 'a child'}"
        case "futex":
            return f"waits for {LOCK_OF_THREADS}"
        case "unknown" if waits_on.call in ("open", "openat") and targets:
            return f"waits for {targets}"  # of a FIFO
        case "unknown":
            return f"in {waits_on.call} {targets}".rstrip()
        case "poll" if not targets:
            return "sleeps"
    return f"waits for {object_words(waits_on.kind, targets) or waits_on.call}"


STACKS_KEPT = 4096
"""Different stacks that are remembered; when there are more, all of them are forgotten."""


class EqualStacks:
    """Hands out one tuple for equal frames: workers of a job have few different stacks.

    With it the rules take 5.4 ms for a snapshot of 65 processes, without it 9.0 ms: they compare
    and look up stacks, which is quick for a tuple that is the same object.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Frame, ...], tuple[Frame, ...]] = {}

    def one_of(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """The tuple that was first among equal ones."""
        if len(self._known) >= STACKS_KEPT:
            self._known.clear()
        return self._known.setdefault(frames, frames)
