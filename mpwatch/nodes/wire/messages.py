"""The messages between the agent on a node and the head, as MessagePack maps in frames.

The head asks and the node answers; a node sends its summary without being asked. Everything that is
decoded here is checked against a type and its text is sanitized; nothing else is done with it.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import msgspec

from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import MESSAGE_LIMIT, clean
from mpwatch.nodes.wire.framing import HEAD_LIMIT_BYTES, NODE_LIMIT_BYTES, encode

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
    """`mpwatch.nodes.view_codec.VERSION` of the agent; 0 if it cannot show its jobs."""


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


class Part(msgspec.Struct, tag="part"):
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


FromNode: TypeAlias = Hello | Summary | Answer | Pong | Part | Refusal
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
