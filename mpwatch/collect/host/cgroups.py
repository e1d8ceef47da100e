"""The control group of a process: of the limits of all its groups, the one with the least headroom.

Both versions are read, also side by side (a hybrid mount has some controllers in version 1). Groups
above the mount point, outside a container, are not visible; a problem says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import DescriptorBudget, OpenFiles
from mpwatch.model.host import CgroupSample
from mpwatch.model.sanitize import clean

Read: TypeAlias = Callable[[str], bytes]

_UNLIMITED = 1 << 60
"""Version 1 writes unlimited as the largest page-aligned number."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted hierarchy."""

    point: str
    root: str
    """The group at the mount point."""
    controllers: frozenset[str]
    """Controllers of version 1; empty for version 2."""


@dataclass(frozen=True, slots=True)
class Group:
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
    mounts = []
    for line in mountinfo.decode("utf-8", "surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2"):
            continue
        point, root = procfs.unescaped(fields[4]), procfs.unescaped(fields[3])
        if "\0" in point:
            continue  # no path that could be opened
        names = frozenset(tail[2].split(",")) if tail[0] == "cgroup" else frozenset[str]()
        mounts.append(Mount(point, root, names))
    return tuple(mounts)


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
            mounts = parse_mounts(procfs.read(f"{proc}/self/mountinfo", 4 << 20))
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
    """Folder, limit and use where the least room is left; any use if nothing is limited."""

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
