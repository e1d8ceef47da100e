"""The host and its limits as a job sees them, and the checks of `mpwatch doctor`."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from mpwatch.model.ids import SegmentUse


class FileSystemSample(Struct, frozen=True):
    """Size and free space of a file system in the mount namespace of the target."""

    path: str
    total_bytes: int
    free_bytes: int
    total_inodes: int | None
    free_inodes: int | None
    """`None` if the file system does not count inodes."""


class CgroupSample(Struct, frozen=True):
    """The control group of the target; limits include those of its ancestors."""

    version: int
    path: str
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """`None` if unlimited or unknown; see `problems` of the host sample."""
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
    """A process that listens on a TCP port that a job uses for its rendezvous."""

    port: int
    pid: int
    command: str
    parent_pid: int
    is_orphan: bool = False
    """Whether the process that started it has certainly ended; see `is_orphan`."""


OF_TORCHRUN = "TORCHELASTIC_RUN_ID"
"""The variable of the environment that torchrun's agent gives to its ranks, and only to them."""
_INITS = frozenset(
    (
        "systemd",
        "init",
        "upstart",
        "runit",
        "s6-svscan",
        "tini",
        "tini-static",
        "docker-init",
        "podman-init",
        "catatonit",
        "dumb-init",
        "pause",
    )
)


def only_adopts_ranks(init: str | None) -> bool:
    """Whether process 1 with this name never starts a rank: those below it are orphans.

    A container has any program as process 1, often a launcher or the program itself.
    """
    return init is not None and (init in _INITS or init.startswith("init("))


def is_orphan(
    pid: int, parent_pid: int, session: int, init: str | None, *, of_torchrun: bool
) -> bool:
    """Whether one reading proves that the process that started this one has ended.

    That process 1 is the parent proves nothing: it starts processes as well. But they are in its
    own session, 1 or shown as 0, or in one that they have begun and that has their pid (setsid(2)).

    Args:
        pid: The process.
        parent_pid: Its parent now.
        session: Its session.
        init: Name of process 1.
        of_torchrun: Whether torchrun has started it, in a session of its own.
    """
    if parent_pid != 1:
        return False
    return session not in (0, 1, pid) or (of_torchrun and only_adopts_ranks(init))


FilesKind: TypeAlias = Literal["psm", "semaphore", "file"]
"""Blocks of `multiprocessing.shared_memory`, named semaphores, anything else."""


class FilesKey(NamedTuple):
    """Which files are counted together."""

    folder: str
    """As the job names it."""
    group: str
    """What their names have in common: the letters that they begin with, and the suffix."""


class NewFiles(NamedTuple):
    """Files of one folder with similar names, made by the user of a job since the job began."""

    total: int
    size_bytes: int
    """What they occupied when each was first seen."""
    example: str
    """Path of the last one found."""
    key: FilesKey = FilesKey("", "")
    kind: FilesKind = "file"
    pattern: str = ""
    """Their names, `shard-*.npy`."""
    file_system: FileSystemSample | None = None
    """The file system that they are in."""
    is_memory: bool = False
    """Whether that is a tmpfs, whose files are memory."""
    is_shared: bool = False
    """Whether other jobs of the user are likely to use the folder: /tmp, /dev/shm, and what is
    below them."""
    makers: tuple[tuple[int, int], ...] = ()
    """Pids of processes of the job that had one of them open for writing, and in how many
    readings; most first."""
    numbers: tuple[int, ...] = ()
    """Numbers that several names hold, such as the pids of processes that make them."""


class HostSample(Struct, frozen=True):
    """The host or container of the job."""

    at_s: float
    wall_s: float
    hostname: str
    kernel: str
    cpu_count: int | None = None
    usable_cpus: int | None = None
    """CPUs that affinity and quota allow the root process."""
    load_1m: float | None = None
    runnable: int | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    shm: FileSystemSample | None = None
    tmp: FileSystemSample | None = None
    cgroup: CgroupSample | None = None
    max_map_count: int | None = None
    threads_max: int | None = None
    left_segments: tuple[SegmentUse, ...] | None = None
    """Named torch segments in its /dev/shm whose creator has ended; `None` if unreadable."""
    port_owners: tuple[PortOwner, ...] | None = None
    """Listeners on the rendezvous ports of the root process; `None` if unreadable."""
    new_files: tuple[NewFiles, ...] | None = None
    """Files that may be of this job, those with most first; `None` if none were counted."""
    init: str | None = None
    """Name of process 1, as the observer sees it; `None` if unknown."""
    problems: tuple[str, ...] = ()


CheckState: TypeAlias = Literal["ok", "note", "warning", "problem"]
"""`note`: harmless. `warning`: some jobs will fail. `problem`: something cannot work."""


class Check(Struct, frozen=True):
    """One check of `mpwatch doctor`."""

    name: str
    """Fixed name: `open files`, `/dev/shm`, `ptrace rights`."""
    state: CheckState
    value: str
    """The value found: `1024 soft, 524288 hard`."""
    meaning: str
    """What the value means for jobs, one sentence."""
    fix: str = ""
    """The command or setting that changes it; empty if nothing needs to change."""
