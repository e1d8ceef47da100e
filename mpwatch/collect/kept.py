"""What was read of one process so far, and the samples that are made of it.

A sample that would say what the last one said is that very object: whoever derives something from
it need not do so again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mpwatch.collect import threads
from mpwatch.collect.counters import NO_COUNTERS, StatusCounters
from mpwatch.collect.fds import Descriptors
from mpwatch.collect.identity import Identity
from mpwatch.collect.maps import Mappings
from mpwatch.collect.pacing import PAGE_BYTES
from mpwatch.collect.procfs import Stat
from mpwatch.model.samples import FdSample, MapSample, MemorySample, ProcSample, ThreadSample
from mpwatch.model.segments import SegmentUse

NO_MEMORY = MemorySample()


@dataclass(slots=True)
class Kept:
    """What was read of a process so far."""

    threads: dict[int, threads.KeptThread] = field(default_factory=dict)
    descriptors: Descriptors | None = None
    mappings: Mappings | None = None
    segments: tuple[SegmentUse, ...] | None = None
    memory: MemorySample | None = None
    sample: ProcSample | None = None
    """The last one: what has not run since keeps its small counters."""
    listing: tuple[ThreadSample, ...] | None = None
    """The samples of `threads`."""
    status: StatusCounters = NO_COUNTERS
    moved: tuple[int, ...] = ()
    """What shows that a process has run since `status` was read."""

    def is_being_filled(self) -> bool:
        """Whether a segment of it occupies less than its size, as when it was looked at.

        How much is held against what is free at each moment, so the listing may not become old: no
        count of anything tells that more was written.
        """
        return any(
            use.size_bytes is not None
            and use.allocated_bytes is not None
            and use.allocated_bytes < use.size_bytes
            for use in self.segments or ()
        )

    def fd_sample(
        self, identity: Identity, used: int | None, listed_at_s: float
    ) -> FdSample | None:
        """The fresh count with the last listing; `None` if it could not be counted."""
        if used is None:
            return None
        listing, last = self.descriptors, self.sample
        read_at_s = listed_at_s if listing is not None else None
        before = last.fds if last is not None else None
        if (
            before is not None
            and before.used == used
            and before.read_at_s == read_at_s
            and before.soft_limit == identity.soft_limit
        ):
            return before
        return FdSample(
            used=used,
            soft_limit=identity.soft_limit,
            hard_limit=identity.hard_limit,
            by_kind=listing.by_kind if listing is not None else None,
            links=listing.links if listing is not None else None,
            read_at_s=read_at_s,
        )

    def map_sample(self, limit: int | None, read_at_s: float) -> MapSample | None:
        """The last reading of the mappings."""
        found, last = self.mappings, self.sample
        if found is None:
            return None
        before = last.maps if last is not None else None
        if before is not None and before.read_at_s == read_at_s:
            return before
        return MapSample(
            used=found.used,
            limit=limit,
            torch_count=found.torch_count,
            libraries=found.libraries,
            read_at_s=read_at_s,
        )

    def memory_sample(self, stat: Stat) -> MemorySample:
        """The fresh resident sizes with the last `smaps_rollup`."""
        shmem_kb, last = self.status.shmem_kb, self.sample
        rollup = self.memory or NO_MEMORY
        rss_bytes = stat.rss_pages * PAGE_BYTES
        shmem_bytes = shmem_kb * 1024 if shmem_kb is not None else None
        before = last.memory if last is not None else None
        if (
            before is not None
            and before.rss_bytes == rss_bytes
            and before.shmem_bytes == shmem_bytes
            and before.read_at_s == rollup.read_at_s
        ):
            return before
        return replace(rollup, rss_bytes=rss_bytes, shmem_bytes=shmem_bytes)
