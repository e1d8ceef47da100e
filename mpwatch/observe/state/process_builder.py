"""One process of the snapshot, joined from its reading, its hook and its stacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.describe.names import role_name
from mpwatch.describe.states import state_explanation
from mpwatch.model.cmdline import python_program
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import (
    Ended,
    Frame,
    GpuSample,
    ProcSample,
    StackSample,
    ThreadSample,
    WaitedOn,
)
from mpwatch.model.snapshot import GpuUse, Hook, Loader, Process, Thread, Trends, WorkerLoad
from mpwatch.model.units import seconds_text
from mpwatch.observe.state.hook_state import HookLedger

RATE_S = 0.4
"""Time is counted in ticks of 10 ms: over less than this, one tick looks like work."""
PAST_LIMIT = 16
_HOOK_PART = "/mpwatch/hook/"
NO_HOOK = Hook()


class _Waiting(NamedTuple):
    """What a thread was found waiting for."""

    what: tuple[object, ...]
    since_s: float


class Past(NamedTuple):
    """What an earlier reading is remembered for: its counters, until when they held."""

    at_s: float
    cpu_ticks: int | None
    threads: tuple[ThreadSample, ...] | None


@dataclass(slots=True)
class Member:
    """What is remembered of one process between samples."""

    sample: ProcSample
    earlier: Past | None = None
    """The newest reading that is `RATE_S` older, or else the oldest there is: for rates."""
    between: tuple[Past, ...] = ()
    """The readings since then."""
    parent: ProcessId | None = None
    original_parent: ProcessId | None = None
    ended: Ended | None = None
    stacks: Mapping[int, StackSample] | None = None
    """By kernel thread id; those without one are under negative numbers."""
    stacks_problem: str | None = None
    stacks_cost_s: float | None = None
    still_since: dict[int, float] | None = None
    """By thread: since when its cpu time has not moved."""
    waits: dict[int, _Waiting] | None = None
    """By thread: what it was last found waiting for, and since when."""

    def take(self, sample: ProcSample, at_s: float) -> None:
        """Replace the reading, and note which threads have used cpu since the last.

        In recordings of earlier versions the reading of an idle process is older than its tree.
        """
        if sample.at_s < at_s:
            sample = replace(sample, at_s=at_s)
        until_s = self.sample.at_s
        sample = _with_last_possessions(sample, self.sample)
        self._note_threads(sample, until_s)
        last = Past(until_s, self.sample.cpu_ticks, self.sample.threads)
        past = (self.earlier, *self.between, last) if self.earlier else (last,)
        old_enough = sum(each.at_s <= sample.at_s - RATE_S for each in past)
        # Never many, also where a clock went back and none of them is old enough.
        self.earlier, *between = past[max(0, old_enough - 1, len(past) - PAST_LIMIT) :]
        self.between, self.sample = tuple(between), sample

    def _note_threads(self, sample: ProcSample, until_s: float) -> None:
        """Note since when threads use no cpu and wait for the same."""
        known = self.still_since or {}
        before = {thread.tid: thread for thread in self.sample.threads or ()}
        since: dict[int, float] = {}
        for thread in sample.threads or ():
            old = before.get(thread.tid)
            if old is not None and old.cpu_ticks == thread.cpu_ticks and thread.state != "R":
                since[thread.tid] = known.get(thread.tid, until_s)
        self.still_since = since
        if self.waits is None:
            self.waits = dict(_waits(self.sample, {}))
        if sample.threads != self.sample.threads:
            self.waits = dict(_waits(sample, self.waits))


def _waits(sample: ProcSample, before: Mapping[int, _Waiting]) -> Iterator[tuple[int, _Waiting]]:
    """What each thread waits for and since when; where a moment does not tell, as it was.

    A thread waits on futexes of its own process on its way to anything else: they tell nothing.
    """
    for thread in sample.threads or ():
        last, wait = before.get(thread.tid), thread.waits_on
        if thread.state == "R" or wait is None or wait.kind in ("futex", "unknown"):
            if last is not None:
                yield thread.tid, last
            continue
        what = (wait.kind, wait.segment, wait.targets)
        is_same = last is not None and last.what == what
        yield thread.tid, last if last and is_same else _Waiting(what, sample.at_s)


def _with_last_possessions(sample: ProcSample, earlier: ProcSample) -> ProcSample:
    """A dead process with what it had while it lived: its own reading is that of an empty shell."""
    if sample.state not in ("Z", "X"):
        return sample
    return replace(
        sample,
        fds=earlier.fds,
        maps=earlier.maps,
        memory=earlier.memory,
        segments=earlier.segments,
        is_reused=True,
    )


def cpu_percent(member: Member, ticks_per_s: int) -> float | None:
    """CPU use between the last two readings; `None` after a single one."""
    now, earlier = member.sample, member.earlier
    if earlier is None or now.cpu_ticks is None or earlier.cpu_ticks is None:
        return None
    elapsed_s = now.at_s - earlier.at_s
    if elapsed_s <= 0 or ticks_per_s <= 0 or member.ended is not None:
        return None
    return 100 * (now.cpu_ticks - earlier.cpu_ticks) / ticks_per_s / elapsed_s


def label(sample: ProcSample) -> str:
    """The label of the process: `main`, `worker 3`, `rank 1`, `evaluate.py`."""
    if sample.role != "other":
        return role_name(sample.role, sample.worker_id, sample.rank)
    program = python_program(sample.cmdline) if sample.is_python else None
    return program.name if program and program.kind in ("script", "module") else sample.name


def program_frames(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames that are the program's own in this process: none of a parent, none of the hook."""
    own = tuple(own_frames(frames))
    if any(_HOOK_PART in frame.file for frame in own):
        own = tuple(frame for frame in own if _HOOK_PART not in frame.file)
    return own


