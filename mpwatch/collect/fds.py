"""What the descriptors of a process point to."""

from __future__ import annotations

import os
import re
import stat as modes
from collections import Counter
from typing import NamedTuple

from mpwatch.collect import procfs
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import FdKind, FdLink
from mpwatch.model.text import clean

LINKS_LIMIT = 4096
"""Above this, only pipes and sockets are listed one by one."""

_NUMBERED = re.compile(r"(?:pipe|socket):\[(\d+)\]$")
_LIMITS_LINE = re.compile(rb"^Max open files\s+(\S+)\s+(\S+)", re.M)
_ANON: dict[str, FdKind] = {
    "anon_inode:[eventpoll]": "epoll",
    "anon_inode:[eventfd]": "event",
    "anon_inode:[timerfd]": "timer",
}
_GPU = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/accel")
SHM_PLACES = ("/dev/shm/", "/run/shm/", "/memfd:")


class HeldFile(NamedTuple):
    """A shared-memory file behind a descriptor, examined through the descriptor itself."""

    fd: int
    target: str
    segment: SegmentId
    stat: os.stat_result


class Descriptors(NamedTuple):
    """One listing of the descriptors of one process."""

    used: int
    by_kind: dict[FdKind, int]
    links: tuple[FdLink, ...]
    held: tuple[HeldFile, ...]


def count(proc: str, pid: int) -> int:
    """How many descriptors are open.

    Raises:
        OSError: The process is gone or hidden.
    """
    # The size of the directory is the count since Linux 6.2, without listing anything.
    folder = f"{proc}/{pid}/fd"
    return os.stat(folder).st_size or len(os.listdir(folder))


def limits(proc: str, pid: int) -> tuple[int | None, int | None]:
    """Soft and hard RLIMIT_NOFILE; `None` for unlimited.

    Raises:
        OSError: The process is gone or hidden.
    """
    match = _LIMITS_LINE.search(procfs.read(f"{proc}/{pid}/limits"))
    if match is None:
        return None, None
    soft, hard = (int(word) if word.isdigit() else None for word in match.groups())
    return soft, hard


def kind_of(target: str) -> FdKind:
    """What sort of thing the text of a descriptor's link names."""
    if target.startswith("pipe:"):
        return "pipe"
    if target.startswith("socket:"):
        return "socket"
    if target.startswith(SHM_PLACES):
        return "torch" if target.rsplit("/", 1)[-1].startswith("torch_") else "shm"
    if target.startswith("/dev/"):
        return "gpu" if target.startswith(_GPU) else "device"
    if target.startswith("/"):
        return "file"
    return _ANON.get(target, "other")


def inode_of(target: str) -> int | None:
    """The number in `pipe:[18174]` or `socket:[77]`."""
    match = _NUMBERED.match(target)
    return int(match.group(1)) if match is not None else None


def read_descriptors(proc: str, pid: int) -> Descriptors:
    """List the descriptors of a process and resolve each.

    Raises:
        OSError: The process is gone or hidden.
    """
    folder = f"{proc}/{pid}/fd"
    fds = sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
    is_long = len(fds) > LINKS_LIMIT
    kinds: Counter[FdKind] = Counter()
    links: list[FdLink] = []
    held: list[HeldFile] = []
    for fd in fds:
        path = f"{folder}/{fd}"
        try:
            target = os.readlink(path)
        except OSError:
            continue  # closed since the listing
        kind = kind_of(target)
        kinds[kind] += 1
        inode = inode_of(target)
        if kind in ("torch", "shm"):
            file = _examine(path, fd, target)
            if file is not None:
                held.append(file)
                inode = file.segment.inode
        if not is_long or kind in ("pipe", "socket"):
            writable = is_writable(path) if kind == "pipe" else None
            links.append(FdLink(fd, kind, clean(target), inode, writable))
    return Descriptors(len(fds), dict(kinds), tuple(links), tuple(held))


def is_writable(path: str) -> bool | None:
    """Whether a descriptor is open for writing: its link shows that as a permission bit."""
    try:
        return bool(os.lstat(path).st_mode & modes.S_IWUSR)
    except OSError:
        return None


def _examine(path: str, fd: int, target: str) -> HeldFile | None:
    """Size, age and identity of the file behind a descriptor, even if it has no name any more."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return HeldFile(fd, target, SegmentId(stat.st_dev, stat.st_ino), stat)
