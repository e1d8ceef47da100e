"""Readings of all processes of a job, taken together."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set

from msgspec import Struct

from mpwatch.collect.host.gpu import GpuCollector
from mpwatch.collect.host.host import HostCollector
from mpwatch.collect.job import roles
from mpwatch.collect.job.jobs import Job, ancestors_in_job, find_jobs, part_of_job
from mpwatch.collect.job.process_tree import ProcessTree, TreeEntry
from mpwatch.collect.job.roles import RoleAssignment, RoleFacts
from mpwatch.collect.process import memory, procfs, syscall_waits
from mpwatch.collect.process.fds import LockedFiles, MountDevices, SocketTable
from mpwatch.collect.process.identify import StaticFacts, is_stale, read_static_facts
from mpwatch.collect.process.last_run import CpuClocks, LastRunTimes
from mpwatch.collect.process.memory import ExtentCache
from mpwatch.collect.process.process_reader import ProbeContext, ProcessReader
from mpwatch.collect.process.procfs import DescriptorBudget, OpenFiles
from mpwatch.collect.process.schedule import MANY, Due, Probes, Schedule
from mpwatch.collect.process.threads import is_any_stuck
from mpwatch.model.host import HostSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import GpuSample, ProcSample, TreeSample

__all__ = ["Job", "ReadRequest", "TreeCollector", "find_jobs"]

SEGMENT_MEMORY_S = 300.0


class TreeCollector:
    """Reads a job again and again."""

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
            root: The root process of the job.
            proc: Path of procfs.
            clock: CLOCK_MONOTONIC in seconds.
            wall: CLOCK_REALTIME in seconds.
            gpu: Reads the GPUs.
        """
        self._root = root
        self._proc = proc
        self._clocks = (clock, wall)
        budget = DescriptorBudget.of_this_process(proc)
        above = ancestors_in_job(root, proc)
        self._part_of = part_of_job(root, above, proc)
        pids = [fact.process.pid for fact in above]
        self._tree = ProcessTree(root, proc, clock, budget, pids)
        self._host = HostCollector(proc, budget)
        self._files = OpenFiles(budget)
        self._first: ProcessId | None = None
        self._gpus = gpu if gpu is not None else GpuCollector(clock)
        self._readers = _ProcessReaders(proc, budget, above)

    def collect(self, request: ReadRequest) -> TreeSample | None:
        """Read the job once.

        Returns:
            The reading, or `None` once the root and all its known descendants have ended.
        """
        started_s = time.process_time()
        tree = self._tree.update()
        if all(entry.stat.state in ("Z", "X") for entry in tree):
            return None
        clock, wall = self._clocks
        at_s, wall_s = clock(), wall()
        self._readers.update(tree, at_s, wall_s)
        host = self._read_host(tree, at_s, wall_s, counts_files=request.new_files)
        processes = self._readers.read(tree, request, at_s, wall_s, host.max_map_count)
        if request.new_files:
            self._host.note_files(processes)
        gpus, gpu_problems = self._read_gpus(request)
        return TreeSample(
            at_s=at_s,
            wall_s=wall_s,
            root=self._root,
            host=host,
            processes=processes,
            gpus=gpus,
            ticks_per_s=procfs.TICKS_PER_S,
            cost_s=time.process_time() - started_s,
            problems=gpu_problems,
            part_of=self._part_of,
        )

    def started(self) -> list[ProcessId]:
        """Processes of the job that were started since the last reading, exited ones included.

        Costs 10 us while the machine starts no process: meant for many calls between two readings,
        so that children which live shorter than an interval are seen.
        """
        return self._tree.started()

    def oom_kills(self) -> int | None:
        """Out-of-memory kills of the job's control group by now; `None` if they are not counted."""
        return self._host.oom_kills()

    def _read_host(
        self, tree: list[TreeEntry], at_s: float, wall_s: float, *, counts_files: bool
    ) -> HostSample:
        """The machine, as the first living process sees it."""
        first = next(each.stat.process for each in tree if each.stat.state not in ("Z", "X"))
        if first != self._first:
            self._files.close()
            self._first = first
        static = self._readers.static_facts(first)
        try:
            data = self._files.read(f"{self._proc}/{first.pid}/status")
            mask = procfs.parse_status(data).get(b"Cpus_allowed", b"").replace(b",", b"")
            affinity = int(mask, 16).bit_count() if mask else None
        except OSError:
            affinity = None
        return self._host.collect(
            first.pid,
            static.environment.get("TMPDIR"),
            affinity,
            at_s,
            wall_s,
            uid=static.uid if counts_files else None,
            since_wall_s=static.born_wall_s,
            others=(each.stat.pid for each in tree if each.stat.process != first),
        )

    def _read_gpus(
        self, request: ReadRequest
    ) -> tuple[tuple[GpuSample, ...] | None, tuple[str, ...]]:
        """The GPUs, or why there are none."""
        if not request.gpu:
            return None, ()
        reading = self._gpus.collect()
        return reading.gpus, reading.problems


