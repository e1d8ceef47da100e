"""Shared-memory files joined over all processes: one row a file, however many hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

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


class _Joined(NamedTuple):
    """One file with its holders, for as long as those stay the same."""

    best: SegmentUse
    """The reading that says most."""
    mappers: tuple[ProcessId, ...]
    holders: tuple[ProcessId, ...]


class MappedBytes:
    """Shared memory that processes map, summed up again only where something else is mapped."""

    def __init__(self) -> None:
        self._known: dict[ProcessId, tuple[tuple[SegmentUse, ...], int]] = {}

    def of(self, sample: ProcSample) -> int | None:
        """Bytes of segments that one process maps; `None` if not read."""
        if sample.segments is None:
            return None
        known = self._known.get(sample.process)
        if known is None or known[0] is not sample.segments:
            known = self._known[sample.process] = sample.segments, mapped_bytes(sample.segments)
        return known[1]

    def forget(self, process: ProcessId) -> None:
        """Drop what nobody shows any more."""
        self._known.pop(process, None)


class SegmentTable:
    """Joins what all processes hold, and keeps that while none of them holds anything else.

    Forked workers map every semaphore made before them, thousands of uses of a few hundred files,
    and from one reading to the next hardly any of them changes.
    """

    def __init__(self) -> None:
        self._basis: list[tuple[ProcessId, tuple[SegmentUse, ...] | None]] = []
        self._joins: list[tuple[SegmentId, _Joined]] = []

    def join(
        self,
        samples: Iterable[ProcSample],
        known: Mapping[int, ProcessId],
        wall_s: float,
        call_sites: Mapping[SegmentId, str],
    ) -> tuple[Segment, ...]:
        """One `Segment` for each file that any of the processes holds, largest first.

        Args:
            samples: The newest reading of each living process.
            known: Every process seen so far by pid, dead ones included: creators outlive their
                names.
            wall_s: The moment of the reading, for ages.
            call_sites: Lines of code that allocated a segment, where a hook sampled them.
        """
        basis = [(sample.process, sample.segments) for sample in samples]
        if not _is_same(basis, self._basis):
            self._basis, self._joins = basis, _joined(basis)
        return tuple(
            [
                _segment(join, known, wall_s, call_sites.get(identity))
                for identity, join in self._joins
            ]
        )


def _is_same(
    now: list[tuple[ProcessId, tuple[SegmentUse, ...] | None]],
    before: list[tuple[ProcessId, tuple[SegmentUse, ...] | None]],
) -> bool:
    """Whether the same processes hold what they held, by the identity of the readings."""
    return len(now) == len(before) and all(
        held is held_before and process == process_before
        for (process, held), (process_before, held_before) in zip(now, before, strict=True)
    )


def _joined(
    basis: Iterable[tuple[ProcessId, tuple[SegmentUse, ...] | None]],
) -> list[tuple[SegmentId, _Joined]]:
    """The holders of each file, the largest file first."""
    joins: dict[SegmentId, _Join] = {}
    for process, uses in basis:
        for use in uses or ():
            join = joins.get(use.segment)
            if join is None:
                join = joins[use.segment] = _Join(use)
            elif join.best.allocated_bytes is None and use.allocated_bytes is not None:
                join.best = use
            (join.mappers if use.ranges else join.holders).append(process)
    ordered = sorted(joins.items(), key=lambda each: (-(each[1].best.size_bytes or 0), each[0]))
    return [
        (segment, _Joined(join.best, tuple(join.mappers), tuple(join.holders)))
        for segment, join in ordered
    ]


def _segment(
    join: _Joined, known: Mapping[int, ProcessId], wall_s: float, call_site: str | None
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
        mappers=join.mappers,
        holders=join.holders,
        size_bytes=use.size_bytes,
        allocated_bytes=use.allocated_bytes,
        age_s=age_s,
        call_site=call_site,
    )


def mapped_bytes(uses: Iterable[SegmentUse]) -> int:
    """Bytes of the tensor and named segments among these, each file once.

    Semaphores are left out: they are pages of 32 bytes that would only blur the number.
    """
    return sum(
        use.size_bytes or 0 for use in uses if use.kind != "semaphore" and (use.ranges or use.fds)
    )
