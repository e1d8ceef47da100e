"""The jobs of one node: which processes they are, and a live source for each of them.

Processes are named by pid, found by environment, or all torch jobs. On a Ray node they are those
below its raylet, and the drivers that are connected to it. Checked with Ray 2.60: workers are
children of the raylet, whose arguments name the folder of its session; a driver keeps
`logs/python-core-driver-NUMBER_PID.log` of that folder open for as long as it is connected, also
where it started the raylet itself.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mpwatch.collect.job.jobs import MAPS_BYTES_LIMIT, find_jobs
from mpwatch.collect.own_threads import AT_LIMIT, OwnThreads
from mpwatch.collect.process import procfs
from mpwatch.collect.process.foreign_files import open_regular
from mpwatch.collect.process.identify import is_python_exe
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.agent.current_environment import LateRanks
from mpwatch.nodes.agent.rights import hidden_words
from mpwatch.observe.sources.live import LiveOptions, LiveSource
from mpwatch.observe.sources.source import Command, Source

VERSION_BYTES_LIMIT = 4096
_RANK_VARIABLES = frozenset((b"RANK", b"LOCAL_RANK", b"WORLD_SIZE"))
"""RANK is set by torchrun and accelerate, LOCAL_RANK alone by Lightning's own launcher."""
_TORCH_LIBRARY = re.compile(rb"(/[^\n]*/torch)/lib/libtorch(?:_cpu|_python)?\.so")
_DRIVER = re.compile(rb"^NVRM version:[^\n]*?\s(\d+(?:\.\d+){1,3})\s", re.MULTILINE)
_VERSION = re.compile(rb"^__version__\s*=\s*['\"]([^'\"]{1,60})['\"]", re.MULTILINE)
RAYLET = "raylet"
DRIVERS_LIMIT = 32
_SOCKET = re.compile(r"--raylet_socket_name=(/.*)/sockets/[^/]*")
_DRIVER_LOG = re.compile(r"python-core-driver-[0-9a-f]+_([0-9]{1,10})\.log")
_OWN = "mpwatch.nodes.launchers.ray_helper"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which processes of this node belong to the job."""

    pids: tuple[int, ...] = ()
    """The roots of the job, if they are known."""
    raylet_pid: int | None = None
    """The raylet of a Ray node, where its processes are the job."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that a process of each tree has: `{"SLURM_JOB_ID": "4711"}`."""
    part: tuple[int, int] = (0, 1)
    """Which of how many equal parts of the roots, for several agents on one machine."""

    def is_in_part(self, place: int) -> bool:
        """Whether the root at this place of the list belongs to this part."""
        index, count = self.part
        return place % count == index


def find_roots(selection: Selection, proc: str = "/proc") -> list[ProcessId]:
    """The topmost processes of the job on this node, oldest first.

    With pids, those of them that exist; with a raylet, see `find_ray_roots`.
    Otherwise the torch jobs of this user (of all users for root), and processes that were started
    as ranks but have not loaded torch yet; with variables, only trees of which a process has all
    of them.
    """
    if selection.raylet_pid is not None:
        return find_ray_roots(selection.raylet_pid, proc)
    if selection.pids:
        found = [procfs.read_stat(proc, pid) for pid in selection.pids]
        return [stat.process for stat in found if stat is not None and not stat.has_ended]
    jobs = find_jobs(proc)
    uid = os.geteuid()
    trees = [
        (job.root.process, [each.process.pid for each in job.processes])
        for job in jobs
        if uid in (0, job.root.uid)
    ]
    known = {each.process.pid for job in jobs for each in job.processes}
    trees += [(process, [process.pid]) for process in _starting_ranks(proc, known)]
    wanted = selection.environment
    roots = [
        process
        for process, pids in sorted(trees, key=lambda tree: (tree[0].start_ticks, tree[0].pid))
        if not wanted or any(_has(proc, pid, wanted) for pid in pids)
    ]
    return [each for place, each in enumerate(roots) if selection.is_in_part(place)]


