"""Recordings: the inputs of a job in an append-only file of whole compressed members."""

from __future__ import annotations

import math
import os
import socket
import struct
import time
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, TypeVar, overload

import mpwatch
from mpwatch.model.events import Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import TreeSample
from mpwatch.observe.recording.codec import (
    CANNOT_ENCODE,
    JOB_KIND,
    SCHEMA,
    Header,
    LineDecoder,
    LineEncoder,
    kind_of,
    moment_of,
    read_header,
)

WAITING_BYTES_LIMIT = 16 << 20
"""Bytes of members kept while the disk is full; beyond that inputs are lost."""


class CannotRecord(OSError):
    """A recording cannot be begun there; the text is one sentence for the user."""


class MemberFile:
    """Appends members in order; those that cannot be written are kept, up to a limit."""

    def __init__(self, path: str) -> None:
        """Create the file, never opening an existing one.

        It is readable by its owner only, because command lines may hold secrets. An existing file
        may be the only recording of a job.

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
        self.count = 0
        """Members in the file."""
        self.last_s = -math.inf
        """The last time of the lines in the file."""

    @property
    def is_open(self) -> bool:
        """Whether members can still be appended."""
        return self._fd is not None

    @property
    def is_full(self) -> bool:
        """Whether the limit of unwritten members is reached."""
        return self._waiting_bytes >= WAITING_BYTES_LIMIT

    @property
    def written_bytes(self) -> int:
        """Length of the file."""
        return self._good_end

    @property
    def waiting(self) -> int:
        """Inputs in the members that are not written."""
        return sum(inputs for _, inputs in self._waiting)

    def append(self, member: bytes = b"", inputs: int = 0) -> str | None:
        """Write the kept members, and one more if one is given.

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
            written, _ = self._waiting.popleft()
            self._waiting_bytes -= len(written)
            self.count += 1
            self.last_s = max(self.last_s, last_s_of(written))
        return None

    def close(self) -> None:
        """Close the file; members that are not written are lost."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, fd: int, member: bytes) -> str | None:
        """Write a whole member or nothing: a partial one would hide those after it."""
        try:
            written = 0
            while written < len(member):
                written += os.write(fd, memoryview(member)[written:])
        except OSError as error:
            return self._take_back(fd) or error.strerror or "it cannot be written"
        self._good_end += len(member)
        return None

    def _take_back(self, fd: int) -> str | None:
        """Remove a partial member; where that fails nothing may be appended after it."""
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
"""Inflated bytes read of one member; the rest of a longer one is ignored."""

LINES_LIMIT = 1 << 17
"""Lines taken from one member. The writer ends a member at `MEMBER_BYTES`, and its lines have at
least 40 bytes."""

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
"""Higher levels take several times the cpu and save a tenth of the size."""


class Member(NamedTuple):
    """The place of one member and the times it covers."""

    offset: int
    length: int
    """Bytes on disk by its header; more than there are if the file was cut."""
    first_s: float
    last_s: float
    is_key: bool
    """Reading can begin here: nothing in it refers to earlier members."""


_ROW = struct.Struct("<QIdd?")


class MemberIndex(Sequence[Member]):
    """The members of a file, in 29 bytes each instead of 230.

    A recording has one or two for each second: 5 MB for a day.
    """

    def __init__(self, members: Iterable[Member]) -> None:
        self._rows = bytearray()
        for member in members:
            self._rows += _ROW.pack(*member)

    def __len__(self) -> int:
        return len(self._rows) // _ROW.size

    @overload
    def __getitem__(self, index: int) -> Member: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Member]: ...
    def __getitem__(self, index: int | slice) -> Member | Sequence[Member]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [self[place] for place in places]
        return Member(*_ROW.unpack_from(self._rows, places * _ROW.size))


class NotAMember(ValueError):
    """These bytes are no member of a recording."""


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


def last_s_of(member: bytes) -> float:
    """The last time of the lines of a packed member."""
    last_s: float = _EXTRA.unpack_from(member, _PREFIX.size)[-1]
    return last_s


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
        # In pieces, so that what precedes damage in the middle is read.
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


def _each_line(lines: bytes) -> Iterator[bytes]:
    """The lines one by one: a list of all of them may need far more memory than the lines."""
    start = 0
    while (end := lines.find(b"\n", start)) >= 0:
        yield lines[start:end]
        start = end + 1
    if start < len(lines):
        yield lines[start:]


def _complete(lines: bytearray) -> bytes:
    """Without a last line that is incomplete."""
    return bytes(lines[: lines.rfind(b"\n") + 1])


MEMBER_S = 0.5
"""A member is written once its first line is this old: a crash loses less than a second."""
MEMBER_BYTES = 4 << 20
"""A member is written after this many bytes of lines, however young."""
KEY_S = 30.0
"""Whole trees are written this often, so that reading can begin in the middle."""


class NotARecording(ValueError):
    """A file cannot be read as a recording; the text is one sentence for the user."""


class LineWriter:
    """Appends lines to a new file of members.

    Not thread-safe. Once made it never raises: errors are in `problem`, and observing continues.
    """

    def __init__(
        self, path: str, header: bytes, at_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Create the file and write its first line.

        Args:
            path: Of the file, which must not exist.
            header: The first line, with its newline.
            at_s: The time of the first line.
            clock: Monotonic seconds.

        Raises:
            CannotRecord: It exists already, or cannot be written.
        """
        self.path = path
        self.lost = 0
        """Lines that could not be written, in total."""
        self._clock = clock
        self._begin_s = at_s
        self._lines = MemberLines(clock())
        self._file = MemberFile(path)
        self._shortage: str | None = None
        self._reason = ""
        problem = self._file.append(pack(header, at_s, at_s, is_key=False))
        if problem is not None:
            self._file.close()
            os.unlink(path)
            raise CannotRecord(f"{path} cannot be written: {problem}.")

    @property
    def problem(self) -> str | None:
        """What is missing and why, in one sentence; `None` if nothing is."""
        if self.lost:
            readings = "1 reading" if self.lost == 1 else f"{self.lost} readings"
            return f"The recording {self.path} misses {readings}: {self._reason}."
        if self._shortage:
            return f"The recording {self.path} waits for its disk: {self._shortage}."
        return None

    @property
    def recorded_s(self) -> float | None:
        """How long what is in the file lasts, in seconds; `None` with nothing but the header.

        The job may have been watched for longer: a disk may be full, or a limit be reached.
        """
        return self._file.last_s - self._begin_s if self._file.count > 1 else None

    def flush(self) -> None:
        """Write the lines so far as one member."""
        count = self._lines.count
        member = self._lines.member()
        if member or self._file.waiting:
            self._shortage = self._file.append(member, count)

    def close(self) -> None:
        """Write the lines so far and close the file; closing twice is harmless."""
        if self._file.is_open:
            self.flush()
            if self._shortage:
                self._lose(self._file.waiting, self._shortage)
            self._file.close()

    def _has_room(self) -> bool:
        """Whether a line can be added; if not, it counts as lost."""
        if self._file.is_open and not self._file.is_full:
            return True
        self._lose(1, self._shortage or "it was closed")
        return False

    def _add(self, line: bytes, at_s: float, now_s: float, *, is_key: bool) -> None:
        """Add a line; with `is_key` as the first one of a member where reading can begin."""
        if is_key:
            self.flush()
        self._lines.add(line, at_s, now_s, is_key=is_key)
        if self._lines.size >= MEMBER_BYTES or now_s - self._lines.since_s >= MEMBER_S:
            self.flush()

    def _lose(self, count: int, reason: str) -> None:
        self.lost += count
        self._reason = reason


