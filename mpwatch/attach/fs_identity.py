"""Touching a target's files as the target's user, while we are root.

A file system that was mounted inside a user namespace takes no files of users it does not know, not
even from root outside (EOVERFLOW, user_namespaces(7)). And what its user cannot do, root should not
do for it by mistake.
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
    """Let this thread's file accesses be those of a process's real user and effective group.

    setfsuid(2) is for one thread, gives up the capabilities over files and no other, and takes them
    back at the end. Without the right to become somebody else this changes nothing.

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
