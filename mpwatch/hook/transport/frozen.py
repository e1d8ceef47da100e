"""Whether a disk is frozen, asked without waiting for it.

A write to a frozen file system (`fsfreeze`, a snapshot) waits in the kernel until that is thawed,
and a process with a thread that waits there does not end, not even by SIGKILL. The kernel cannot
be asked whether a file system is frozen. But it drops one write there instead of waiting: that of
the time of the last access (`touch_atime` in Linux's fs/inode.c). So each process has a symbolic
link that it reads before it writes: if the link's time of access stays, the disk is frozen.

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

_TEXT = "mpwatch-reads-this-to-see-whether-the-disk-is-frozen"
_CHANGED_S = 2**31 - 1
"""January 2038, the last time that all file systems can store."""
_TICK_NS = 20_000_000
"""Two accesses may have the same time, that of the last tick of the kernel's timer (10 ms)."""
_STORE_ACCESS = (b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs")
"""File systems whose times of access the kernel writes itself; NFS leaves that to the server."""


def is_frozen(system: System, link: str) -> bool | None:
    """Whether the disk with a link of `prepare` takes no writes now; never blocks.

    Returns:
        `None` if there is no such link. `False` also where it is not known, because the mount
        stores no time of access (`noatime`).
    """
    unknown = system.os.ST_NOATIME | system.os.ST_RDONLY
    return _is_access_dropped(system, link, system.os.readlink, link.rpartition("/")[0], unknown)


def is_directory_frozen(system: System, directory: str, kind: bytes) -> bool:
    """The same without a link: by the directory or, if it is missing, the one above.

    `False` also where it is not known, for instance if it was read since its last change.

    Args:
        system: The operating system.
        directory: A path.
        kind: Type of its file system.
    """
    os = system.os
    unknown = os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RDONLY

    def read(path: str) -> None:
        with os.scandir(path) as entries:
            next(entries, None)

    if kind in _STORE_ACCESS:
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


def prepare(system: System, link: str, kind: bytes) -> None:
    """Make a link for `is_frozen` if this type of file system stores times of access; may block."""
    if kind not in (*_STORE_ACCESS, b"overlay"):
        return
    os = system.os
    try:
        with contextlib.suppress(FileExistsError):  # this process made it before an `exec`
            os.symlink(_TEXT, link)
        os.utime(link, (0, _CHANGED_S), follow_symlinks=False)
        if is_frozen(system, link):  # the time is not stored all the same
            os.unlink(link)
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
