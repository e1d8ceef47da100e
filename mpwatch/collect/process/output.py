"""The last lines that a job has written to the files of its standard output and error.

Read for the screen that shows them, and only while it is open: the files are the user's, and may be
on a file system that hangs, so they are read on a thread of their own, for which nobody waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from msgspec import Struct, field

from mpwatch.collect.own_threads import OwnThreads
from mpwatch.collect.process.foreign_files import open_as_owner
from mpwatch.collect.process.written_errors import FILES
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdKind, FdLink
from mpwatch.model.sanitize import clean
from mpwatch.model.snapshot import Snapshot

TAIL_BYTES: Final = 128 << 10
"""Read of a file, from its end."""
TARGETS: Final = 256
"""Files, pipes and terminals that are told, of which `FILES` files are read."""
LINES: Final = 1000
LINE_LIMIT: Final = 2000


class Output(NamedTuple):
    """One file, pipe or terminal, and the processes that have it as standard output or error."""

    target: str
    kind: FdKind
    writers: tuple[ProcessId, ...]
    size_bytes: int | None = None
    """Of a file that was read."""
    lines: tuple[str, ...] = ()
    """The last ones of such a file, cleaned."""
    is_cut: bool = False
    """Whether there are earlier ones."""
    problem: str = ""
    """Why a file was not read."""


class _Open(Struct):
    """What is known of one target; a file stays open, so that its end can be read after a job's."""

    kind: FdKind
    writers: dict[ProcessId, int] = field(default_factory=dict)
    """With the descriptor that each writes to; those that have ended only if all have."""
    newest: tuple[ProcessId, int] | None = None
    """A writer that was found since the file was opened: it may have made a new one there."""
    descriptor: int | None = None
    state: tuple[int, int] | None = None
    """Size and time of the last change when it was last read."""
    last: Output | None = None
    """What was read then."""

    def close(self) -> None:
        """Close the file, and forget what was read of it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = self.state = self.last = None

    def is_replaced(self) -> bool:
        """Whether a new writer has another file at this place than the one that is open."""
        newest, self.newest = self.newest, None
        if newest is None or self.descriptor is None:
            return False
        process, fd = newest
        try:
            there = os.stat(f"/proc/{process.pid}/fd/{fd}")
        except OSError:
            return False
        own = os.fstat(self.descriptor)
        return (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino)


class OutputReads:
    """Reads the files of one job again and again, as long as it is open."""

    def __init__(
        self, report: Callable[[tuple[Output, ...]], None], threads: OwnThreads | None = None
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            report: Called on a thread of its own.
            threads: Starts that thread.
        """
        self._report = report
        self._threads = threads or OwnThreads()
        self._found: dict[str, _Open] = {}
        self._lock = threading.Lock()
        """Held while descriptors are used or closed."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def start(self, snapshot: Snapshot) -> None:
        """Begin to read, unless that is under way."""
        if self._thread is not None and self._thread.is_alive():
            return
        living = {each.process for each in snapshot.living()}
        for process in snapshot.living():
            for link in process.sample.links:
                if link.fd in (1, 2):
                    self._note(process.process, link, living)
        for found in self._found.values():
            left = {each: fd for each, fd in found.writers.items() if each in living}
            found.writers = left or found.writers
        self._thread = self._threads.start(self._read, "mpwatch-output", list(self._found.items()))
        if self._thread is None and (problem := self._threads.problem) is not None:
            noted = self._found.items()
            self._report(
                tuple(Output(t, f.kind, tuple(f.writers), problem=problem) for t, f in noted)
            )

    def wait(self, limit_s: float) -> None:
        """Wait until what was begun is reported, at most this long."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def close(self) -> None:
        """Close the files; where one is being read, its thread does that."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _note(self, process: ProcessId, link: FdLink, living: AbstractSet[ProcessId]) -> None:
        found = self._found.get(link.target)
        if found is None:
            if not self._make_room(link.kind, living):
                return
            found = self._found[link.target] = _Open(link.kind)
        if process not in found.writers:
            found.writers[process] = link.fd
            found.newest = process, link.fd

    def _make_room(self, kind: FdKind, living: AbstractSet[ProcessId]) -> bool:
        """Whether one more is kept, at the limit in place of the oldest without a living writer.

        A launcher that starts its ranks again gives them new files.
        """
        files = [target for target, each in self._found.items() if each.kind == "file"]
        full = files if kind == "file" and len(files) >= FILES else None
        if full is None and len(self._found) >= TARGETS:
            full = list(self._found)
        if full is None:
            return True
        left = (each for each in full if living.isdisjoint(self._found[each].writers))
        oldest = next(left, None)
        if oldest is None:
            return False
        with self._lock:
            self._found.pop(oldest).close()
        return True

    def _read(self, noted: Sequence[tuple[str, _Open]]) -> None:
        with self._lock:
            outputs = tuple(_output(target, found) for target, found in noted)
        if self._is_closed:
            self.close()  # what closed it may not have got the lock
            return
        self._report(outputs)

    def _close(self) -> None:
        for found in self._found.values():
            found.close()


def _output(target: str, found: _Open) -> Output:
    writers = tuple(found.writers)
    if found.kind != "file":
        return Output(target, found.kind, writers)
    try:
        if found.is_replaced():
            found.close()
        if found.descriptor is None:
            found.descriptor = _open(found)
        status = os.fstat(found.descriptor)
        size, state = status.st_size, (status.st_size, status.st_mtime_ns)
        if found.last is not None and found.state == state:
            return found.last._replace(writers=writers)
        start = max(0, size - TAIL_BYTES)
        raw = os.pread(found.descriptor, size - start, start)
    except OSError as error:
        problem = clean(error.strerror or str(error))
        return Output(target, found.kind, writers, problem=problem)
    lines, is_cut = last_lines(raw, is_whole=start == 0)
    found.state, found.last = state, Output(target, found.kind, writers, size, lines, is_cut)
    return found.last


def _open(found: _Open) -> int:
    """Open a file through one of its writers.

    Raises:
        OSError: All of them have ended, or it cannot be read.
    """
    problem = OSError("all processes that had it open have ended")
    for process, fd in reversed(found.writers.items()):
        try:
            return open_as_owner(process.pid, f"/proc/{process.pid}/fd/{fd}")[0]
        except OSError as error:
            problem = error
    raise problem


def last_lines(raw: bytes, *, is_whole: bool) -> tuple[tuple[str, ...], bool]:
    """The last lines of a part of a file, and whether there are earlier ones.

    Of a line that was written over again (a progress bar ends with a carriage return), the last
    text is kept, as a terminal shows it.

    Args:
        raw: The part.
        is_whole: Whether it begins where the file does; otherwise its first line is incomplete.
    """
    rows = raw.split(b"\n")
    if rows and not rows[-1]:
        rows.pop()
    if not is_whole and len(rows) > 1:
        rows = rows[1:]
    kept = rows[-LINES:]
    lines = tuple(_line(row) for row in kept)
    return lines, not is_whole or len(kept) < len(rows)


def _line(row: bytes) -> str:
    shown = row.rstrip(b"\r").rpartition(b"\r")[2]
    return clean(shown.replace(b"\t", b"    "), LINE_LIMIT)
