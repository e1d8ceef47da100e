"""Which process holds the file lock that another process waits for, from `/proc/locks`."""

from __future__ import annotations

import re

from mpwatch.collect.process import procfs
from mpwatch.model.samples import LockHolder
from mpwatch.model.sanitize import clean

LOCKS_BYTES = 1 << 18
"""Of `/proc/locks`; a host with more locks than that (about 4,000) shows only the first ones."""
_LOCK = re.compile(
    rb"^(\d+):( ->)? +(FLOCK|POSIX|OFDLCK)\b.*? (-?\d+) [0-9a-f]+:[0-9a-f]+:\d+ ", re.M
)
"""Number, mark of a waiting lock, kind and pid (proc_locks(5); Linux 4.14 to 6.18)."""


def holder_for(proc: str, waiter: int) -> LockHolder | None:
    """The process that took the lock which another process is blocked on.

    The kernel names the process that took the lock. A lock of flock(2) belongs to the open file,
    so that process may have exited since and left the lock to a child with the same descriptor.
    Processes of other pid namespaces are not shown.

    Args:
        proc: Path of procfs.
        waiter: Pid of the process that is blocked in flock(2) or fcntl(2).

    Returns:
        The holder; `None` if the kernel does not show one.
    """
    try:
        table = procfs.read(f"{proc}/locks", LOCKS_BYTES)
    except OSError:
        return None
    pid = _holder_pid(table, waiter)
    if pid is None or pid <= 0:
        return None
    try:
        name = procfs.read(f"{proc}/{pid}/comm").decode("utf-8", "replace").strip()
    except OSError:
        name = ""
    return LockHolder(pid, clean(name))


def _holder_pid(table: bytes, waiter: int) -> int | None:
    """The pid of the lock that blocks a waiting one: both have the same number."""
    holders: dict[bytes, int] = {}
    for number, waits, _, pid in _LOCK.findall(table):
        if not waits:
            holders[number] = int(pid)
        elif int(pid) == waiter:
            return holders.get(number)
    return None
