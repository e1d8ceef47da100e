"""Where the hook keeps its files, and what it reads of its own process."""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from . import errors, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .pristine import System

_SUN_PATH = 107
"""Bytes of a socket's path on Linux, the final zero aside."""
_LONGEST_NAME = len("/4194304-999999999999.sock")  # three hundred years of ticks


def find_directory(system: System, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Find or make the directory for this user's hooks.

    Returns:
        The directory or `None`, and why those before it could not be used.
    """
    problems: list[str] = []
    uid = system.os.getuid()
    for path in wire.runtime_candidates(uid, environ.get("XDG_RUNTIME_DIR")):
        try:
            problem = _refuse(system, path, uid)
        except OSError as error:
            if not errors.is_ours(error):
                raise
            problem = f"{path}: {error.strerror}"
        if problem is None:
            return path, "; ".join(problems)
        problems.append(problem)
    return None, "; ".join(problems)


def start_ticks(system: System, pid: int | str = "self") -> int | None:
    """Field 22 of a process's stat file, or `None` if there is no such process to be seen."""
    try:
        fields = _read(system, f"/proc/{pid}/stat")
    except OSError as error:
        if not errors.is_ours(error):
            raise
        return None
    # The command is in parentheses and may itself hold spaces and parentheses.
    return int(fields[fields.rindex(b")") + 2 :].split()[19])


def parent_and_name() -> tuple[int, str]:
    """Which process started this one, and what it called it, as `multiprocessing` has them.

    The parent of a child of a forkserver is the one that asked for it, not the server. That of a
    program of its own is 0.
    """
    module = sys.modules.get("multiprocessing.process")
    process = getattr(module, "_current_process", None)
    parent, name = getattr(process, "_parent_pid", None), getattr(process, "_name", None)
    # A program may put anything there: what is no pid is not known.
    known = parent if isinstance(parent, int) and 0 < parent < 1 << 32 else 0
    return known, name if isinstance(name, str) else ""


def thread_count(system: System) -> int | None:
    """Threads of this process as the kernel counts them, those of native libraries included."""
    try:
        fields = _read(system, "/proc/self/stat")
    except OSError as error:
        if not errors.is_ours(error):
            raise
        return None
    return int(fields[fields.rindex(b")") + 2 :].split()[17])


def name_thread(system: System, tid: int, name: bytes) -> None:
    """Give a thread of this process a name for the kernel; without procfs it keeps its own.

    Args:
        system: The operating system.
        tid: The kernel's id of the thread.
        name: At most 15 bytes.
    """
    try:
        (fd,) = opened(system, f"/proc/self/task/{tid}/comm", os.O_WRONLY | os.O_CLOEXEC)
        try:
            system.os.write(fd, name)
        finally:
            system.os.close(fd)
    except OSError as error:
        if not errors.is_ours(error):
            raise


def opened(system: System, path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
    """Open a file as a descriptor is unpacked from this, right before a `try` that closes it.

    No signal handler runs between that and the store. As the result of a call the descriptor would
    be lost, and stay open, where a handler raises as the call returns.
    """
    return map(system.os.open, (path,), (flags,), (mode,))


def remove(system: System, path: str | None) -> None:
    """Unlink a file of ours, which may be gone already."""
    if path is not None:
        try:
            system.os.unlink(path)
        except OSError as error:
            if not errors.is_ours(error):
                raise


def _refuse(system: System, path: str, uid: int) -> str | None:
    """Why this directory must not be used, or `None`; it is made if it is missing."""
    if len(os.fsencode(path)) + _LONGEST_NAME > _SUN_PATH:
        return f"{path} is too long for the path of a socket"
    with contextlib.suppress(FileExistsError):
        system.os.mkdir(path, 0o700)
    status = system.os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a symbolic link"
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is not a directory"
    if status.st_uid != uid:
        return f"{path} belongs to user {status.st_uid}"
    if stat.S_IMODE(status.st_mode) != 0o700:
        system.os.chmod(path, 0o700)
    if not system.os.access(path, os.W_OK | os.X_OK):
        return f"{path} is not writable"
    return None


def _read(system: System, path: str) -> bytes:
    """The first 4 KiB of a file."""
    (fd,) = opened(system, path, system.os.O_RDONLY | system.os.O_CLOEXEC)
    try:
        data: bytes = system.os.read(fd, 4096)
    finally:
        system.os.close(fd)
    return data
