"""The machine or container of a job, in the namespaces of its root process, and control groups.

Of the limits of all groups of a process, the one with the least headroom counts. Both versions are
read, also side by side (a hybrid mount has some controllers in version 1). Groups above the mount
point, outside a container, are not visible; a problem says so.

Of its ports only those are examined that the job names for its rendezvous: another job, or an
orphan of one, may listen there.
"""

from __future__ import annotations

import errno
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct

from mpwatch.collect.host.new_files import SHM, NewFilesReader, file_system_of
from mpwatch.collect.host.orphans import left_segments
from mpwatch.collect.own_threads import OwnThreads
from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import DescriptorBudget, OpenFiles
from mpwatch.model.host import (
    OF_TORCHRUN,
    CgroupSample,
    FileSystemSample,
    HostSample,
    NewFiles,
    PortOwner,
    is_orphan,
)
from mpwatch.model.ids import SegmentUse
from mpwatch.model.samples import ProcSample
from mpwatch.model.sanitize import clean

RELOCATE_S = 30.0
"""Places of control groups, limits of the kernel and owners of ports hardly ever change."""
REREAD_S = 2.0
"""How old a list of orphaned segments may become: they may be removed at any time."""

_MEMORY = re.compile(rb"^(MemTotal|MemAvailable|SwapFree):\s+(\d+) kB", re.M)
TMP = "/tmp"
ANSWER_S = 0.2
"""How long a reading waits for a file system that may be remote; a server on the local network
answers in about a millisecond."""
OUTDATED_S = 10.0
"""An answer is given again for so long while the next one does not come."""
DEFAULT_PORT = 29500
"""The rendezvous port of torch.distributed where a job names none."""
COMMAND_CHARS = 200
"""Limit for the command line of the process that listens on a port."""
_OPTIONS = re.compile(
    rb"--(?:master[-_]port|rdzv[-_]endpoint|rdzv[-_]backend[-_]endpoint)(?:=|\0)(?:[^\0]*:)?(\d+)"
)
_VARIABLE = re.compile(rb"(?:^|\0)MASTER_PORT=(\d+)")


def file_system(path: str, shown: str) -> FileSystemSample:
    """Size and free space of the file system of a folder.

    Raises:
        OSError: As statvfs(3) says.
    """
    return file_system_of(os.statvfs(path), shown)


