from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from mpwatch.collect.process.fds import KNOWN_S, UNKNOWN_S, SocketTable, read_sockets
from tests.builders.clock import Clock


class Kernel:
    """Answers with one Unix pair that has the given inodes."""

    def __init__(self, *pairs: tuple[int, int]) -> None:
        self.pairs = list(pairs)
        self.asked_count = 0

    def __call__(self, request: bytes) -> Iterator[bytes]:
        if request[0] != socket.AF_UNIX:
            return
        self.asked_count += 1
        for inode, peer in self.pairs:
            yield unix(inode, peer=peer)


def unix(inode: int, state: int = 1, name: bytes = b"", peer: int | None = None) -> bytes:
    body = struct.pack("=BBBBI8x", socket.AF_UNIX, 1, state, 0, inode)
    if name:
        body += struct.pack("=HH", 4 + len(name), 0) + name + b"\0" * (-len(name) % 4)
    if peer is not None:
        body += struct.pack("=HHI", 8, 2, peer)
    return body


def inode_of(end: socket.socket) -> int:
    return os.fstat(end.fileno()).st_ino


def test_each_end_of_a_socket_pair_has_the_other_as_its_peer() -> None:
    one, other = socket.socketpair()
    with one, other:
        table = SocketTable()

        assert table.end(inode_of(one)) == ("unix", inode_of(other))
        assert table.end(inode_of(other)) == ("unix", inode_of(one))


def test_a_connection_over_tcp_is_found_whatever_family_its_listener_has() -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener,
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as client,
        listener.accept()[0] as server,
    ):
        port, own_port = listener.getsockname()[1], client.getsockname()[1]
        table = SocketTable()

        ends = [table.end(inode_of(each)) for each in (listener, client, server)]

        assert ends == [
            (f"tcp listens on *:{port}", None),
            (f"tcp 127.0.0.1:{own_port} > 127.0.0.1:{port}", inode_of(server)),
            (f"tcp 127.0.0.1:{port} > 127.0.0.1:{own_port}", inode_of(client)),
        ]


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_connection_that_was_not_accepted_leads_to_the_listening_socket(host: str) -> None:
    with socket.create_server((host, 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            found = SocketTable().end(inode_of(client))

            assert found is not None
            assert found.peer == inode_of(listener)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"/tmp/a.sock\0", "/tmp/a.sock"),
        (b"\0torch", "@torch"),
        (b"/tmp/\x1b[31mred\0", "/tmp/red"),
    ],
)
def test_a_listener_shows_its_name(name: bytes, shown: str) -> None:
    found = read_sockets(
        lambda request: iter([unix(7, state=10, name=name)] if request[0] == 1 else [])
    )

    assert found[7].address == f"unix listens on {shown}"


def test_an_unknown_socket_is_requested_again_after_an_interval() -> None:
    clock, kernel = Clock(100.0), Kernel((1, 2), (2, 1))
    table = SocketTable(clock=clock, ask=kernel)

    assert table.end(1) == ("unix", 2)
    assert table.end(9) is None
    assert kernel.asked_count == 1
    kernel.pairs.append((9, 8))
    clock.now_s += UNKNOWN_S

    assert table.end(9) == ("unix", 8)
    assert kernel.asked_count == 2


def test_a_socket_that_was_connected_since_is_noticed() -> None:
    clock, kernel = Clock(100.0), Kernel((1, 0))
    table = SocketTable(clock=clock, ask=kernel)
    assert table.end(1) == ("unix", None)
    kernel.pairs = [(1, 5)]
    clock.now_s += KNOWN_S

    assert table.end(1) == ("unix", 5)


@pytest.mark.parametrize("body", [b"", b"\x01\x01", unix(7)[:12] + b"\0" * 4 + b"\x01\x00\x00\x00"])
def test_malformed_answers_leave_sockets_unknown(body: bytes) -> None:
    assert read_sockets(lambda _request: iter([body])).get(3) is None


def test_without_netlink_everything_is_unknown() -> None:
    def refuse(_request: bytes) -> Iterator[bytes]:
        raise PermissionError
        yield b""

    assert read_sockets(refuse) == {}
