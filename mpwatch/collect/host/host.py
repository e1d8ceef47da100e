"""The machine or container of a job, in the namespaces of its root process.

Of its ports only those are examined that the job names for its rendezvous: another job, or an
orphan of one, may listen there.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator

from mpwatch.collect.host.cgroups import CgroupReader
from mpwatch.collect.host.new_files import SHM, NewFilesReader, room_of
from mpwatch.collect.host.orphans import left_segments
from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import DescriptorBudget, OpenFiles
from mpwatch.model.host import CgroupSample, HostSample, NewFiles, PortOwner, RoomSample
from mpwatch.model.ids import SegmentUse
from mpwatch.model.samples import ProcSample
from mpwatch.model.sanitize import clean

RELOCATE_S = 30.0
"""Places of control groups, limits of the kernel and owners of ports hardly ever change."""
REREAD_S = 2.0
"""How old a list of orphaned segments may become: they may be removed at any time."""

_MEMORY = re.compile(rb"^(MemTotal|MemAvailable):\s+(\d+) kB", re.M)
DEFAULT_PORT = 29500
"""The rendezvous port of torch.distributed where a job names none."""
COMMAND_CHARS = 200
"""Limit for the command line of the process that listens on a port."""
_OPTIONS = re.compile(
    rb"--(?:master[-_]port|rdzv[-_]endpoint|rdzv[-_]backend[-_]endpoint)(?:=|\0)(?:[^\0]*:)?(\d+)"
)
_VARIABLE = re.compile(rb"(?:^|\0)MASTER_PORT=(\d+)")


def room(path: str, shown: str) -> RoomSample:
    """Size and free space of the file system of a folder.

    Raises:
        OSError: As statvfs(3) says.
    """
    return room_of(os.statvfs(path), shown)


class HostCollector:
    """Reads the machine in the namespaces of one process."""

    def __init__(self, proc: str = "/proc", budget: DescriptorBudget | None = None) -> None:
        self._proc = proc
        self._budget = budget or DescriptorBudget(0)
        self._files = OpenFiles(self._budget)
        self._reader: CgroupReader | None = None
        self._reader_for: tuple[int, float] = (0, -math.inf)
        self._kernel_limits: tuple[int | None, int | None] = (None, None)
        self._left: tuple[SegmentUse, ...] | None = None
        self._left_at_s = -math.inf
        self._port_owners: tuple[PortOwner, ...] | None = None
        self._new_files = NewFilesReader(proc)

    def collect(
        self,
        pid: int,
        tmp: str | None,
        affinity: int | None,
        at_s: float,
        wall_s: float,
        *,
        uid: int | None = None,
        since_wall_s: float | None = None,
        others: Iterable[int] = (),
    ) -> HostSample:
        """Read once.

        Args:
            pid: The process whose namespaces and groups count.
            tmp: Its TMPDIR, if it has one.
            affinity: How many cpus it may run on.
            at_s: CLOCK_MONOTONIC.
            wall_s: CLOCK_REALTIME.
            uid: Its user, whose new files are counted; they are not counted if this is unknown.
            since_wall_s: When it was started, seconds since 1970.
            others: Further processes of the job, in whose working directories files are counted.
        """
        problems: list[str] = []
        files: tuple[NewFiles, ...] | None = None
        if uid is not None and since_wall_s is not None:
            files = self._new_files.read(pid, others, tmp, uid, since_wall_s, at_s)
        cgroup = self._cgroup(pid, at_s, problems)
        load, runnable = self._load(problems)
        memory = self._memory(problems)
        system = os.uname()
        return HostSample(
            at_s=at_s,
            wall_s=wall_s,
            hostname=clean(system.nodename),
            kernel=clean(system.release),
            cpu_count=os.cpu_count(),
            usable_cpus=_usable(affinity, cgroup),
            load_1m=load,
            runnable=runnable,
            memory_total_bytes=memory.get(b"MemTotal"),
            memory_available_bytes=memory.get(b"MemAvailable"),
            shm=self._room(pid, SHM, problems),
            tmp=self._room(pid, tmp or "/tmp", problems),
            cgroup=cgroup,
            max_map_count=self._kernel_limits[0],
            threads_max=self._kernel_limits[1],
            left_segments=self._left,
            port_owners=self._port_owners,
            new_files=files,
            problems=tuple(problems),
        )

    def note_files(self, samples: Iterable[ProcSample]) -> None:
        """Note which files are open: their folders are listed from the next reading on."""
        self._new_files.note(samples)

    def oom_kills(self) -> int | None:
        """Out-of-memory kills that the control group has counted, also after all processes exited.

        The process by which the group was found may be gone: the group's folder still exists.
        """
        sample = None if self._reader is None else self._reader.sample()
        return None if sample is None else sample.oom_kills

    def _cgroup(self, pid: int, at_s: float, problems: list[str]) -> CgroupSample | None:
        """The control group's numbers; its place is looked up at intervals."""
        known_pid, located_at_s = self._reader_for
        if known_pid != pid or at_s - located_at_s > RELOCATE_S:
            self._kernel_limits = (
                self._number("sys/vm/max_map_count"),
                self._number("sys/kernel/threads-max"),
            )
            self._left, self._left_at_s = left_segments(self._proc, pid), at_s
            self._port_owners = port_owners(self._proc, pid)
            try:
                self._reader = CgroupReader(self._proc, pid, self._budget)
            except OSError as error:
                problems.append(f"control group: {error.strerror}")
                return None
            self._reader_for = (pid, at_s)
        elif self._left and at_s - self._left_at_s > REREAD_S:
            self._left, self._left_at_s = left_segments(self._proc, pid), at_s
        if self._reader is None:
            return None
        problems.extend(self._reader.problems)
        return self._reader.sample()

    def _load(self, problems: list[str]) -> tuple[float | None, int | None]:
        """Load over the last minute, and the number of runnable threads now."""
        try:
            words = self._files.read(f"{self._proc}/loadavg").split()
            return float(words[0]), int(words[3].split(b"/")[0])
        except OSError as error:
            problems.append(f"loadavg: {error.strerror}")
        except (IndexError, ValueError):
            problems.append("loadavg: not as expected")
        return None, None

    def _memory(self, problems: list[str]) -> dict[bytes, int]:
        """Memory of the machine in bytes."""
        try:
            found = _MEMORY.findall(self._files.read(f"{self._proc}/meminfo"))
        except OSError as error:
            problems.append(f"meminfo: {error.strerror}")
            return {}
        return {name: int(kilobytes) * 1024 for name, kilobytes in found}

    def _room(self, pid: int, path: str, problems: list[str]) -> RoomSample | None:
        """Space at a path in the mount namespace of the process."""
        try:
            return room(f"{self._proc}/{pid}/root{path}", path)
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            return None

    def _number(self, name: str) -> int | None:
        """A kernel setting."""
        try:
            return int(procfs.read(f"{self._proc}/{name}", 64))
        except (OSError, ValueError):
            return None


