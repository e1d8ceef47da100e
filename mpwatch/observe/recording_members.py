"""The container of a recording: gzip members that say how long they are.

A recording is a plain gzip file, so `zcat` shows its lines. Each member carries an extra field
(RFC 1952, 2.3.1.1) with its own length and the times within, so a reader jumps from member to
member without inflating any. Members are appended whole; what a crash or a full disk cuts off is
the last one, and its complete lines can still be read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

FORMAT = 1
"""Version of this container; a higher one is refused."""
MEMBER_BYTES_LIMIT = 64 << 20
"""Inflated bytes taken from one member; a longer one is cut, not believed."""

_PREFIX = struct.Struct("<2sBBIBBH")
"""gzip: magic, method, flags, mtime, extra flags, system, length of the extra field."""
_EXTRA = struct.Struct("<2sHBBIdd")
"""Subfield id, its length; format, is key, member bytes, first and last monotonic seconds."""
_TRAILER = struct.Struct("<II")
_MAGIC = b"\x1f\x8b"
_DEFLATE, _HAS_EXTRA, _FASTEST, _UNIX = 8, 4, 4, 3
_SUBFIELD = b"MW"
_HEAD_BYTES = _PREFIX.size + _EXTRA.size
_LEVEL = 1
"""Higher levels cost several times the cpu for a tenth of the size on these lines."""


class Member(NamedTuple):
    """Where one member lies and what times it covers."""

    offset: int
    length: int
    """Bytes on disk, as its header says; more than there are if the file was cut."""
    first_s: float
    last_s: float
    is_key: bool
    """Reading can begin here: nothing in it refers to what came before."""


class NotAMember(ValueError):
    """What is there is no member of a recording."""


class NewerFormat(NotAMember):
    """The container was written by a later version."""


def pack(lines: bytes, first_s: float, last_s: float, *, is_key: bool) -> bytes:
    """One complete member."""
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(lines) + deflate.flush()
    length = _HEAD_BYTES + len(body) + _TRAILER.size
    return b"".join(
        (
            _PREFIX.pack(_MAGIC, _DEFLATE, _HAS_EXTRA, 0, _FASTEST, _UNIX, _EXTRA.size),
            _EXTRA.pack(_SUBFIELD, _EXTRA.size - 4, FORMAT, is_key, length, first_s, last_s),
            body,
            _TRAILER.pack(zlib.crc32(lines), len(lines) & 0xFFFFFFFF),
        )
    )


def read_head(file: BinaryIO, offset: int) -> Member | None:
    """The member that begins at an offset; `None` at the end of the file or in a cut header.

    Raises:
        NotAMember: Something else is there.
        NewerFormat: Its container version is unknown here.
    """
    file.seek(offset)
    head = file.read(_HEAD_BYTES)
    if len(head) < _HEAD_BYTES:
        if not _MAGIC.startswith(head[:2]):
            raise NotAMember("no gzip header")
        return None
    magic, method, flags, _, _, _, extra_bytes = _PREFIX.unpack_from(head)
    if (magic, method, flags) != (_MAGIC, _DEFLATE, _HAS_EXTRA) or extra_bytes < _EXTRA.size:
        raise NotAMember("no gzip header of a recording")
    subfield, _, version, is_key, length, first_s, last_s = _EXTRA.unpack_from(head, _PREFIX.size)
    if subfield != _SUBFIELD or length < _HEAD_BYTES + _TRAILER.size:
        raise NotAMember("no gzip header of a recording")
    if version > FORMAT:
        raise NewerFormat(f"format {version}")
    return Member(offset, length, first_s, last_s, bool(is_key))


def scan(file: BinaryIO) -> Iterator[Member]:
    """All members from the beginning; costs one small read each.

    Raises:
        NotAMember: Something else is found between or after members.
        NewerFormat: As `read_head`.
    """
    offset = 0
    while (member := read_head(file, offset)) is not None:
        yield member
        offset += member.length


def inflate(file: BinaryIO, member: Member) -> tuple[bytes, bool]:
    """The complete lines of a member.

    Returns:
        The lines, and whether the member was whole: not cut, not too long, its checksum right.
    """
    file.seek(member.offset)
    raw = file.read(min(member.length, MEMBER_BYTES_LIMIT))
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    lines = bytearray()
    try:
        # In pieces, so that damage in the middle costs what follows it and not what precedes it.
        for start in range(_HEAD_BYTES, len(raw), 1 << 14):
            room = MEMBER_BYTES_LIMIT - len(lines)
            if inflater.eof or room <= 0:
                break
            lines += inflater.decompress(raw[start : start + (1 << 14)], room)
    except zlib.error:
        return _complete(lines), False
    is_whole = len(raw) == member.length and inflater.eof
    if is_whole:
        is_whole = _TRAILER.unpack(raw[-_TRAILER.size :])[0] == zlib.crc32(lines)
    return (bytes(lines), True) if is_whole else (_complete(lines), False)


def _complete(lines: bytearray) -> bytes:
    """Without a last line that has no end."""
    return bytes(lines[: lines.rfind(b"\n") + 1])
