"""The identity of a process, its interpreter, and why a process cannot be watched."""

from __future__ import annotations

import os
import re

from mpwatch.collect.host import ptrace_access
from mpwatch.collect.process import procfs
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
    if stat.state in "ZX":
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
        if procfs.read_stat(proc, pid) is None:
            raise NoSuchProcess(pid) from None
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
