"""Opens files at paths that other processes name: only regular ones, with the rights of their user.

Root reads all, and the path is what the process says: it must not make root show what the process
could not read itself, nor open what acts when it is opened.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
import struct
from collections.abc import Collection, Iterator

from mpwatch.collect.process import procfs

__all__ = ["acting_as", "open_as_owner", "open_regular"]

_IDS = re.compile(rb"^(Uid|Gid|Groups):(.*)$", re.M)
_OPENAT2, _RESOLVE_IN_ROOT = 437, 0x10  # asm-generic/unistd.h, linux/openat2.h
_SETGROUPS = {"x86_64": 116, "aarch64": 159}  # asm/unistd_64.h, asm-generic/unistd.h


def open_as_owner(pid: int, path: str, root: str = "") -> tuple[int, os.stat_result]:
    """A descriptor of a regular file, and its status, if the owner of a process may read it.

    Whoever is no root may have rights of the own user that the owner of the process has not, so the
    mode of the file counts as well.

    Args:
        pid: The process.
        path: See `open_regular`.
        root: See there.

    Raises:
        OSError: The file cannot be read, is no regular file, or the owner may not read it.
    """
    ids = {name: part.split() for name, part in _IDS.findall(procfs.read(f"/proc/{pid}/status"))}
    uid, gid = int(ids[b"Uid"][3]), int(ids[b"Gid"][3])
    with acting_as(uid, gid, tuple(map(int, ids[b"Groups"]))):
        descriptor = open_regular(path, root)
    found = os.fstat(descriptor)
    if uid in (0, found.st_uid) or found.st_mode & stat.S_IROTH:
        return descriptor, found
    os.close(descriptor)
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def open_regular(path: str | bytes, root: str = "") -> int:
    """A descriptor of a regular file.

    To open anything else may have effects: a device may begin to act (a watchdog, a tape), a named
    pipe lets those that wait for a reader go on. O_PATH has none.

    Args:
        path: Of the file.
        root: `/proc/PID/root` if the path is one that this process has. Then no link and no `..`
            leads out of that (from Linux 5.6 on): an absolute link of a container means a file
            of the container.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    found = _open_in(root, path) if root else os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "no regular file", path)
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(found)


def _open_in(root: str, path: str | bytes) -> int:
    """A descriptor, by O_PATH, of what another root directory has at a path.

    Raises:
        OSError: There is nothing, or it cannot be reached.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    how = struct.pack("3Q", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found: int = libc.syscall(_OPENAT2, folder, os.fsencode(path), how, len(how))
        code = ctypes.get_errno()
    finally:
        os.close(folder)
    if found >= 0:
        return found
    if code not in (errno.ENOSYS, errno.EPERM):  # EPERM: by a filter that does not know the call
        raise OSError(code, os.strerror(code), path)
    return os.open(os.fsencode(root) + os.fsencode(path), os.O_PATH | os.O_CLOEXEC)


@contextlib.contextmanager
def acting_as(uid: int, gid: int, groups: Collection[int]) -> Iterator[None]:
    """Access files on this thread with the rights of a user, if this process is root.

    setfsuid(2) drops only the file capabilities. It and the system call setgroups affect one
    thread, the function of the C library would affect all. All is restored at the end.

    Args:
        uid: The user.
        gid: The group.
        groups: The supplementary groups.

    Raises:
        OSError: This process may not act as other users.
    """
    own_uid, own_gid, own_groups = os.geteuid(), os.getegid(), os.getgroups()
    if own_uid != 0 or (uid, gid) == (own_uid, own_gid):
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _set_groups(libc, groups)
        libc.setfsgid(gid)
        libc.setfsuid(uid)
        if (libc.setfsuid(-1), libc.setfsgid(-1)) != (uid, gid):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        yield
    finally:
        libc.setfsuid(own_uid)
        libc.setfsgid(own_gid)
        _set_groups(libc, own_groups)


def _set_groups(libc: ctypes.CDLL, groups: Collection[int]) -> None:
    """Set the supplementary groups of this thread.

    Raises:
        OSError: They could not be set.
    """
    number = _SETGROUPS.get(os.uname().machine, -1)
    if libc.syscall(number, len(groups), (ctypes.c_uint32 * len(groups))(*groups)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