def build_process(
    member: Member,
    ledger: HookLedger | None,
    gpus: Sequence[GpuSample],
    trends: Trends,
    at_s: float,
    ticks_per_s: int,
    *,
    depth: int = 0,
    shm_bytes: int | None = None,
) -> Process:
    """The process as snapshots show it."""
    sample = member.sample
    now_ns = int(at_s * 1e9)
    may_fetch = sample.role in ("loader-worker", "spawned")
    worker = ledger.worker_load(now_ns) if ledger and may_fetch else None
    loaders = ledger.loaders(now_ns) if ledger else ()
    if worker is not None:
        # One that died young was read before its threads had the name that tells its role.
        sample = replace(sample, role="loader-worker", worker_id=worker.worker_id)
    threads = _threads(member, ticks_per_s)
    problems = sample.problems
    if member.stacks_problem:
        problems = (*problems, f"stacks: {member.stacks_problem}")
    return Process(
        process=sample.process,
        sample=sample,
        parent=member.parent,
        original_parent=member.original_parent,
        role=sample.role,
        label=label(sample),
        cpu_percent=cpu_percent(member, ticks_per_s),
        private_bytes=sample.memory.private_bytes if sample.memory else None,
        depth=depth,
        shm_bytes=shm_bytes,
        threads=threads,
        start_method=sample.start_method or (ledger.start_method() if ledger else None),
        sharing_strategy=ledger.strategy if ledger else None,
        shared_cache=ledger.shared_cache() if ledger else None,
        loader=worker,
        gpus=_gpu_uses(sample.process.pid, gpus, ledger),
        doing=doing(sample.role, sample.state, threads, worker, loaders, member.ended),
        stacks_cost_s=member.stacks_cost_s,
        trends=trends,
        ended=member.ended,
        gauges=ledger.gauges if ledger else {},
        problems=problems,
        hook=ledger.hook() if ledger else NO_HOOK,
    )


def _threads(member: Member, ticks_per_s: int) -> tuple[Thread, ...]:
    sample, earlier = member.sample, member.earlier
    elapsed_s = sample.at_s - earlier.at_s if earlier else 0.0
    before = {thread.tid: thread for thread in (earlier.threads or ())} if earlier else {}
    stacks = member.stacks or {}
    out = [
        _thread(
            thread,
            before.get(thread.tid),
            elapsed_s * ticks_per_s,
            stacks.get(thread.tid),
            _still_s(member, thread.tid),
            _waits_s(member, thread),
            sample.at_s,
        )
        for thread in sample.threads or ()
    ]
    return tuple(out)


def _still_s(member: Member, tid: int) -> float | None:
    since_s = (member.still_since or {}).get(tid)
    return None if since_s is None else member.sample.at_s - since_s


