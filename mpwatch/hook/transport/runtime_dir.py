"""The directory for the hook's files, and reads of its own process in procfs."""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from .. import wire
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..safe.unpatched import System

_SUN_PATH = 107
"""Bytes of a socket's path on Linux, the final zero aside."""
_LONGEST_NAME = len("/4194304-999999999999.sock")  # three hundred years of ticks
_IN_MEMORY = (b"tmpfs", b"ramfs")
_MOUNTS_BYTES = 4 << 20
"""Limit for the mount table; a machine with containers has some hundred mounts of 200 bytes."""


class MightBlock(Exception):
    """The directory is not in memory, so only the hook's thread may access it."""


def find_directory(
    system: System, environ: Mapping[str, str], may_block: bool = True
) -> tuple[str | None, str]:
    """Find or make the directory for this user's hooks.

    Args:
        system: The operating system.
        environ: The environment of this process.
        may_block: Whether directories on disks may be accessed: not on the program's threads, which
            would wait while that file system is frozen or its server does not answer.

    Returns:
        The directory or `None`, and why earlier candidates could not be used.

    Raises:
        MightBlock: The next candidate is on a disk.
    """
    problems: list[str] = []
    uid = system.os.getuid()
    for path in wire.runtime_candidates(uid, environ.get("XDG_RUNTIME_DIR")):
        if not may_block and memory_device(system, path) is None:
            raise MightBlock(path)
        try:
            problem = _refuse(system, path, uid)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            problem = f"{path}: {error.strerror}"
        if problem is None:
            return path, "; ".join(problems)
        problems.append(problem)
    return None, "; ".join(problems)


def memory_device(system: System, path: str) -> int | None:
    """The `st_dev` of the file system in memory (tmpfs, ramfs) that a path lies on, or `None`.

    Python has no `statfs`, so this is read from the mount table (proc_pid_mountinfo(5)) for the
    path as it is written, without an access that could block. If a symbolic link leads elsewhere,
    the opened file has another device.
    """
    try:
        table = _read(system, "/proc/self/mountinfo", _MOUNTS_BYTES)
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return None
    wanted = os.fsencode(path)
    longest, device = 0, None
    for line in table.splitlines():
        fields = line.split(b" ")
        # Optional fields end with "-"; the type of the file system follows.
        if len(fields) < 9 or b"-" not in fields[6:-1]:
            continue
        point = _unescaped(fields[4])
        is_above = wanted == point or wanted.startswith(point.rstrip(b"/") + b"/")
        if not is_above or len(point) < longest:
            continue
        # Of several on one mount point, the last covers the others.
        longest = len(point)
        kind = fields[fields.index(b"-", 6) + 1]
        major, _, minor = fields[2].partition(b":")
        device = system.os.makedev(int(major), int(minor)) if kind in _IN_MEMORY else None
    return device


def _unescaped(name: bytes) -> bytes:
    """A path of the mount table, in which blanks and backslashes are octal numbers."""
    for code in (b"\\040", b"\\011", b"\\012", b"\\134"):
        name = name.replace(code, bytes((int(code[1:], 8),)))
    return name


def start_ticks(system: System, pid: int | str = "self") -> int | None:
    """Field 22 of a process's stat file, or `None` if the process is not visible."""
    try:
        fields = _read(system, f"/proc/{pid}/stat")
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return None
    # The command is in parentheses and may itself hold spaces and parentheses.
    return int(fields[fields.rindex(b")") + 2 :].split()[19])


def parent_and_name() -> tuple[int, str]:
    """Pid of the parent, and name of this process, from `multiprocessing`.

    The parent of a child of a forkserver is the process that requested it, not the server. A
    process that `multiprocessing` did not start has parent 0.
    """
    module = sys.modules.get("multiprocessing.process")
    process = getattr(module, "_current_process", None)
    parent, name = getattr(process, "_parent_pid", None), getattr(process, "_name", None)
    # A program may store any object there.
    known = parent if isinstance(parent, int) and 0 < parent < 1 << 32 else 0
    return known, name if isinstance(name, str) else ""


def thread_count(system: System) -> int | None:
    """Number of threads in the kernel, including those of native libraries."""
    try:
        fields = _read(system, "/proc/self/stat")
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return None
    return int(fields[fields.rindex(b")") + 2 :].split()[17])


def name_thread(system: System, tid: int, name: bytes) -> None:
    """Set the kernel's name of a thread of this process; without procfs nothing happens.

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
        if not foreign_exceptions.is_ours(error):
            raise


def opened(system: System, path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
    """Open a file when a descriptor is unpacked from this, right before a `try` that closes it.

    No signal handler runs between the opening and the store. If the descriptor were the result of a
    call, it would be lost, and stay open, when a handler raises as the call returns.
    """
    return map(system.os.open, (path,), (flags,), (mode,))


def remove(system: System, path: str | None) -> None:
    """Unlink a file of the hook, which may have been removed already."""
    if path is not None:
        try:
            system.os.unlink(path)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
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


def _read(system: System, path: str, limit: int = 4096) -> bytes:
    """The first bytes of a file of procfs."""
    parts = []
    (fd,) = opened(system, path, system.os.O_RDONLY | system.os.O_CLOEXEC)
    try:
        while limit > 0 and (part := system.os.read(fd, min(limit, 4096))):
            parts.append(part)
            limit -= len(part)
    finally:
        system.os.close(fd)
    return b"".join(parts)
