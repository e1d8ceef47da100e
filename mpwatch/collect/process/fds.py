"""The files behind the descriptors of a process, and the other ends of its sockets."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import stat as modes
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from ipaddress import IPv6Address
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from mpwatch.collect.process import procfs
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import FdKind, FdLink, FileId, HeldLock, inode_of
from mpwatch.model.sanitize import clean

UNKNOWN_S = 2.0
"""Shortest interval of queries for unknown sockets: each batch opens short-lived ones."""
KNOWN_S = 10.0
"""Age from which a known socket is read again: it may have been connected since."""
DATAGRAM_BYTES = 1 << 16
WAIT_S = 0.5

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_UNIX_NAME, _UNIX_PEER = 0, 2
_SHOW_NAME_AND_PEER = 0x1 | 0x4
_TCP_ESTABLISHED, _TCP_LISTEN = 1, 10
_TCP_CLOSE_WAIT = 8
_STATES = 1 << _TCP_ESTABLISHED | 1 << _TCP_LISTEN | 1 << _TCP_CLOSE_WAIT

_HEADER = struct.Struct("=IHHII")
_UNIX_REQUEST = struct.Struct("=BBHIIIII")
_UNIX_ANSWER = struct.Struct("=BBBBI8x")
_INET_REQUEST = struct.Struct("=BBBBI48x")
_INET_ANSWER = struct.Struct("=BBBB")
_PORTS = struct.Struct("!HH")
_INET_BYTES = 72
_INET_INODE = struct.Struct("=I")
_ATTRIBUTE = struct.Struct("=HH")

_ANY_HOSTS = ("0.0.0.0", "::")
_ANY = "0.0.0.0"
"""Listeners on any address, of version 4 or 6, are noted under this one."""

Address = tuple[str, int]
Ask = Callable[[bytes], Iterator[bytes]]


class SocketEnd(NamedTuple):
    """One socket and its other end."""

    address: str
    """`unix /run/a.sock`, `tcp 127.0.0.1:4000 > 127.0.0.1:29500`, `tcp listens on *:29500`."""
    peer: int | None = None
    """Inode of the other end, if that is on this machine and in this namespace.

    Of a connection that is not accepted yet it is that of the listening socket.
    """


class SocketTable:
    """The sockets of this network namespace by inode, read again when an unknown one is found."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, ask: Ask | None = None
    ) -> None:
        self._clock = clock
        self._ask = ask if ask is not None else _ask_kernel
        self._ends: dict[int, SocketEnd] = {}
        self._asked_at_s = float("-inf")

    def end(self, inode: int) -> SocketEnd | None:
        """A socket and its other end; `None` if unknown, for example in another namespace."""
        found = self._ends.get(inode)
        now_s = self._clock()
        if now_s - self._asked_at_s >= (UNKNOWN_S if found is None else KNOWN_S):
            self._asked_at_s = now_s
            self._ends = read_sockets(self._ask)
            found = self._ends.get(inode)
        return found


def read_sockets(ask: Ask) -> dict[int, SocketEnd]:
    """All sockets by inode, without families that the kernel does not list.

    Args:
        ask: Sends a request and yields the body of each message of the answer.
    """
    found: dict[int, SocketEnd] = {}
    connections: dict[int, tuple[Address, Address]] = {}
    pending: set[tuple[Address, Address]] = set()
    listeners: dict[Address, int] = {}
    try:
        request = _UNIX_REQUEST.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_NAME_AND_PEER, 0, 0)
        for body in ask(request):
            _take_unix(body, found)
        for family in (socket.AF_INET, socket.AF_INET6):
            for body in ask(_INET_REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _STATES)):
                _take_tcp(body, connections, listeners, pending)
    except (OSError, struct.error):
        pass  # a sandbox without netlink: sockets stay unknown
    for here, inode in listeners.items():
        found[inode] = SocketEnd(f"tcp listens on {_words(here)}")
    inodes = {pair: inode for inode, pair in connections.items()}
    for inode, (here, there) in connections.items():
        peer = inodes.get((there, here))
        if peer is None and (there, here) in pending:
            peer = listeners.get(there) or listeners.get((_ANY, there[1]))
        found[inode] = SocketEnd(f"tcp {_words(here)} > {_words(there)}", peer)
    return found


def _take_unix(body: bytes, found: dict[int, SocketEnd]) -> None:
    """One Unix socket."""
    _, _, state, _, inode = _UNIX_ANSWER.unpack_from(body)
    name, peer = "", None
    for kind, value in _attributes(body, _UNIX_ANSWER.size):
        if kind == _UNIX_PEER and len(value) >= 4:
            peer = int.from_bytes(value[:4], sys.byteorder) or None
        elif kind == _UNIX_NAME:
            # A name that begins with a null byte is abstract; ss(8) writes it with an @.
            shown = b"@" + value[1:] if value[:1] == b"\0" else value
            name = clean(shown.rstrip(b"\0"))
    if inode:
        verb = "unix listens on" if state == _TCP_LISTEN else "unix"
        found[inode] = SocketEnd(f"{verb} {name}".rstrip(), peer)


