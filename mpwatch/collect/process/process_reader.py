"""One process: runs the probes that are due and combines their newest results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from mpwatch.collect.job.roles import RoleAssignment
from mpwatch.collect.process import fds, memory, procfs, threads
from mpwatch.collect.process.fds import Descriptors, LockedFiles, MountDevices, SocketTable
from mpwatch.collect.process.identify import StaticFacts
from mpwatch.collect.process.last_run import LastRunTimes
from mpwatch.collect.process.memory import CreatorOf, ExtentCache, Mappings
from mpwatch.collect.process.procfs import (
    NO_COUNTERS,
    DescriptorBudget,
    OpenFiles,
    Stat,
    StatusCounters,
    read_io,
    read_status,
)
from mpwatch.collect.process.schedule import (
    COUNTERS_S,
    FILLING_S,
    SLACK,
    Due,
    Intervals,
    LastRun,
    Probes,
    memory_change,
)
from mpwatch.collect.process.syscall_waits import WaitResolver
from mpwatch.model.ids import ProcessId, SegmentUse
from mpwatch.model.samples import (
    THREADS_OF_A_GROUP,
    FdSample,
    MapSample,
    MemorySample,
    ProcSample,
)

T = TypeVar("T")

NO_MEMORY = MemorySample()
IDLE_S = 0.9
"""A process that has used no cpu for this long is idle: its cpu use over the last reading is 0."""
FEW_PAGES = 32
"""Pages that an idle process may take before a new sample is made of it, which is made anyway when
its threads are read, every 5 s in a calm job: a worker that wakes up once a second takes three, and
some for each batch. Of 64 such workers, 19 samples of 65 for each reading were made for these."""
_ALIVE = frozenset("STtDRIP")


class ProbeContext(Struct, frozen=True):
    """Values that all processes share in one reading of the job."""

    proc: str
    at_s: float
    wall_s: float
    syscalls: dict[int, str]
    max_map_count: int | None
    extents: ExtentCache
    sockets: SocketTable
    cpu_clock: Callable[[], float]
    intervals: Intervals
    locked: LockedFiles
    devices: MountDevices
    rollups: memory.Rollups | None = None
    """`smaps_rollup` of all processes, where they are read at once."""
    ran: LastRunTimes | None = None
    """When threads last ran that are new."""


class Signs(Struct, frozen=True):
    """Values read every time: while they are the same, the last reading of the threads holds."""

    state: str
    cpu_ticks: int
    thread_count: int
    fd_count: int | None
    call: bytes
    """`syscall` of the main thread, arguments, stack and instruction pointer included."""


class ProbeResults(Struct):
    """The newest result of each probe of one process; `None` before the first."""

    signs: Signs | None = None
    signs_at_threads: Signs | None = None
    """When the threads were read."""
    threads: dict[int, threads.ThreadReading] = field(default_factory=dict)
    descriptors: Descriptors | None = None
    mappings: Mappings | None = None
    segments: tuple[SegmentUse, ...] | None = None
    memory: MemorySample | None = None
    memory_mark: tuple[int, int] = (0, 0)
    """Page faults and resident pages when the memory was read."""
    status: StatusCounters = NO_COUNTERS
    io: tuple[int | None, int | None] = (None, None)
    main_read_bytes: int | None = None
    tracer_wakes: int = 0
    tracer_wakes_at_status: int | None = None
    """`tracer_wakes` when the switches of the main thread were read, to be compared with them."""
    is_being_filled: bool = False
    """Whether a segment occupied less than its size when it was examined.

    Its size is compared with what is free at each moment, so its list may not become old, and no
    count of anything shows that more was written.
    """


class LastRuns(Struct):
    """When each probe of one process was run."""

    threads: LastRun = field(default_factory=LastRun)
    counters: LastRun = field(default_factory=LastRun)
    descriptors: LastRun = field(default_factory=LastRun)
    mappings: LastRun = field(default_factory=LastRun)
    memory: LastRun = field(default_factory=LastRun)


class _Assembled(Struct, frozen=True):
    """The last sample, and what it was made of besides the results of probes."""

    sample: ProcSample
    parts: tuple[Signs | None, Stat, StaticFacts, RoleAssignment]
    same_since_s: float
    """The time of the first sample with this cpu time."""

    @property
    def is_idle(self) -> bool:
        """Whether its cpu use over the last `IDLE_S` before the sample is 0."""
        return self.sample.at_s - self.same_since_s >= IDLE_S and self.sample.state in _ALIVE

    def is_made_of(
        self, signs: Signs | None, stat: Stat, static: StaticFacts, role: RoleAssignment
    ) -> bool:
        """Whether a sample of these would be the same, a few pages aside.

        The cpu is no part of a sample, and a process that wakes up may do so on another one.
        """
        before = self.parts[1]
        if stat != before and 0 <= stat.minor_faults - before.minor_faults <= FEW_PAGES:
            stat = stat._replace(minor_faults=before.minor_faults, cpu=before.cpu)
        return (signs, stat, static, role) == self.parts


class ProcessReader:
    """Reads one process again and again."""

    def __init__(self, process: ProcessId, budget: DescriptorBudget) -> None:
        self._process = process
        self._files = OpenFiles(budget)
        self._results = ProbeResults()
        self._runs = LastRuns()
        self._problems: dict[str, str] = {}
        self._last: _Assembled | None = None

    def close(self) -> None:
        """Close its files."""
        self._files.close()

    @property
    def has_torch(self) -> bool:
        """Whether the mappings, when last read, were those of a process with torch."""
        known = self._results.mappings
        return known is not None and known.has_torch

    @property
    def has_group(self) -> bool:
        """Whether the threads, when last read, included those of a process group."""
        return any(
            each.sample.name.startswith(THREADS_OF_A_GROUP)
            for each in self._results.threads.values()
        )

    def due(self, context: ProbeContext, stat: Stat) -> Due:
        """Read what is read every time, and say how urgent each probe is."""
        results, runs, at_s = self._results, self._runs, context.at_s
        intervals = context.intervals
        signs = results.signs = self._read_signs(context.proc, stat)
        listing_s = intervals.listing_s
        if results.is_being_filled:
            listing_s = min(listing_s, FILLING_S)
        return Due(
            runs.threads.urgency(
                float(signs != results.signs_at_threads), intervals.threads_s, at_s
            ),
            runs.descriptors.urgency(self._descriptor_change(signs), listing_s, at_s),
            runs.mappings.urgency(
                runs.mappings.change(self._mappings_mark(signs)), listing_s, at_s
            ),
            runs.memory.urgency(self._memory_change(stat), intervals.memory_s, at_s),
        )

    def read(
        self,
        context: ProbeContext,
        stat: Stat,
        static: StaticFacts,
        role: RoleAssignment,
        probes: Probes,
        outside_pid: CreatorOf,
    ) -> ProcSample:
        """Run these probes and combine the newest results.

        Returns:
            The sample; the last one, with its time, of an idle process in which nothing has changed
            since: most workers of a calm job, for which a new one would cost a fifth of a reading.
        """
        is_ended = stat.state in ("Z", "X")
        parts = self._results.signs, stat, static, role
        last = self._last
        if last is not None and last.is_idle and last.is_made_of(*parts) and not any(probes):
            return last.sample
        if is_ended:
            self._results, self._problems = ProbeResults(signs=self._results.signs), {}
            self._files.close()
        else:
            self._read_lists(context, stat, probes, outside_pid)
            if probes.memory:
                self._read_memory(context, stat)
            if probes.threads:
                self._read_threads(context, stat.thread_count, outside_pid)
                self._read_counters(context, role)
        sample = self._assemble(context, stat, static, role, is_ended)
        is_same = last is not None and last.sample.cpu_ticks == sample.cpu_ticks
        same_since_s = last.same_since_s if last is not None and is_same else context.at_s
        self._last = _Assembled(sample, parts, same_since_s)
        return sample

    def _read_signs(self, proc: str, stat: Stat) -> Signs:
        pid = self._process.pid
        try:
            fd_count = fds.count(proc, pid, self._files.size)
            self._problems.pop("descriptors", None)
        except OSError as error:
            fd_count = None
            self._note("descriptors", error)
        return Signs(stat.state, stat.cpu_ticks, stat.thread_count, fd_count, self._call(proc))

    def _call(self, proc: str) -> bytes:
        """The system call of the main thread; empty where it is hidden."""
        pid = self._process.pid
        try:
            return self._files.read(f"{proc}/{pid}/task/{pid}/syscall")
        except OSError:
            return b""

    def _descriptor_change(self, signs: Signs) -> float:
        if self._results.descriptors is None:
            return 1.0
        return self._runs.descriptors.change((signs.fd_count or 0,))

    def _mappings_mark(self, signs: Signs) -> tuple[int, ...]:
        """What changes when mappings do: descriptors, threads, resident shared memory in MiB."""
        shmem_kb = self._results.status.shmem_kb or 0
        return signs.fd_count or 0, (SLACK + 1) * signs.thread_count, shmem_kb >> 10

    def _memory_change(self, stat: Stat) -> float:
        """A page becomes private by a fault; a huge page comes by one fault."""
        faults, resident = self._results.memory_mark
        now_faults, now_resident = _memory_mark(stat)
        pages = max(now_faults - faults, abs(now_resident - resident))
        known = self._results.memory
        private_bytes = known.private_bytes if known is not None else None
        return memory_change(pages * procfs.PAGE_BYTES, private_bytes or 0)

    def _read_lists(
        self, context: ProbeContext, stat: Stat, probes: Probes, outside_pid: CreatorOf
    ) -> None:
        """Descriptors and mappings, and the segments that follow from both."""
        results, signs, runs = self._results, self._results.signs, self._runs
        descriptors = mappings = None
        if probes.descriptors:
            descriptors = self._timed(
                context,
                "descriptors",
                runs.descriptors,
                lambda proc, pid: fds.read_descriptors(
                    proc, pid, context.sockets.end, context.locked(), context.devices
                ),
            )
            if descriptors is not None:
                results.descriptors = descriptors
                runs.descriptors.mark((descriptors.used,))
        if probes.mappings and self._is_stuck(context, stat):
            runs.mappings.done(context.at_s)
            if results.mappings is None:
                self._problems["mappings"] = "mappings: not read while the process is in state D"
        elif probes.mappings:
            mappings = self._timed(context, "mappings", runs.mappings, memory.read_mappings)
            if mappings is not None:
                self._take_mappings(mappings)
            if signs is not None:
                runs.mappings.mark(self._mappings_mark(signs))
        if descriptors is not None or mappings is not None:
            results.segments = memory.join_segments(
                self._process.pid,
                results.descriptors.held if results.descriptors is not None else (),
                results.mappings.files if results.mappings is not None else (),
                context.extents,
                outside_pid,
                context.at_s,
            )
            results.is_being_filled = any(map(_is_being_filled, results.segments))

    def _take_mappings(self, found: Mappings) -> None:
        """A thread may wait on a semaphore in shared memory that was not known when it was read."""
        known = self._results.mappings
        if known is None or known.spans != found.spans:
            self._results.threads = threads.without_unsure(self._results.threads)
        self._results.mappings = found

    def _read_memory(self, context: ProbeContext, stat: Stat) -> None:
        """`smaps_rollup`; a process that is not readable is tried at the same intervals."""
        self._runs.memory.done(context.at_s)
        if self._is_stuck(context, stat):
            return
        pid, rollups = self._process.pid, context.rollups
        found = rollups.get(pid) if rollups is not None else None
        if found is None and rollups is not None and rollups.is_under_way(pid):
            return
        if found is None:
            found = self._timed(
                context,
                "memory",
                self._runs.memory,
                lambda proc, pid: memory.read_rollup(proc, pid, context.at_s),
            )
        self._results.memory = found or self._results.memory
        self._results.memory_mark = _memory_mark(stat)

    def _read_threads(
        self, context: ProbeContext, thread_count: int, outside_pid: CreatorOf
    ) -> None:
        """All threads, with what the blocked ones wait for."""
        results, pid = self._results, self._process.pid
        resolver = WaitResolver(
            context.proc,
            pid,
            context.syscalls,
            lambda: results.mappings,
            outside_pid,
            context.at_s,
            context.wall_s,
        )
        before, before_s = results.threads, context.cpu_clock()
        last_run = context.ran.of if context.ran is not None else None
        results.threads = threads.read_threads(
            context.proc, pid, thread_count, before, resolver, self._files.read, last_run
        )
        for tid in before.keys() - results.threads.keys():
            threads.forget(self._files, context.proc, pid, tid)
        results.tracer_wakes += threads.tracer_wakes(pid, before, results.threads)
        results.signs_at_threads = results.signs
        self._runs.threads.done(context.at_s, context.cpu_clock() - before_s)

    def _read_counters(self, context: ProbeContext, role: RoleAssignment) -> None:
        """The small counters of `io` and `status`."""
        if self._runs.counters.urgency(0.0, COUNTERS_S, context.at_s) is not None:
            self._results.io = read_io(context.proc, self._process.pid)
            self._results.status = read_status(context.proc, self._process.pid)
            self._results.tracer_wakes_at_status = self._results.tracer_wakes
            if role.role != "loader-worker":
                self._results.main_read_bytes = self._read_by_main(context.proc)
            self._runs.counters.done(context.at_s)

    def _read_by_main(self, proc: str) -> int | None:
        """Bytes that the main thread has read; `None` where the kernel does not show them."""
        pid = self._process.pid
        try:
            return procfs.read_bytes_of(self._files.read(f"{proc}/{pid}/task/{pid}/io"))
        except OSError:
            return None

    def _is_stuck(self, context: ProbeContext, stat: Stat) -> bool:
        """Whether a thread was in uninterruptible sleep when last read, or is now if none was read.

        Reading the mappings of a process that is stuck in the kernel while it holds its own mmap
        lock would hang the reader as well.
        """
        known = self._results.threads
        if stat.state == "D":
            return True
        if not known:
            return threads.is_any_stuck(context.proc, self._process.pid)
        return any(reading.sample.state == "D" for reading in known.values())

    def _timed(
        self, context: ProbeContext, part: str, run: LastRun, read: Callable[[str, int], T]
    ) -> T | None:
        """The result of a probe, or `None` with the problem noted; either way it was run."""
        before_s = context.cpu_clock()
        try:
            found = read(context.proc, self._process.pid)
        except OSError as error:
            self._note(part, error)
            return None
        finally:
            run.done(context.at_s, context.cpu_clock() - before_s)
        self._problems.pop(part, None)
        return found

    def _note(self, part: str, error: OSError) -> None:
        """Remember why a part is missing, unless the process has exited."""
        if not isinstance(error, procfs.GONE):
            self._problems[part] = f"{part}: {error.strerror or 'unreadable'}"

    def _assemble(
        self,
        context: ProbeContext,
        stat: Stat,
        static: StaticFacts,
        role: RoleAssignment,
        is_ended: bool,
    ) -> ProcSample:
        """One sample of all results."""
        results = self._results
        mappings, status = results.mappings, results.status
        return ProcSample(
            process=self._process,
            at_s=context.at_s,
            parent_pid=stat.parent_pid,
            name=stat.name,
            cmdline=static.cmdline,
            state=stat.state,
            role=role.role,
            worker_id=role.worker_id,
            rank=role.rank,
            is_python=static.is_python,
            python_version=static.python_version,
            torch_loaded=mappings.has_torch if mappings is not None else None,
            cpu_ticks=stat.cpu_ticks,
            system_ticks=stat.system_ticks,
            uid=static.uid,
            nice=stat.nice,
            exe=static.exe,
            tty=stat.tty,
            session=stat.session,
            ns_pid=static.ns_pid,
            ns_uid=static.ns_uid,
            born_wall_s=static.born_wall_s,
            threads=tuple([each.sample for each in results.threads.values()]) or None,
            thread_count=stat.thread_count,
            fds=self._fd_sample(static),
            maps=self._map_sample(context.max_map_count),
            memory=None if is_ended else self._memory_sample(stat),
            segments=results.segments,
            minor_faults=stat.minor_faults,
            major_faults=stat.major_faults,
            voluntary_switches=status.voluntary_switches,
            involuntary_switches=status.involuntary_switches,
            tracer_wakes=results.tracer_wakes_at_status,
            read_bytes=results.io[0],
            written_bytes=results.io[1],
            main_read_bytes=results.main_read_bytes,
            cpus_allowed=status.cpus_allowed,
            signals_caught=status.signals_caught,
            signals_ignored=status.signals_ignored,
            oom_score_adj=static.oom_score_adj,
            environment=static.environment,
            cpu_limit_s=static.cpu_limit_s,
            limits=static.limits,
            start_method=role.start_method,
            problems=(*static.problems, *self._problems.values()),
        )

    def _fd_sample(self, static: StaticFacts) -> FdSample | None:
        """The count of this reading with the last listing; `None` if it could not be counted."""
        signs, listing = self._results.signs, self._results.descriptors
        if signs is None or signs.fd_count is None:
            return None
        return FdSample(
            used=signs.fd_count,
            soft_limit=static.soft_limit,
            hard_limit=static.hard_limit,
            by_kind=listing.by_kind if listing is not None else None,
            links=listing.links if listing is not None else None,
            read_at_s=self._runs.descriptors.at_s if listing is not None else None,
            locks=listing.locks if listing is not None else (),
        )

    def _map_sample(self, limit: int | None) -> MapSample | None:
        """The last reading of the mappings."""
        found = self._results.mappings
        if found is None:
            return None
        return MapSample(
            used=found.used,
            limit=limit,
            torch_count=found.torch_count,
            libraries=found.libraries,
            read_at_s=self._runs.mappings.at_s,
            files=found.other_files,
        )

    def _memory_sample(self, stat: Stat) -> MemorySample:
        """The resident sizes of this reading with the last `smaps_rollup`."""
        status = self._results.status
        return replace(
            self._results.memory or NO_MEMORY,
            rss_bytes=stat.rss_pages * procfs.PAGE_BYTES,
            shmem_bytes=_bytes(status.shmem_kb),
            anon_bytes=_bytes(status.anon_kb),
            virtual_bytes=_bytes(status.virtual_kb),
        )


def _is_being_filled(use: SegmentUse) -> bool:
    size, allocated = use.size_bytes, use.allocated_bytes
    return size is not None and allocated is not None and allocated < size


def _bytes(kilobytes: int | None) -> int | None:
    return None if kilobytes is None else kilobytes * 1024


def _memory_mark(stat: Stat) -> tuple[int, int]:
    return stat.minor_faults + stat.major_faults, stat.rss_pages
