"""A file that is only appended to, whole members or nothing, whatever the disk does."""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

WAITING_BYTES_LIMIT = 16 << 20
"""Members kept while the disk is full; a longer shortage costs readings, not memory."""


class CannotRecord(OSError):
    """A recording cannot be begun there; the text is one sentence for a person."""


class MemberFile:
    """Appends members in order; those that cannot be written wait, up to a limit."""

    def __init__(self, path: str) -> None:
        """Create the file, never opening an existing one.

        It is readable by its owner only, because command lines may hold secrets; and an earlier
        recording may be all that is left of a job.

        Raises:
            CannotRecord: It exists already, or cannot be made.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._fd: int | None = os.open(path, flags, 0o600)
        except FileExistsError:
            raise CannotRecord(
                f"{path} exists already; choose another name or remove it."
            ) from None
        except OSError as error:
            raise CannotRecord(f"{path} cannot be written: {error.strerror}.") from None
        self._path = path
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self._good_end = 0

    @property
    def is_open(self) -> bool:
        """Whether members can still be taken."""
        return self._fd is not None

    @property
    def is_full(self) -> bool:
        """Whether so much waits already that nothing more should be handed in."""
        return self._waiting_bytes >= WAITING_BYTES_LIMIT

    @property
    def waiting(self) -> int:
        """Inputs in the members handed in and not written."""
        return sum(inputs for _, inputs in self._waiting)

    def append(self, member: bytes = b"", inputs: int = 0) -> str | None:
        """Write what waits, and one more member if one is given.

        Args:
            member: A complete member.
            inputs: How many inputs it holds.

        Returns:
            `None` if everything is in the file, else why not.
        """
        if member:
            self._waiting.append((member, inputs))
            self._waiting_bytes += len(member)
        while self._waiting and self._fd is not None:
            problem = self._write(self._fd, self._waiting[0][0])
            if problem is not None:
                return problem
            self._waiting_bytes -= len(self._waiting.popleft()[0])
        return None

    def close(self) -> None:
        """Close the file; what still waits is lost."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, fd: int, member: bytes) -> str | None:
        """Write a member whole or not at all: half of one would hide those after it."""
        try:
            written = 0
            while written < len(member):
                written += os.write(fd, memoryview(member)[written:])
        except OSError as error:
            return self._take_back(fd) or error.strerror or "it cannot be written"
        self._good_end += len(member)
        return None

    def _take_back(self, fd: int) -> str | None:
        """Cut off half a member; where that fails nothing may be appended behind it."""
        try:
            os.ftruncate(fd, self._good_end)
            os.lseek(fd, self._good_end, os.SEEK_SET)
        except OSError as error:
            self.close()
            return f"{error.strerror}; the file was given up"
        return None


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
