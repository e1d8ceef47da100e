"""Whether a disk is frozen, asked without waiting for it.

A write to a frozen file system (`fsfreeze`, a snapshot) waits in the kernel until that is thawed,
and a process with a thread that waits there does not end, not even by SIGKILL. The kernel cannot
be asked whether a file system is frozen. But it drops one write there instead of waiting: that of
the time of the last access (`touch_atime` in Linux's fs/inode.c). So the runtime directory has a
symbolic link that is read before each write: if its time of access stays, the disk is frozen.

By default (`relatime`) the kernel writes that time only if it is before the time of the last
change. So the latter is set to a day that has not come. Reading a link needs no descriptor.
"""

from __future__ import annotations

import contextlib

from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..safe.unpatched import System

LINK = "frozen-check"
"""Name of the link; it stays in the directory."""
_TEXT = "mpwatch-reads-this-to-see-whether-the-disk-is-frozen"
_CHANGED_S = 2**31 - 1
"""January 2038, the last time that all file systems can store."""
_TICK_NS = 20_000_000
"""Two accesses may have the same time, that of the last tick of the kernel's timer (10 ms)."""
_STORE_ACCESS = (b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs")
"""File systems that store the time of access of each directory."""


def is_frozen(system: System, directory: str, kind: bytes = b"") -> bool:
    """Whether the disk of a directory takes no writes now; never blocks.

    `False` also where that is not known: before `prepare`, or where the file system or its mount
    (`noatime`) stores no time of access.

    Args:
        system: The operating system.
        directory: A path.
        kind: Type of the file system, if the answer may be that of the directory or, if it is
            missing, of the one above: before `prepare`.
    """
    os = system.os
    unknown = os.ST_NOATIME | os.ST_RDONLY
    is_dropped = _is_access_dropped(system, f"{directory}/{LINK}", os.readlink, directory, unknown)
    if is_dropped is not None or kind not in _STORE_ACCESS:
        return bool(is_dropped)

    def read(path: str) -> None:
        with os.scandir(path) as entries:
            next(entries, None)

    unknown |= os.ST_NODIRATIME
    for path in (directory, directory.rpartition("/")[0]):
        is_dropped = _is_access_dropped(system, path, read, path, unknown)
        if is_dropped is not None:
            return is_dropped
    return False


def _is_access_dropped(
    system: System, path: str, read: Callable[[str], Any], directory: str, unknown: int
) -> bool | None:
    """Read a file; whether the kernel had to write the time of that and did not.

    Args:
        system: The operating system.
        path: The file.
        read: Reads it.
        directory: A directory of its mount.
        unknown: Flags of mounts where the answer is `False`, for nothing can be known.

    Returns:
        `None` if the file is missing.
    """
    os = system.os
    try:
        before = os.lstat(path)
        if before.st_atime_ns > max(before.st_mtime_ns, before.st_ctime_ns):
            return False
        now_ns = system.time_ns()
        read(path)
        accessed_ns = os.lstat(path).st_atime_ns
        if accessed_ns != before.st_atime_ns or abs(now_ns - accessed_ns) < _TICK_NS:
            return False
        return not os.statvfs(directory).f_flag & unknown
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return None


def prepare(system: System, directory: str) -> None:
    """Make the link if it is missing; may block."""
    link = f"{directory}/{LINK}"
    os = system.os
    try:
        with contextlib.suppress(FileExistsError):
            os.symlink(_TEXT, link)
        if int(os.lstat(link).st_mtime) == _CHANGED_S:
            return
        os.utime(link, (0, _CHANGED_S), follow_symlinks=False)
        if is_frozen(system, directory):  # this file system stores no time of access
            os.unlink(link)
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
