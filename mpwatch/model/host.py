"""The machine and its limits, as a job sees them, and what the doctor says of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from mpwatch.model.segments import SegmentUse


@dataclass(frozen=True, slots=True)
class RoomSample:
    """Room on a file system, as the target sees it."""

    path: str
    total_bytes: int
    free_bytes: int
    total_inodes: int | None
    free_inodes: int | None
    """`None` where the file system does not count inodes."""


@dataclass(frozen=True, slots=True)
class CgroupSample:
    """The target's control group: the nearest limit on the way up counts."""

    version: int
    path: str
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """`None` is unlimited or unknown; see `problems` of the host sample."""
    memory_peak_bytes: int | None = None
    limit_hits: int | None = None
    """`memory.events` max, or v1 `memory.failcnt`."""
    oom_kills: int | None = None
    pids_current: int | None = None
    pids_limit: int | None = None
    pids_limit_hits: int | None = None
    cpu_quota_cpus: float | None = None
    throttled_periods: int | None = None


class PortOwner(NamedTuple):
    """A process that listens on a TCP port a job names for its rendezvous."""

    port: int
    pid: int
    command: str
    parent_pid: int
    """1 where whoever started it is gone."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """The machine or container around the job."""

    at_s: float
    wall_s: float
    hostname: str
    kernel: str
    cpu_count: int | None = None
    usable_cpus: int | None = None
    """What affinity and quota leave to the root process."""
    load_1m: float | None = None
    runnable: int | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    shm: RoomSample | None = None
    tmp: RoomSample | None = None
    cgroup: CgroupSample | None = None
    max_map_count: int | None = None
    threads_max: int | None = None
    left_segments: tuple[SegmentUse, ...] | None = None
    """Named torch segments in its /dev/shm whose maker no longer exists; `None` if unreadable."""
    port_owners: tuple[PortOwner, ...] | None = None
    """Who listens on the ports its root names for a rendezvous; `None` if unreadable."""
    problems: tuple[str, ...] = ()


CheckState: TypeAlias = Literal["ok", "note", "warning", "problem"]
"""`note`: worth knowing, harmless. `warning`: will hurt some jobs. `problem`: stops something."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's answer."""

    name: str
    """What was looked at, short and fixed: `open files`, `/dev/shm`, `ptrace rights`."""
    state: CheckState
    value: str
    """What was found, in numbers: `1024 soft, 524288 hard`."""
    meaning: str
    """What follows from it here, one sentence."""
    fix: str = ""
    """The command or setting that changes it; empty where nothing needs to change."""