def _starting_ranks(proc: str, known: set[int]) -> Iterator[ProcessId]:
    """The topmost Python processes of this user that have the environment of a rank.

    Processes of known jobs are left out, and so are what runs them, this process and its ancestors.
    """
    own = _ancestors(proc, os.getpid(), *known)
    found: dict[int, procfs.Stat] = {}
    for pid in procfs.pids(proc):
        if pid in known or pid in own:
            continue
        try:
            if os.stat(f"{proc}/{pid}").st_uid != os.geteuid():
                continue
            if not is_python_exe(os.readlink(f"{proc}/{pid}/exe")):
                continue
            environment = procfs.read_environment(proc, pid, _RANK_VARIABLES)
        except OSError:
            continue
        stat = procfs.read_stat(proc, pid)
        is_numbered = "RANK" in environment or "LOCAL_RANK" in environment
        if is_numbered and "WORLD_SIZE" in environment and stat is not None:
            found[pid] = stat
    for pid, stat in found.items():
        above = _ancestors(proc, stat.parent_pid)
        is_own = os.getpid() in above
        if not stat.has_ended and not is_own and not above & (found.keys() | known):
            yield found[pid].process


def _ancestors(proc: str, *pids: int) -> set[int]:
    """Some processes and all above them.

    Up to process 1: in a container that may be a rank, whose workers inherit its environment.
    """
    found: set[int] = set()
    for pid in pids:
        while pid > 0 and pid not in found:
            found.add(pid)
            stat = procfs.read_stat(proc, pid)
            pid = stat.parent_pid if stat is not None else 0
    return found


def _has(proc: str, pid: int, wanted: Mapping[str, str]) -> bool:
    """Whether a process has all of these variables in its environment."""
    names = frozenset(name.encode() for name in wanted)
    try:
        return procfs.read_environment(proc, pid, names) == wanted
    except (OSError, UnicodeDecodeError):
        return False


def is_there(process: ProcessId, proc: str = "/proc") -> bool:
    """Whether a process has not ended."""
    stat = procfs.read_stat(proc, process.pid)
    return stat is not None and stat.process == process and not stat.has_ended


def torch_version(pid: int, proc: str = "/proc") -> str | None:
    """The version of torch that a process has loaded, by the file beside the loaded library.

    Nothing is imported or executed: `torch/version.py` of the process's own file system is read and
    its line `__version__ = '2.9.1+cpu'` (torch 2.1 to 2.13) is searched.
    """
    try:
        found = _TORCH_LIBRARY.search(procfs.read(f"{proc}/{pid}/maps", MAPS_BYTES_LIMIT))
        if found is None:
            return None
        folder = os.fsdecode(found.group(1))
        with open(open_regular(f"{folder}/version.py", f"{proc}/{pid}/root"), "rb") as file:
            version = _VERSION.search(file.read(VERSION_BYTES_LIMIT))
    except OSError:
        return None
    return clean(version.group(1), 60) if version is not None else None


def gpu_driver(proc: str = "/proc") -> str | None:
    """The version of the loaded NVIDIA driver, `NVIDIA 535.104.05`; `None` without one.

    By driver/nvidia/version, whose first line the driver writes (nv_procfs_read_version in
    nv-procfs.c, drivers 470 to 615): `NVRM version: NVIDIA UNIX x86_64 Kernel Module
    535.104.05  Sat Aug 19 ...`, or `... Open Kernel Module for x86_64  560.35.03  Release ...`.
    """
    try:
        found = _DRIVER.search(procfs.read(f"{proc}/driver/nvidia/version", VERSION_BYTES_LIMIT))
    except OSError:
        return None
    return f"NVIDIA {found.group(1).decode('ascii')}" if found is not None else None


def find_ray_roots(raylet_pid: int, proc: str = "/proc") -> list[ProcessId]:
    """The raylet and its drivers on this machine, without what is below another one of them.

    Empty once the raylet has ended. Where several raylets of one session run on this machine, as
    in tests of Ray programs, the drivers belong to the oldest.
    """
    raylet = procfs.read_stat(proc, raylet_pid)
    if raylet is None or raylet.has_ended:
        return []
    session = _session(proc, raylet_pid)
    found = {raylet.pid: raylet.process}
    if session and _is_oldest(proc, raylet, session):
        for pid in _driver_pids(proc, session):
            stat = procfs.read_stat(proc, pid)
            if stat is not None and not stat.has_ended:
                found[pid] = stat.process
    return [
        process
        for pid, process in found.items()
        if not any(above in found for above in _above(proc, pid))
    ]


def _session(proc: str, raylet_pid: int) -> str:
    """The folder of the raylet's session, empty if its arguments do not say it."""
    try:
        cmdline = procfs.read_cmdline(proc, raylet_pid)
    except OSError:
        return ""
    found = (_SOCKET.fullmatch(argument) for argument in cmdline)
    return next((match.group(1) for match in found if match is not None), "")


