"""The files of one process in the runtime directory: ring, copy of the ring, notes.

On a disk each access may block, so there only the hook's thread accesses them. While the disk is
frozen it writes nothing: then the files of a process that exits stay, and a later process removes
them. The copy is that of a ring in a memfd: it outlives the process also without an observer.
"""

from __future__ import annotations

import errno
import os

from .. import wire
from ..safe import foreign_exceptions
from . import runtime_dir
from .runtime_dir import StaleFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..safe.unpatched import System
    from .notes import Notes, Problems
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

    def is_due(self) -> bool:
        """Whether the last update is `SAVE_EVERY_S` old."""
        return self.path is not None and self._system.monotonic_ns() >= self._due_ns

    def save_if_due(self, ring: Ring) -> None:
        """Update the file if that is due."""
        if self.is_due():
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
        runtime_dir.require_size(ring.size)
        last = ring.handed_out()
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
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
                runtime_dir.write(self._system, self._fd, path, data, offset)
            copied = wire.COPY.pack(at_ns, last)
            runtime_dir.write(self._system, self._fd, path, copied, wire.COPY_AT)
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
            runtime_dir.on_own(self._system, os.posix_fallocate, self._fd, 0, ring.size)
            runtime_dir.write(self._system, self._fd, path, ring.header(), 0)
        except BaseException:
            self._close()
            os.unlink(path)
            raise

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None and self.path is not None:
            runtime_dir.close(self._system, fd, self.path)


class Identity:
    """The process, how the hook was attached to it, and the name of its files."""

    __slots__ = ("_system", "birth", "forked_by", "pid", "since_ns", "start_ticks", "started_by")

    def __init__(self, system: System, started_by: str, birth: dict[str, Any] | None) -> None:
        self._system = system
        self.begin(started_by, birth)

    def begin(self, started_by: str, birth: dict[str, Any] | None) -> None:
        """Read which process this is: one to which the hook is attached, or a forked child."""
        system = self._system
        self.since_ns: int = system.monotonic_ns()
        self.pid: int = system.os.getpid()
        self.start_ticks = runtime_dir.start_ticks(system) or 0
        self.started_by = started_by
        self.birth = birth or {}
        # Read at once: after the parent has exited it is another process.
        self.forked_by: int = system.os.getppid() if started_by == "fork" else 0

    def read_start_ticks(self) -> None:
        """Read the start time again if no descriptor was available for it at the fork."""
        if not self.start_ticks:
            self.start_ticks = runtime_dir.start_ticks(self._system) or 0

    def origin(self) -> tuple[int, int, bytes]:
        """The parent of this process, for the header of its ring; see `wire.ORIGIN`."""
        parent, ticks, name = self.forked_by, 0, ""
        if self.birth.get("parent"):
            parent, ticks = self.birth["parent"], self.birth.get("parent_start_ticks") or 0
            name = str(self.birth.get("name") or "")
        elif self.started_by != "fork":  # after a fork these values are copies of the parent's
            parent, name = runtime_dir.parent_and_name()
        if parent and not ticks:
            ticks = runtime_dir.start_ticks(self._system, parent) or 0
        return parent, ticks, name.encode(errors="replace")

    @property
    def stem(self) -> str:
        """Name of the files of this process, without a suffix."""
        return wire.stem(self.pid, self.start_ticks)


