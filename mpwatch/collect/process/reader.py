"""One process, read piece by piece: what moved is read anew, the rest is carried over."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from mpwatch.collect.job.roles import Part
from mpwatch.collect.process import fds, maps, memory, procfs, segments, threads
from mpwatch.collect.process.fds import Descriptors, SocketTable
from mpwatch.collect.process.maps import Mappings
from mpwatch.collect.process.procfs import (
    NO_COUNTERS,
    Budget,
    KeptFiles,
    Stat,
    StatusCounters,
    read_io,
    read_status,
)
from mpwatch.collect.process.schedule import (
    ASLEEP_S,
    NEAR,
    PAGE_BYTES,
    REST_S,
    SLOW_S,
    TRUSTED_S,
    Due,
    MemoryTurn,
    Plan,
    Rest,
    Slow,
    is_near,
)
from mpwatch.collect.process.segments import CreatorOf, ExtentCache
from mpwatch.collect.process.static_facts import Identity
from mpwatch.collect.process.syscall_waits import WaitResolver
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdSample, MapSample, MemorySample, ProcSample, ThreadSample
from mpwatch.model.segments import SegmentUse

T = TypeVar("T")

NOTHING_DUE = Due(None, None, None)
STATUS_S = 2.5
"""The counters of `status` are read this often at most: 20 us a process."""


@dataclass(frozen=True, slots=True)
class ReadContext:
    """One moment, and what is kept from one to the next."""

    proc: str
    at_s: float
    wall_s: float
    syscalls: dict[int, str]
    max_map_count: int | None
    extents: ExtentCache
    sockets: SocketTable
    cpu_clock: Callable[[], float]
    rollups: memory.Rollups | None = None
    """`smaps_rollup` of everybody, where all are read at once."""
    slow_s: float = SLOW_S
    """How old descriptors and mappings that hardly moved may become: less in a small job."""


class ProcessReader:
    """Reads one process again and again."""

    def __init__(self, process: ProcessId, budget: Budget) -> None:
        self._process = process
        self._files = KeptFiles(budget)
        self._rest = Rest()
        self._kept = Kept()
        self._links, self._maps, self._memory = Slow(), Slow(), MemoryTurn()
        self._has_new_maps = False
        self._used: int | None = None
        self._unmoved: tuple[Stat | None, float] = None, -math.inf
        """What it was when no part was due, and when that was asked."""
        self._read_at_s = -math.inf
        self._pulse = b""
        self._status_read_at_s = -math.inf
        self._problems: dict[str, str] = {}

    def close(self) -> None:
        """Let go of its files."""
        self._files.close()

    def rested(
        self, around: ReadContext, stat: Stat, identity: Identity, part: Part, plan: Plan
    ) -> ProcSample | None:
        """The last reading, if the process is at rest and that is recent enough to stand for it.

        Of one that has opened or closed something, a reading that says so and is else the same.
        """
        last = self._kept.sample
        if last is None or plan.links or plan.maps or plan.memory or plan.resting:
            return None
        age_s = around.at_s - self._read_at_s
        if not 0.0 < age_s < ASLEEP_S or not self._rest.holds(stat, identity, part):
            return None
        if not self._is_asleep(around.proc, age_s):
            return None
        if (last.fds.used if last.fds is not None else None) == self._used:
            return last
        self._kept.sample = self._assemble(around, stat, identity, part, is_ended=False)
        return self._kept.sample

    def _is_asleep(self, proc: str, age_s: float) -> bool:
        """Whether the main thread is where it was; for a moment that need not be asked."""
        if age_s < TRUSTED_S:
            return True
        pid = self._process.pid
        main = self._kept.threads.get(pid)
        if main is None:
            return age_s < REST_S
        counters = threads.still_there(
            f"{proc}/{pid}/task/{pid}", main, self._pulse, self._files.read
        )
        if counters is None:
            return False
        self._pulse = counters
        return bool(counters) or age_s < REST_S

    def due(self, around: ReadContext, stat: Stat, *, may_rest: bool) -> Due:
        """Count descriptors and say which expensive parts have something new.

        Nobody who may rest and has not moved is asked twice within a moment.
        """
        at_s = around.at_s
        before, asked_at_s = self._unmoved
        if may_rest and stat is before and 0.0 <= at_s - asked_at_s < TRUSTED_S:
            return NOTHING_DUE
        try:
            self._used = fds.count(around.proc, self._process.pid, self._files.size)
            self._problems.pop("descriptors", None)
        except OSError as error:
            self._used = None
            self._note("descriptors", error)
        due = Due(
            self._links.urgency((self._used or 0,), at_s, around.slow_s),
            self._maps.urgency(self._maps_mark(stat), at_s, around.slow_s),
            self._memory.urgency(_touched(stat), at_s, around.slow_s),
        )
        self._unmoved = stat if due == NOTHING_DUE else None, at_s
        return due

    def read(
        self,
        around: ReadContext,
        stat: Stat,
        identity: Identity,
        part: Part,
        plan: Plan,
        outside_pid: CreatorOf,
    ) -> ProcSample:
        """Read what the plan says and put it together with what is known."""
        is_ended = stat.state in ("Z", "X")
        self._rest.note(stat, identity, part)
        self._read_at_s = around.at_s
        if is_ended:
            self._kept, self._problems = Kept(sample=self._kept.sample), {}
            self._files.close()
        else:
            self._read_slow(around, stat, plan, outside_pid)
            if plan.threads:
                self._read_threads(around, stat.thread_count, plan.resting, outside_pid)
        sample = self._assemble(around, stat, identity, part, is_ended)
        self._kept.sample = sample
        return sample

    def _read_slow(
        self, around: ReadContext, stat: Stat, plan: Plan, outside_pid: CreatorOf
    ) -> None:
        """Descriptors, mappings and memory, as planned."""
        kept, pid = self._kept, self._process.pid
        has_news = False
        if plan.links:
            with_cost = self._timed(
                around,
                "descriptors",
                lambda proc, p: fds.read_descriptors(
                    proc, p, around.sockets.end, self._kept.descriptors
                ),
                pid,
            )
            if with_cost is not None:
                has_news = self._take_descriptors(around, *with_cost)
        # Reading the mappings of a process that is stuck in the kernel while it holds its own mmap
        # lock would hang the reader as well.
        if (plan.maps or plan.memory) and self._is_stuck(around, stat):
            if kept.mappings is None:
                self._problems["mappings"] = "mappings: not read while the process is in state D"
            plan = plan._replace(maps=False, memory=False)
        if plan.maps and self._read_maps(around, stat):
            has_news = True
        found = around.rollups.get(pid) if plan.memory and around.rollups is not None else None
        if found is not None:
            kept.memory = found
            self._memory.done(_touched(stat), around.at_s, 0.0, found.private_bytes)
        elif plan.memory:
            with_memory = self._timed(
                around, "memory", lambda proc, p: memory.read_rollup(proc, p, around.at_s), pid
            )
            cost_s, private_bytes = 0.0, None
            if with_memory is not None:
                kept.memory, cost_s = with_memory
                private_bytes = kept.memory.private_bytes
            # One that may not be read waits its turn like others, or it would always come first.
            self._memory.done(_touched(stat), around.at_s, cost_s, private_bytes)
        if has_news:
            joined = segments.join(
                pid,
                kept.descriptors.held if kept.descriptors is not None else (),
                kept.mappings.files if kept.mappings is not None else (),
                around.extents,
                outside_pid,
                around.at_s,
                kept.segments or (),
            )
            # The same object while nothing has changed: who derives from it need not do so again.
            if joined != kept.segments:
                kept.segments = joined

    def _take_descriptors(self, around: ReadContext, found: Descriptors, cost_s: float) -> bool:
        """Keep a listing; whether it says anything about segments."""
        before, self._kept.descriptors = self._kept.descriptors, found
        is_same = before is not None and before.links is found.links
        is_like = before is not None and is_near((found.used,), (before.used,))
        if self._kept.is_being_filled():
            is_same = is_like = False
        mark = (self._used or 0,)
        self._links.done(mark, around.at_s, cost_s, is_same=is_same, is_like=is_like)
        return before is None or bool(found.held or before.held)

    def _read_maps(self, around: ReadContext, stat: Stat) -> bool:
        """Parse the mappings; whether that worked."""
        found = self._timed(
            around,
            "mappings",
            lambda proc, pid: maps.read_mappings(proc, pid, self._kept.mappings),
            self._process.pid,
        )
        if found is None:
            return False
        before = self._kept.mappings
        self._kept.mappings, cost_s = found
        is_same = self._kept.mappings is before
        is_like = before is not None and is_near((self._kept.mappings.used,), (before.used,))
        self._has_new_maps = self._has_new_maps or not is_same
        if self._kept.is_being_filled():
            is_same = is_like = False
        mark = self._maps_mark(stat)
        self._maps.done(mark, around.at_s, cost_s, is_same=is_same, is_like=is_like)
        return True

    def _maps_mark(self, stat: Stat) -> tuple[int, ...]:
        """What moves when mappings do: descriptors, threads, resident shared memory in MiB."""
        shmem_kb = self._kept.status.shmem_kb or 0
        return self._used or 0, (NEAR + 1) * stat.thread_count, shmem_kb >> 10

    def _read_threads(
        self, around: ReadContext, thread_count: int, resting: bool, outside_pid: CreatorOf
    ) -> None:
        """All threads, with what the blocked ones wait for."""
        resolver = WaitResolver(
            around.proc,
            self._process.pid,
            around.syscalls,
            lambda: self._kept.mappings,
            outside_pid,
            around.at_s,
            around.wall_s,
        )
        if self._has_new_maps:
            self._has_new_maps = False
            self._kept.threads = threads.without_unsure(self._kept.threads)
        before = self._kept.threads
        self._kept.threads = threads.read_threads(
            around.proc,
            self._process.pid,
            thread_count,
            self._kept.threads,
            resolver,
            math.inf if resting else around.at_s,
            self._files.read,
        )
        for tid in before.keys() - self._kept.threads.keys():
            threads.forget(self._files, around.proc, self._process.pid, tid)
        listing = tuple([kept.sample for kept in self._kept.threads.values()])
        if listing != self._kept.listing:
            self._kept.listing = listing or None

    def _is_stuck(self, around: ReadContext, stat: Stat) -> bool:
        """Whether any thread was last seen in uninterruptible sleep, or is if none was seen yet."""
        if stat.state == "D":
            return True
        if not self._kept.threads:
            return threads.is_any_stuck(around.proc, self._process.pid)
        return any(kept.sample.state == "D" for kept in self._kept.threads.values())

    def _timed(
        self, around: ReadContext, part: str, read: Callable[[str, int], T], pid: int
    ) -> tuple[T, float] | None:
        """The result with its cost in cpu seconds, or `None` with the problem noted."""
        before_s = around.cpu_clock()
        try:
            found = read(around.proc, pid)
        except OSError as error:
            self._note(part, error)
            return None
        self._problems.pop(part, None)
        return found, around.cpu_clock() - before_s

    def _note(self, part: str, error: OSError) -> None:
        """Remember why a part is missing; that the process has gone is no problem of a part."""
        if not isinstance(error, procfs.GONE):
            self._problems[part] = f"{part}: {error.strerror or 'unreadable'}"

    def _assemble(
        self, around: ReadContext, stat: Stat, identity: Identity, part: Part, is_ended: bool
    ) -> ProcSample:
        """One sample of everything known."""
        kept = self._kept
        status = self._status(around, stat, is_ended)
        read_bytes, written_bytes = self._io(around, stat, is_ended)
        return ProcSample(
            process=self._process,
            at_s=around.at_s,
            parent_pid=stat.parent_pid,
            name=stat.name,
            cmdline=identity.cmdline,
            state=stat.state,
            role=part.role,
            worker_id=part.worker_id,
            rank=part.rank,
            is_python=identity.is_python,
            python_version=identity.python_version,
            torch_loaded=kept.mappings.has_torch if kept.mappings is not None else None,
            cpu_ticks=stat.cpu_ticks,
            uid=identity.uid,
            nice=stat.nice,
            exe=identity.exe,
            tty=stat.tty,
            session=stat.session,
            ns_pid=identity.ns_pid,
            ns_uid=identity.ns_uid,
            born_wall_s=identity.born_wall_s,
            threads=kept.listing,
            thread_count=stat.thread_count,
            fds=kept.fd_sample(identity, self._used, self._links.read_at_s),
            maps=kept.map_sample(around.max_map_count, self._maps.read_at_s),
            memory=None if is_ended else kept.memory_sample(stat),
            segments=kept.segments,
            minor_faults=stat.minor_faults,
            major_faults=stat.major_faults,
            voluntary_switches=status.voluntary_switches,
            involuntary_switches=status.involuntary_switches,
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            cpus_allowed=status.cpus_allowed,
            signals_caught=status.signals_caught,
            oom_score_adj=identity.oom_score_adj,
            environment=identity.environment,
            start_method=part.start_method,
            is_reused=self._links.read_at_s < around.at_s or self._maps.read_at_s < around.at_s,
            problems=(*identity.problems, *self._problems.values()),
        )

    def _status(self, around: ReadContext, stat: Stat, is_ended: bool) -> StatusCounters:
        """The small counters of `status`; kept for a while, and while the process has not run."""
        moved = (stat.cpu_ticks, stat.minor_faults, stat.thread_count)
        is_young = around.at_s - self._status_read_at_s < STATUS_S
        if not (is_ended or is_young or moved == self._kept.moved):
            self._status_read_at_s = around.at_s
            self._kept.moved = moved
            self._kept.status = read_status(around.proc, self._process.pid)
        return self._kept.status

    def _io(self, around: ReadContext, stat: Stat, is_ended: bool) -> tuple[int | None, int | None]:
        """Bytes read and written by system calls; kept while it has not run."""
        last = self._kept.sample
        if is_ended or (last is not None and last.cpu_ticks == stat.cpu_ticks):
            return (last.read_bytes, last.written_bytes) if last is not None else (None, None)
        return read_io(around.proc, self._process.pid)


def _touched(stat: Stat) -> tuple[int, int]:
    """What moves when memory becomes private: page faults, and pages that came in as one."""
    return stat.minor_faults + stat.major_faults, stat.rss_pages


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
