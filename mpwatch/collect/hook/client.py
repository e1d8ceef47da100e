"""Connections to the hooks of all processes of a job: events in, requests out."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mpwatch.collect.hook import decode, discovery
from mpwatch.collect.hook.decode import RingReading, read_descriptor
from mpwatch.collect.hook.discovery import NO_HOOK, NoHook
from mpwatch.hook import wire
from mpwatch.model.events import HookNote, HookSlice, HookStatus, Input
from mpwatch.model.ids import HookState, ProcessId
from mpwatch.model.samples import ProcSample, WantedFrame

SILENT_AFTER_S = 0.25
READ_BYTES = 1 << 18
"""Read at most this much of one hook at a time, so that a busy one does not starve the others."""
UNANSWERED_LIMIT = 32
SEARCH_AGAIN_S = 5.0
"""Interval of searches for a hook that was detached, could not be used, or was not there. Where the
directory of hooks has changed, a process without one is searched at once: to search each of 64 at
each reading took 4 % of a calm dashboard's cpu."""


class Delivered(Struct):
    """The newest data delivered by a hook, kept from one connection to the next."""

    since_ns: int | None = None
    """When the hook was attached; another one in the same process counts from 0 again."""
    sequence: int = -1
    """Number of the newest record."""
    records: int = 0
    note: int = -1
    """Number of the newest note."""
    note_ns: int = 0
    """Time of the newest note."""
    notes: int = 0
    announced: tuple[int, int] = (0, 0)
    """How many records and notes the hook had made when it said hello."""

    @property
    def is_behind(self) -> bool:
        """Whether what the hook has announced is still on its way: its losses are not known yet."""
        records, notes = self.announced
        return self.sequence + 1 < records or self.note + 1 < notes

    def begin(self, since_ns: int | None, announced: tuple[int, int]) -> None:
        """Note a hello; of a new hook nothing has been delivered yet."""
        self.announced = announced
        if since_ns != self.since_ns:
            self.since_ns = since_ns
            self.sequence, self.records = -1, 0
            self.note, self.note_ns, self.notes = -1, 0, 0

    def slice(self, found: HookSlice) -> HookSlice | None:
        """The new part of a slice, with the number of lost records."""
        events = found.events
        if events and events[0].sequence <= self.sequence:
            events = tuple(event for event in events if event.sequence > self.sequence)
        if not events:
            return None
        self.sequence = events[-1].sequence
        self.records += len(events)
        return replace(found, events=events, lost=self.sequence + 1 - self.records)

    def note_once(self, note: HookNote) -> HookNote | None:
        """The note if it is new, with the number of lost notes."""
        number = note.number
        is_new = note.at_ns > self.note_ns or not note.at_ns
        if number is not None:
            is_new = number > self.note
        if not is_new:
            return None
        self.note_ns = max(note.at_ns, self.note_ns)
        if number is None:
            return note
        self.note = number
        self.notes += 1
        return replace(note, lost=number + 1 - self.notes)


class PendingRequests(Struct):
    """Requests without an answer yet."""

    pending: dict[int, str] = field(default_factory=dict)
    wanted: dict[int, Sequence[WantedFrame]] = field(default_factory=dict)
    """The frames of requests for values."""
    number: int = 0
    since_s: float | None = None
    """Since when an answer is pending; the hello is the first."""


