"""Whether a write to a directory would block, for as long as its disk is frozen or does not answer.

The kernel cannot be asked whether a file system is frozen (`fsfreeze`, a snapshot). A write waits
there uninterruptibly until the thaw, and a process with a thread that waits does not end. So a
child makes and removes a directory there first. One that waits for longer than `WITHIN_S` is left
to itself: it ends with the thaw, and nobody waits for it.

The time of access, by which the hook sees a frozen disk (`hook.transport.runtime_dir`), would cost
less. But it tells nothing once the directory was read, and reading it from here would keep the hook
from seeing it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import sys
import threading
import time

from mpwatch.collect.host import isolated
from mpwatch.collect.process.procfs import read_stat

WITHIN_S = 3.0
"""Longest wait for a write: a disk in use takes 0.1 s, one with a full journal above 1 s."""
FRESH_S = 2.0
"""For so long it is not asked again whether a file system takes writes."""
PROBE = ".attach-probe"
"""The name of the directory; one that a killed child leaves is removed like those of injections."""
SENTENCE = "its disk takes no writes now: it is frozen (fsfreeze, a snapshot) or does not answer"
_BEGINS_WITHIN_S = 10.0
"""For the start of an interpreter on a loaded machine."""
_REMEMBERED = 64
IN_MEMORY = (0x01021994, 0x858458F6)  # TMPFS_MAGIC, RAMFS_MAGIC of linux/magic.h
_CODE = f"""
import os, sys
uid, gid, folder = map(int, sys.argv[1:])
if uid != os.geteuid():
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
os.write(1, b"b")
os.mkdir({PROBE!r}, 0o700, dir_fd=folder)
os.rmdir({PROBE!r}, dir_fd=folder)
"""
_lock = threading.Lock()
written_s: dict[int, float] = {}
"""When a file system was last seen to take a write, by `st_dev`."""
waiting: dict[int, int] = {}
"""Pid of the child that waits in a write, by `st_dev`."""


def blocks_writes(folder: int, uid: int | None = None, gid: int = 0) -> bool:
    """Whether a write to a directory blocks; takes little more than `WITHIN_S`.

    `False` also where no child could be started, or it may not write there.

    Args:
        folder: A descriptor of the directory, at least for its path (O_PATH).
        uid: The user who is to write there; this one by default.
        gid: The group of that user.
    """
    if _is_in_memory(folder):
        return False
    device = os.fstat(folder).st_dev
    with _lock:
        now_s = time.monotonic()
        if now_s - written_s.get(device, -FRESH_S) < FRESH_S:
            return False
        if _is_running(waiting.get(device)):
            return True
        waiting.pop(device, None)
        if _blocks_child(folder, device, uid, gid):
            return True
        if len(written_s) >= _REMEMBERED:
            written_s.clear()
        written_s[device] = time.monotonic()
        return False


def _is_in_memory(folder: int) -> bool:
    """Whether a directory is on a file system in memory, which is not frozen."""
    found = ctypes.create_string_buffer(256)  # struct statfs has 120 bytes; its type comes first
    if ctypes.CDLL(None).fstatfs(folder, found):
        return False
    return struct.unpack_from("@l", found)[0] & 0xFFFFFFFF in IN_MEMORY


def _blocks_child(folder: int, device: int, uid: int | None, gid: int) -> bool:
    """Whether a child that writes there does not come back; that child is remembered."""
    reader, writer = os.pipe()
    try:
        try:
            pid = _started(folder, writer, os.geteuid() if uid is None else uid, gid)
        finally:
            os.close(writer)
        has_begun = _reads(reader, b"b", _BEGINS_WITHIN_S)
        # A child that waits for a cpu does not wait for the disk.
        if (
            has_begun
            and not _reads(reader, b"", WITHIN_S)
            and (_waits_for_disk(pid) or not _reads(reader, b"", _BEGINS_WITHIN_S))
        ):
            waiting[device] = pid
            return True
        if has_begun:
            os.waitpid(pid, 0)
        return False
    except OSError:
        return False
    finally:
        os.close(reader)


def _started(folder: int, writer: int, uid: int, gid: int) -> int:
    """Start the child: a new interpreter, for a fork would copy the locks of other threads.

    Raises:
        OSError: It cannot be started.
    """
    kept = fcntl.fcntl(folder, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        command = [sys.executable, "-I", "-S", "-c", _CODE, *map(str, (uid, gid, kept))]
        return isolated.start(command, stdout=writer, kept=(kept,))
    finally:
        os.close(kept)


def _reads(reader: int, wanted: bytes, within_s: float) -> bool:
    """Whether a pipe gives these bytes (its end, if there are none) in time.

    By poll(2): an mpwatch that is connected to a thousand hooks has descriptors beyond 1,023, which
    select(2) does not take.
    """
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    return bool(poll.poll(within_s * 1000)) and os.read(reader, 1) == wanted


def _waits_for_disk(pid: int) -> bool:
    """Whether a process is in an uninterruptible wait."""
    stat = read_stat("/proc", pid)
    return stat is not None and stat.state == "D"


def _is_running(pid: int | None) -> bool:
    """Whether a child has not exited; one that has is reaped."""
    if pid is None:
        return False
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False