def _take_tcp(
    body: bytes,
    connections: dict[int, tuple[Address, Address]],
    listeners: dict[Address, int],
    pending: set[tuple[Address, Address]],
) -> None:
    """One TCP socket: a listener, or one end of a connection.

    A connection that no process has accepted yet has no inode at the end of the listener
    (inet_diag_msg_common_fill, net/ipv4/inet_diag.c of Linux; seen on 6.18).
    """
    family, state, _, _ = _INET_ANSWER.unpack_from(body)
    (inode,) = _INET_INODE.unpack_from(body, _INET_BYTES - 4)
    own_port, other_port = _PORTS.unpack_from(body, 4)
    size = 4 if family == socket.AF_INET else 16
    here = _host(body[8 : 8 + size]), own_port
    if state == _TCP_LISTEN:
        if inode:
            listeners[_ANY if here[0] in _ANY_HOSTS else here[0], own_port] = inode
        return
    there = _host(body[24 : 24 + size]), other_port
    if inode:
        connections[inode] = here, there
    else:
        pending.add((here, there))


def _host(raw: bytes) -> str:
    """An address as text; one of version 4 is the same for sockets of both families."""
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, raw)
    address = IPv6Address(raw)
    return str(address.ipv4_mapped or address)


def _words(address: Address) -> str:
    """`127.0.0.1:29500`, `[::1]:29500`, `*:29500` for any address."""
    host, port = address
    if host in _ANY_HOSTS:
        return f"*:{port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _attributes(body: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """The attributes behind the fixed part of a message."""
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size:
            return
        yield kind, body[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3


def _ask_kernel(request: bytes) -> Iterator[bytes]:
    """Send one request for a listing and yield the bodies of the answer.

    Raises:
        OSError: The kernel has no such facility, or it does not answer.
    """
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    ) as link:
        link.settimeout(WAIT_S)
        size = _HEADER.size + len(request)
        link.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0) + request)
        while True:
            data = link.recv(DATAGRAM_BYTES)
            offset = 0
            while offset + _HEADER.size <= len(data):
                length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR or length < _HEADER.size:
                    return  # such as a kernel without this family
                yield data[offset + _HEADER.size : offset + length]
                offset += (length + 3) & ~3


LINKS_LIMIT = 4096
"""Above this, only pipes and sockets are listed one by one."""

_LIMITS_LINE = re.compile(rb"^Max open files\s+(\S+)\s+(\S+)", re.M)
_CPU_LIMIT_LINE = re.compile(rb"^Max cpu time\s+\S+\s+(\S+)", re.M)
_SOFT_LIMIT_LINE = re.compile(
    rb"^Max (address space|cpu time|data size|file size|locked memory|processes|stack size)"
    rb"\s+(\d+|unlimited)\s",
    re.M,
)
"""What a training may meet of those in proc_pid_limits(5): memory that is registered for RDMA is
locked, and threads count as processes. Open files have a sample of their own."""
POSITION = re.compile(rb"^pos:\s+(\d+)", re.M)
"""The offset of an open file, in `/proc/PID/fdinfo`."""
_MOUNT = re.compile(rb"^mnt_id:\s+(\d+)", re.M)
_INODE = re.compile(rb"^ino:\s+(\d+)", re.M)
"""From Linux 5.14 on."""
_MOUNT_LINE = re.compile(rb"^(\d+) \d+ (\d+):(\d+) ", re.M)
"""The number of a mount and the device of its file system (proc_pid_mountinfo(5))."""
MOUNTS_BYTES = 1 << 20
MOUNTS_S = 10.0
"""Age from which a table of mounts is read again: a number is given to another mount once it is
free. Reading it takes 1 us for each mount."""
_LOCK_TABLE = re.compile(rb"^\d+: +(?:FLOCK|POSIX|OFDLCK)\b.*? [0-9a-f]+:[0-9a-f]+:(\d+) ", re.M)
"""The inode of each lock in `/proc/locks`, without those that are waited for (proc_locks(5))."""
_LOCK_HELD = re.compile(
    rb"^lock:\s+\d+: +(FLOCK|POSIX|OFDLCK)\s+\S+\s+(READ|WRITE)\s+(-?\d+) ", re.M
)
LOCKS_BYTES = 1 << 18
"""Of `/proc/locks`; a host with more locks than that (about 4,000) shows only the first ones."""
LOCKS_S = 1.9
"""Shortest interval between two readings of `/proc/locks`: 25 us where there are few locks."""
LOCKS_COST_LIMIT = 200
"""It is not read again for so many times the time that it took: a server may have many locks."""
LOCK_INFO_BYTES = 4096
"""Of the fdinfo of a locked file: SQLite takes a handful of locks through one descriptor."""
_ANON: dict[str, FdKind] = {
    "anon_inode:[eventpoll]": "epoll",
    "anon_inode:[eventfd]": "event",
    "anon_inode:[timerfd]": "timer",
}
_GPU = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/accel")
SHM_PLACES = ("/dev/shm/", "/run/shm/", "/memfd:")


SocketEndOf = Callable[[int], SocketEnd | None]
DeviceOf = Callable[[int, int], int | None]
"""The device of a mount, from a pid of its namespace and its number."""


class HeldFile(Struct, frozen=True):
    """A shared-memory file behind a descriptor, examined by the descriptor itself."""

    fd: int
    target: str
    segment: SegmentId
    stat: os.stat_result


class Descriptors(Struct, frozen=True):
    """One listing of the descriptors of one process."""

    used: int
    by_kind: dict[FdKind, int]
    links: tuple[FdLink, ...]
    held: tuple[HeldFile, ...]
    locks: tuple[HeldLock, ...] = ()


def _size(folder: str) -> int:
    return os.stat(folder).st_size


def count(proc: str, pid: int, size: Callable[[str], int] = _size) -> int:
    """How many descriptors are open.

    Args:
        proc: Path of procfs.
        pid: The process.
        size: Returns the size of a folder.

    Raises:
        OSError: The process is gone or hidden.
    """
    # The size of the directory is the count since Linux 6.2, without listing anything.
    folder = f"{proc}/{pid}/fd"
    return size(folder) or len(os.listdir(folder))


class Limits(Struct, frozen=True):
    """Resource limits of a process; `None` for unlimited."""

    soft: int | None = None
    """Soft RLIMIT_NOFILE."""
    hard: int | None = None
    """Hard RLIMIT_NOFILE."""
    cpu_s: int | None = None
    """Hard RLIMIT_CPU, at which the kernel sends SIGKILL, in seconds."""
    others: Mapping[str, int | None] = MappingProxyType({})
    """See `mpwatch.model.samples.ProcSample.limits`."""


def raise_own_limit() -> None:
    """Raise this process's soft limit of descriptors to the hard one, where that is allowed.

    Two descriptors for each process of a job are more than the usual 1,024. Programs that mpwatch
    runs are started before, so they do not inherit this.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def limits(proc: str, pid: int) -> Limits:
    """The limits of a process.

    Raises:
        OSError: The process is gone or hidden.
    """
    text = procfs.read(f"{proc}/{pid}/limits")
    files, cpu = _LIMITS_LINE.search(text), _CPU_LIMIT_LINE.search(text)
    soft, hard = map(procfs.number, files.groups()) if files is not None else (None, None)
    others = {
        name.decode("ascii"): procfs.number(value) for name, value in _SOFT_LIMIT_LINE.findall(text)
    }
    return Limits(soft, hard, procfs.number(cpu[1]) if cpu is not None else None, others)


