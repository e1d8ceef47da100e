"""Readings of all processes of a job, taken together."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from mpwatch.collect.host.gpu import GpuCollector
from mpwatch.collect.host.host import HostCollector
from mpwatch.collect.job import roles
from mpwatch.collect.job.jobs import Job, find_jobs
from mpwatch.collect.job.process_tree import Member, Membership
from mpwatch.collect.job.roles import Facts, Part
from mpwatch.collect.process import memory, procfs, syscall_waits
from mpwatch.collect.process.fds import SocketTable
from mpwatch.collect.process.procfs import Budget, KeptFiles
from mpwatch.collect.process.reader import ProcessReader, ReadContext
from mpwatch.collect.process.schedule import Due, Plan, slow_s
from mpwatch.collect.process.segments import ExtentCache
from mpwatch.collect.process.static_facts import Identity, is_stale, read_identity
from mpwatch.collect.process.threads import is_any_stuck
from mpwatch.model.host import HostSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import GpuSample, ProcSample, TreeSample

__all__ = ["Job", "ReadRequest", "TreeCollector", "find_jobs"]

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SEGMENT_MEMORY_S = 300.0
MANY = 8
"""From so many processes on, reading their memory at once is worth a few threads, and those at rest
need not be read every time."""
MEMORY_PAUSE_S = 2.0
"""Private memory is the most expensive reading, and it grows slowly."""
MAPS_PAUSE_S = 1.75
"""Of a job with many processes the mappings of one are read at every other reading."""


class TreeCollector:
    """Reads a job again and again, remembering who belongs to it and what has not moved."""

    def __init__(
        self,
        root: ProcessId,
        *,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        gpu: GpuCollector | None = None,
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            root: Whose descendants to watch.
            proc: Where procfs is.
            clock: CLOCK_MONOTONIC in seconds.
            wall: CLOCK_REALTIME in seconds.
            gpu: Asks for the GPUs.
        """
        self._root = root
        self._proc = proc
        self._clocks = (clock, wall)
        budget = Budget.of_this_process(proc)
        self._membership = Membership(root, proc, clock, budget)
        self._host = HostCollector(proc, budget)
        self._files = KeptFiles(budget)
        self._first: ProcessId | None = None
        self._gpus = gpu if gpu is not None else GpuCollector(clock)
        self._crew = _Crew(proc, budget)

    def collect(self, wanted: ReadRequest) -> TreeSample | None:
        """Read the job once.

        Returns:
            The reading, or `None` once the root and all its known descendants have ended.
        """
        started_s = time.process_time()
        members = self._membership.update()
        if all(member.stat.state in ("Z", "X") for member in members):
            return None
        clock, wall = self._clocks
        at_s, wall_s = clock(), wall()
        self._crew.meet(members, at_s, wall_s)
        host = self._read_host(members, at_s, wall_s)
        processes = self._crew.read(members, wanted, at_s, wall_s, host.max_map_count)
        gpus, gpu_problems = self._read_gpus(wanted)
        return TreeSample(
            at_s=at_s,
            wall_s=wall_s,
            root=self._root,
            host=host,
            processes=processes,
            gpus=gpus,
            ticks_per_s=TICKS_PER_S,
            cost_s=time.process_time() - started_s,
            problems=gpu_problems,
        )

    def births(self) -> list[ProcessId]:
        """Processes of the job that were born since it was last looked at, ended ones included.

        Costs 10 us while the machine makes no process: meant for many calls between two readings,
        so that children which live shorter than an interval are seen.
        """
        return self._membership.births()

    def oom_kills(self) -> int | None:
        """Out-of-memory kills of the job's control group by now; `None` if nobody counts them."""
        return self._host.oom_kills()

    def _read_host(self, members: list[Member], at_s: float, wall_s: float) -> HostSample:
        """The surroundings, as the first living process sees them."""
        first = next(m.stat.process for m in members if m.stat.state not in ("Z", "X"))
        if first != self._first:
            self._files.close()
            self._first = first
        tmp = self._crew.identity(first).environment.get("TMPDIR")
        try:
            data = self._files.read(f"{self._proc}/{first.pid}/status")
            mask = procfs.parse_status(data).get(b"Cpus_allowed", b"").replace(b",", b"")
            affinity = int(mask, 16).bit_count() if mask else None
        except OSError:
            affinity = None
        return self._host.collect(first.pid, tmp, affinity, at_s, wall_s)

    def _read_gpus(
        self, wanted: ReadRequest
    ) -> tuple[tuple[GpuSample, ...] | None, tuple[str, ...]]:
        """The GPUs, or why there are none."""
        if not wanted.gpu:
            return None, ()
        reading = self._gpus.collect()
        return reading.gpus, reading.problems