class Files:
    """Makes, writes and removes the files of this process."""

    __slots__ = (
        "_identity",
        "_link",
        "_mounts",
        "_notes",
        "_problems",
        "_system",
        "copy",
        "is_ending",
        "is_on_disk",
        "is_saving",
        "ring",
        "sweeper",
    )

    def __init__(
        self, system: System, identity: Identity, ring: Ring, notes: Notes, problems: Problems
    ) -> None:
        self._system = system
        self._identity = identity
        self._notes = notes
        self._problems = problems
        self.ring = ring
        self.copy = RingCopy(system)
        self.sweeper = StaleFiles(system)
        self._link: str | None = None
        """On a disk, the link that shows whether that is frozen."""
        self._mounts: dict[str, tuple[bytes, int]] = {}
        """Of the candidates for the directory, see `runtime_dir.find_directory`."""
        self.is_on_disk = False
        """The runtime directory may be on a disk."""
        self.is_saving = self.is_ending = False
        """Tasks of the thread before it ends: write everything; remove the files."""

    def restart(self) -> None:
        """Forget the files: this is a forked child, and they belong to its parent."""
        self.copy.restart()
        self._link = None
        self._mounts = {}
        self.is_on_disk = self.is_saving = self.is_ending = False
        self.sweeper.restart()

    def open(self, listen: Callable[[str], None], *, may_block: bool) -> bool:
        """Make the files and, by `listen`, the socket; what fails is noted as a problem.

        Args:
            listen: Makes the socket at a path.
            may_block: Whether directories on disks may be accessed.

        Returns:
            Whether that was tried; where it may block, or the disk is frozen, the ring is in memory
            until it is.
        """
        try:
            parent = wire.stem(*self._identity.origin()[:2]) if may_block else ""
            directory, problem = runtime_dir.find_directory(
                self._system, os.environ, self._mounts, may_block, parent
            )
        except runtime_dir.MightBlock:
            if not self.is_on_disk:
                self.is_on_disk = True
                self._open_ring_in_memory()
            return False
        if problem:
            self._problems.append(problem)
        if directory is not None:
            self._open_in(directory, listen)
        return True

    @property
    def has_tasks(self) -> bool:
        """Whether the thread has tasks before it ends, which are not done yet."""
        return self.is_saving or self.is_ending

    def work(self, is_stopping: Callable[[], bool]) -> None:
        """Write what is due, and remove files of dead processes; on the hook's thread."""
        is_due = self._notes.is_due() or self.copy.is_due() or self.sweeper.is_due()
        if not is_due or self.is_frozen():
            return
        self._notes.write_pending()
        self.copy.save_if_due(self.ring)
        self.sweeper.work(lambda: is_stopping() or self.is_frozen())

    def is_frozen(self) -> bool:
        """Whether the files are on a disk that takes no writes now; never blocks."""
        return self._link is not None and bool(runtime_dir.is_link_frozen(self._system, self._link))

    def finish(self, is_crashed: bool) -> None:
        """On the thread, before it ends: do its tasks, which may block."""
        if self.has_tasks and not self.is_frozen():
            self._notes.write_pending()
            if self.is_ending:
                self.remove(is_crashed)
            else:
                self.copy.save(self.ring)
                runtime_dir.remove(self._system, self._link)
            self.is_saving = self.is_ending = False

    def remove(self, is_crashed: bool) -> None:
        """Unlink ring and notes, or keep them for `mpwatch autopsy` after a crash."""
        if self.is_frozen():
            pass  # they stay as they are
        elif is_crashed:
            self.copy.save(self.ring)
        else:
            runtime_dir.remove(self._system, self.ring.path)
            runtime_dir.remove(self._system, self.copy.path)
            runtime_dir.remove(self._system, self._notes.path)
        if not self.is_frozen():
            runtime_dir.remove(self._system, self._link)
        self._notes.path = self.copy.path = None

    def _open_in(self, directory: str, listen: Callable[[str], None]) -> None:
        """Make the files and the socket in a directory."""
        stem = f"{directory}/{self._identity.stem}"
        path = stem + wire.RING_SUFFIX
        runtime_dir.remove(self._system, path)
        kind, device = self._mounts[directory]
        is_in_memory = kind in runtime_dir.IN_MEMORY
        if not is_in_memory or not self._open_ring_file(path, device):
            if not self.ring.is_memory:
                self._open_ring_in_memory()
            self.copy.path = path
            self.copy.save(self.ring)
        if self.is_on_disk:
            self._link = stem + wire.CHECK_SUFFIX
            runtime_dir.make_link(self._system, self._link, kind)
        try:
            listen(stem + wire.SOCKET_SUFFIX)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self._problems.append(f"socket: {error.strerror or error}")
        self._notes.save(stem + wire.NOTES_SUFFIX, is_deferred=self.is_on_disk)
        if kind in runtime_dir.OWN_MACHINE:
            self.sweeper.directory, self.sweeper.may_block = directory, not is_in_memory
        self.sweeper.begin_as(self._identity.started_by, self._identity.pid)

    def _open_ring_file(self, path: str, device: int) -> bool:
        """Put the ring into a file on a file system in memory; `False` if that failed."""
        identity = self._identity
        origin = identity.origin()
        try:
            self.ring.open_file(path, identity.pid, identity.start_ticks, origin, device)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self._problems.append(f"ring: {error.strerror or error}")
            return False
        return True

    def _open_ring_in_memory(self) -> None:
        """Put the ring into a memfd, or into private memory if none is available."""
        identity = self._identity
        origin = identity.origin()
        try:
            self.ring.open_memory(identity.pid, identity.start_ticks, origin)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self._problems.append(f"ring in memory: {error.strerror or error}")