def _is_oldest(proc: str, raylet: procfs.Stat, session: str) -> bool:
    for pid in procfs.pids(proc):
        stat = procfs.read_stat(proc, pid)
        if stat is None or stat.name != RAYLET or stat.pid == raylet.pid:
            continue
        is_older = (stat.start_ticks, stat.pid) < (raylet.start_ticks, raylet.pid)
        if is_older and not stat.has_ended and _session(proc, pid) == session:
            return False
    return True


def _driver_pids(proc: str, session: str) -> Iterator[int]:
    """The living drivers of a session, but for those of mpwatch, newest first."""
    folder = os.path.join(session, "logs")
    try:
        matches = [_DRIVER_LOG.fullmatch(name) for name in os.listdir(folder)]
    except OSError:
        return
    pids = sorted((int(each.group(1)) for each in matches if each is not None), reverse=True)
    for pid in pids[:DRIVERS_LIMIT]:
        try:
            if _has_open(proc, pid, folder) and _OWN not in " ".join(
                procfs.read_cmdline(proc, pid)
            ):
                yield pid
        except OSError:
            continue


def _has_open(proc: str, pid: int, folder: str) -> bool:
    """Whether a process is a driver of this session, and not another one with the same number."""
    prefix = os.path.join(folder, "python-core-driver-")
    for descriptor in os.listdir(f"{proc}/{pid}/fd"):
        try:
            if os.readlink(f"{proc}/{pid}/fd/{descriptor}").startswith(prefix):
                return True
        except OSError:
            continue
    return False


def _above(proc: str, pid: int) -> Iterator[int]:
    """The ancestors of a process."""
    seen = {pid}
    stat = procfs.read_stat(proc, pid)
    while stat is not None and stat.parent_pid > 1 and stat.parent_pid not in seen:
        seen.add(stat.parent_pid)
        yield stat.parent_pid
        stat = procfs.read_stat(proc, stat.parent_pid)


FIRST_S = 3.0
"""Interval at which jobs are looked for while there is none."""
FIND_S = 20.0
"""Interval after that: the mappings of every Python process of the machine are read each time, and
that takes the kernel about a millisecond for each."""
VERSION_TRIES = 5
"""How often the version of torch is looked for in a job that has not loaded it."""
ROOTS_LIMIT = 64
"""Most jobs observed at the same time: a node with that many has no launcher above its ranks."""
ENDED_KEPT = 64
"""So many jobs that have ended keep their last state."""


@dataclass(slots=True)
class _Observed:
    """One job."""

    source: Source
    newest: Snapshot | None = None
    count: int = 0
    """Snapshots so far."""
    torch: str | None = None
    tries_left: int = VERSION_TRIES
    late_ranks: LateRanks = field(default_factory=LateRanks)

    def deliver(self, snapshot: Snapshot) -> None:
        """Keep the newest snapshot; called on the thread of the source."""
        self.newest = self.late_ranks.added_to(snapshot)
        self.count += 1