class _Crew:
    """The readers of all members, and what they know of each other."""

    def __init__(self, proc: str, budget: Budget) -> None:
        self._proc = proc
        self._budget = budget
        self._readers: dict[ProcessId, ProcessReader] = {}
        self._identities: dict[ProcessId, Identity] = {}
        self._asked_at_s: dict[ProcessId, float] = {}
        self._workers = roles.WorkerNumbers(TICKS_PER_S)
        self._cast: tuple[list[object], dict[ProcessId, Part]] = [], {}
        self._memory_read_at_s = self._maps_read_at_s = -math.inf
        self._begun: memory.Rollups | None = None
        self._extents = ExtentCache(proc)
        self._sockets = SocketTable()
        self._boot_wall_s = procfs.boot_wall_s(proc)

    def identity(self, process: ProcessId) -> Identity:
        """The lasting facts of a member."""
        return self._identities[process]

    def meet(self, members: list[Member], at_s: float, wall_s: float) -> None:
        """Get to know new members, look again at changed ones, forget those who left."""
        here = {member.stat.process for member in members}
        for process in self._readers.keys() - here:
            self._readers[process].close()
            del self._readers[process], self._identities[process], self._asked_at_s[process]
        for member in members:
            stat = member.stat
            process = stat.process
            known = self._identities.get(process)
            if known is not None and not is_stale(known, stat, at_s - self._asked_at_s[process]):
                continue
            if process not in self._readers:
                self._readers[process] = ProcessReader(process, self._budget)
            self._asked_at_s[process] = at_s
            self._identities[process] = read_identity(
                self._proc, stat, known, self._boot_wall_s, TICKS_PER_S, wall_s
            )

    def read(
        self,
        members: list[Member],
        wanted: ReadRequest,
        at_s: float,
        wall_s: float,
        max_map_count: int | None,
    ) -> tuple[ProcSample, ...]:
        """One sample a member."""
        around = ReadContext(
            proc=self._proc,
            at_s=at_s,
            wall_s=wall_s,
            syscalls=syscall_waits.names(os.uname().machine),
            max_map_count=max_map_count,
            extents=self._extents,
            sockets=self._sockets,
            cpu_clock=time.thread_time,
            rollups=self._rollups(members, wanted, at_s),
            slow_s=slow_s(len(members)),
        )
        parts = self._parts(members)
        may_rest = len(members) >= MANY and not wanted.is_full
        plans = self._plans(members, wanted, around, may_rest)
        inside = {
            identity.ns_pid: process.pid
            for process, identity in self._identities.items()
            if identity.ns_pid is not None
        }
        samples = []
        for member in members:
            process = member.stat.process
            identity = self._identities[process]
            about = around, member.stat, identity, parts[process], plans[process]
            reader = self._readers[process]
            sample = reader.rested(*about) if may_rest else None
            if sample is None:
                outside_pid = inside.get if identity.ns_pid is not None else _same
                sample = reader.read(*about, outside_pid)
            samples.append(sample)
        self._extents.forget_before(at_s - SEGMENT_MEMORY_S)
        return tuple(samples)

    def _rollups(
        self, members: list[Member], wanted: ReadRequest, at_s: float
    ) -> memory.Rollups | None:
        """Memory of everybody at once, except of those whose reading could hang."""
        begun, self._begun = self._begun, None
        if wanted.memory_count is not None and not wanted.memory_ahead:
            return None
        if begun is None:
            pids = [
                m.stat.pid
                for m in members
                if m.stat.state not in ("D", "Z", "X") and not is_any_stuck(self._proc, m.stat.pid)
            ]
            begun = memory.Rollups(self._proc, pids, at_s) if len(pids) >= MANY else None
        if wanted.memory_ahead:
            self._begun = begun
            return None
        return begun

    def _parts(self, members: list[Member]) -> dict[ProcessId, Part]:
        """What each member is for, with the numbers of DataLoader workers.

        It follows from the lasting facts alone, so it stays while those do.
        """
        basis: list[object] = [
            (
                m.stat.process,
                m.parent,
                m.stat.name,
                m.stat.is_fork,
                self._identities[m.stat.process],
            )
            for m in members
        ]
        if basis != self._cast[0]:
            self._cast = basis, self._assign(members)
        return self._cast[1]

    def _assign(self, members: list[Member]) -> dict[ProcessId, Part]:
        """Derive the parts anew."""
        facts = [self._facts(member) for member in members]
        parts = roles.assign(facts)
        workers = [
            (member.stat.process, member.parent)
            for member in members
            if member.parent is not None and parts[member.stat.process].role == "loader-worker"
        ]
        for process, number in self._workers.update(workers, parts).items():
            parts[process] = parts[process]._replace(worker_id=number)
        return parts

    def _facts(self, member: Member) -> Facts:
        """What the role of a member is derived from."""
        identity = self._identities[member.stat.process]
        return Facts(
            process=member.stat.process,
            parent=member.parent,
            name=member.stat.name,
            cmdline=identity.cmdline,
            is_python=identity.is_python,
            environment=identity.environment,
            is_fork=member.stat.is_fork,
        )

    def _plans(
        self, members: list[Member], wanted: ReadRequest, around: ReadContext, may_rest: bool
    ) -> dict[ProcessId, Plan]:
        """What to read of whom: of those with news, the ones with most of it."""
        dues = {
            member.stat.process: self._readers[member.stat.process].due(
                around, member.stat, may_rest=may_rest and member.stat.process != wanted.looked_at
            )
            for member in members
        }
        if wanted.is_full:
            has_memory = wanted.memory_count is None
            return dict.fromkeys(dues, Plan(wanted.threads, True, True, has_memory, True))
        links = _most_urgent(dues, lambda due: due.links, wanted.links_count)
        mappings = rollups = frozenset[ProcessId]()
        has_unread = any(due.maps == float("inf") for due in dues.values())
        pause_s = MAPS_PAUSE_S if may_rest and not has_unread else 0.0
        if around.at_s - self._maps_read_at_s >= pause_s:
            mappings = _most_urgent(dues, lambda due: due.maps, wanted.maps_count)
            if mappings:
                self._maps_read_at_s = around.at_s
        has_unread = any(due.memory == float("inf") for due in dues.values())
        if has_unread or around.at_s - self._memory_read_at_s >= MEMORY_PAUSE_S:
            self._memory_read_at_s = around.at_s
            rollups = _most_urgent(dues, lambda due: due.memory, wanted.memory_count)
        plans = {}
        for process, due in dues.items():
            is_looked_at = process == wanted.looked_at
            plans[process] = Plan(
                threads=wanted.threads or is_looked_at,
                links=process in links or (is_looked_at and due.links is not None),
                maps=process in mappings or (is_looked_at and due.maps is not None),
                memory=process in rollups or (is_looked_at and due.memory is not None),
                resting=is_looked_at,
            )
        return plans


