"""What the descriptors of a process point to."""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from mpwatch.collect.process import procfs
from mpwatch.collect.process.sockets import SocketEnd
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import FdKind, FdLink
from mpwatch.model.sanitize import clean

LINKS_LIMIT = 4096
"""Above this, only pipes and sockets are listed one by one."""

_LIMITS_LINE = re.compile(rb"^Max open files\s+(\S+)\s+(\S+)", re.M)
_POSITION = re.compile(rb"^pos:\s+(\d+)", re.M)
_ANON: dict[str, FdKind] = {
    "anon_inode:[eventpoll]": "epoll",
    "anon_inode:[eventfd]": "event",
    "anon_inode:[timerfd]": "timer",
}
_GPU = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/accel")
SHM_PLACES = ("/dev/shm/", "/run/shm/", "/memfd:")


SocketEndOf = Callable[[int], SocketEnd | None]


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


def _size(folder: str) -> int:
    return os.stat(folder).st_size


def count(proc: str, pid: int, size: Callable[[str], int] = _size) -> int:
    """How many descriptors are open.

    Args:
        proc: Where procfs is.
        pid: The process.
        size: Tells the size of a folder.

    Raises:
        OSError: The process is gone or hidden.
    """
    # The size of the directory is the count since Linux 6.2, without listing anything.
    folder = f"{proc}/{pid}/fd"
    return size(folder) or len(os.listdir(folder))


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


@lru_cache(maxsize=8192)
def kind_of(target: str) -> FdKind:
    """What sort of thing the text of a descriptor's link names.

    Forked workers hold the pipes of all that were started before them: thousands of descriptors
    that lead to a few hundred things.
    """
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


@lru_cache(maxsize=8192)
def inode_of(target: str) -> int | None:
    """The number in `pipe:[18174]` or `socket:[77]`."""
    kind, bracket, rest = target.partition(":[")
    digits = rest[:-1]
    is_numbered = bracket and kind in ("pipe", "socket") and digits.isdecimal()
    return int(digits) if is_numbered else None


def read_descriptors(
    proc: str, pid: int, socket_end: SocketEndOf, before: Descriptors | None = None
) -> Descriptors:
    """List the descriptors of a process and resolve each.

    Args:
        proc: Where procfs is.
        pid: The process.
        socket_end: Where a socket leads, by its inode.
        before: An earlier listing: what is the same now is the same object, so that whoever derived
            something from it sees that nothing has changed.

    Raises:
        OSError: The process is gone or hidden.
    """
    # Names relative to the opened folder spare the kernel the walk from the root each time.
    folder = os.open(f"{proc}/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fds = sorted(map(int, os.listdir(folder)))
        found = _resolve(folder, fds, f"{proc}/{pid}/fdinfo", socket_end, before)
    finally:
        os.close(folder)
    if before is not None and found.links == before.links:
        return found._replace(links=before.links)
    return found


def _resolve(
    folder: int, fds: list[int], infos: str, socket_end: SocketEndOf, before: Descriptors | None
) -> Descriptors:
    """What each of these descriptors points to."""
    known = {link.fd: link for link in before.links} if before is not None else {}
    is_long = len(fds) > LINKS_LIMIT
    kinds: dict[FdKind, int] = {}
    links: list[FdLink] = []
    held: list[HeldFile] = []
    for fd in fds:
        name = str(fd)
        try:
            target = os.readlink(name, dir_fd=folder)
        except OSError:
            continue  # closed since the listing
        same = known.get(fd)
        # The other end of the same pipe may sit at the number by now: the direction is asked.
        if (
            same is not None
            and same.kind == "pipe"
            and same.target == target
            and same.is_writable is is_writable(name, folder)
        ):
            kinds["pipe"] = kinds.get("pipe", 0) + 1
            links.append(same)
            continue
        kind = kind_of(target)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind == "pipe":
            links.append(FdLink(fd, kind, target, inode_of(target), is_writable(name, folder)))
            continue
        if kind == "socket":
            links.append(_socket(fd, target, socket_end))
            continue
        file = _examine(name, folder, target) if kind in ("torch", "shm") else None
        if file is not None:
            held.append(file)
        if not is_long:
            inode = file.segment.inode if file is not None else None
            writable = is_writable(name, folder) if kind == "file" else None
            position = _position(infos, name) if writable is False else None
            links.append(FdLink(fd, kind, clean(target), inode, writable, position))
    return Descriptors(sum(kinds.values()), kinds, tuple(links), tuple(held))


def _socket(fd: int, target: str, socket_end: SocketEndOf) -> FdLink:
    """A socket with where it leads."""
    inode = inode_of(target)
    end = socket_end(inode) if inode is not None else None
    if end is None:
        return FdLink(fd, "socket", target, inode, None)
    return FdLink(fd, "socket", target, inode, None, peer=end.peer, address=end.address)


def _position(infos: str, name: str) -> int | None:
    """The offset of an open file, from fdinfo."""
    try:
        found = _POSITION.search(procfs.read(f"{infos}/{name}", 256))
    except OSError:
        return None
    return int(found[1]) if found is not None else None


def is_writable(name: str, folder: int) -> bool | None:
    """Whether a descriptor is open for writing: its link shows that as a permission bit."""
    try:
        return bool(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode & modes.S_IWUSR)
    except OSError:
        return None


def _examine(name: str, folder: int, target: str) -> HeldFile | None:
    """Size, age and identity of the file behind a descriptor, even if it has no name any more."""
    try:
        stat = os.stat(name, dir_fd=folder)
    except OSError:
        return None
    return HeldFile(int(name), target, SegmentId(stat.st_dev, stat.st_ino), stat)