class _ProcessReaders:
    """The readers of all processes of the job, and what each needs to know of the others."""

    def __init__(
        self, proc: str, budget: DescriptorBudget, above: Sequence[RoleFacts] = ()
    ) -> None:
        self._proc = proc
        self._above = above
        self._budget = budget
        self._readers: dict[ProcessId, ProcessReader] = {}
        self._static: dict[ProcessId, StaticFacts] = {}
        self._static_at_s: dict[ProcessId, float] = {}
        self._workers = roles.WorkerNumbers(procfs.TICKS_PER_S)
        self._roles: tuple[list[RoleFacts], dict[ProcessId, RoleAssignment]] = [], {}
        self._wrappers: Set[ProcessId] = frozenset()
        self._numbers: Mapping[ProcessId, int] = {}
        """Launchers, and programs that were seen to have run a rank."""
        self._schedule = Schedule()
        self._memory_read_at_s = -math.inf
        self._begun: memory.Rollups | None = None
        self._extents = ExtentCache(proc)
        self._sockets = SocketTable()
        self._locked = LockedFiles(proc)
        self._devices = MountDevices(proc)
        self._cpu_clocks = CpuClocks()
        self._boot_wall_s = procfs.boot_wall_s(proc)

    def static_facts(self, process: ProcessId) -> StaticFacts:
        """What hardly ever changes about a process."""
        return self._static[process]

    def update(self, tree: list[TreeEntry], at_s: float, wall_s: float) -> None:
        """Add readers of new processes, read stale static facts again, drop what has exited."""
        present = {entry.stat.process for entry in tree}
        for process in self._readers.keys() - present:
            self._readers[process].close()
            del self._readers[process], self._static[process], self._static_at_s[process]
        for entry in tree:
            stat = entry.stat
            process = stat.process
            known = self._static.get(process)
            if known is not None and not is_stale(known, stat, at_s - self._static_at_s[process]):
                continue
            if process not in self._readers:
                self._readers[process] = ProcessReader(process, self._budget)
            self._static_at_s[process] = at_s
            self._static[process] = read_static_facts(
                self._proc, stat, known, self._boot_wall_s, procfs.TICKS_PER_S, wall_s
            )

    def read(
        self,
        tree: list[TreeEntry],
        request: ReadRequest,
        at_s: float,
        wall_s: float,
        max_map_count: int | None,
    ) -> tuple[ProcSample, ...]:
        """One sample of each process."""
        context = ProbeContext(
            proc=self._proc,
            at_s=at_s,
            wall_s=wall_s,
            syscalls=syscall_waits.names(os.uname().machine),
            max_map_count=max_map_count,
            extents=self._extents,
            sockets=self._sockets,
            cpu_clock=time.thread_time,
            intervals=self._schedule.intervals({entry.stat.process for entry in tree}, at_s),
            locked=self._locked,
            devices=self._devices,
            rollups=self._rollups(tree, request, at_s),
            ran=LastRunTimes(self._cpu_clocks),
        )
        assigned = self._assigned_roles(tree)
        probes = self._probes(tree, request, context)
        inside = {
            static.ns_pid: process.pid
            for process, static in self._static.items()
            if static.ns_pid is not None
        }
        samples = []
        for entry in tree:
            process = entry.stat.process
            static = self._static[process]
            outside_pid = inside.get if static.ns_pid is not None else _same
            sample = self._readers[process].read(
                context, entry.stat, static, assigned[process], probes[process], outside_pid
            )
            samples.append(sample)
        self._extents.forget_before(at_s - SEGMENT_MEMORY_S)
        return tuple(samples)

    def _rollups(
        self, tree: list[TreeEntry], request: ReadRequest, at_s: float
    ) -> memory.Rollups | None:
        """Memory of all processes at once, except of those whose reading could hang."""
        begun, self._begun = self._begun, None
        if request.memory_count is not None and not request.memory_ahead:
            return None
        if begun is None:
            pids = [
                entry.stat.pid
                for entry in tree
                if entry.stat.state not in ("D", "Z", "X")
                and not is_any_stuck(self._proc, entry.stat.pid)
            ]
            begun = memory.Rollups(self._proc, pids, at_s) if len(pids) >= MANY else None
        if request.memory_ahead:
            self._begun = begun
            return None
        return begun

    def _assigned_roles(self, tree: list[TreeEntry]) -> dict[ProcessId, RoleAssignment]:
        """The role of each process, with the numbers of DataLoader workers."""
        facts = [self._role_facts(entry) for entry in tree]
        if facts == self._roles[0]:
            return self._roles[1]
        assigned = {**self._roles_in_job(facts), **self._roles_of_orphans(facts)}
        workers = [
            (fact.process, fact.parent)
            for fact in facts
            if fact.parent is not None and assigned[fact.process].role == "loader-worker"
        ]
        for process, number in self._workers.update(workers, assigned).items():
            assigned[process] = assigned[process]._replace(worker_id=number)
        self._roles = facts, assigned
        return assigned

    def _roles_in_job(self, facts: Sequence[RoleFacts]) -> dict[ProcessId, RoleAssignment]:
        """The role of each process in its job, of which the processes above the root are read."""
        given = facts
        if self._above and facts:
            first = facts[0]._replace(parent=self._above[-1].process)
            given = (*self._above, first, *facts[1:])
        found = roles.assign(given, self._wrappers, self._numbers)
        self._wrappers = {each for each, role in found.items() if role.role == "launcher"}
        self._numbers = {
            each.process: number
            for each in given
            if "RANK" not in each.environment and (number := found[each.process].rank) is not None
        }
        return {fact.process: found[fact.process] for fact in facts}

    def _roles_of_orphans(self, facts: list[RoleFacts]) -> dict[ProcessId, RoleAssignment]:
        """The earlier roles of processes whose parent has ended since: it can no longer show them.

        Without them the oldest child of a killed main process would become the main process.
        """
        known = {fact.process for fact in facts}
        before = {fact.process: fact for fact in self._roles[0]}
        return {
            fact.process: self._roles[1][fact.process]
            for fact in facts
            if fact.parent not in known and before.get(fact.process) == fact
        }

    def _role_facts(self, entry: TreeEntry) -> RoleFacts:
        """What the role of a process is derived from."""
        static, reader = self._static[entry.stat.process], self._readers[entry.stat.process]
        is_numbered = static.is_python and not roles.NUMBERS.isdisjoint(static.environment)
        return RoleFacts(
            process=entry.stat.process,
            parent=entry.parent,
            name=entry.stat.name,
            cmdline=static.cmdline,
            is_python=static.is_python,
            environment=static.environment,
            is_fork=entry.stat.is_fork,
            has_torch=reader.has_torch if is_numbered else False,
            has_group=reader.has_group if is_numbered else False,
        )

    def _probes(
        self, tree: list[TreeEntry], request: ReadRequest, context: ProbeContext
    ) -> dict[ProcessId, Probes]:
        """The probes to run: of those that are due, the most urgent."""
        dues = {
            entry.stat.process: self._readers[entry.stat.process].due(context, entry.stat)
            for entry in tree
        }
        if request.is_full:
            has_memory = request.memory_count is None
            return dict.fromkeys(dues, Probes(request.threads, True, True, has_memory))
        descriptors = _most_urgent(dues, lambda due: due.descriptors, request.links_count)
        mappings = _most_urgent(dues, lambda due: due.mappings, request.maps_count)
        rollups: Set[ProcessId] = frozenset()
        has_unread = any(due.memory == math.inf for due in dues.values())
        pause_s = context.intervals.memory_pause_s
        if has_unread or context.at_s - self._memory_read_at_s >= pause_s:
            self._memory_read_at_s = context.at_s
            rollups = _most_urgent(dues, lambda due: due.memory, request.memory_count)
        found = {}
        for process, due in dues.items():
            is_followed = process == request.followed
            has_listing = is_followed and due.descriptors is not None
            found[process] = Probes(
                threads=is_followed or (request.threads and due.threads is not None),
                descriptors=has_listing or process in descriptors,
                mappings=process in mappings or (is_followed and due.mappings is not None),
                memory=process in rollups or (is_followed and due.memory is not None),
            )
        return found