def _most_urgent(
    dues: dict[ProcessId, Due], urgency: Callable[[Due], float | None], count: int | None
) -> frozenset[ProcessId]:
    """Those that want reading most; among equals the oldest, which is the root at first."""
    waiting = [(-u, process) for process, due in dues.items() if (u := urgency(due)) is not None]
    waiting.sort(key=lambda each: (each[0], each[1].start_ticks, each[1].pid))
    return frozenset(process for _, process in waiting[:count])


def _same(pid: int) -> int | None:
    """A pid of the observer's own namespace."""
    return pid


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What one reading of the tree shall contain; a count of `None` means all processes.

    Whatever is not read is carried over from the last time, with the moment it was read. Counts
    bound the cost of one reading: those with the oldest reading and the most news come first.
    """

    threads: bool = True
    """States, wait channels and what blocked threads wait for."""
    links_count: int | None = 8
    """Resolve the descriptors of at most this many processes in which their number has moved."""
    maps_count: int | None = 1
    """Parse the mappings of at most this many processes in which something has moved."""
    memory_count: int | None = 1
    """Read `smaps_rollup` of at most this many processes, at most every two seconds."""
    memory_ahead: bool = False
    """Begin to read everybody's memory in the background: the next reading of all has it."""
    gpu: bool = True
    looked_at: ProcessId | None = None
    """The process a person looks at: always read in full."""
    is_full: bool = False
    """Read everything anew, whatever it costs; memory only if its count is `None`."""

    @classmethod
    def everything(cls) -> ReadRequest:
        """All of it, now: for a dump."""
        return cls(links_count=None, maps_count=None, memory_count=None, is_full=True)
