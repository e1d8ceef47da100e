"""Facts that hardly ever change about a process: read once, and again after an exec."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from mpwatch.collect.host import ptrace_access
from mpwatch.collect.process import fds, identify, procfs
from mpwatch.collect.process.identify import python_version
from mpwatch.collect.process.procfs import Stat
from mpwatch.model.sanitize import clean

T = TypeVar("T")

REREAD_S = 15.0
"""Limits can be changed from outside with prlimit(1)."""
SETTLED_S = 2.0
"""Between fork and exec a child looks like its parent: a young one is read again."""

VARIABLES = frozenset(
    name.encode()
    for name in (
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR",
        "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TMPDIR", "XDG_RUNTIME_DIR", "OMP_NUM_THREADS",
        "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",
        "NVIDIA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "NCCL_DEBUG",
        "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "LD_PRELOAD",
        "VIRTUAL_ENV", "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "NODE_RANK",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
        "TORCH_WORKER_SERVER_SOCKET", "NCCL_RAS_ADDR", "TORCH_DISTRIBUTED_DEBUG",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StaticFacts:
    """Facts about one process that hardly ever change."""

    name: str
    is_settled: bool
    born_wall_s: float | None = None
    cmdline: tuple[str, ...] = ()
    exe: str | None = None
    python_version: str | None = None
    is_python: bool = False
    uid: int | None = None
    ns_pid: int | None = None
    """Its pid inside its own namespace; `None` if that is the observer's."""
    ns_uid: int | None = None
    """Its user id inside its own namespace; `None` if that is the observer's."""
    environment: Mapping[str, str] = field(default_factory=dict)
    soft_limit: int | None = None
    hard_limit: int | None = None
    cpu_limit_s: int | None = None
    """Hard RLIMIT_CPU."""
    oom_score_adj: int | None = None
    problems: tuple[str, ...] = ()


def is_stale(known: StaticFacts | None, stat: Stat, age_s: float) -> bool:
    """Whether facts of this age have to be read again."""
    if known is None or known.name != stat.name:
        return True
    return not known.is_settled or age_s > REREAD_S


def read_static_facts(
    proc: str, stat: Stat, known: StaticFacts | None, boot_wall_s: float | None, ticks_per_s: int,
    wall_s: float,
) -> StaticFacts:  # fmt: skip
    """Read the facts; what is hidden is `None` with one problem for all of it.

    A zombie has none of them any more: the known ones stay. While the process is in state D its
    memory is left alone, because reading the command line of a process that holds its own mmap
    lock in there would hang the reader as well.
    """
    if stat.state in ("Z", "X") and known is not None:
        return known if known.name == stat.name else replace(known, name=stat.name)
    pid = stat.pid
    born_wall_s = boot_wall_s + stat.start_ticks / ticks_per_s if boot_wall_s is not None else None
    hidden: dict[str, list[str]] = {}
    cmdline, environment = _texts(proc, stat, known, hidden)
    exe = _exe(proc, stat, hidden)
    version = None
    if exe is not None:
        same = known is not None and known.exe == exe and known.is_settled
        version = known.python_version if same and known else python_version(proc, pid, exe)
    uid, ns_pid = _status(proc, pid)
    uid_inside = _attempt(lambda: identify.uid_inside(uid or 0, pid, proc), "", hidden)
    limits = _attempt(lambda: fds.limits(proc, pid), "limits", hidden) or fds.Limits()
    adjustment = _attempt(lambda: int(procfs.read(f"{proc}/{pid}/oom_score_adj", 64)), "", hidden)
    return StaticFacts(
        name=stat.name,
        is_settled=born_wall_s is None or wall_s - born_wall_s > SETTLED_S,
        born_wall_s=born_wall_s,
        cmdline=cmdline,
        exe=exe,
        python_version=None if version == "?" else version,
        is_python=version is not None or (exe is None and _looks_like_python(cmdline)),
        uid=uid,
        ns_pid=ns_pid,
        ns_uid=uid_inside if uid is not None and uid_inside != uid else None,
        environment=environment,
        soft_limit=limits.soft,
        hard_limit=limits.hard,
        cpu_limit_s=limits.cpu_s,
        oom_score_adj=adjustment,
        problems=tuple(
            f"{', '.join(parts)}: {_why(reason, parts, pid, proc)}"
            for reason, parts in hidden.items()
        ),
    )


def _why(reason: str, parts: list[str], pid: int, proc: str) -> str:
    """The reason in words where the kernel only says that access is denied."""
    is_denied = reason == os.strerror(errno.EACCES) and "executable" in parts
    return ptrace_access.why_hidden(pid, proc).reason if is_denied else reason


def _texts(
    proc: str, stat: Stat, known: StaticFacts | None, hidden: dict[str, list[str]]
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Command line and environment: both lie in the memory of the process."""
    if stat.state in ("D", "Z", "X"):
        return (known.cmdline, known.environment) if known is not None else ((), {})
    pid = stat.pid
    cmdline = _attempt(lambda: procfs.read_cmdline(proc, pid), "command line", hidden)
    environment = _attempt(
        lambda: procfs.read_environment(proc, pid, VARIABLES), "environment", hidden
    )
    return cmdline or (), environment or {}


def _exe(proc: str, stat: Stat, hidden: dict[str, list[str]]) -> str | None:
    """The executable, cleaned; `None` of zombies, kernel threads and other users' processes."""
    if stat.state in ("Z", "X"):
        return None
    exe = _attempt(lambda: os.readlink(f"{proc}/{stat.pid}/exe"), "executable", hidden)
    return clean(exe, 4096) if exe is not None else None


def _status(proc: str, pid: int) -> tuple[int | None, int | None]:
    """Owner, and the pid inside a nested namespace."""
    try:
        status = procfs.parse_status(procfs.read(f"{proc}/{pid}/status"))
        uids = status.get(b"Uid", b"").split()
        inner = status.get(b"NSpid", b"").split()
        return int(uids[0]) if uids else None, int(inner[-1]) if len(inner) > 1 else None
    except (OSError, ValueError):
        return None, None


def _looks_like_python(cmdline: tuple[str, ...]) -> bool:
    """A guess for a process whose executable is hidden."""
    return bool(cmdline) and cmdline[0].rsplit("/", 1)[-1].startswith("python")


def _attempt(read: Callable[[], T], part: str, hidden: dict[str, list[str]]) -> T | None:
    """The result, or `None` with the part noted under the reason."""
    try:
        return read()
    except procfs.GONE:
        return None
    except OSError as error:
        if part:
            hidden.setdefault(error.strerror or "unreadable", []).append(part)
    except ValueError:
        return None
    return None
