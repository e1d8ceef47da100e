"""Notes: rare events with text, bounded in number and size, in memory and in a file."""

from __future__ import annotations

import collections
import itertools
import json

from ..safe import foreign_exceptions
from ..safe.exact import placeholder
from . import runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..safe.unpatched import System

LIMIT = 80
"""Notes kept in memory for observers that connect later."""
PASSING = ("call-site",)
"""Frequent kinds: they have a small memory of their own, and are not written to the file."""
PASSING_LIMIT = 64
NOTE_BYTES = 16_384
RECENT_BYTES = 18_432
"""Limit for all notes in memory together, without those of `PASSING` kinds."""
_OBJECTS_BYTES = 136
"""Size of the objects of a note beside its text: a tuple, a number, the header of `bytes`."""
FILE_BYTES = 262_144
"""Limit of the file: it is for the autopsy, which needs the first causes."""
COMMON = ("start", "fork")
"""Kinds that ordinary work causes, for weeks: in memory they are the first to be dropped, and they
may use only half of the file."""
LAST_BYTES = 65_536
"""Room after that for the exit of the process, which an autopsy needs most."""
PENDING_BYTES = 24_576
"""Limit for lines that the thread has not written yet, for instance while a disk is frozen."""
PROBLEMS = 32
_HALF_FULL = "the file of notes is half full: later process starts and forks are not in it"
_FULL = "the file of notes is full: of later notes only the exit is in it"


class Problems(list[str]):
    """Sentences why a part of the hook is missing: the first ones, and the number of the rest."""

    __slots__ = ("_more",)

    def __init__(self) -> None:
        super().__init__()
        self._more = 0

    def restart(self) -> None:
        """Forget everything: this is a forked child."""
        self.clear()
        self._more = 0

    def append(self, problem: str) -> None:
        """Store a sentence, or count it."""
        if len(self) < PROBLEMS:
            super().append(problem[:500])
        else:
            self._more += 1

    def sentences(self) -> list[str]:
        """The stored sentences, and one with the number of the rest."""
        return [*self, *([f"and {self._more} more"] if self._more else [])]


