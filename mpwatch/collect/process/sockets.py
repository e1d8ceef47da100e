"""Where sockets lead: the other end of a pair, the address of a connection or of a listener.

The kernel tells that through NETLINK_SOCK_DIAG (sock_diag(7), linux/unix_diag.h, linux/inet_diag.h)
for every socket of the observer's own network namespace, without any privilege, in one request a
family. `/proc/net/unix` does not say who is connected to whom.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from typing import NamedTuple

from mpwatch.model.sanitize import clean

UNKNOWN_S = 2.0
"""Unknown sockets are asked for this often at most: short-lived ones come with every batch."""
KNOWN_S = 10.0
"""A known one may have been connected since."""
ANSWER_BYTES = 1 << 16
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

Address = tuple[str, int]
Ask = Callable[[bytes], Iterator[bytes]]


class SocketEnd(NamedTuple):
    """What is known of one socket."""

    address: str
    """`unix /run/a.sock`, `tcp 127.0.0.1:4000 > 127.0.0.1:29500`, `tcp listens on *:29500`."""
    peer: int | None = None
    """The inode of the other end, where that is on this machine and in this namespace."""


class SocketTable:
    """The sockets of this network namespace by inode, asked for again when an unknown one comes."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, ask: Ask | None = None
    ) -> None:
        self._clock = clock
        self._ask = ask if ask is not None else _ask_kernel
        self._ends: dict[int, SocketEnd] = {}
        self._asked_at_s = float("-inf")

    def end(self, inode: int) -> SocketEnd | None:
        """Where a socket leads; `None` if that is unknown, such as in another namespace."""
        found = self._ends.get(inode)
        now_s = self._clock()
        if now_s - self._asked_at_s >= (UNKNOWN_S if found is None else KNOWN_S):
            self._asked_at_s = now_s
            self._ends = read_sockets(self._ask)
            found = self._ends.get(inode)
        return found


def read_sockets(ask: Ask) -> dict[int, SocketEnd]:
    """All sockets by inode; families of which the kernel does not tell are missing.

    Args:
        ask: Sends a request and yields the body of each message of the answer.
    """
    found: dict[int, SocketEnd] = {}
    connections: dict[int, tuple[Address, Address]] = {}
    try:
        request = _UNIX_REQUEST.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_NAME_AND_PEER, 0, 0)
        for body in ask(request):
            _take_unix(body, found)
        for family in (socket.AF_INET, socket.AF_INET6):
            for body in ask(_INET_REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _STATES)):
                _take_tcp(body, found, connections)
    except (OSError, struct.error):
        pass  # a sandbox without netlink: what is unknown stays so
    inodes = {pair: inode for inode, pair in connections.items()}
    for inode, (here, there) in connections.items():
        words = f"tcp {_words(here)} > {_words(there)}"
        found[inode] = SocketEnd(words, inodes.get((there, here)))
    return found


def _take_unix(body: bytes, found: dict[int, SocketEnd]) -> None:
    """One Unix socket."""
    _, _, state, _, inode = _UNIX_ANSWER.unpack_from(body)
    name, peer = "", None
    for kind, value in _attributes(body, _UNIX_ANSWER.size):
        if kind == _UNIX_PEER and len(value) >= 4:
            peer = int.from_bytes(value[:4], sys.byteorder) or None
        elif kind == _UNIX_NAME:
            # A name that begins with a null byte lies in no file system; ss(8) writes it with an @.
            shown = b"@" + value[1:] if value[:1] == b"\0" else value
            name = clean(shown.rstrip(b"\0"))
    if inode:
        verb = "unix listens on" if state == _TCP_LISTEN else "unix"
        found[inode] = SocketEnd(f"{verb} {name}".rstrip(), peer)


def _take_tcp(
    body: bytes, found: dict[int, SocketEnd], connections: dict[int, tuple[Address, Address]]
) -> None:
    """One TCP socket: a listener, or one end of a connection."""
    family, state, _, _ = _INET_ANSWER.unpack_from(body)
    (inode,) = _INET_INODE.unpack_from(body, _INET_BYTES - 4)
    if not inode:
        return
    own_port, other_port = _PORTS.unpack_from(body, 4)
    size = 4 if family == socket.AF_INET else 16
    here = _host(body[8 : 8 + size]), own_port
    if state == _TCP_LISTEN:
        found[inode] = SocketEnd(f"tcp listens on {_words(here)}")
    else:
        connections[inode] = here, (_host(body[24 : 24 + size]), other_port)


def _host(raw: bytes) -> str:
    """An address in words; one of version 4 is the same whichever family its socket has."""
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, raw)
    address = IPv6Address(raw)
    return str(address.ipv4_mapped or address)


def _words(address: Address) -> str:
    """`127.0.0.1:29500`, `[::1]:29500`, `*:29500` for any address."""
    host, port = address
    if host in ("0.0.0.0", "::"):
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
        OSError: There is no such facility here, or it does not answer.
    """
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    ) as link:
        link.settimeout(WAIT_S)
        size = _HEADER.size + len(request)
        link.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0) + request)
        while True:
            data = link.recv(ANSWER_BYTES)
            offset = 0
            while offset + _HEADER.size <= len(data):
                length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR or length < _HEADER.size:
                    return  # such as a kernel without this family
                yield data[offset + _HEADER.size : offset + length]
                offset += (length + 3) & ~3
