"""Shared-memory files joined over all processes: one `Segment` for each file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import eq, is_
from typing import NamedTuple, TypeAlias

from mpwatch.model.events import HookNote
from mpwatch.model.ids import ProcessId, SegmentId, SegmentUse
from mpwatch.model.samples import ProcSample
from mpwatch.model.snapshot import Segment


class _Joined(NamedTuple):
    """One file with its holders."""

    best: SegmentUse
    """The use whose sample says most."""
    mappers: tuple[ProcessId, ...]
    holders: tuple[ProcessId, ...]


CALL_SITE_KEPT_S = 5.0
"""A call site may be reported before its segment is read."""


class CallSites:
    """Lines of code that allocated a segment, where a hook sampled them."""

    def __init__(self) -> None:
        self.by_segment: dict[SegmentId, str] = {}
        self._noted_s: dict[SegmentId, float] = {}

    def add(self, note: HookNote) -> None:
        """Take the call site of a note; one that is not well-formed is ignored."""
        inode, device, site = (note.data.get(name) for name in ("inode", "device", "site"))
        if isinstance(inode, int) and isinstance(device, int) and isinstance(site, str):
            self.by_segment[SegmentId(device, inode)] = site
            self._noted_s[SegmentId(device, inode)] = note.at_ns / 1e9

    def forget_gone(self, segments: Iterable[Segment], at_s: float) -> None:
        """Drop the call sites of removed segments: their inodes will be used again."""
        if not self._noted_s:
            return
        present = {segment.segment for segment in segments}
        for segment, noted_s in list(self._noted_s.items()):
            if segment not in present and at_s - noted_s > CALL_SITE_KEPT_S:
                del self._noted_s[segment], self.by_segment[segment]


_Uses: TypeAlias = dict[SegmentId, dict[ProcessId, SegmentUse]]
"""By file: how each process uses it."""


class SegmentTable:
    """Joins the segments of all processes, and again only those whose users have changed.

    Forked workers map every semaphore made before them: 65 processes have 7,200 uses of 460 files,
    few of which change from one reading to the next. So a reading takes 1.8 ms, and not 19 ms.
    """

    def __init__(self) -> None:
        self._held: dict[ProcessId, tuple[SegmentUse, ...]] = {}
        """The segments of each process, in the order of the processes. A process in which nothing
        has changed has the same tuple as before."""
        self._uses: _Uses = {}
        self._joins: list[tuple[SegmentId, _Joined]] = []
        self._made: dict[SegmentId, tuple[_Joined, Segment]] = {}
        self._shown: tuple[Segment, ...] = ()

    def join(
        self,
        samples: Iterable[ProcSample],
        known: Mapping[int, ProcessId],
        call_sites: Mapping[SegmentId, str],
    ) -> tuple[Segment, ...]:
        """One `Segment` for each file that any of the processes holds, largest first.

        Args:
            samples: The newest reading of each living process.
            known: Every process seen so far by pid, dead ones included: creators outlive their
                names.
            call_sites: Lines of code that allocated a segment, where a hook sampled them.
        """
        held = {sample.process: sample.segments or () for sample in samples}
        before, self._held = self._held, held
        if len(held) != len(before) or not all(map(eq, held, before)):
            # A process has started or exited: holders are in the order of the processes.
            self._uses = {}
            self._rejoin(self._note({}, held))
        elif not all(map(is_, held.values(), before.values())):
            self._rejoin(self._note(before, held))
        made = [self._segment(key, join, known, call_sites) for key, join in self._joins]
        if len(made) != len(self._shown) or not all(map(is_, made, self._shown)):
            self._shown = tuple(made)
            self._made = {key: self._made[key] for key, _ in self._joins}
        return self._shown

    def _segment(
        self,
        key: SegmentId,
        join: _Joined,
        known: Mapping[int, ProcessId],
        call_sites: Mapping[SegmentId, str],
    ) -> Segment:
        """One file; the same object as before if nothing has changed."""
        pid, call_site = join.best.creator_pid, call_sites.get(key)
        creator = None if pid is None else known.get(pid)
        before = self._made.get(key)
        if before is not None and before[0] is join:
            segment = before[1]
            if segment.creator == creator and segment.call_site == call_site:
                return segment
        segment = _segment(join, creator, call_site)
        self._made[key] = join, segment
        return segment

    def _note(
        self,
        before: Mapping[ProcessId, tuple[SegmentUse, ...]],
        held: Mapping[ProcessId, tuple[SegmentUse, ...]],
    ) -> set[SegmentId]:
        """Note what processes hold now; returns the files of which anything has changed."""
        touched: set[SegmentId] = set()
        for process, now in held.items():
            then = before.get(process, ())
            if now is then:
                continue
            uses = {use.segment: use for use in now}
            # A damaged recording may list one segment of a process twice.
            for segment in {use.segment for use in then} - uses.keys():
                touched.add(segment)
                del self._uses[segment][process]
            for segment, use in uses.items():
                holders = self._uses.setdefault(segment, {})
                if holders.get(process) != use:
                    touched.add(segment)
                    holders[process] = use
        return touched

    def _rejoin(self, touched: set[SegmentId]) -> None:
        """Join these files again and sort all of them."""
        joins = {key: join for key, join in self._joins if key in self._uses}
        places = {process: n for n, process in enumerate(self._held)}
        for segment in touched:
            uses = self._uses[segment]
            if uses:
                joins[segment] = join_uses(sorted(uses.items(), key=lambda each: places[each[0]]))
            else:
                del self._uses[segment]
                joins.pop(segment, None)
        self._joins = sorted(
            joins.items(), key=lambda each: (-(each[1].best.size_bytes or 0), each[0])
        )


def join_uses(uses: Sequence[tuple[ProcessId, SegmentUse]]) -> _Joined:
    """One file with its holders, in the order of the processes."""
    # Files are filled and hardly ever emptied: the sample with the most bytes is the newest.
    best = max(uses, key=lambda each: _allocated(each[1]))[1]
    return _Joined(
        best,
        tuple([process for process, use in uses if use.ranges]),
        tuple([process for process, use in uses if not use.ranges]),
    )


def _allocated(use: SegmentUse) -> int:
    """Bytes it occupied when it was read; -1 where that is not known."""
    return -1 if use.allocated_bytes is None else use.allocated_bytes


def _segment(join: _Joined, creator: ProcessId | None, call_site: str | None) -> Segment:
    use = join.best
    return Segment(
        segment=use.segment,
        path=use.path,
        kind=use.kind,
        is_linked=use.is_linked,
        creator_pid=use.creator_pid,
        creator=creator,
        mappers=join.mappers,
        holders=join.holders,
        size_bytes=use.size_bytes,
        allocated_bytes=use.allocated_bytes,
        changed_wall_s=use.changed_wall_s,
        call_site=call_site,
    )


def mapped_bytes(uses: Iterable[SegmentUse]) -> int:
    """Bytes of the tensor and named segments among these, each file once.

    Semaphores are left out: they are pages of 32 bytes that would only blur the number.
    """
    return sum(
        use.size_bytes or 0 for use in uses if use.kind != "semaphore" and (use.ranges or use.fds)
    )
