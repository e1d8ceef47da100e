"""The identity of a process, its interpreter, and why a process cannot be watched.

And its other facts that hardly ever change: they are read once, and again after an exec.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from mpwatch.collect.host import ptrace_access
from mpwatch.collect.process import fds, procfs
from mpwatch.collect.process.procfs import Stat
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean

_PYTHON = re.compile(r"(?:^|/)(?:python|pypy)(?:(\d)(?:\.(\d+))?)?t?(?:d|-dbg)?(?: \(deleted\))?$")
_LIBPYTHON = re.compile(rb"/libpython(\d\.\d+)[a-z]*\.so|/python(\d\.\d+)t?/lib-dynload/")
_LINKED = re.compile(rb"libpython(\d\.\d+)|lib/python(\d\.\d+)/")


def identify(pid: int, proc: str = "/proc", *, may_be_hidden: bool = False) -> ProcessId:
    """The identity of a process, once it is certain that it can be watched.

    Args:
        pid: The process.
        proc: Path of procfs.
        may_be_hidden: Whether to accept a process that cannot be inspected, if its command line is
            that of Python: state, cpu and threads can be read of every process. Not for callers
            that conclude something from finding nothing.

    Raises:
        CannotWatch: One of `NoSuchProcess`, `IsThread`, `IsZombie`, `NotPermitted`, `NotPython`,
            `IsObserver`, each with a sentence, a command that helps and an exit code.
    """
    try:
        stat = procfs.parse_stat(procfs.read(f"{proc}/{pid}/stat", 4096))
        status = procfs.parse_status(procfs.read(f"{proc}/{pid}/status"))
    except (*procfs.GONE, ValueError):
        raise NoSuchProcess(pid, ptrace_access.elsewhere(proc)) from None
    except OSError as error:
        raise _not_permitted(pid, proc, error) from None
    group = int(status.get(b"Tgid", b"0")) or pid
    if group != pid:
        raise IsThread(pid, group)
    if stat.has_ended:
        raise IsZombie(pid, stat.parent_pid)
    if pid == os.getpid() and proc == "/proc":
        raise IsObserver(pid)
    _check_python(proc, stat, may_be_hidden)
    return stat.process


def _check_python(proc: str, stat: procfs.Stat, may_be_hidden: bool) -> None:
    """Raise unless the executable is readable and is, or has loaded, CPython."""
    pid = stat.pid
    try:
        exe = os.readlink(f"{proc}/{pid}/exe")
    except procfs.GONE:
        now = procfs.read_stat(proc, pid)
        if now is None:
            raise NoSuchProcess(pid) from None
        if now.has_ended:
            raise IsZombie(pid, now.parent_pid) from None
        raise NotPython(pid, "a kernel thread") from None
    except OSError as error:
        if may_be_hidden and is_called_like_python(proc, pid):
            return
        raise _not_permitted(pid, proc, error) from None
    if python_version(proc, pid, exe) is None:
        raise NotPython(pid, clean(os.path.basename(exe)) or stat.name)


def is_python_exe(exe: str) -> bool:
    """Whether the name of an executable is that of a Python interpreter."""
    return _PYTHON.search(exe) is not None


def is_called_like_python(proc: str, pid: int) -> bool:
    """Whether the command line of a process is that of a Python interpreter."""
    try:
        cmdline = procfs.read_cmdline(proc, pid)
    except OSError:
        return False
    return bool(cmdline) and is_python_exe(cmdline[0])


def python_version(proc: str, pid: int, exe: str) -> str | None:
    """`3.11` for a process that runs Python, `?` if its version is unknown, else `None`.

    An interpreter may have any name or be embedded, so mapped libpython or extension modules of the
    standard library are examined after the name of the executable.
    """
    match = _PYTHON.search(exe)
    if match is not None and match.group(2):
        return f"{match.group(1)}.{match.group(2)}"
    try:
        maps = procfs.read(f"{proc}/{pid}/maps", 8 << 20)
    except OSError:
        return "?" if match is not None else None
    found = _LIBPYTHON.search(maps) or (_LINKED.search(maps) if match is not None else None)
    if found is not None:
        return next(group for group in found.groups() if group).decode("ascii")
    return "?" if match is not None else None


def _not_permitted(pid: int, proc: str, error: OSError) -> NotPermitted:
    """The reason of a failed reading, and a command with the permission."""
    if not isinstance(error, PermissionError):
        return NotPermitted(pid, (error.strerror or "unreadable").lower(), "")
    found = ptrace_access.why_hidden(pid, proc)
    return NotPermitted(pid, found.reason, found.fix)


def uid_inside(uid: int, pid: int, proc: str = "/proc") -> int:
    """A user id in the user namespace of a process; unchanged if it is not mapped there.

    Lines of `uid_map` are the first id inside, the first outside as the reader counts, and how many
    (user_namespaces(7)).

    Raises:
        OSError: The process is gone.
        ValueError: The file is not as documented.
    """
    with open(f"{proc}/{pid}/uid_map", encoding="utf-8") as file:
        for line in file:
            inside, outside, count = map(int, line.split())
            if outside <= uid < outside + count:
                return inside + uid - outside
    return uid


class CannotWatch(Exception):
    """A process that was named cannot be watched.

    Attributes:
        fix: A command that helps, or an empty string.
        exit_code: What the command line ends with.
    """

    exit_code = 1

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix

    @property
    def message(self) -> str:
        """The sentence to show."""
        return str(self)


class NoSuchProcess(CannotWatch):
    """No process has this number."""

    exit_code = 3

    def __init__(self, pid: int, elsewhere: str = "") -> None:
        """Create it; `elsewhere` is a way to see hidden processes, if there may be some."""
        fix = f"mpwatch ps; or {elsewhere}" if elsewhere else "mpwatch ps"
        super().__init__(f"There is no process {pid}.", fix)
        self.pid = pid


class IsZombie(CannotWatch):
    """The process has exited; its parent has not reaped it yet."""

    exit_code = 3

    def __init__(self, pid: int, parent_pid: int) -> None:
        super().__init__(
            f"Process {pid} has exited and was not reaped by its parent {parent_pid}.",
            f"mpwatch attach {parent_pid}" if parent_pid > 1 else "mpwatch ps",
        )
        self.pid = pid
        self.parent_pid = parent_pid


class IsThread(CannotWatch):
    """The number is that of a thread other than the main thread."""

    exit_code = 3

    def __init__(self, tid: int, pid: int) -> None:
        super().__init__(f"{tid} is a thread of process {pid}.", f"mpwatch attach {pid}")
        self.tid = tid
        self.pid = pid


class NotPermitted(CannotWatch):
    """The process belongs to another user, or the system forbids reading it."""

    exit_code = 4

    def __init__(self, pid: int, reason: str, fix: str = "") -> None:
        super().__init__(f"Process {pid} may not be inspected: {reason}.", fix)
        self.pid = pid


class NotPython(CannotWatch):
    """The process runs something else than CPython."""

    exit_code = 5

    def __init__(self, pid: int, exe: str) -> None:
        super().__init__(f"Process {pid} runs {exe}, not Python.", "mpwatch ps")
        self.pid = pid
        self.exe = exe


class IsObserver(CannotWatch):
    """The process is mpwatch itself."""

    exit_code = 2

    def __init__(self, pid: int) -> None:
        super().__init__(f"Process {pid} is mpwatch itself.", "mpwatch ps")
        self.pid = pid


T = TypeVar("T")

REREAD_S = 15.0
"""Limits can be changed from outside with prlimit(1)."""
EXECUTED_S = 2.0
"""Between fork and exec a child looks like its parent: a young one is read again."""

VARIABLES = frozenset(
    name.encode()
    for name in (
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR",
        "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TMPDIR", "XDG_RUNTIME_DIR", "OMP_NUM_THREADS",
        "PYTHONUNBUFFERED",
        "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",
        "NVIDIA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "NCCL_DEBUG",
        "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "LD_PRELOAD",
        "VIRTUAL_ENV", "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "NODE_RANK",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
        "TORCH_WORKER_SERVER_SOCKET", "NCCL_RAS_ADDR", "TORCH_DISTRIBUTED_DEBUG",
    )
)  # fmt: skip

PREFIXES = (b"NCCL_", b"TORCH_", b"CUDA_", b"OMP_", b"MKL_", b"LD_LIBRARY_PATH")
"""Of further variables, which are compared between nodes. None is known to hold a secret."""


class StaticFacts(Struct, frozen=True):
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
    environment_at: tuple[int, int] = (0, 0)
    """See `Stat`; 0 where it was not read."""
    soft_limit: int | None = None
    hard_limit: int | None = None
    cpu_limit_s: int | None = None
    """Hard RLIMIT_CPU."""
    limits: Mapping[str, int | None] = field(default_factory=dict)
    """See `mpwatch.model.samples.ProcSample.limits`."""
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

    One that has ended has none of them any more: the known ones stay. While the process is in state
    D its memory is left alone, because reading the command line of a process that holds its own
    mmap lock in there would hang the reader as well.
    """
    if stat.has_ended and known is not None:
        return known if known.name == stat.name else replace(known, name=stat.name)
    pid = stat.pid
    born_wall_s = boot_wall_s + stat.start_ticks / ticks_per_s if boot_wall_s is not None else None
    hidden: dict[str, list[str]] = {}
    texts = _texts(proc, stat, known, hidden)
    exe = _exe(proc, stat, hidden)
    version = None
    if exe is not None:
        same = known is not None and known.exe == exe and known.is_settled
        version = known.python_version if same and known else python_version(proc, pid, exe)
    uid, ns_pid = _status(proc, pid)
    inner_uid = _attempt(lambda: uid_inside(uid or 0, pid, proc), "", hidden)
    limits = _attempt(lambda: fds.limits(proc, pid), "limits", hidden) or fds.Limits()
    adjustment = _attempt(lambda: int(procfs.read(f"{proc}/{pid}/oom_score_adj", 64)), "", hidden)
    return StaticFacts(
        name=stat.name,
        is_settled=born_wall_s is None or wall_s - born_wall_s > EXECUTED_S,
        born_wall_s=born_wall_s,
        cmdline=texts.cmdline,
        exe=exe,
        python_version=None if version == "?" else version,
        is_python=version is not None or (exe is None and _looks_like_python(texts.cmdline)),
        uid=uid,
        ns_pid=ns_pid,
        ns_uid=inner_uid if uid is not None and inner_uid != uid else None,
        environment=texts.environment,
        environment_at=texts.environment_at,
        soft_limit=limits.soft,
        hard_limit=limits.hard,
        cpu_limit_s=limits.cpu_s,
        limits=dict(limits.others),
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


class _Texts(NamedTuple):
    """What lies in the memory of a process."""

    cmdline: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    environment_at: tuple[int, int] = (0, 0)


def _texts(
    proc: str, stat: Stat, known: StaticFacts | None, hidden: dict[str, list[str]]
) -> _Texts:
    """Command line and environment.

    The environment is read once of each program that a process executes: to read it of 64 workers
    every 15 s took 5 % of a calm dashboard's cpu.
    """
    before = _Texts()
    if known is not None:
        before = _Texts(known.cmdline, known.environment, known.environment_at)
    if stat.state == "D" or stat.has_ended:
        return before
    pid = stat.pid
    cmdline = _attempt(lambda: procfs.read_cmdline(proc, pid), "command line", hidden) or ()
    if before.environment_at == stat.environment_at and any(stat.environment_at):
        return before._replace(cmdline=cmdline)
    environment = _attempt(
        lambda: procfs.read_environment(proc, pid, VARIABLES, PREFIXES), "environment", hidden
    )
    if environment is None:
        return _Texts(cmdline)
    return _Texts(cmdline, environment, stat.environment_at)


def _exe(proc: str, stat: Stat, hidden: dict[str, list[str]]) -> str | None:
    """The executable, cleaned; `None` if it has ended, of kernel threads and other users' ones."""
    if stat.has_ended:
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
