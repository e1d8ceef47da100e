from __future__ import annotations

import os
import signal
import socket
import struct

import pytest

from mpwatch.hook.session import Session
from mpwatch.hook.transport import connection
from mpwatch.hook.transport.connection import Connection, may_connect


class Peer:
    """A stand-in for a socket with the credentials of its peer."""

    def __init__(self, uid: int) -> None:
        self.uid = uid

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return struct.pack("3i", 4242, self.uid, 1000)


@pytest.mark.parametrize(
    ("uid", "own", "is_let_in"),
    [
        (1000, (1000, 1000, 1000), True),
        (0, (1000, 1000, 1000), True),
        (1001, (1000, 1000, 1000), False),
        # None of several users looks into what has the rights of another.
        (1000, (1000, 0, 0), False),
        (1000, (0, 1000, 0), False),
        (1000, (1000, 1000, 0), False),
        (0, (1000, 0, 0), True),
    ],
)
def test_only_the_same_user_and_root_may_connect(
    uid: int, own: tuple[int, int, int], is_let_in: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "is_nested", lambda: False)

    assert may_connect(Peer(uid), own) is is_let_in


def test_the_credentials_of_a_peer_come_from_the_kernel() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert may_connect(here, os.getresuid())
        assert may_connect(here, (os.getuid() + 1,) * 3) is (os.getuid() == 0)


@pytest.mark.parametrize("kind", ["hello", "hello with a ring", "goodbye"])
def test_an_observer_that_has_gone_is_no_reason_for_sigpipe(session: Session, kind: str) -> None:
    """A program that has restored the default action of SIGPIPE would end."""
    if kind == "hello with a ring":
        session.ring.open_memory(os.getpid(), 0)
    here, there = socket.socketpair()
    there.close()
    seen: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _: seen.append(number))
    try:
        with here:
            peer = Connection(here, session)
            if kind == "goodbye":
                peer.send_goodbye("exit", {})
            else:
                with pytest.raises(BrokenPipeError):
                    peer.send_hello()
    finally:
        signal.signal(signal.SIGPIPE, before)

    assert seen == []


def test_an_observer_that_reads_nothing_for_long_is_disconnected(session: Session) -> None:
    """A stopped one would keep one of the few places, and what is kept to be sent to it."""
    session.system.monotonic_ns = lambda: now_ns
    now_ns = 10**12
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        peer = Connection(here, session)
        while not peer.is_behind:  # until no more goes into the socket
            peer.send_hello()

        now_ns += connection.STUCK_NS
        peer.push()
        there.recv(1 << 20)
        now_ns += connection.STUCK_NS
        peer.push()  # it has read, so it has as long again
        while not peer.is_behind:
            peer.send_hello()
        now_ns += connection.STUCK_NS + 1
        with pytest.raises(TimeoutError, match="reads nothing"):
            peer.push()