class Link:
    """A connection whose other end was checked.

    The state is `absent` until the hello, then `ready` or `silent`, at last `gone`.
    """

    def __init__(
        self, sample: ProcSample, sock: socket.socket, delivered: Delivered, at_s: float
    ) -> None:
        self.sample = sample
        self.process = sample.process
        self.sock = sock
        self.state: HookState = "absent"
        self._delivered = delivered
        self._requests = PendingRequests(since_s=at_s)
        self._lock = threading.Lock()
        """Two threads ask: the observing one, and that of the screen for the allocator."""
        self._buffer = bytearray()
        self._ring: RingMemory | None = None
        """The ring of the process, if it is memory and not a file."""
        self._is_ring_checked = False

    def ask(
        self,
        what: str,
        at_s: float,
        also: Sequence[str] = (),
        frames: Sequence[WantedFrame] = (),
    ) -> str | None:
        """Send a request; for `also` and `frames` see `HookClients.ask`.

        Returns:
            `None`, or one sentence why that was not possible.
        """
        requests = self._requests
        if self.state not in ("ready", "silent"):
            return f"The hook of process {self.process.pid} has not sent its hello yet."
        if len(requests.pending) >= UNANSWERED_LIMIT:
            return f"The hook of process {self.process.pid} does not answer."
        with self._lock:
            requests.number += 1
            number = requests.number
        request: dict[str, Any] = {"ask": what, "id": number}
        if also:
            request["also"] = list(also)
        if frames:
            request["frames"] = frames
            requests.wanted[number] = frames
        payload = json.dumps(request).encode("ascii")
        frame = wire.pack_frame(wire.REQUEST, payload)
        # Before it is sent: another thread reads the answer, which may arrive before this returns.
        requests.pending[number] = what
        requests.since_s = at_s if requests.since_s is None else requests.since_s
        problem = self._send(frame)
        if problem is not None:
            requests.pending.pop(number, None)
            requests.wanted.pop(number, None)
            if not requests.pending:
                requests.since_s = None
        return problem

    def _send(self, frame: bytes) -> str | None:
        """Send a whole frame, or say why that was not possible."""
        try:
            sent = self.sock.send(frame)
        except BlockingIOError:
            return f"The hook of process {self.process.pid} does not read."
        except OSError as error:
            return f"The hook of process {self.process.pid} is gone: {error.strerror}."
        if sent != len(frame):  # after half a request, all following ones would be invalid
            with contextlib.suppress(OSError):  # the other end has closed it meanwhile
                self.sock.shutdown(socket.SHUT_RDWR)
            return f"The hook of process {self.process.pid} does not read."
        return None

    def read(self, at_s: float) -> Iterator[Input]:
        """Read what has arrived; the last input is a status `gone` or `absent` at the end."""
        try:
            data, fd = receive(self.sock, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            yield from self._rest(at_s)
            yield self._leave(at_s, "gone", f"the connection failed: {error.strerror}")
            return
        if fd is not None:
            self._take_ring(RingMemory(fd))
        if not data:
            yield from self._rest(at_s)
            yield self._leave(at_s, "gone", "the connection ended")
            return
        self._buffer += data
        try:
            yield from self._frames(at_s)
        except ValueError as error:
            yield self._leave(at_s, "absent", str(error))

    def check(self, at_s: float) -> HookStatus | None:
        """A status `silent` if an answer is overdue."""
        since_s = self._requests.since_s
        if since_s is None or at_s - since_s < SILENT_AFTER_S or self.state in ("silent", "gone"):
            return None
        what = "hello" if self.state == "absent" else "answer"
        self.state = "silent"
        return HookStatus(
            self.process,
            at_s,
            "silent",
            f"no {what} in {SILENT_AFTER_S * 1000:.0f} ms: stopped, short of cpu, or GIL held",
        )

    def close(self) -> None:
        """Close this end, and the ring."""
        self.sock.close()
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    @property
    def is_behind(self) -> bool:
        """Whether what the hook had made when it said hello has not arrived yet."""
        return self.state == "ready" and self._delivered.is_behind

    def read_ring(self) -> RingReading | None:
        """The ring of the process as it is now; `None` without a descriptor of it."""
        return self._ring.read() if self._ring is not None and self._is_ring_checked else None

    def _take_ring(self, ring: RingMemory) -> None:
        """Keep the descriptor received with the first bytes, and close all others."""
        if self._ring is None and self.state in ("absent", "silent") and not self._buffer:
            self._ring = ring
        else:
            ring.close()

    def _check_ring(self, inode: object) -> None:
        """Keep the descriptor only if it is the memory that the hook named."""
        self._is_ring_checked = self._ring is not None and self._ring.is_ring(inode)
        if self._ring is not None and not self._is_ring_checked:
            self._ring.close()
            self._ring = None

    def _rest(self, at_s: float) -> Iterator[HookSlice]:
        """The records that the hook had not sent when its process exited, from its ring."""
        reading = self.read_ring()
        if reading is None or reading.header is None:
            return
        if reading.header.start_ticks not in (0, self.process.start_ticks):
            return
        rest = self._delivered.slice(HookSlice(self.process, at_s, reading.events, reading.lost))
        if rest is not None:
            yield rest

    def _frames(self, at_s: float) -> Iterator[Input]:
        """All frames that are complete.

        Raises:
            ValueError: The bytes are not frames of a hook.
        """
        position = 0
        while self.state != "gone":
            found = decode.frame(self._buffer, position)
            if found is None:
                break
            kind, payload, position = found
            yield from self._frame(kind, payload, at_s)
        del self._buffer[:position]

    def _frame(self, kind: int, payload: bytes, at_s: float) -> Iterator[Input]:
        """One frame; unknown kinds are skipped, they are of a newer hook."""
        if kind == wire.HELLO:
            said = decode.parse_object(payload)
            hello = decode.hello(self.process, at_s, said)
            self._requests.since_s = None
            self._check_ring(said.get("ring_inode"))
            self._delivered.begin(hello.since_ns, decode.announced(said))
            yield hello
            yield from self._mark_ready(at_s)
            return
        if self.state == "absent":
            raise ValueError("its hook sent no hello")
        if kind == wire.GOODBYE:
            yield from self._rest(at_s)  # a goodbye follows a few thousand records at most
            reason = str(decode.parse_object(payload).get("reason") or "")
            if reason in ("detach", "uninstrument"):
                yield self._leave(at_s, "absent", "it was detached")
            else:
                yield self._leave(at_s, "gone", reason or "the hook was closed")
            return
        yield from self._mark_ready(at_s)
        if kind == wire.RECORDS:
            found = self._delivered.slice(decode.records(self.process, at_s, payload))
            if found is not None:
                yield found
        elif kind == wire.NOTE:
            note = self._delivered.note_once(
                decode.note(self.process, decode.parse_object(payload))
            )
            if note is not None:
                yield note
        elif kind == wire.GAUGES:
            yield decode.gauges(self.process, at_s, decode.parse_object(payload))
        elif kind == wire.REPLY:
            yield from self._reply(decode.parse_object(payload), at_s)

    def _reply(self, said: dict[str, Any], at_s: float) -> Iterator[Input]:
        """The answer to one request."""
        number = said.get("id")
        requests = self._requests
        question = requests.pending.pop(number, None) if isinstance(number, int) else None
        frames = requests.wanted.pop(number, ()) if isinstance(number, int) else ()
        if not requests.pending:
            requests.since_s = None
        if question == "stacks":
            yield decode.stacks(self.process, at_s, said)
        elif question == "gauges":
            yield decode.gauges(self.process, at_s, said)
        elif question == "values":
            yield decode.values(self.process, at_s, said, frames)

    def _mark_ready(self, at_s: float) -> Iterator[HookStatus]:
        """Any frame shows that the hook answers; the limit of a pending answer starts again."""
        if self._requests.since_s is not None:
            self._requests.since_s = at_s
        if self.state != "ready":
            self.state = "ready"
            yield HookStatus(self.process, at_s, "ready")

    def _leave(self, at_s: float, state: HookState, reason: str) -> HookStatus:
        """Close the connection, with the reason as a status."""
        self.state = "gone"
        return HookStatus(self.process, at_s, state, reason)


_F_GET_SEALS, _F_SEAL_SHRINK = 1034, 2
"""fcntl(2). Python 3.10 to 3.15 have names for them only where the C library did."""
_DESCRIPTOR = struct.Struct("i")


def receive(sock: socket.socket, limit: int) -> tuple[bytes, int | None]:
    """Read from a socket, with the first descriptor received (SCM_RIGHTS, unix(7)).

    The kernel closes any further ones, for which there is no room.

    Raises:
        OSError: As `recv`.
    """
    data, ancillary, _, _ = sock.recvmsg(
        limit, socket.CMSG_LEN(_DESCRIPTOR.size), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, content in ancillary:
        is_rights = level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        if is_rights and len(content) >= _DESCRIPTOR.size:
            return data, int(_DESCRIPTOR.unpack_from(content)[0])
    return data, None


class RingMemory:
    """A descriptor of the ring of one process; owns it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def is_ring(self, inode: object) -> bool:
        """Whether this is sealed memory with that inode number, as the hello named it."""
        try:
            seals = fcntl.fcntl(self._fd, _F_GET_SEALS)
            return bool(seals & _F_SEAL_SHRINK) and os.fstat(self._fd).st_ino == inode
        except OSError:
            return False  # EINVAL: not memory

    def read(self) -> RingReading:
        """All records of the ring, also after the process has exited."""
        return read_descriptor(self._fd, "the ring in memory")

    def close(self) -> None:
        """Close the descriptor."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


class HookClients:
    """Connections to hooks, driven by one thread; no call waits for a hook."""

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self.links: dict[ProcessId, Link] = {}
        self._not_before_s: dict[ProcessId, float] = {}
        """Processes without a usable hook, and the time of the next search."""
        self._thorough_s: dict[ProcessId, float] = {}
        """Time of the next search for a hook that is not where the environment says."""
        self._marks: dict[ProcessId, discovery.FolderMark] = {}
        """The directories of hooks as they were at the last search."""
        self._delivered: dict[ProcessId, Delivered] = {}
        self._said: dict[ProcessId, tuple[HookState, str]] = {}
        """The last status of each process: only a new one is reported."""
        self._statuses: list[Input] = []

    @property
    def has_any(self) -> bool:
        """Whether there is a connection."""
        return bool(self.links)

    @property
    def is_behind(self) -> bool:
        """Whether a hook has made records or notes that have not arrived yet."""
        return any(link.is_behind for link in self.links.values())

    def watch(self, samples: Sequence[ProcSample]) -> None:
        """Look for hooks in these processes, and forget those that are no longer among them."""
        at_s = self._clock()
        marks = discovery.FolderMarks(self._proc)
        tables = discovery.SocketTables(self._proc)
        here = set()
        for sample in samples:
            process = sample.process
            here.add(process)
            if sample.state in ("Z", "X") or not sample.is_python or process in self.links:
                continue
            if at_s < self._not_before_s.get(process, at_s):
                continue
            mark = marks.of(sample)
            is_thorough = at_s >= self._thorough_s.get(process, at_s)
            if is_thorough or mark is None or mark != self._marks.get(process):
                self._try(sample, at_s, tables if is_thorough else None)
                self._marks[process] = mark
        known: tuple[dict[ProcessId, Any], ...] = (
            self._not_before_s, self._thorough_s, self._marks, self._delivered, self._said,
        )  # fmt: skip
        for table in known:
            for process in table.keys() - here - self.links.keys():
                del table[process]

    def poll(self, timeout_s: float) -> list[Input]:
        """What hooks have sent; waits at most this long for the first input."""
        inputs, self._statuses = self._statuses, []
        if not self.links and not inputs:
            # Also without connections it waits: the caller uses this as its interval.
            self._selector.select(timeout_s)
            return []
        wait_s = 0.0 if inputs else min(timeout_s, SILENT_AFTER_S)
        for key, _ in self._selector.select(wait_s):
            link: Link = key.data
            at_s = self._clock()
            inputs.extend(link.read(at_s))
            if link.state == "gone":
                self._part(link, at_s)
        at_s = self._clock()
        for link in self.links.values():
            status = link.check(at_s)
            if status is not None:
                inputs.append(status)
        return [each for each in inputs if self._is_new(each)]

    def ask(
        self,
        process: ProcessId,
        what: str,
        also: Sequence[str] = (),
        frames: Sequence[WantedFrame] = (),
    ) -> str | None:
        """Send one hook a request of `wire.ASKS`; `poll` returns the answer.

        Args:
            process: The process of the hook.
            what: One of `wire.ASKS`.
            also: With `gauges`: gauges that are read on request only.
            frames: With `values`: the names to read.

        Returns:
            `None`, or one sentence why it cannot be asked.
        """
        link = self.links.get(process)
        if link is None:
            return f"There is no hook in process {process.pid}."
        return link.ask(what, self._clock(), also, frames)

    def close(self) -> None:
        """Close all connections."""
        for link in self.links.values():
            link.close()
        self.links.clear()
        self._selector.close()

    def _try(self, sample: ProcSample, at_s: float, tables: discovery.SocketTables | None) -> None:
        """Look for the hook of one process, among the sockets as well if their tables are given."""
        if tables is not None:
            self._thorough_s[sample.process] = at_s + SEARCH_AGAIN_S
        try:
            sock = discovery.connect(sample, self._proc, thorough=tables is not None, tables=tables)
        except NoHook as none:
            if str(none) != NO_HOOK:
                self._not_before_s[sample.process] = at_s + SEARCH_AGAIN_S
            self._statuses.append(HookStatus(sample.process, at_s, "absent", str(none)))
            return
        delivered = self._delivered.setdefault(sample.process, Delivered())
        link = Link(sample, sock, delivered, at_s)
        self.links[sample.process] = link
        self._selector.register(sock, selectors.EVENT_READ, link)

    def _part(self, link: Link, at_s: float) -> None:
        """Close a connection that ended; its hook is looked for again after a while."""
        self._selector.unregister(link.sock)
        link.close()
        del self.links[link.process]
        self._not_before_s[link.process] = at_s + SEARCH_AGAIN_S

    def _is_new(self, each: Input) -> bool:
        """Whether this status differs from the last one; `absent` after `gone` does not count."""
        if not isinstance(each, HookStatus):
            return True
        before = self._said.get(each.process)
        if before is not None and before[0] in ("gone", "absent") and each.reason == NO_HOOK:
            return False
        self._said[each.process] = (each.state, each.reason)
        return before != (each.state, each.reason)
