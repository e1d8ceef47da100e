"""A copy in a file of a ring in a memfd: it outlives the process without an observer.

Only the hook's thread writes it, because a write to a disk can block.
"""

from __future__ import annotations

import errno

from .. import wire
from ..safe import foreign_exceptions
from . import runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..safe.unpatched import System
    from .ring import Ring

SAVE_EVERY_S = 3.0
"""Greatest age of the copy when a process is killed, plus the time of one write."""
RETRY_S = 30.0
"""Interval after a failure, such as a full disk."""
_PART = 64
"""Records copied at a time: the memory allocator would not return larger blocks."""
_UNSURE = 64
"""This many records before the last one copied are copied again: they may have been incomplete."""


class RingCopy:
    """The file of one process, updated at intervals."""

    __slots__ = ("_due_ns", "_fd", "_saved", "_system", "path", "problems")

    def __init__(self, system: System) -> None:
        self._system = system
        self._fd: Any = None
        self.restart()

    def restart(self) -> None:
        """Forget everything: this is a forked child, and the file belongs to its parent."""
        if self._fd is not None:  # the parent's thread was writing as it forked
            self._close()
        self.path: str | None = None
        self.problems: list[str] = []
        """Why the last attempt failed."""
        self._saved = 0
        """Number of the first record that was not copied."""
        self._due_ns = 0

    def save_if_due(self, ring: Ring) -> None:
        """Update the file if the last update is `SAVE_EVERY_S` old."""
        if self.path is not None and self._system.monotonic_ns() >= self._due_ns:
            self.save(ring)

    def save(self, ring: Ring) -> None:
        """Update the file; after a failure, try again after `RETRY_S`."""
        if self.path is None:
            return
        wait_s = SAVE_EVERY_S
        try:
            self._save(ring, self.path)
            self.problems = []
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self.problems = [f"copy of the ring: {error.strerror or error}"]
            wait_s = RETRY_S
        self._due_ns = self._system.monotonic_ns() + int(wait_s * 1e9)

    def _save(self, ring: Ring, path: str) -> None:
        """Write the header if the file is new, then the records since the last update.

        Raises:
            OSError: The disk is full, no descriptor is available, or the file is not writable.
        """
        os = self._system.os
        last = ring.handed_out()
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            (self._fd,) = runtime_dir.opened(self._system, path, flags)
        except OSError as error:
            if error.errno != errno.ENOENT or not foreign_exceptions.is_ours(error):
                raise
            self._create(ring, path)
        else:
            if last == self._saved:
                self._close()
                return
        try:
            runtime_dir.require_own(self._system, self._fd, path)
            # Readers of the file see from this how old its records are.
            at_ns = self._system.monotonic_ns()
            first = max(0, self._saved - _UNSURE, last - ring.slots)
            while first < last:
                offset = ring.offset(first & (ring.slots - 1))
                data, first = ring.slice_of(first, min(last, first + _PART))
                runtime_dir.require_open(self._system, self._fd, path)
                os.pwrite(self._fd, data, offset)
            runtime_dir.require_open(self._system, self._fd, path)
            os.pwrite(self._fd, wire.COPY.pack(at_ns, last), wire.COPY_AT)
        finally:
            self._close()
        self._saved = last

    def _create(self, ring: Ring, path: str) -> None:
        """Make the file with room for all slots, in case the disk becomes full."""
        os = self._system.os
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._saved = 0
        (self._fd,) = runtime_dir.opened(self._system, path, flags)
        try:
            runtime_dir.require_open(self._system, self._fd, path)
            os.posix_fallocate(self._fd, 0, ring.size)
            runtime_dir.require_open(self._system, self._fd, path)
            os.pwrite(self._fd, ring.header(), 0)
        except BaseException:
            self._close()
            os.unlink(path)
            raise

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None and self.path is not None:
            runtime_dir.close(self._system, fd, self.path)
