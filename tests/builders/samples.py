"""Samples and hook events of small jobs, as the fold and recordings receive them."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookSlice
from mpwatch.model.host import HostSample
from mpwatch.model.ids import ProcessId, Role, SegmentId, SegmentUse
from mpwatch.model.samples import FdSample, MapSample, ProcSample, ThreadSample, TreeSample

MAIN = ProcessId(100, 1000)
WORKER_0 = ProcessId(101, 1001)
WORKER_1 = ProcessId(102, 1002)
WALL_S = 1_700_000_000.0
START_S = 1000.0
"""Time of the first input of small jobs."""
_sequences = itertools.count()
"""Sequence numbers of the events made here: as in a ring, each is used once."""


def segment_use(
    inode: int,
    creator: int = 101,
    size: int = 4096,
    mapped: bool = True,
    allocated: int | None = None,
) -> SegmentUse:
    return SegmentUse(
        segment=SegmentId(26, inode),
        path=f"/dev/shm/torch_{creator}_1_{inode} (deleted)",
        kind="torch",
        is_linked=False,
        creator_pid=creator,
        fds=(7,),
        ranges=((0x7F00, 0x8F00),) if mapped else (),
        size_bytes=size,
        allocated_bytes=allocated,
        changed_wall_s=WALL_S - 2.0,
    )


def sample(
    process: ProcessId,
    at_s: float,
    *,
    parent: int = 1,
    role: Role = "other",
    worker_id: int | None = None,
    cpu_ticks: int = 0,
    state: str = "S",
    threads: tuple[ThreadSample, ...] | None = None,
    segments: tuple[SegmentUse, ...] | None = None,
    fds: int = 20,
) -> ProcSample:
    return ProcSample(
        process=process,
        at_s=at_s,
        parent_pid=parent,
        name="python",
        cmdline=("python", "train.py"),
        state=state,
        role=role,
        worker_id=worker_id,
        cpu_ticks=cpu_ticks,
        threads=threads,
        thread_count=None if threads is None else len(threads),
        segments=segments,
        fds=FdSample(used=fds, soft_limit=1024, hard_limit=4096, by_kind={"torch": 2}),
        maps=MapSample(used=300, limit=65530, torch_count=2, read_at_s=at_s),
    )


def tree(at_s: float, *processes: ProcSample) -> TreeSample:
    return TreeSample(
        at_s=at_s,
        wall_s=WALL_S + at_s,
        root=MAIN,
        host=HostSample(at_s=at_s, wall_s=WALL_S + at_s, hostname="node7", kernel="6.18"),
        processes=processes,
    )


def job(at_s: float, cpu_ticks: int = 0) -> TreeSample:
    """A main process with two DataLoader workers."""
    return tree(
        at_s,
        sample(MAIN, at_s, role="main", cpu_ticks=cpu_ticks),
        sample(WORKER_0, at_s, parent=100, role="loader-worker", worker_id=0),
        sample(WORKER_1, at_s, parent=100, role="loader-worker", worker_id=1),
    )


def job_process(process: ProcessId, at_s: float, cpu_ticks: int = 5) -> ProcSample:
    """One process of `small_job`: its main thread, without descriptors and mappings."""
    is_main = process == MAIN
    made = sample(
        process,
        at_s,
        parent=1 if is_main else MAIN.pid,
        role="main" if is_main else "loader-worker",
        cpu_ticks=cpu_ticks,
        threads=(ThreadSample(process.pid, "MainThread", "S", cpu_ticks),),
    )
    return replace(made, fds=None, maps=None)


def small_job(
    at_s: float, *, cpu_ticks: int = 5, processes: tuple[ProcessId, ...] = (MAIN, WORKER_0)
) -> TreeSample:
    """A main process and workers that have all used the same cpu time."""
    return tree(at_s, *(job_process(process, at_s, cpu_ticks) for process in processes))


def event(
    kind: int,
    at_s: float,
    *,
    key: int = 1,
    key2: int = 26,
    size: int = 1000,
    duration_ns: int = 1000,
    aux: int = 0,
    flags: int = 0,
) -> HookEvent:
    sequence = next(_sequences)
    return HookEvent(sequence, int(at_s * 1e9), kind, 1, duration_ns, size, key, key2, aux, flags)


def hook_slice(process: ProcessId, at_s: float, *events: HookEvent, lost: int = 0) -> HookSlice:
    return HookSlice(process=process, at_s=at_s, events=events, lost=lost)


def shared(at_s: float, key: int, size: int = 1000, copied: bool = True) -> HookEvent:
    flags = wire.FLAG_COPIED if copied else 0
    return event(wire.SHARE, at_s, key=key, size=size, flags=flags)


def rebuilt(at_s: float, key: int, size: int = 1000) -> HookEvent:
    return event(wire.REBUILD, at_s, key=key, size=size)


def shared_batches(at_s: float, count: int = 2) -> HookSlice:
    """Tensors that a worker shares, with the same sequence numbers each time."""
    at_ns = int(at_s * 1e9)
    events = tuple(
        HookEvent(n, at_ns, wire.SHARE, WORKER_0.pid, 1000, 4096, 77 + n, 1, 0, 0)
        for n in range(count)
    )
    return HookSlice(WORKER_0, at_s, events, lost=0)