class RemoteFileSystem:
    """Reads the space at a path that may never answer, on a thread of its own.

    Args:
        path: As this process reaches it.
        shown: As the job knows it.
        clock: Monotonic seconds.
    """

    def __init__(self, path: str, shown: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._shown = path, shown
        self._clock = clock
        self._threads = OwnThreads()
        self._thread: threading.Thread | None = None
        self._found: tuple[float, FileSystemSample | OSError] | None = None
        """When it has answered last, and what."""

    def read(self) -> FileSystemSample:
        """The space now, or when it was last known.

        Raises:
            OSError: There is no such folder, or it has not answered for `OUTDATED_S`.
        """
        if self._thread is None or not self._thread.is_alive():
            self._thread = self._threads.start(self._ask, "mpwatch-statvfs")
            if self._thread is None:
                raise OSError(errno.EAGAIN, "no thread could be started to ask its file system")
            self._thread.join(ANSWER_S)
        if self._found is None or self._clock() - self._found[0] > OUTDATED_S:
            raise OSError(errno.ETIMEDOUT, "its file system does not answer")
        found = self._found[1]
        if isinstance(found, OSError):
            raise found
        return found

    def _ask(self) -> None:
        try:
            self._found = self._clock(), file_system(self._path, self._shown)
        except OSError as error:
            self._found = self._clock(), error


class HostCollector:
    """Reads the machine in the namespaces of one process."""

    def __init__(self, proc: str = "/proc", budget: DescriptorBudget | None = None) -> None:
        self._proc = proc
        self._budget = budget or DescriptorBudget(0)
        self._files = OpenFiles(self._budget)
        self._remote: dict[str, RemoteFileSystem] = {}
        self._mounts = procfs.MountTable()
        self._reader: CgroupReader | None = None
        self._reader_for: tuple[int, float] = (0, -math.inf)
        self._kernel_limits: tuple[int | None, int | None] = (None, None)
        self._left: tuple[SegmentUse, ...] | None = None
        self._left_at_s = -math.inf
        self._port_owners: tuple[PortOwner, ...] | None = None
        self._init: str | None = None
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
            shm=self._file_system(pid, SHM, problems),
            tmp=self._file_system(pid, tmp or TMP, problems),
            cgroup=cgroup,
            max_map_count=self._kernel_limits[0],
            threads_max=self._kernel_limits[1],
            left_segments=self._left,
            port_owners=self._port_owners,
            new_files=files,
            init=self._init,
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
            self._init = _name_of_init(self._proc)
            self._mounts = procfs.read_mounts(self._proc, pid)
            try:
                self._reader = CgroupReader(self._proc, pid, self._budget)
            except OSError as error:
                if not self._has_ended(pid):
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

    def _file_system(self, pid: int, path: str, problems: list[str]) -> FileSystemSample | None:
        """Space at a path in the mount namespace of the process; `None` if it has just exited."""
        try:
            # A folder that the user has named may be, or lead to, a server that does not answer.
            root = f"{self._proc}/{pid}/root"
            reached = f"{root}{path}"
            if path in (SHM, TMP) and self._mounts.is_local(path):
                return file_system(reached, path)
            if reached not in self._remote:
                kept = {at: each for at, each in self._remote.items() if at.startswith(f"{root}/")}
                self._remote = {**kept, reached: RemoteFileSystem(reached, path)}
            return self._remote[reached].read()
        except OSError as error:
            if not self._has_ended(pid):
                problems.append(f"{path}: {error.strerror}")
            return None

    def _has_ended(self, pid: int) -> bool:
        """Whether a process has exited since the job was listed: its files are then missing."""
        stat = procfs.read_stat(self._proc, pid)
        return stat is None or stat.has_ended

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
    for each in procfs.tcp_listeners(f"{proc}/{pid}"):
        if each.port in ports:
            yield b"socket:[" + each.inode + b"]", each.port


def _name_of_init(proc: str) -> str | None:
    """The name of process 1; `None` if it is hidden."""
    try:
        stat = procfs.read_stat(proc, 1)
    except OSError:
        return None
    return None if stat is None else stat.name


def _is_orphan(proc: str, stat: procfs.Stat) -> bool:
    """Whether the process that started one has certainly ended."""
    environment = procfs.read_environment(proc, stat.pid, frozenset((OF_TORCHRUN.encode(),)))
    return is_orphan(
        stat.pid,
        stat.parent_pid,
        stat.session,
        _name_of_init(proc),
        of_torchrun=OF_TORCHRUN in environment,
    )


def _holders(proc: str, listening: dict[bytes, int]) -> Iterator[PortOwner]:
    """The processes that hold one of these sockets, as far as they may be read."""
    for name in filter(str.isdigit, os.listdir(proc)):
        folder = f"{proc}/{name}/fd"
        try:
            links = {os.readlink(os.fsencode(f"{folder}/{fd}")) for fd in os.listdir(folder)}
            ports = {listening[link] for link in links & listening.keys()}
            if ports:
                words = procfs.read(f"{proc}/{name}/cmdline").replace(b"\0", b" ").strip()
                stat = procfs.stat_of(int(name), proc)
                command, has_lost = clean(words, COMMAND_CHARS), _is_orphan(proc, stat)
                for port in sorted(ports):
                    yield PortOwner(port, stat.pid, command, stat.parent_pid, has_lost)
        except OSError:
            continue  # it has exited, or belongs to another user


Read: TypeAlias = Callable[[str], bytes]

_UNLIMITED = 1 << 60
"""Version 1 writes unlimited as the largest page-aligned number."""


class Mount(Struct, frozen=True):
    """One mounted hierarchy."""

    point: str
    root: str
    """The group at the mount point."""
    controllers: frozenset[str]
    """Controllers of version 1; empty for version 2."""


class Group(Struct, frozen=True):
    """The files of one controller for one process."""

    version: int
    path: str
    """Path of the group in the kernel."""
    folders: tuple[str, ...]
    """From the group itself up to the mount point."""
    read: Read
    """Reads the files in them."""


def parse_mounts(mountinfo: bytes) -> tuple[Mount, ...]:
    """The control group hierarchies among the lines of `mountinfo`; see proc_pid_mountinfo(5)."""
    return tuple(
        Mount(
            each.point,
            each.root,
            frozenset(each.options.split(",")) if each.type == "cgroup" else frozenset(),
        )
        for each in procfs.mount_points(mountinfo)
        if each.type in ("cgroup", "cgroup2")
    )


def parse_membership(cgroup: bytes) -> dict[str, str]:
    """Group by controller from `/proc/PID/cgroup`; version 2 is under the empty name."""
    groups = {}
    for line in cgroup.decode("utf-8", "surrogateescape").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            groups[name] = path
    return groups


class CgroupReader:
    """Reads the groups of one process: their places once, their numbers each time."""

    def __init__(self, proc: str, pid: int, budget: DescriptorBudget | None = None) -> None:
        """Find the groups.

        Args:
            proc: Path of procfs.
            pid: The process.
            budget: How many of the groups' files may be held open.

        Raises:
            OSError: The process is gone.
        """
        self.problems: list[str] = []
        self._files = OpenFiles(budget or DescriptorBudget(0))
        membership = parse_membership(procfs.read(f"{proc}/{pid}/cgroup"))
        try:
            mounts = parse_mounts(procfs.read(f"{proc}/self/mountinfo", procfs.MOUNTS_BYTES))
        except OSError as error:
            mounts = ()
            self.problems.append(f"mounts: {error.strerror}")
        self._groups: dict[str, Group] = {}
        for controller in ("memory", "pids", "cpu"):
            group = self._locate(controller, membership, mounts)
            if group is not None:
                self._groups[controller] = group

    def sample(self) -> CgroupSample | None:
        """The present numbers; `None` if no group of the process is visible."""
        if not self._groups:
            return None
        memory, pids, cpu = map(self._groups.get, ("memory", "pids", "cpu"))
        first = memory or pids or cpu
        assert first is not None
        values: dict[str, int | float | None] = {}
        if memory is not None:
            values.update(memory_v2(memory) if memory.version == 2 else memory_v1(memory))
        if pids is not None:
            values.update(pids_numbers(pids))
        if cpu is not None:
            values.update(cpu_numbers(cpu))
        return CgroupSample(first.version, clean(first.path), **values)  # type: ignore[arg-type]

    def memory_left(self, swap_bytes: int) -> int | None:
        """Bytes that the groups still allow before the kernel kills; `None` if nothing limits them.

        Pages of files count as left: the kernel drops them first.

        Args:
            swap_bytes: What the machine has left of its swap.
        """
        group = self._groups.get("memory")
        if group is None:
            return None
        names = _MEMORY_V2 if group.version == 2 else _MEMORY_V1
        left = (_memory_left(group.read, each, names, swap_bytes) for each in group.folders)
        return min((each for each in left if each is not None), default=None)

    def _locate(
        self, controller: str, membership: dict[str, str], mounts: tuple[Mount, ...]
    ) -> Group | None:
        """The group that accounts for one controller."""
        version = 1 if controller in membership else 2
        path = membership.get(controller if version == 1 else "")
        if path is None:
            return None
        for mount in mounts:
            if controller in mount.controllers if version == 1 else not mount.controllers:
                folders, problem = _visible(mount, path)
                if problem:
                    self.problems.append(f"control group, {controller}: {problem}")
                return Group(version, path, folders, self._files.read)
        self.problems.append(
            f"control group, {controller}: not mounted here, its limits are unknown"
        )
        return None


def _visible(mount: Mount, path: str) -> tuple[tuple[str, ...], str]:
    """The folders of a group and of those above it, and a problem for those not visible."""
    if path.startswith("/.."):
        return (mount.point,), f"{clean(path)} lies outside what is visible here"
    inside = path
    if mount.root != "/":
        if path != mount.root and not path.startswith(mount.root + "/"):
            return (mount.point,), f"{clean(path)} lies outside the mounted {clean(mount.root)}"
        inside = path[len(mount.root) :]
    folder = (mount.point + inside).rstrip("/")
    if not os.path.isdir(folder):
        return (mount.point,), f"{clean(path)} is not below {clean(mount.point)} here"
    folders = [folder]
    while len(folder) > len(mount.point):
        folder = os.path.dirname(folder)
        folders.append(folder)
    return tuple(folders), ""


def _number(read: Read, path: str) -> int | None:
    """A file that holds one number; `None` for `max`, for unlimited and for a missing file."""
    try:
        text = read(path).strip()
    except OSError:
        return None
    value = procfs.number(text)
    return value if value is not None and value < _UNLIMITED else None


def _counter(read: Read, path: str, name: bytes) -> int | None:
    """One line `name N` of a file."""
    try:
        lines = read(path).splitlines()
    except OSError:
        return None
    prefix = name + b" "
    return next(
        (procfs.number(line[len(prefix) :]) for line in lines if line.startswith(prefix)), None
    )


def _tightest(group: Group, limit: str, current: str) -> tuple[str, int | None, int | None]:
    """Folder, limit and use where the least headroom is left; any use if nothing is limited."""

    def limited() -> Iterator[tuple[int, str, int, int | None]]:
        for folder in group.folders:
            most = _number(group.read, f"{folder}/{limit}")
            if most is not None:
                used = _number(group.read, f"{folder}/{current}")
                yield most - (used or 0), folder, most, used

    _, folder, most, used = min(limited(), key=lambda found: found[0], default=(0, "", 0, None))
    if folder:
        return folder, most, used
    # The root group of a hierarchy has no such file: the first that has one.
    for folder in group.folders:
        used = _number(group.read, f"{folder}/{current}")
        if used is not None:
            return folder, None, used
    return group.folders[0], None, None


class _MemoryNames(Struct, frozen=True):
    """The files and fields of a memory group; those of version 1 that include the groups below."""

    limit: str
    used: str
    swap_limit: str
    swap_used: str
    is_swap_with_memory: bool
    """Whether limit and use of swap are those of memory and swap together."""
    files: tuple[bytes, ...]
    """Fields of `memory.stat` with the pages of files, of which those of tmpfs are none."""


_MEMORY_V2 = _MemoryNames(
    "memory.max",
    "memory.current",
    "memory.swap.max",
    "memory.swap.current",
    False,
    (b"inactive_file", b"active_file"),
)
_MEMORY_V1 = _MemoryNames(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.memsw.usage_in_bytes",
    True,
    (b"total_inactive_file", b"total_active_file"),
)


def _memory_left(read: Read, folder: str, names: _MemoryNames, swap_bytes: int) -> int | None:
    """Bytes that one group still allows; `None` if it sets no limit, or that cannot be read."""
    limit = _number(read, f"{folder}/{names.limit}")
    used = _number(read, f"{folder}/{names.used}")
    if limit is None or used is None:
        return None
    of_files = sum(_counter(read, f"{folder}/memory.stat", name) or 0 for name in names.files)
    left = max(0, limit - used)
    swap_limit = _number(read, f"{folder}/{names.swap_limit}")
    if swap_limit is None:
        return left + swap_bytes + of_files
    swap_left = max(0, swap_limit - (_number(read, f"{folder}/{names.swap_used}") or 0))
    if names.is_swap_with_memory:
        return min(left + swap_bytes, swap_left) + of_files
    return left + min(swap_bytes, swap_left) + of_files


class MemoryLeft(Struct, frozen=True):
    """Bytes that a process and others may still use; `None` for what is unlimited or unknown."""

    group_bytes: int | None
    """By its control groups."""
    machine_bytes: int | None


def memory_left(pid: int, proc: str = "/proc") -> MemoryLeft:
    """How much memory is left for a process before the kernel kills one for want of it."""
    try:
        text = procfs.read(f"{proc}/meminfo", 4096)
    except OSError:
        text = b""
    machine = {key: int(value) << 10 for key, value in _MEMORY.findall(text)}
    swap_bytes = machine.get(b"SwapFree", 0)
    available = machine.get(b"MemAvailable")
    try:
        group = CgroupReader(proc, pid).memory_left(swap_bytes)
    except OSError:
        group = None
    return MemoryLeft(group, None if available is None else available + swap_bytes)


def memory_v2(group: Group) -> dict[str, int | float | None]:
    """Memory of a group of version 2: use, limit, peak and out-of-memory kills."""
    folder, limit, used = _tightest(group, "memory.max", "memory.current")
    return {
        "memory_bytes": used,
        "memory_limit_bytes": limit,
        "memory_peak_bytes": _number(group.read, f"{folder}/memory.peak"),
        "limit_hits": _counter(group.read, f"{folder}/memory.events", b"max"),
        "oom_kills": _counter(group.read, f"{folder}/memory.events", b"oom_kill"),
    }


def memory_v1(group: Group) -> dict[str, int | float | None]:
    """Memory of a group of version 1: use, limit, peak and out-of-memory kills."""
    folder, limit, used = _tightest(group, "memory.limit_in_bytes", "memory.usage_in_bytes")
    return {
        "memory_bytes": used,
        "memory_limit_bytes": limit,
        "memory_peak_bytes": _number(group.read, f"{folder}/memory.max_usage_in_bytes"),
        "limit_hits": _number(group.read, f"{folder}/memory.failcnt"),
        "oom_kills": _counter(group.read, f"{folder}/memory.oom_control", b"oom_kill"),
    }


def pids_numbers(group: Group) -> dict[str, int | float | None]:
    """Processes and threads of a group and their limit."""
    folder, limit, used = _tightest(group, "pids.max", "pids.current")
    return {
        "pids_current": used,
        "pids_limit": limit,
        "pids_limit_hits": _counter(group.read, f"{folder}/pids.events", b"max"),
    }


def cpu_numbers(group: Group) -> dict[str, int | float | None]:
    """The smallest quota on the way up, in cpus, and how often this group was throttled."""
    quotas = (
        quota for folder in group.folders if (quota := _quota(group.read, folder)) is not None
    )
    return {
        "cpu_quota_cpus": min(quotas, default=None),
        "throttled_periods": _counter(group.read, f"{group.folders[0]}/cpu.stat", b"nr_throttled"),
    }


def _quota(read: Read, folder: str) -> float | None:
    """A group's own cpu quota."""
    try:
        spent, per = map(procfs.number, read(f"{folder}/cpu.max").split())
    except (OSError, ValueError):
        spent = _number(read, f"{folder}/cpu.cfs_quota_us")
        per = _number(read, f"{folder}/cpu.cfs_period_us")
    return spent / per if spent is not None and per else None