def _most_urgent(
    dues: dict[ProcessId, Due], urgency: Callable[[Due], float | None], count: int | None
) -> frozenset[ProcessId]:
    """The most urgent processes; among equals the oldest, at first the root."""
    waiting = [(-u, process) for process, due in dues.items() if (u := urgency(due)) is not None]
    waiting.sort(key=lambda each: (each[0], each[1].start_ticks, each[1].pid))
    return frozenset(process for _, process in waiting[:count])


def _same(pid: int) -> int | None:
    """A pid of the observer's own namespace."""
    return pid


class ReadRequest(Struct, frozen=True):
    """What one reading of the tree contains; a count of `None` means all processes.

    What is not read is carried over from the last reading, with its time. Counts
    bound the cost of one reading: processes with old results and large changes come first.
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
    """Begin to read the memory of all processes in the background, for the next reading."""
    gpu: bool = True
    new_files: bool = True
    """Count the files that the job has made. One count shows nothing, and to list a /tmp with 7,000
    names takes 12 to 20 ms of cpu."""
    followed: ProcessId | None = None
    """The process that the user follows: it is read in full each time."""
    is_full: bool = False
    """Read everything anew, whatever it costs; memory only if its count is `None`."""

    @classmethod
    def processes_only(cls) -> ReadRequest:
        """Which processes there are, and nothing of what they hold or wait for."""
        return cls(
            threads=False,
            links_count=0,
            maps_count=0,
            memory_count=0,
            gpu=False,
            new_files=False,
        )

    @classmethod
    def everything(cls, *, new_files: bool = True) -> ReadRequest:
        """All of it, now."""
        return cls(
            links_count=None,
            maps_count=None,
            memory_count=None,
            is_full=True,
            new_files=new_files,
        )