class Notes:
    """The notes, newest last; adding never blocks and never raises."""

    __slots__ = (
        "_common",
        "_count",
        "_file_bytes",
        "_passing",
        "_pending",
        "_system",
        "_unkept",
        "path",
        "recent",
    )

    def __init__(self, system: System) -> None:
        self._system = system
        self.path: str | None = None
        self.restart()

    def restart(self) -> None:
        """Forget everything: this is a forked child."""
        self._count = itertools.count()
        self.recent: collections.deque[tuple[int, bytes]] = collections.deque(maxlen=LIMIT)
        self._common: collections.deque[tuple[int, bytes]] = collections.deque(maxlen=LIMIT)
        self._passing: collections.deque[tuple[int, bytes]] = collections.deque(
            maxlen=PASSING_LIMIT
        )
        self._file_bytes = 0
        self._unkept = 0
        """Notes since the last line of the file that were lost for want of descriptor or room."""
        self._pending: collections.deque[tuple[bytes, int]] | None = None
        """Lines for the file that the hook's thread has to write, because writing may block."""
        self.path = None

    def add(self, kind: str, fields: dict[str, Any], is_end: bool = False) -> None:
        """Add a note; values are plain JSON values, long text is cut by the caller.

        Notes are numbered, so an observer can tell which were dropped before it received them.

        Args:
            kind: Kind of the note, see `wire`.
            fields: Its fields.
            is_end: Whether it describes the exit of this process; the file has room for it.
        """
        number = next(self._count)
        note = {"kind": kind, "at_ns": self._system.monotonic_ns(), "n": number, **fields}
        # Surrogates from undecodable file names are legal in str and escaped by ASCII JSON.
        data = json.dumps(note, default=placeholder).encode("ascii")
        if len(data) > NOTE_BYTES:
            short = {"kind": kind, "at_ns": note["at_ns"], "n": number, "cut": len(data)}
            data = json.dumps(short).encode("ascii")
        if kind in PASSING:
            self._passing.append((number, data))
            return
        is_common = kind in COMMON
        (self._common if is_common else self.recent).append((number, data))
        self._make_room()
        if is_end:
            self._keep(data, FILE_BYTES + LAST_BYTES)
        else:
            self._keep(data, FILE_BYTES // 2 if is_common else FILE_BYTES)

    def count(self) -> int:
        """How many notes were added so far."""
        kinds = self.recent, self._common, self._passing
        return max((kept[-1][0] + 1 for kept in kinds if kept), default=0)

    def since(self, number: int) -> list[tuple[int, bytes]]:
        """The notes from `number` on that are still in memory, with their numbers.

        Called ten times a second for each observer, nearly always without a result: sorting 300
        notes each time was a third of the cost of a connected observer.
        """
        kinds = self.recent, self._common, self._passing
        if not any(kept and kept[-1][0] >= number for kept in kinds):
            return []
        notes = [note for kept in kinds for note in tuple(kept)]
        return sorted(note for note in notes if note[0] >= number)

    def save(self, path: str, is_deferred: bool = False) -> None:
        """Write all notes so far, and all later ones, to a file.

        Args:
            path: The file.
            is_deferred: Whether `write_pending` does the writing.
        """
        self._pending = None
        if is_deferred:
            self.defer()
        self.path = path
        for _, data in sorted((*tuple(self.recent), *tuple(self._common))):
            self._keep(data, FILE_BYTES)

    def defer(self) -> None:
        """Let `write_pending` do the writing from now on."""
        if self._pending is None:
            self._pending = collections.deque()

    def is_due(self) -> bool:
        """Whether there are lines for `write_pending`."""
        return bool(self._pending)

    def write_pending(self) -> None:
        """Write the lines that were deferred; may block."""
        pending = self._pending
        if not pending or self.path is None:
            return
        try:
            while True:
                self._write(*pending.popleft())
        except IndexError as error:
            # Otherwise nothing is left.
            if not foreign_exceptions.is_ours(error):
                raise

    def _make_room(self) -> None:
        """Drop the oldest notes of the common kinds, then of the others."""
        kept = [*self.recent, *self._common]
        excess = sum([len(data) + _OBJECTS_BYTES for _, data in kept]) - RECENT_BYTES
        try:
            while excess > 0:
                _, data = (self._common or self.recent).popleft()
                excess -= len(data) + _OBJECTS_BYTES
        except IndexError as error:
            # Otherwise other threads made room as well.
            if not foreign_exceptions.is_ours(error):
                raise

    def _keep(self, data: bytes, room: int) -> None:
        """Append one line to the file, or count it if there is no room or no descriptor.

        Args:
            data: The line.
            room: Largest size of the file before the line, in bytes.
        """
        if self.path is None:
            return
        pending = self._pending
        if pending is None:
            self._write(data, room)
        elif sum([len(line) for line, _ in tuple(pending)]) < PENDING_BYTES:
            pending.append((data, room))
        else:
            self._unkept += 1

    def _write(self, data: bytes, room: int) -> None:
        """Append one line to the file, as `_keep`."""
        if self.path is None or self._file_bytes > room:
            return
        os = self._system.os
        lines = data + b"\n"
        if self._unkept:
            lines = self._problem(f"{self._unkept} notes are missing here") + lines
        if self._file_bytes + len(lines) > room:
            lines += self._problem(_FULL if room >= FILE_BYTES else _HALF_FULL)
        size = self._file_bytes + len(lines)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        flags |= os.O_NOFOLLOW
        try:
            (fd,) = runtime_dir.opened(self._system, self.path, flags)
        except OSError as error:
            self._unkept += 1
            if not foreign_exceptions.is_ours(error):
                raise
            return
        try:
            if not runtime_dir.is_open(self._system, fd, self.path):
                self._unkept += 1
                return
            self._file_bytes = size
            runtime_dir.require_own(self._system, fd, self.path)
            runtime_dir.require_size(size)
            runtime_dir.write(self._system, fd, self.path, lines)
            self._unkept = 0
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self._file_bytes = FILE_BYTES + LAST_BYTES + 1
        finally:
            runtime_dir.close(self._system, fd, self.path)

    def _problem(self, text: str) -> bytes:
        """A line of the file that says what is missing in it."""
        at_ns = self._system.monotonic_ns()
        note = {"kind": "hook-problem", "at_ns": at_ns, "what": "notes", "text": text}
        return json.dumps(note).encode("ascii") + b"\n"
