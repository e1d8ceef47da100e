"""Shared-memory files joined over all processes: one row a file, however many hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import ProcSample
from mpwatch.model.segments import SegmentUse
from mpwatch.model.snapshot import Segment


class _Join:
    """What the holders of one file said about it."""

    __slots__ = ("best", "holders", "mappers")

    def __init__(self, use: SegmentUse) -> None:
        self.best = use
        self.mappers: list[ProcessId] = []
        self.holders: list[ProcessId] = []


def join_segments(
    samples: Iterable[ProcSample],
    known: Mapping[int, ProcessId],
    wall_s: float,
    call_sites: Mapping[SegmentId, str],
) -> tuple[Segment, ...]:
    """One `Segment` for each file that any of the processes holds, largest first.

    Args:
        samples: The newest reading of each living process.
        known: Every process seen so far by pid, dead ones included: creators outlive their names.
        wall_s: The moment of the reading, for ages.
        call_sites: Lines of code that allocated a segment, where a hook sampled them.
    """
    joins: dict[SegmentId, _Join] = {}
    for sample in samples:
        for use in sample.segments or ():
            join = joins.get(use.segment)
            if join is None:
                join = joins[use.segment] = _Join(use)
            elif join.best.allocated_bytes is None and use.allocated_bytes is not None:
                join.best = use
            (join.mappers if use.ranges else join.holders).append(sample.process)
    segments = [
        _segment(join, known, wall_s, call_sites.get(identity)) for identity, join in joins.items()
    ]
    segments.sort(key=lambda segment: (-(segment.size_bytes or 0), segment.segment))
    return tuple(segments)


def _segment(
    join: _Join, known: Mapping[int, ProcessId], wall_s: float, call_site: str | None
) -> Segment:
    use = join.best
    age_s = None if use.changed_wall_s is None else max(0.0, wall_s - use.changed_wall_s)
    return Segment(
        segment=use.segment,
        path=use.path,
        kind=use.kind,
        is_linked=use.is_linked,
        creator_pid=use.creator_pid,
        creator=None if use.creator_pid is None else known.get(use.creator_pid),
        mappers=tuple(join.mappers),
        holders=tuple(join.holders),
        size_bytes=use.size_bytes,
        allocated_bytes=use.allocated_bytes,
        age_s=age_s,
        call_site=call_site,
    )


def mapped_shm_bytes(sample: ProcSample) -> int | None:
    """Bytes of tensor and named segments one process maps, each file once; `None` if not read.

    Semaphores are left out: they are pages of 32 bytes that would only blur the number.
    """
    if sample.segments is None:
        return None
    return sum(
        use.size_bytes or 0
        for use in sample.segments
        if use.kind != "semaphore" and (use.ranges or use.fds)
    )
