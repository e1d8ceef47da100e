"""Small jobs as inputs, for tests of the fold and what surrounds it."""

from __future__ import annotations

import itertools

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookSlice
from mpwatch.model.host import HostSample
from mpwatch.model.ids import ProcessId, Role, SegmentId, SegmentUse
from mpwatch.model.samples import FdSample, MapSample, ProcSample, ThreadSample, TreeSample

MAIN = ProcessId(100, 1000)
WORKER_0 = ProcessId(101, 1001)
WORKER_1 = ProcessId(102, 1002)
WALL_S = 1_700_000_000.0
_sequences = itertools.count()
"""Numbers of the records made here: as in a ring, none comes twice."""


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
        host=HostSample(at_s=at_s, wall_s=WALL_S + at_s, hostname="box", kernel="6.18"),
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


def part(process: ProcessId, at_s: float, *events: HookEvent, lost: int = 0) -> HookSlice:
    return HookSlice(process=process, at_s=at_s, events=events, lost=lost)


def shared(at_s: float, key: int, size: int = 1000, copied: bool = True) -> HookEvent:
    flags = wire.FLAG_COPIED if copied else 0
    return event(wire.SHARE, at_s, key=key, size=size, flags=flags)


def rebuilt(at_s: float, key: int, size: int = 1000) -> HookEvent:
    return event(wire.REBUILD, at_s, key=key, size=size)
