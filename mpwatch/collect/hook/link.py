"""One connection to the hook of one process: frames in, requests out, never waiting."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mpwatch.collect.hook import decode
from mpwatch.collect.hook.ring_decode import RingReading, read_descriptor
from mpwatch.hook import wire
from mpwatch.model.events import HookNote, HookSlice, HookStatus, Input
from mpwatch.model.ids import HookState
from mpwatch.model.samples import ProcSample

SILENT_AFTER_S = 0.25
READ_BYTES = 1 << 18
"""Read at most this much of one hook at a time, so that a loud one does not starve the others."""
UNANSWERED_LIMIT = 32


@dataclass(slots=True)
class Heard:
    """What is remembered of a hook from one connection to the next."""

    since_ns: int | None = None
    """When that hook came in; another one in the same process counts from 0 again."""
    sequence: int = -1
    """Of the newest record."""
    records: int = 0
    note: int = -1
    """Number of the newest note."""
    note_ns: int = 0
    """Time of the newest note."""
    notes: int = 0

    def begin(self, since_ns: int | None) -> None:
        """Hear an introduction; of a hook that is new, nothing has been heard yet."""
        if since_ns != self.since_ns:
            self.since_ns = since_ns
            self.sequence, self.records = -1, 0
            self.note, self.note_ns, self.notes = -1, 0, 0

    def slice(self, found: HookSlice) -> HookSlice | None:
        """The part of a slice that is new, with the number of records that never came."""
        events = found.events
        if events and events[0].sequence <= self.sequence:
            events = tuple(event for event in events if event.sequence > self.sequence)
        if not events:
            return None
        self.sequence = events[-1].sequence
        self.records += len(events)
        return replace(found, events=events, lost=self.sequence + 1 - self.records)

    def hear(self, note: HookNote) -> HookNote | None:
        """A note if it is new, with the number of notes that never came."""
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


@dataclass(slots=True)
class Asked:
    """What was asked and not answered yet."""

    questions: dict[int, str] = field(default_factory=dict)
    number: int = 0
    since_s: float | None = None
    """Since when an answer is due; the hello is the first."""


class Link:
    """A connection whose other end was checked.

    The state is `absent` until the hello came, then `ready` and `silent` in turn, at last `gone`.
    """

    def __init__(self, sample: ProcSample, sock: socket.socket, heard: Heard, at_s: float) -> None:
        self.sample = sample
        self.process = sample.process
        self.sock = sock
        self.state: HookState = "absent"
        self._heard = heard
        self._asked = Asked(since_s=at_s)
        self._buffer = bytearray()
        self._ring: RingMemory | None = None
        """The ring of the process, if that is in memory."""
        self._is_ring_checked = False

    def ask(self, what: str, at_s: float, also: Sequence[str] = ()) -> str | None:
        """Send a request; for `also` see `HookClients.ask`.

        Returns:
            `None`, or one sentence why that was not possible.
        """
        asked = self._asked
        if self.state not in ("ready", "silent"):
            return f"The hook of process {self.process.pid} has not introduced itself."
        if len(asked.questions) >= UNANSWERED_LIMIT:
            return f"The hook of process {self.process.pid} does not answer."
        asked.number += 1
        request: dict[str, Any] = {"ask": what, "id": asked.number}
        if also:
            request["also"] = list(also)
        payload = json.dumps(request).encode("ascii")
        frame = wire.pack_frame(wire.REQUEST, payload)
        # Before it is sent: another thread reads the answer, which may be here before we go on.
        asked.questions[asked.number] = what
        asked.since_s = at_s if asked.since_s is None else asked.since_s
        problem = self._send(frame)
        if problem is not None:
            asked.questions.pop(asked.number, None)
            if not asked.questions:
                asked.since_s = None
        return problem

    def _send(self, frame: bytes) -> str | None:
        """Send a whole frame, or say why that was not possible."""
        try:
            sent = self.sock.send(frame)
        except BlockingIOError:
            return f"The hook of process {self.process.pid} does not read."
        except OSError as error:
            return f"The hook of process {self.process.pid} is gone: {error.strerror}."
        if sent != len(frame):  # half a request would garble all that follow
            self.sock.shutdown(socket.SHUT_RDWR)
            return f"The hook of process {self.process.pid} does not read."
        return None

    def read(self, at_s: float) -> Iterator[Input]:
        """Take in what has arrived; a status of `gone` or `absent` comes last if that was all."""
        try:
            data, fd = receive(self.sock, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            yield from self._rest(at_s)
            yield self._leave(at_s, "gone", f"the connection broke: {error.strerror}")
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
        """Whether an answer is overdue: then the hook is silent, which is a fact too."""
        since_s = self._asked.since_s
        if since_s is None or at_s - since_s < SILENT_AFTER_S or self.state in ("silent", "gone"):
            return None
        what = "introduction" if self.state == "absent" else "answer"
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

    def read_ring(self) -> RingReading | None:
        """The ring of the process as it is now; `None` without a descriptor of it."""
        return self._ring.read() if self._ring is not None and self._is_ring_checked else None

    def _take_ring(self, ring: RingMemory) -> None:
        """Keep the descriptor that comes with the first bytes, and close all others."""
        if self._ring is None and self.state in ("absent", "silent") and not self._buffer:
            self._ring = ring
        else:
            ring.close()

    def _check_ring(self, inode: object) -> None:
        """Keep the descriptor only if it is of the memory that the hook named."""
        self._is_ring_checked = self._ring is not None and self._ring.is_ring(inode)
        if self._ring is not None and not self._is_ring_checked:
            self._ring.close()
            self._ring = None

    def _rest(self, at_s: float) -> Iterator[HookSlice]:
        """The records that a hook had no time to send, from the ring that its process left."""
        reading = self.read_ring()
        if reading is None or reading.header is None:
            return
        if reading.header.start_ticks not in (0, self.process.start_ticks):
            return
        rest = self._heard.slice(HookSlice(self.process, at_s, reading.events, reading.lost))
        if rest is not None:
            yield rest

    def _frames(self, at_s: float) -> Iterator[Input]:
        """All frames that are complete.

        Raises:
            ValueError: What came is not what a hook says.
        """
        position, buffer = 0, self._buffer
        while len(buffer) - position >= wire.FRAME.size and self.state != "gone":
            length, kind = wire.FRAME.unpack_from(buffer, position)
            if length > wire.MAX_FRAME_BYTES:
                raise ValueError(f"its hook sent a frame of {length} bytes")
            end = position + wire.FRAME.size + length
            if len(buffer) < end:
                break
            payload = bytes(memoryview(buffer)[position + wire.FRAME.size : end])
            position = end
            yield from self._frame(kind, payload, at_s)
        del buffer[:position]

    def _frame(self, kind: int, payload: bytes, at_s: float) -> Iterator[Input]:
        """One frame; of a kind that is not known it is skipped, for hooks newer than this."""
        if kind == wire.HELLO:
            said = decode.parse_object(payload)
            introduction = decode.hello(self.process, at_s, said)
            self._asked.since_s = None
            self._check_ring(said.get("ring_inode"))
            self._heard.begin(introduction.since_ns)
            yield introduction
            yield from self._is_awake(at_s)
            return
        if self.state == "absent":
            raise ValueError("its hook did not introduce itself")
        if kind == wire.GOODBYE:
            reason = str(decode.parse_object(payload).get("reason") or "")
            if reason in ("detach", "uninstrument"):
                yield self._leave(at_s, "absent", "it was taken out")
            else:
                yield self._leave(at_s, "gone", reason or "it said goodbye")
            return
        yield from self._is_awake(at_s)
        if kind == wire.RECORDS:
            found = self._heard.slice(decode.records(self.process, at_s, payload))
            if found is not None:
                yield found
        elif kind == wire.NOTE:
            note = self._heard.hear(decode.note(self.process, decode.parse_object(payload)))
            if note is not None:
                yield note
        elif kind == wire.GAUGES:
            yield decode.gauges(self.process, at_s, decode.parse_object(payload))
        elif kind == wire.REPLY:
            yield from self._reply(decode.parse_object(payload), at_s)

    def _reply(self, said: dict[str, Any], at_s: float) -> Iterator[Input]:
        """The answer to one question."""
        number = said.get("id")
        asked = self._asked
        question = asked.questions.pop(number, None) if isinstance(number, int) else None
        if not asked.questions:
            asked.since_s = None
        if question == "stacks":
            yield decode.stacks(self.process, at_s, said)
        elif question == "gauges":
            yield decode.gauges(self.process, at_s, said)

    def _is_awake(self, at_s: float) -> Iterator[HookStatus]:
        """Anything heard means that it is there; an answer still due is waited for afresh."""
        if self._asked.since_s is not None:
            self._asked.since_s = at_s
        if self.state != "ready":
            self.state = "ready"
            yield HookStatus(self.process, at_s, "ready")

    def _leave(self, at_s: float, state: HookState, reason: str) -> HookStatus:
        """End the conversation."""
        self.state = "gone"
        return HookStatus(self.process, at_s, state, reason)


_F_GET_SEALS, _F_SEAL_SHRINK = 1034, 2
"""fcntl(2). Python 3.10 to 3.15 have names for them only where the C library did."""
_DESCRIPTOR = struct.Struct("i")


def receive(sock: socket.socket, limit: int) -> tuple[bytes, int | None]:
    """Read from a socket, with the first descriptor that comes along (SCM_RIGHTS, unix(7)).

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
        """All records that it holds; also after the process has ended."""
        return read_descriptor(self._fd, "the ring in memory")

    def close(self) -> None:
        """Close the descriptor."""
        with contextlib.suppress(OSError):
            os.close(self._fd)
