"""File access as the target's user, for an observer that runs as root.

A file system that was mounted inside a user namespace accepts no files of users without a mapping,
not even from root outside (EOVERFLOW, user_namespaces(7)). And root should not do by mistake what
the target's user may not do.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator

_OWNER = re.compile(rb"^Uid:\t(\d+).*\nGid:\t\d+\t(\d+)", re.MULTILINE)


@contextlib.contextmanager
def acting_as(pid: int, proc: str = "/proc") -> Iterator[None]:
    """Access files on this thread as a process's real user and effective group.

    setfsuid(2) affects one thread, drops only the file capabilities, and restores them at the end.
    If this process is not root, nothing changes.

    Raises:
        OSError: The process is gone.
    """
    uid, gid = _owner(pid, proc)
    own_uid, own_gid = os.geteuid(), os.getegid()
    if own_uid != 0 or (uid, gid) == (own_uid, own_gid):
        yield
        return
    libc = ctypes.CDLL(None)
    libc.setfsgid(gid)
    libc.setfsuid(uid)
    try:
        yield
    finally:
        libc.setfsuid(own_uid)
        libc.setfsgid(own_gid)


def _owner(pid: int, proc: str) -> tuple[int, int]:
    """Real user and effective group."""
    with open(f"{proc}/{pid}/status", "rb") as file:
        found = _OWNER.search(file.read(4096))
    if found is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return int(found[1]), int(found[2])