@lru_cache(maxsize=8192)
def kind_of(target: str) -> FdKind:
    """The kind of file in the text of a descriptor's link.

    Forked workers hold the pipes of all that were started before them: thousands of descriptors
    that refer to a few hundred files.
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


class LockedFiles:
    """The inodes of locked files of this machine, read again when asked for after `LOCKS_S`."""

    def __init__(self, proc: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._inodes: frozenset[int] = frozenset()
        self._due_s = float("-inf")

    def __call__(self) -> frozenset[int]:
        """The inodes; empty where the kernel does not show its locks.

        Locks of processes in other pid namespaces are not shown. File systems that have several
        devices show another one here than stat(2) does, so inodes alone are compared.
        """
        now_s = self._clock()
        if now_s >= self._due_s:
            try:
                table = procfs.read(f"{self._proc}/locks", LOCKS_BYTES)
            except OSError:
                table = b""
            self._inodes = frozenset(map(int, _LOCK_TABLE.findall(table)))
            cost_s = self._clock() - now_s
            self._due_s = now_s + max(LOCKS_S, LOCKS_COST_LIMIT * cost_s)
        return self._inodes


class MountDevices:
    """The devices of file systems by the number of their mount, which no two mounts share."""

    def __init__(self, proc: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._devices: dict[int, tuple[float, int | None]] = {}

    def __call__(self, pid: int, mount: int) -> int | None:
        """The device; `None` where the process does not see the mount, or is gone.

        Args:
            pid: A process in the mount namespace.
            mount: The number of the mount, from fdinfo.
        """
        now_s = self._clock()
        read_at_s, device = self._devices.get(mount, (float("-inf"), None))
        if now_s - read_at_s < MOUNTS_S:
            return device
        try:
            table = procfs.read(f"{self._proc}/{pid}/mountinfo", MOUNTS_BYTES)
        except OSError:
            return None
        self._devices = {k: v for k, v in self._devices.items() if now_s - v[0] < MOUNTS_S}
        self._devices[mount] = now_s, None  # one that was unmounted while a file of it is open
        for number, major, minor in _MOUNT_LINE.findall(table):
            self._devices[int(number)] = now_s, os.makedev(int(major), int(minor))
        return self._devices[mount][1]


def read_descriptors(
    proc: str,
    pid: int,
    socket_end: SocketEndOf,
    locked: frozenset[int] = frozenset(),
    device_of: DeviceOf | None = None,
) -> Descriptors:
    """List the descriptors of a process and resolve each.

    Args:
        proc: Path of procfs.
        pid: The process.
        socket_end: Finds the other end of a socket by its inode.
        locked: Inodes of locked files; without any, no descriptor is asked for locks.
        device_of: Finds the device of a mount; `None` leaves the devices of files unknown.

    Raises:
        OSError: The process is gone or hidden.
    """
    # Names relative to the opened folder spare the kernel the walk from the root each time.
    folder = os.open(f"{proc}/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fds = sorted(map(int, os.listdir(folder)))
        on_mount = partial(device_of, pid) if device_of is not None else None
        return _resolve(folder, fds, f"{proc}/{pid}/fdinfo", socket_end, locked, on_mount)
    finally:
        os.close(folder)


def _resolve(
    folder: int,
    fds: list[int],
    infos: str,
    socket_end: SocketEndOf,
    locked: frozenset[int],
    on_mount: Callable[[int], int | None] | None,
) -> Descriptors:
    """The file behind each of these descriptors."""
    is_long = len(fds) > LINKS_LIMIT
    kinds: dict[FdKind, int] = {}
    links: list[FdLink] = []
    held: list[HeldFile] = []
    locks: list[HeldLock] = []
    for fd in fds:
        name = str(fd)
        try:
            target = os.readlink(name, dir_fd=folder)
        except OSError:
            continue  # closed since the listing
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
        writable = is_writable(name, folder) if kind == "file" and not is_long else None
        # Not a stat of the file first: it may be on a server that does not answer.
        asks = kind == "file" and (bool(locked) or writable is not None)
        info = _info(infos, name) if asks else b""
        if not is_long:
            inode = file.segment.inode if file is not None else None
            position = _number(POSITION, info) if writable is False else None
            written = _written(info, on_mount) if writable else None
            links.append(
                FdLink(fd, kind, clean(target), inode, writable, position, written=written)
            )
        locks.extend(_lock(info, clean(target)))
    return Descriptors(sum(kinds.values()), kinds, tuple(links), tuple(held), tuple(locks))


def _socket(fd: int, target: str, socket_end: SocketEndOf) -> FdLink:
    """A socket with its other end."""
    inode = inode_of(target)
    end = socket_end(inode) if inode is not None else None
    if end is None:
        return FdLink(fd, "socket", target, inode, None)
    return FdLink(fd, "socket", target, inode, None, peer=end.peer, address=end.address)


def _info(infos: str, name: str) -> bytes:
    """What fdinfo says of a descriptor; empty where it cannot be read."""
    try:
        return procfs.read(f"{infos}/{name}", LOCK_INFO_BYTES)
    except OSError:
        return b""


def _number(pattern: re.Pattern[bytes], info: bytes) -> int | None:
    """What fdinfo has in one of its lines."""
    found = pattern.search(info)
    return int(found[1]) if found is not None else None


def _written(info: bytes, on_mount: Callable[[int], int | None] | None) -> FileId | None:
    """Which file is written to; without a stat, which a server may not answer."""
    mount = _number(_MOUNT, info)
    if mount is None:
        return None
    device = on_mount(mount) if on_mount is not None else None
    return FileId(mount, device, _number(_INODE, info))


def _lock(info: bytes, path: str) -> list[HeldLock]:
    """The lock that is held through a descriptor, if any; an exclusive one if any is."""
    held = [
        HeldLock(
            path, "flock" if kind == b"FLOCK" else "fcntl", mode == b"WRITE", _pid_or_none(pid)
        )
        for kind, mode, pid in _LOCK_HELD.findall(info)
    ]
    return sorted(held, key=lambda lock: not lock.is_exclusive)[:1]


def _pid_or_none(text: bytes) -> int | None:
    """A pid; locks of open file descriptions show -1, other pid namespaces 0."""
    return pid if (pid := int(text)) > 0 else None


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