class RecordingWriter(LineWriter):
    """Appends inputs to a new file; see `LineWriter`."""

    def __init__(
        self,
        path: str,
        root: ProcessId | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the file and write its header.

        Raises:
            CannotRecord: It exists already, or cannot be written.
        """
        self._encoder = LineEncoder()
        at_s = clock()
        header = Header(SCHEMA, mpwatch.__version__, socket.gethostname(), root, at_s, wall_clock())
        super().__init__(path, self._encoder.header(header), at_s, clock)

    def write(self, input: Input) -> None:
        """Write one input; it is in the file within a second."""
        now_s = self._clock()
        if not self._has_room():
            return
        if isinstance(input, TreeSample) and now_s - self._lines.key_s >= KEY_S:
            self._encoder.forget()
        is_whole = isinstance(input, TreeSample) and not self._encoder.follows_a_tree
        try:
            line = self._encoder.line(input)
        except CANNOT_ENCODE as error:
            self._lose(1, str(error))
            return
        self._add(line, moment_of(input), now_s, is_key=is_whole)

    def _lose(self, count: int, reason: str) -> None:
        super()._lose(count, reason)
        # The next tree must not refer to one that was never written.
        self._encoder.forget()


_Reader = TypeVar("_Reader", bound="MemberReader")


class MemberReader(ABC):
    """A file of members opened for reading; usable as a context manager.

    Attributes:
        path: Its path.
        members: Its index, in the order of the file.
        length_s: Seconds from its beginning to its last line.
        problems: What could not be read, as sentences; grows while reading.
    """

    def __init__(self, path: str) -> None:
        """Open it and find its members.

        Raises:
            OSError: The file cannot be opened.
            NotARecording: It is none, or it was made by a later mpwatch.
        """
        self.path = path
        self.problems: list[str] = []
        self._file = open(path, "rb")  # noqa: SIM115 - closed by `close`
        try:
            self._begin_s = self._read_header(self._first_line())
            self.members = MemberIndex(self._index())
        except BaseException:
            self._file.close()
            raise
        ends = (member.last_s for member in self.members if math.isfinite(member.last_s))
        self.length_s = max(0.0, max(ends, default=0.0) - self._begin_s)

    def __enter__(self: _Reader) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @abstractmethod
    def _read_header(self, line: bytes) -> float:
        """Take the first line, and return the time at which the recording begins.

        Raises:
            NotARecording: It is not the first line of such a recording.
        """

    def _numbered_lines(self, first_member: int) -> Iterator[tuple[int, bytes | None]]:
        """All lines with the index of their member; `None` where some are missing."""
        for index in range(first_member, len(self.members)):
            member = self.members[index]
            lines, is_whole = inflate(self._file, member)
            for count, line in enumerate(_each_line(lines)):
                if count >= LINES_LIMIT:
                    is_whole = False
                    break
                yield index, line
            if not is_whole:
                self._note(self._damage(member))
                yield index, None

    def _first_line(self) -> bytes:
        try:
            first = read_head(self._file, 0)
            lines = inflate(self._file, first)[0] if first else b""
        except NewerFormat as error:
            raise NotARecording(f"{self.path} was written by a later mpwatch: {error}.") from None
        except NotAMember:
            raise NotARecording(f"{self.path} is not a recording of mpwatch.") from None
        return lines.partition(b"\n")[0]

    def _index(self) -> Iterator[Member]:
        end = 0
        try:
            for member in scan(self._file):
                end = member.offset + member.length
                yield member
        except NotAMember:
            self._note(f"{self.path} is damaged; what follows the damage is not shown.")
            return
        if os.fstat(self._file.fileno()).st_size > end:
            self._note(self._cut())

    def _damage(self, member: Member) -> str:
        if member == self.members[-1]:
            return self._cut()
        after_s = member.first_s - self._begin_s
        return f"{self.path} is damaged {after_s:.0f} s after its beginning; a part is missing."

    def _cut(self) -> str:
        return f"{self.path} is cut off at its end; what was complete is shown."

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


class Recording(MemberReader):
    """A recording opened for reading; see `MemberReader`.

    Attributes:
        header: The root process, the host, the time and the version.
    """

    header: Header

    def inputs(
        self, first_member: int = 0, on_part: Callable[[float], None] | None = None
    ) -> Iterator[Input]:
        """Inputs in the order they were recorded.

        Args:
            first_member: Index of the member to begin at: 0, or that of a key member.
            on_part: Called with the part of the recording that was read, 0 to 1, after each input.
        """
        for member, each in self.numbered_inputs(first_member):
            yield each
            if on_part is not None:
                on_part(member / len(self.members))

    def numbered_inputs(self, first_member: int = 0) -> Iterator[tuple[int, Input]]:
        """As `inputs`, each with the index of the member it lies in."""
        decoder = LineDecoder()
        for index, line in self._numbered_lines(first_member):
            if line is None:
                decoder.forget()
                continue
            decoded = decoder.input(line)
            if decoded is not None:
                yield index, decoded
        if decoder.not_understood:
            self._note(
                f"{decoder.not_understood} lines of {self.path} were not understood;"
                " it may have been written by a later mpwatch."
            )

    def _read_header(self, line: bytes) -> float:
        header = read_header(line)
        if header is None and kind_of(line) == JOB_KIND:
            raise NotARecording(
                f"{self.path} is a recording of a job on several machines, which mpwatch replay, "
                "report and diagnose read."
            )
        if header is None:
            raise NotARecording(f"{self.path} is not a recording of mpwatch, or was cut at once.")
        check_schema(self.path, header.schema, header.mpwatch)
        self.header = header
        return header.at_s


def check_schema(path: str, schema: int, version: str) -> None:
    """Refuse a recording with lines that this version would misunderstand.

    Raises:
        NotARecording: It was written by a later mpwatch.
    """
    if schema > SCHEMA:
        raise NotARecording(
            f"{path} was written by mpwatch {version} (schema {schema});"
            f" this is {mpwatch.__version__} (schema {SCHEMA})."
        )


def is_of_several_nodes(path: str) -> bool:
    """Whether a file is a recording of a job on several machines.

    Raises:
        OSError: The file cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            first = read_head(file, 0)
            lines = inflate(file, first)[0] if first else b""
        except NotAMember:
            return False
    return kind_of(lines.partition(b"\n")[0]) == JOB_KIND


class MemberLines:
    """Lines that are not written yet, and the times they cover."""

    def __init__(self, now_s: float) -> None:
        self.size = 0
        """Bytes of all lines."""
        self.since_s = now_s
        """When the first of them was added."""
        self.key_s = now_s
        """When a line was last added at which reading can begin."""
        self._lines: list[bytes] = []
        self._times_s: list[float] = []
        self._is_key = False

    def add(self, line: bytes, at_s: float, now_s: float, *, is_key: bool) -> None:
        """Append one line and its time."""
        if not self._lines:
            self.since_s = now_s
            self._is_key = is_key
        if is_key:
            self.key_s = now_s
        self._lines.append(line)
        self._times_s.append(at_s)
        self.size += len(line)

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def member(self) -> bytes:
        """Remove all lines and return them as a member; empty if there are none."""
        if not self._lines:
            return b""
        first_s, last_s = min(self._times_s), max(self._times_s)
        member = pack(b"".join(self._lines), first_s, last_s, is_key=self._is_key)
        self._lines, self._times_s, self.size = [], [], 0
        return member