def _usable(affinity: int | None, cgroup: CgroupSample | None) -> int | None:
    """The cpus that affinity and quota allow; a quota of 2.5 cpus is rounded up to three."""
    if cgroup is None or cgroup.cpu_quota_cpus is None:
        return affinity
    quota = max(1, math.ceil(cgroup.cpu_quota_cpus))
    return quota if affinity is None else min(affinity, quota)


def named_ports(proc: str, pid: int) -> frozenset[int]:
    """The rendezvous ports in a command line or environment, and torch's default one."""
    words = b""
    for name in ("environ", "cmdline"):
        try:
            words += b"\0" + procfs.read(f"{proc}/{pid}/{name}")
        except OSError:
            continue
    found = (*_OPTIONS.findall(words), *_VARIABLE.findall(words))
    return frozenset((DEFAULT_PORT, *(int(port) for port in found if len(port) < 6)))


def port_owners(proc: str, pid: int) -> tuple[PortOwner, ...] | None:
    """The listeners on the ports a job names.

    Args:
        proc: Path of procfs.
        pid: A process of the job; its network namespace counts.

    Returns:
        One owner for each process and port; `None` if the tables cannot be read.
    """
    ports = named_ports(proc, pid)
    try:
        listening = dict(_listeners(proc, pid, ports))
    except OSError:
        return None
    return tuple(_holders(proc, listening)) if listening else ()


def _listeners(proc: str, pid: int, ports: frozenset[int]) -> Iterator[tuple[bytes, int]]:
    """The listening sockets on some ports: the text of a link to each, and its port."""
    for table in ("tcp", "tcp6"):
        for line in procfs.read(f"{proc}/{pid}/net/{table}").splitlines()[1:]:
            fields = line.split()
            # sl, local address, remote address, state, ..., inode: proc(5), the same in both.
            if len(fields) > 9 and fields[3] == procfs.TCP_LISTEN:
                port = procfs.number(fields[1].rpartition(b":")[2], 16)
                if port in ports:
                    yield b"socket:[" + fields[9] + b"]", port


def _holders(proc: str, listening: dict[bytes, int]) -> Iterator[PortOwner]:
    """The processes that hold one of these sockets, as far as they may be read."""
    for name in filter(str.isdigit, os.listdir(proc)):
        folder = f"{proc}/{name}/fd"
        try:
            links = {os.readlink(os.fsencode(f"{folder}/{fd}")) for fd in os.listdir(folder)}
            ports = {listening[link] for link in links & listening.keys()}
            if ports:
                words = procfs.read(f"{proc}/{name}/cmdline").replace(b"\0", b" ").strip()
                parent = procfs.parent_in(procfs.read_stat_line(proc, int(name)))
                for port in sorted(ports):
                    yield PortOwner(port, int(name), clean(words, COMMAND_CHARS), parent)
        except OSError:
            continue  # it has exited, or belongs to another user