@dataclass(slots=True)
class JobsOfNode:
    """Finds the jobs of this node and keeps their newest snapshots."""

    find: Callable[[], Sequence[ProcessId]]
    """Finds the roots."""
    exists: Callable[[ProcessId], bool] = is_there
    """Whether a process has not ended."""
    new_source: Callable[[ProcessId, LiveOptions], Source] = LiveSource
    """Makes what observes the job of a root."""
    values: bool = True
    """Whether values of names may be read in processes of this node."""
    hidden: Callable[[], str] = hidden_words
    """Says which processes may not be inspected; asked while no job is found."""
    driver: str | None = field(default_factory=gpu_driver)
    """The GPU driver of this machine; another one cannot be loaded while a job uses it."""
    problem: str = ""
    """Why jobs were not found at the last attempt, in one sentence; empty if they were."""
    has_searched: bool = False
    """Whether jobs have been searched for."""
    _observed: dict[ProcessId, _Observed] = field(default_factory=dict)
    _ended: dict[ProcessId, Snapshot] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: OwnThreads = field(default_factory=OwnThreads)

    def start(self) -> None:
        """Look for jobs now and at intervals, on a thread of its own."""
        threading.Thread(target=self._run, name="mpwatch-jobs", daemon=True).start()

    def refresh(self) -> None:
        """Look for jobs once: observe new ones, stop observing those that have ended."""
        try:
            roots = self.find()
            self.problem = "" if roots or self._observed else self.hidden()
        except OSError as error:
            roots, self.problem = (), f"Processes cannot be listed: {error.strerror}."
        with self._lock:
            ended = self._put_ended_aside()
            known = self._observed.keys() | self._ended.keys() | self._inside()
            new = [each for each in roots if each not in known]
            room = max(0, ROOTS_LIMIT - len(self._observed))
            if len(new) > room:
                self.problem = f"Only {ROOTS_LIMIT} of {len(roots)} jobs are observed."
            options = LiveOptions(samples_ranks=True, values=self.values)
            started = {root: _Observed(self.new_source(root, options)) for root in new[:room]}
            self._observed |= started
        for source in ended:
            # At a limit of threads it is stopped here, while others read what is known.
            if self._threads.start(source.stop, "mpwatch-stop") is None:
                source.stop()
        for root, each in started.items():
            if self._stopping.is_set():
                break
            try:
                each.source.start(each.deliver)
            except RuntimeError:  # "can't start new thread": it is a new job again next time
                self.problem = AT_LIMIT
                with self._lock:
                    self._observed.pop(root, None)
        self.has_searched = True

    def snapshots(self) -> list[Snapshot]:
        """The newest snapshot of each job, also of those that have ended."""
        with self._lock:
            newest = [each.newest for each in self._observed.values()]
            ended = list(self._ended.values())
        return [*ended, *(each for each in newest if each is not None)]

    def root_of(self, pid: int) -> ProcessId | None:
        """The root of the job that a process belongs to."""
        for snapshot in reversed(self.snapshots()):
            if any(each.process.pid == pid for each in snapshot.processes):
                return snapshot.root
        return None

    def newest(self, root: ProcessId) -> tuple[Snapshot | None, int]:
        """The newest snapshot of a job, and how many there were before."""
        with self._lock:
            observed = self._observed.get(root)
            return (observed.newest, observed.count) if observed else (self._ended.get(root), 0)

    def ask(self, root: ProcessId, command: Command) -> str | None:
        """Ask the source of a job; one sentence if that does not do it."""
        with self._lock:
            observed = self._observed.get(root)
        return observed.source.ask(command) if observed else "The job has ended."

    @property
    def is_reading(self) -> bool:
        """Whether a job has been found that has no snapshot yet."""
        with self._lock:
            return any(each.newest is None for each in self._observed.values())

    def facts(self) -> dict[str, str]:
        """What snapshots do not have: the GPU driver, and the version of torch if jobs agree."""
        with self._lock:
            observed = list(self._observed.values())
        for each in observed:
            if each.torch is None and each.tries_left and each.newest is not None:
                each.tries_left -= 1
                versions = (torch_version(p.pid) for p in each.newest.living() if p.role != "other")
                each.torch = next((version for version in versions if version), None)
        found = {each.torch for each in observed if each.torch is not None}
        facts = {"driver": self.driver} if self.driver is not None else {}
        return {**facts, "torch": found.pop()} if len(found) == 1 else facts

    def stop(self, limit_s: float) -> None:
        """Stop all sources; returns after at most this many seconds."""
        self._stopping.set()
        with self._lock:
            sources = [each.source for each in self._observed.values()]
        threads = [self._threads.start(each.stop, "mpwatch-stop") for each in sources]
        for thread in threads:
            if thread is not None:  # else its source ends with this process
                thread.join(limit_s / len(threads))

    def _inside(self) -> set[ProcessId]:
        """The processes of jobs that are observed.

        What runs a rank is the root of its job until the rank has loaded torch, and stays it.
        """
        newest = [each.newest for each in self._observed.values()]
        return {each.process for one in newest if one is not None for each in one.living()}

    def _put_ended_aside(self) -> list[Source]:
        """Keep the last snapshot of each job that has ended, if there was one.

        Returns:
            The sources of these jobs, which are to be stopped.
        """
        sources = []
        for root, each in list(self._observed.items()):
            newest = each.newest
            if newest.mode == "ended" if newest is not None else not self.exists(root):
                del self._observed[root]
                if newest is not None:
                    self._ended[root] = newest
                sources.append(each.source)
        for root in list(self._ended)[:-ENDED_KEPT]:
            del self._ended[root]
        return sources

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.refresh()
            self._stopping.wait(FIND_S if self.snapshots() else FIRST_S)
