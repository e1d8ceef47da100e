"""The connection to one observer: received requests, and data to be sent."""

from __future__ import annotations

import json
import struct

from .. import wire
from ..safe.exact import placeholder
from ..safe.one_call import reserve
from ..safe.unpatched import System
from . import runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from .notes import Notes, Problems
    from .process_files import Files
    from .ring import Ring

    class Owner(Protocol):
        """What the server and its connections need of the hook."""

        system: System
        ring: Ring
        notes: Notes
        problems: Problems
        patcher: Any
        files: Files

        def itself(self) -> Owner:
            """The hook behind a proxy."""

        def hello(self) -> dict[str, Any]:
            """The first frame."""

        def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
            """The reply to a request."""

        def note(self, kind: str, **fields: Any) -> None:
            """Add an event with text."""

        def work(self) -> None:
            """Do the jobs of the thread."""

        def finish(self) -> None:
            """Do what has to be done before the thread ends."""

        def sleep_limit_ms(self) -> int:
            """How long the thread may sleep without an observer."""

        def call_with_next_record(self, call: Callable[[], None]) -> None:
            """Call a function with the next record."""


_PEER = struct.Struct("3i")
"""pid, uid, gid: `struct ucred` of SO_PEERCRED."""
_SOL_SOCKET, _SO_PEERCRED = 1, 17  # Linux, all architectures but parisc and sparc
_SCM_RIGHTS = 1
_MSG_NOSIGNAL = 0x4000
"""An observer that has gone is no reason for SIGPIPE, which ends a program that has restored its
default action. Linux, all architectures."""
_DESCRIPTOR = struct.Struct("i")
_OVERFLOW_UID = 65534  # DEFAULT_OVERFLOWUID of linux/highuid.h
REQUEST_BYTES = 65_536
"""A longer request ends the connection."""
SLICE_RECORDS = 1024
STUCK_NS = 30_000_000_000
"""An observer that reads nothing for this time is disconnected."""