def _waits_s(member: Member, thread: ThreadSample) -> float | None:
    waiting = (member.waits or {}).get(thread.tid)
    is_waiting = waiting is not None and thread.waits_on is not None and thread.state != "R"
    return member.sample.at_s - waiting.since_s if waiting is not None and is_waiting else None


def _thread(
    thread: ThreadSample,
    before: ThreadSample | None,
    elapsed_ticks: float,
    stack: StackSample | None,
    still_s: float | None,
    waits_s: float | None,
    at_s: float,
) -> Thread:
    percent = None
    if before is not None and thread.cpu_ticks is not None and before.cpu_ticks is not None:
        ticks = thread.cpu_ticks - before.cpu_ticks
        percent = 100 * ticks / elapsed_ticks if elapsed_ticks > 0 else None
    return Thread(
        tid=thread.tid,
        # The kernel cuts names at 15 characters; a stack knows Python's own.
        name=(stack.thread_name if stack and stack.thread_name else thread.name),
        state=thread.state,
        wchan=thread.wchan,
        cpu_percent=percent,
        waits_on=thread.waits_on,
        stack=stack.frames if stack else (),
        stack_source=stack.source if stack else None,
        stack_at_s=stack.at_s if stack else None,
        stack_age_s=max(0.0, at_s - stack.at_s) if stack else None,
        has_gil=stack.has_gil if stack else None,
        still_s=still_s,
        waits_s=waits_s,
    )


def _gpu_uses(pid: int, gpus: Sequence[GpuSample], ledger: HookLedger | None) -> tuple[GpuUse, ...]:
    from_hook = {use.index: use for use in ledger.gpu_uses()} if ledger else {}
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
"""A stack of a thread that runs says what it did; after so long it no longer says what it does."""

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
        return state_explanation(state)
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
    return state_explanation(state)


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
    own = next((frame for frame in frames if not is_library(frame)), None)
    if own is None or own is top:
        return frame_words(top)
    return f"{frame_words(own)} -> {frame_words(top)}"


def wait_words(waits_on: WaitedOn) -> str:
    """What a system call waits for, in words: `reads pipe:[18174]`."""
    words = _WAIT_WORDS.get(waits_on.kind, f"in {waits_on.call}")
    targets = ", ".join(waits_on.targets[:2])
    if len(waits_on.targets) > 2:
        targets += f" and {len(waits_on.targets) - 2} more"
    return f"{words} {targets}".strip()


class FamilyOrder:
    """Sorts members once, and again only after somebody came, went, or lost a parent."""

    def __init__(self) -> None:
        self._basis: list[tuple[ProcessId, ProcessId | None]] = []
        self._root: ProcessId | None = None
        self._order: tuple[tuple[ProcessId, int], ...] = ()

    def of(
        self, members: Mapping[ProcessId, Member], root: ProcessId
    ) -> tuple[tuple[ProcessId, int], ...]:
        """Each with its depth: root first, children after parents by birth, orphans last."""
        basis = [(process, member.parent) for process, member in members.items()]
        if basis != self._basis or root != self._root:
            self._basis, self._root = basis, root
            self._order = tuple(_in_families(dict(basis), root))
        return self._order


def _in_families(
    parents: Mapping[ProcessId, ProcessId | None], root: ProcessId
) -> list[tuple[ProcessId, int]]:
    children: dict[ProcessId | None, list[ProcessId]] = {}
    for process, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(process)
    for siblings in children.values():
        siblings.sort(key=lambda each: (each != root, each.start_ticks, each.pid), reverse=True)
    pending = [(process, 0) for process in children.get(None, ())]
    ordered = []
    while pending:
        process, depth = pending.pop()
        ordered.append((process, depth))
        pending.extend((child, depth + 1) for child in children.get(process, ()))
    return ordered


STACKS_KEPT = 4096
"""Different ones; when there are more, all are forgotten, and those still shown stay with them."""


class EqualStacks:
    """Hands out the same tuple for equal frames, so that what is derived of one holds for all."""

    def __init__(self) -> None:
        self._known: dict[tuple[Frame, ...], tuple[Frame, ...]] = {}

    def one_of(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """The first of all equal ones."""
        if len(self._known) >= STACKS_KEPT:
            self._known.clear()
        return self._known.setdefault(frames, frames)
