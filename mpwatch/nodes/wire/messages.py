"""The messages between the agent on a node and the head, as MessagePack maps in frames.

The head asks and the node answers; a node sends its summary without being asked. Everything that is
decoded here is checked against a type and its text is sanitized; nothing else is done with it.

A frame is a header, then a body of `length` bytes:

    magic     4 bytes  AB 4D 50 57, which no UTF-8 text contains
    protocol  1 byte   version of the protocol that the body is written in
    length    4 bytes  of the body, big-endian
    crc32     4 bytes  of protocol, length and body, big-endian

The layout of the header and the first message of each side (`Hello`) are the same in all versions,
so that an agent of another version can be named. Login shells print banners and some launchers mix
in lines of their own: bytes that are no frame are skipped up to the next magic and counted.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import MESSAGE_LIMIT, clean

PROTOCOL = 1
"""Version of the messages; rises when a message changes in a way that the other side notices."""
NODE_LIMIT_BYTES = 16 << 20
"""Longest body that a node sends: the dump of some hundred processes with stacks."""
HEAD_LIMIT_BYTES = 64 << 10
"""Longest body that a head sends."""
SILENCE_S = 120.0
"""An agent or a relay that has received nothing for so long ends: its head, or the network to it,
has ended. A head sends a message every few seconds, so half a minute without a network ends none.
"""
CHUNK_BYTES = 1 << 16
"""Read from a pipe at once: what a pipe holds (pipe(7))."""
TEXT_KEPT_BYTES = 2048
"""So much of the skipped bytes is kept, to show what a node said in place of a frame."""

MAGIC = b"\xabMPW"
_HEADER = struct.Struct(">4sBII")
_CHECKED = struct.Struct(">BI")


class ReceivedFrame(NamedTuple):
    """One message as it was received."""

    protocol: int
    body: bytes


class FrameTooLong(ValueError):
    """A body is longer than the other side accepts."""


def encode(body: bytes, limit_bytes: int, protocol: int = PROTOCOL) -> bytes:
    """The bytes of a frame.

    Args:
        body: The message.
        limit_bytes: The longest body that the other side accepts.
        protocol: Version of the protocol.

    Raises:
        FrameTooLong: The body is longer than the limit.
    """
    if len(body) > limit_bytes:
        raise FrameTooLong(f"a message of {len(body)} bytes exceeds the limit of {limit_bytes}")
    return _HEADER.pack(MAGIC, protocol, len(body), _checksum(protocol, body)) + body


def _checksum(protocol: int, body: bytes | bytearray) -> int:
    return zlib.crc32(body, zlib.crc32(_CHECKED.pack(protocol, len(body))))


class FrameReader:
    """Finds frames in a stream that arrives in pieces.

    It holds at most one unfinished frame, thus the limit and one piece.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Make a reader.

        Args:
            limit_bytes: Longest body accepted; a header that announces more is skipped.
        """
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._text = bytearray()

    def feed(self, data: bytes) -> list[ReceivedFrame]:
        """Add received bytes and return the frames that are complete now."""
        self._buffer += data
        found = []
        while (frame := self._next()) is not None:
            found.append(frame)
        return found

    @property
    def text(self) -> str:
        """The last skipped bytes as text, not sanitized, without white space at the ends."""
        return self._text.decode("utf-8", "replace").strip()

    def _next(self) -> ReceivedFrame | None:
        """The next complete frame, or `None` if more bytes are needed."""
        while True:
            self._skip_to_magic()
            if len(self._buffer) < _HEADER.size:
                return None
            _, protocol, length, checksum = _HEADER.unpack_from(self._buffer)
            if length <= self._limit_bytes:
                end = _HEADER.size + length
                if len(self._buffer) < end:
                    return None
                body = bytes(memoryview(self._buffer)[_HEADER.size : end])
                if _checksum(protocol, body) == checksum:
                    del self._buffer[:end]
                    return ReceivedFrame(protocol, body)
            self._skip(len(MAGIC))

    def _skip_to_magic(self) -> None:
        """Skip what is before the next magic, or before what may become one."""
        at = self._buffer.find(MAGIC)
        if at < 0:
            at = len(self._buffer)
            for length in range(len(MAGIC) - 1, 0, -1):
                if self._buffer.endswith(MAGIC[:length]):
                    at -= length
                    break
        self._skip(at)

    def _skip(self, count: int) -> None:
        if count:
            self._text += self._buffer[:count]
            del self._text[:-TEXT_KEPT_BYTES]
            del self._buffer[:count]


DEPTH_LIMIT = 20
"""The deepest document is a dump: processes, threads, frames, local variables."""

Row: TypeAlias = dict[str, Any]
"""Fields of a row of a summary, or those of them that have changed."""
Sections: TypeAlias = dict[str, dict[str, Row]]
"""Rows of a summary by section and key; see `mpwatch.nodes.wire.summary`."""


class Hello(msgspec.Struct, tag="hello"):
    """First message of a node; the same in all versions of the protocol."""

    mpwatch: str
    """Version of the agent."""
    host: str
    pid: int
    view: int = 0
    """`mpwatch.nodes.wire.view_codec.VERSION` of the agent; 0 if it cannot show its jobs."""


class Summary(msgspec.Struct, tag="summary"):
    """The state of a node: all rows, or those fields that changed since the message before."""

    sequence: int
    """Counts from 0; one more than that of the summary before."""
    at_s: float
    """Monotonic seconds of the node."""
    is_full: bool = False
    changed: Sections = {}
    removed: dict[str, list[str]] = {}


class Answer(msgspec.Struct, tag="answer"):
    """The answer to an `Ask`: a document, or one sentence why there is none."""

    request: int
    document: dict[str, Any] | None = None
    problem: str = ""


class Pong(msgspec.Struct, tag="pong"):
    """The answer to a `Ping`."""

    sent_s: float
    wall_s: float
    """Seconds since 1970 by the clock of the node."""


class SnapshotPart(msgspec.Struct, tag="part"):
    """A part of a snapshot that a head has asked for; see `mpwatch.nodes.wire.view_codec`."""

    view: int
    number: int
    """Its place in the snapshot, from 0."""
    is_last: bool
    """Whether the snapshot ends with this part."""
    is_whole: bool
    """Whether the snapshot is the first one, to which the next are changes."""
    data: bytes
    skipped: int = 0
    """Snapshots that were made while the head had not asked for one, since it opened the job."""


class Refusal(msgspec.Struct, tag="refusal"):
    """Why a request about an opened job is not followed, in one sentence."""

    view: int
    problem: str
    is_over: bool = False
    """Whether no snapshot will follow."""


class Ping(msgspec.Struct, tag="ping"):
    """Sent at intervals by the head; an agent that receives nothing for long ends."""

    sent_s: float
    """Monotonic seconds of the head."""


class Ask(msgspec.Struct, tag="ask"):
    """Asks for a document: `dump`, `diagnose`, or `metrics`."""

    request: int
    what: str
    stacks: bool = True
    native: bool = False
    locals: bool = False


class Resend(msgspec.Struct, tag="resend"):
    """Asks for a full summary."""


class Open(msgspec.Struct, tag="open"):
    """Opens the job of a process, in place of one that was opened before; asks for a snapshot."""

    view: int
    """Chosen by the head; it names the opened job in all that follows."""
    pid: int


SNAPSHOTS_ON_THE_WAY = 4
"""Snapshots that a head may have asked for and not received: one a second over a way with a round
trip of 3 s."""


class Next(msgspec.Struct, tag="next"):
    """Asks for one more snapshot of the opened job, as soon as there is a newer one."""

    view: int


class Do(msgspec.Struct, tag="do"):
    """Asks the observer of the opened job for something that only looks.

    `stacks` of one process or of all, `follow` or `focus` a process or none, `allocators`.
    """

    view: int
    what: Literal["stacks", "follow", "focus", "allocators"]
    processes: tuple[ProcessId, ...] = ()
    native: bool = False
    locals: bool = False


class Close(msgspec.Struct, tag="close"):
    """Closes the opened job."""

    view: int


FromNode: TypeAlias = Hello | Summary | Answer | Pong | SnapshotPart | Refusal
FromHead: TypeAlias = Ping | Ask | Resend | Open | Next | Do | Close

_encoder = msgspec.msgpack.Encoder()
_from_node = msgspec.msgpack.Decoder(FromNode)
_from_head = msgspec.msgpack.Decoder(FromHead)


class NotAMessage(ValueError):
    """The body of a frame is no message of this protocol."""


def node_frame(message: FromNode) -> bytes:
    """A message of a node as a frame.

    Raises:
        FrameTooLong: It is longer than heads accept.
    """
    return encode(_encoder.encode(message), NODE_LIMIT_BYTES)


def head_frame(message: FromHead) -> bytes:
    """A message of a head as a frame."""
    return encode(_encoder.encode(message), HEAD_LIMIT_BYTES)


def size_bytes(value: object) -> int:
    """How long a value is in a message."""
    return len(_encoder.encode(value))


def message_of_node(body: bytes) -> FromNode:
    """Decode what a node has sent; its text is sanitized.

    Raises:
        NotAMessage: It is no message of this protocol.
    """
    try:
        message: FromNode = _from_node.decode(body)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise NotAMessage(str(error)) from None
    return sanitized(message)


def sanitized(message: FromNode) -> FromNode:
    """A decoded message of a node with its text sanitized; the same object.

    Raises:
        NotAMessage: It is nested too deeply.
    """
    if isinstance(message, Hello):
        message.mpwatch, message.host = clean(message.mpwatch, 40), clean(message.host)
    elif isinstance(message, Summary):
        message.changed = _cleaned(message.changed)
        message.removed = _cleaned(message.removed)
    elif isinstance(message, Answer):
        message.document = _cleaned(message.document)
        message.problem = clean(message.problem, MESSAGE_LIMIT)
    elif isinstance(message, Refusal):
        message.problem = clean(message.problem, MESSAGE_LIMIT)
    return message


def message_of_head(body: bytes) -> FromHead:
    """Decode what a head has sent.

    Raises:
        NotAMessage: It is no message of this protocol.
    """
    try:
        message: FromHead = _from_head.decode(body)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise NotAMessage(str(error)) from None
    return message


def _cleaned(value: Any, depth: int = 0) -> Any:
    """A decoded value as JSON can have it, with all text sanitized, keys included.

    Raises:
        NotAMessage: It is nested more deeply than any document of mpwatch.
    """
    if depth > DEPTH_LIMIT:
        raise NotAMessage(f"nested more than {DEPTH_LIMIT} deep")
    if isinstance(value, str):
        return clean(value, MESSAGE_LIMIT)
    if isinstance(value, dict):
        return {
            clean(str(key), MESSAGE_LIMIT): (
                # Numbers are most of a summary.
                each if type(each) is int else _cleaned(each, depth + 1)
            )
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_cleaned(each, depth + 1) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return clean(str(value), MESSAGE_LIMIT)