class Connection:
    """A peer whose credentials were checked; all calls are non-blocking."""

    __slots__ = (
        "_cursor",
        "_identity",
        "_inbox",
        "_moved_ns",
        "_note",
        "_outbox",
        "_sent",
        "_session",
        "sock",
    )

    def __init__(self, sock: Any, session: Owner) -> None:
        self.sock = sock
        self._session = session
        self._identity = runtime_dir.identity(session.system, sock.fileno())
        self._inbox = bytearray()
        self._outbox = bytearray()
        # A new observer gets what the ring still holds.
        self._cursor = max(0, session.ring.handed_out() - session.ring.slots)
        self._sent = 0
        self._note = 0
        self._moved_ns = session.system.monotonic_ns()

    @property
    def is_behind(self) -> bool:
        """Whether data waits for the peer to read it."""
        return bool(self._outbox)

    def send_hello(self) -> None:
        """Send the hello, the first frame, with the descriptor of a ring in memory."""
        self._put(wire.HELLO, self._session.hello())
        ring = self._session.ring.descriptor()
        if ring is not None:
            rights = (_SOL_SOCKET, _SCM_RIGHTS, _DESCRIPTOR.pack(ring))
            sent = self.sock.sendmsg([bytes(self._outbox[:65_536])], [rights], _MSG_NOSIGNAL)
            del self._outbox[:sent]
        self.flush()

    def flush(self) -> None:
        """Send as much as the peer accepts.

        Raises:
            OSError: The peer has disconnected, or reads nothing.
        """
        now_ns = self._session.system.monotonic_ns()
        try:
            while self._outbox:
                sent = self.sock.send(bytes(self._outbox[:65_536]), _MSG_NOSIGNAL)
                del self._outbox[:sent]
                self._moved_ns = now_ns
                reserve.wait()
        except BlockingIOError:
            if now_ns - self._moved_ns > STUCK_NS:
                raise TimeoutError("the observer reads nothing") from None

    def receive(self, answer: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        """Read requests and answer them.

        Raises:
            OSError: The peer has disconnected.
            ValueError: It sent something that is not a request.
        """
        try:
            data = self.sock.recv(REQUEST_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("the observer closed the connection")
        self._inbox += data
        while (request := self._next_request()) is not None:
            reserve.wait()
            reply = answer(request)
            if reply is not None:
                self._put(wire.REPLY, reply)
        self.flush()

    def push(self) -> None:
        """Send new records and notes, unless the peer is still behind.

        Raises:
            OSError: As `flush`.
        """
        if not self._outbox:
            self._put_records()
            for number, data in self._session.notes.since(self._note):
                self._outbox += wire.pack_frame(wire.NOTE, data)
                self._note = number + 1
        self.flush()

    def send_goodbye(self, reason: str, left: dict[str, str]) -> None:
        """Send a GOODBYE if the peer still reads; see `wire.GOODBYE`."""
        said: dict[str, Any] = {"reason": reason}
        if left:
            said["left"] = left
        try:
            if not self.is_its_own():
                return
            self.push()
            self._put(wire.GOODBYE, said)
            self.flush()
        except OSError:
            return

    def close(self) -> None:
        """Close the descriptor of this process; a forked child does not close its parent's.

        A descriptor that the program has closed, and may have reused, is not closed.
        """
        runtime_dir.close_socket(self._session.system, self.sock, self._identity)

    def is_its_own(self) -> bool:
        """Whether the descriptor still belongs to this connection."""
        return runtime_dir.identity(self._session.system, self.sock.fileno()) == self._identity

    def _put_records(self) -> None:
        """Append the records since the last call, in slices."""
        ring = self._session.ring
        last = ring.handed_out()
        # The newest may be incomplete; the reader finds incomplete ones further back.
        while last > self._cursor and not ring.is_written(last - 1):
            last -= 1
        self._cursor = max(self._cursor, last - ring.slots)
        for _ in range(4):
            if self._cursor >= last:
                return
            first = self._cursor
            data, self._cursor = ring.slice_of(first, min(last, first + SLICE_RECORDS))
            # Records before this slice that were not sent are lost for this peer.
            lost = first - self._sent
            self._sent += self._cursor - first
            self._outbox += wire.pack_frame(wire.RECORDS, wire.LOST.pack(lost) + data)

    def _put(self, kind: int, content: dict[str, Any]) -> None:
        """Append one frame; content that is too long is replaced by an error."""
        ready = content.pop(wire.AS_TEXT, {})
        text = json.dumps(content, default=placeholder)
        for name, value in ready.items():
            text = f'{text[:-1]}, "{name}": {value}}}'
        data = text.encode("ascii")
        if len(data) > wire.MAX_FRAME_BYTES:
            short = {"id": content.get("id"), "error": f"the answer has {len(data)} bytes"}
            data = json.dumps(short).encode("ascii")
        self._outbox += wire.pack_frame(kind, data)

    def _next_request(self) -> dict[str, Any] | None:
        """Remove one complete request from the inbox, or return `None`."""
        if len(self._inbox) < wire.FRAME.size:
            return None
        length, kind = wire.FRAME.unpack_from(self._inbox)
        if length > REQUEST_BYTES or kind != wire.REQUEST:
            raise ValueError(f"a frame of type {kind} with {length} bytes is no request")
        end = wire.FRAME.size + length
        if len(self._inbox) < end:
            return None
        request = json.loads(bytes(self._inbox[wire.FRAME.size : end]))
        del self._inbox[:end]
        if not isinstance(request, dict):
            raise ValueError("a request is a JSON object")
        return request


def may_connect(sock: Any, uids: tuple[int, ...]) -> bool:
    """Whether the peer is this user or root, also root of the host of this container.

    If the process has the rights of several users by now, only root: none of them may look into it
    with the rights of another one, as the kernel lets none of them trace it (ptrace(2)).

    Users outside of this user namespace appear as nobody. Of these, only users with privileges over
    the namespace can open a socket in a directory that is closed to others (user_namespaces(7)).

    Args:
        sock: Connected to the peer.
        uids: Real, effective and saved user id of this process.
    """
    _, peer_uid, _ = _PEER.unpack(sock.getsockopt(_SOL_SOCKET, _SO_PEERCRED, _PEER.size))
    return peer_uid == 0 or {*uids} == {peer_uid} or (peer_uid == _OVERFLOW_UID and is_nested())


def is_nested() -> bool:
    """Whether this process is in a user namespace that does not map all users."""
    try:
        mapped = runtime_dir.read(System(), "/proc/self/uid_map")
    except OSError:
        return False
    return mapped.split() != [b"0", b"0", b"4294967295"]
