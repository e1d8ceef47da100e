"""Frames between the agent on a node and the head: bounded messages in a stream of bytes.

A frame is a header, then a body of `length` bytes:

    magic     4 bytes  AB 4D 50 57, which no UTF-8 text contains
    protocol  1 byte   version of the protocol that the body is written in
    length    4 bytes  of the body, big-endian
    crc32     4 bytes  of protocol, length and body, big-endian

The layout of the header and the first message of each side (`mpwatch.nodes.wire.messages.Hello`)
are the same in all versions, so that an agent of another version can be named. Login shells print
banners and some launchers mix in lines of their own: bytes that are no frame are skipped up to the
next magic and counted. Nothing that is read here is executed or unpickled.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

PROTOCOL = 1
"""Version of the messages; rises when a message changes in a way that the other side notices."""
NODE_LIMIT_BYTES = 16 << 20
"""Longest body that a node sends: the dump of some hundred processes with stacks."""
HEAD_LIMIT_BYTES = 64 << 10
"""Longest body that a head sends."""
TEXT_KEPT_BYTES = 2048
"""So much of the skipped bytes is kept, to show what a node said in place of a frame."""

MAGIC = b"\xabMPW"
_HEADER = struct.Struct(">4sBII")
_CHECKED = struct.Struct(">BI")


class Frame(NamedTuple):
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

    Attributes:
        frames: Number of frames received.
        skipped_bytes: Number of bytes that were no part of a frame.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Make a reader.

        Args:
            limit_bytes: Longest body accepted; a header that announces more is skipped.
        """
        self.frames = 0
        self.skipped_bytes = 0
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._text = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes and return the frames that are complete now."""
        self._buffer += data
        found = []
        while (frame := self._next()) is not None:
            found.append(frame)
        self.frames += len(found)
        return found

    @property
    def text(self) -> str:
        """The last skipped bytes as text, not sanitized, without white space at the ends."""
        return self._text.decode("utf-8", "replace").strip()

    def _next(self) -> Frame | None:
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
                    return Frame(protocol, body)
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
            self.skipped_bytes += count
            self._text += self._buffer[:count]
            del self._text[:-TEXT_KEPT_BYTES]
            del self._buffer[:count]
