"""Who a process is: its identity, its interpreter, and whether it may be looked into."""

from __future__ import annotations

import os
import re

from mpwatch.collect import procfs
from mpwatch.collect.errors import (
    IsObserver,
    IsThread,
    IsZombie,
    NoSuchProcess,
    NotPermitted,
    NotPython,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.text import clean

_PYTHON = re.compile(r"(?:^|/)(?:python|pypy)(?:(\d)(?:\.(\d+))?)?t?(?:d|-dbg)?(?: \(deleted\))?$")
_LIBPYTHON = re.compile(rb"/libpython(\d\.\d+)[a-z]*\.so|/python(\d\.\d+)t?/lib-dynload/")
_LINKED = re.compile(rb"libpython(\d\.\d+)|lib/python(\d\.\d+)/")


def identify(pid: int, proc: str = "/proc") -> ProcessId:
    """Name a process for as long as it lives, once it is certain that it can be watched.

    Raises:
        CannotWatch: One of `NoSuchProcess`, `IsThread`, `IsZombie`, `NotPermitted`, `NotPython`,
            `IsObserver`, each with a sentence, a command that helps and an exit code.
    """
    try:
        stat = procfs.parse_stat(procfs.read(f"{proc}/{pid}/stat", 4096))
        status = procfs.parse_status(procfs.read(f"{proc}/{pid}/status"))
    except (*procfs.GONE, ValueError):
        raise NoSuchProcess(pid) from None
    except OSError as error:
        raise NotPermitted(pid, _reason(error), _fix(pid)) from None
    group = int(status.get(b"Tgid", b"0")) or pid
    if group != pid:
        raise IsThread(pid, group)
    if stat.state in "ZX":
        raise IsZombie(pid, stat.parent_pid)
    if pid == os.getpid() and proc == "/proc":
        raise IsObserver(pid)
    _check_python(proc, stat, status)
    return stat.process


def _check_python(proc: str, stat: procfs.Stat, status: dict[bytes, bytes]) -> None:
    """Raise unless the executable is readable and is, or has loaded, CPython."""
    pid = stat.pid
    try:
        exe = os.readlink(f"{proc}/{pid}/exe")
    except procfs.GONE:
        if procfs.read_stat(proc, pid) is None:
            raise NoSuchProcess(pid) from None
        raise NotPython(pid, "a kernel thread") from None
    except OSError as error:
        owner = int(status.get(b"Uid", b"0").split()[0])
        raise NotPermitted(pid, _whose(owner, error), _fix(pid, owner)) from None
    if python_version(proc, pid, exe) is None:
        raise NotPython(pid, clean(os.path.basename(exe)) or stat.name)


def is_python_exe(exe: str) -> bool:
    """Whether the name of an executable is that of a Python interpreter."""
    return _PYTHON.search(exe) is not None


def python_version(proc: str, pid: int, exe: str) -> str | None:
    """`3.11` of a process that runs Python, `?` where the version shows nowhere, else `None`.

    An interpreter may be called anything or be embedded, so the name of the executable comes first
    and mapped libpython or extension modules of the standard library second.
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


def _reason(error: OSError) -> str:
    """The system's own words for an error."""
    return (error.strerror or "unreadable").lower()


def _whose(owner: int, error: OSError) -> str:
    """Why reading failed: another user's, or hardened although it is ours."""
    if owner != os.geteuid():
        return f"it belongs to {_user(owner)} and this is {_user(os.geteuid())}"
    return f"{_reason(error)} (it is marked undumpable, or a security module forbids it)"


def _fix(pid: int, owner: int | None = None) -> str:
    """The command that would be allowed."""
    if owner is None or owner == 0 or owner == os.geteuid():
        return f"sudo mpwatch attach {pid}"
    return f"sudo -u {_user(owner)} mpwatch attach {pid}"


def _user(uid: int) -> str:
    """A user's name, or `uid N`; with a `#` where sudo shall take a bare number."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"
