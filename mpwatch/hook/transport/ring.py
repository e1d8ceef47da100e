"""The ring: the last records of this process, in memory that outlives it.

Writing takes no lock: a number from `itertools.count` is atomic, and it decides the slot. A record
remains even if the process is killed in the next instruction.

The memory is one of three kinds:

- a mapped file, where the runtime directory lies in memory (tmpfs, ramfs). A store into a file on a
  disk can block with the GIL held, for as long as that file system is frozen or slow to write back;
- a memfd, everywhere else. Observers receive its descriptor, and the hook's thread copies it to
  a file (`ring_copy`). It is sealed: its size is fixed, and only this mapping can write to it;
- private memory, where neither is available, before one of them exists, and during a fork.

Only root can truncate a mapped file; a store beyond its end is then SIGBUS.

The memory is exchanged while other threads record. No record is lost by that: from reading
`ring.memory` to the store, no other thread can run, because CPython 3.10 to 3.15 releases the GIL
only at the start of a function, at the end of a loop's turn, and after a call.

The cost of the hook is that of its records: 0.36 us each (CPython 3.11, 2.6 GHz, all in the
caches), of which packing takes 130 ns, the clock 70, number and slot 65, the call 45, the thread's
id 40. Packing directly into the memory would save 50 ns, but a process killed meanwhile would leave
half a record under a valid number. `record` is a closure because access to a cell costs a third of
an attribute.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import struct
import sys

from .. import wire
from ..safe import foreign_exceptions
from . import runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..safe.unpatched import System

    Record = Callable[..., None]
    Origin = tuple[int, int, bytes]

_MAP_PRIVATE, _MAP_ANONYMOUS = 2, 32  # Linux, all architectures that have wheels of torch
_MADV_DONTNEED = 4
"""Private memory reads as zeros after it, and uses no pages until it is written again."""
_MFD_CLOEXEC, _MFD_ALLOW_SEALING, _MFD_NOEXEC_SEAL = 1, 2, 8
_F_ADD_SEALS = 1033
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW, _F_SEAL_FUTURE_WRITE = 1, 2, 4, 16
"""memfd_create(2), fcntl(2): MFD_NOEXEC_SEAL since Linux 6.3, F_SEAL_FUTURE_WRITE since 5.1."""
MEMORY_NAME = "mpwatch-ring"
"""The name of the memfd in /proc/PID/fd and /proc/PID/maps."""
_HOLE = bytes(wire.RECORD_BYTES)
_TRACKS_DESCRIPTOR = sys.version_info < (3, 13)
"""Before Python 3.13 a mapping keeps a descriptor of its own."""
_UNTRACKED: dict[str, Any] = {} if _TRACKS_DESCRIPTOR else {"trackfd": False}
_abandoned: list[Any] = []
"""Mappings whose own descriptor the program has closed: closing them would close what the program
has opened under that number since."""
_UNFIT = (struct.error, ValueError, TypeError, IndexError)


class Ring:
    """Slots for records, in memory that observers can read, or else in private memory."""

    __slots__ = (
        "_descriptor",
        "_file_descriptor",
        "_identity",
        "_is_ours",
        "_mapping",
        "_mark",
        "_private",
        "_system",
        "count",
        "memory",
        "on_new_thread",
        "path",
        "slots",
    )

    def __init__(self, system: System, slots: int = wire.DEFAULT_SLOTS) -> None:
        self._system = system
        self.slots = slots
        self.count = itertools.count()
        self.path: str | None = None
        """The mapped file."""
        self._descriptor: int | None = None
        """Descriptor of the memfd."""
        self._file_descriptor: tuple[int, tuple[int, int]] | None = None
        """Number and identity of the descriptor that the mapping of the file keeps open."""
        self._is_ours = False
        """Whether the ring closes the descriptor, and not the mapping."""
        self._identity = (0, 0)
        """Device and inode of the memfd."""
        # It uses no pages until it is written, and needs no allocation when memory is short.
        self._private: Any = system.mmap(-1, self.size, flags=_MAP_PRIVATE | _MAP_ANONYMOUS)
        self.memory: Any = self._private
        # Of its own, for it is shared with forked children; one of its pages is used.
        self._mark: Any = system.mmap(-1, wire.MARK_PAGES * system.page_bytes)
        self._mark[: len(wire.MARK)] = wire.MARK
        self._mapping: Any = None
        """The mapping of the file or memfd; during a fork `memory` is a private one."""
        self.on_new_thread: Callable[[], None] | None = None
        """Called before the first record of a thread; while it is set, before each record."""

    @property
    def size(self) -> int:
        """Bytes of the header and all slots."""
        return wire.HEADER_BYTES + self.slots * wire.RECORD_BYTES

    @property
    def is_memory(self) -> bool:
        """Whether the ring is in a memfd."""
        return self._descriptor is not None

    def open_file(
        self,
        path: str,
        pid: int,
        start_ticks: int,
        origin: Origin = (0, 0, b""),
        device: int | None = None,
    ) -> None:
        """Move the ring into a new file.

        Once the file is mapped, it is reopened for reading only, so that only root can truncate it.

        Args:
            path: The new file.
            pid: The pid of this process in its own namespace.
            start_ticks: When this process started.
            origin: See `wire.ORIGIN`.
            device: The expected `st_dev` of the file; `None` for any.

        Raises:
            OSError: The file could not be made. All of its blocks are reserved here, because a page
                without a block would be SIGBUS later.
        """
        os = self._system.os
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        is_made = False
        runtime_dir.require_size(self.size)
        (fd,) = runtime_dir.opened(self._system, path, flags, 0o400)
        try:
            runtime_dir.require_open(self._system, fd, path)
            if device not in (None, os.fstat(fd).st_dev):
                raise OSError(errno.EXDEV, "the directory is not on the file system expected")
            os.posix_fallocate(fd, 0, self.size)
            found = os.fstat(fd)
            # The mapping will get the lowest free number, as this descriptor does.
            spare = os.dup(fd)
            runtime_dir.close(self._system, spare, path)
            memory = self._system.mmap(fd, self.size, **_UNTRACKED)
            runtime_dir.require_open(self._system, fd, path)
            is_made = True
        finally:
            runtime_dir.close(self._system, fd, path)
            if not is_made:
                os.unlink(path)
        self._write_header(memory, pid, start_ticks, origin)
        self.path = path
        identity = found.st_dev, found.st_ino
        # Otherwise another thread opened a file meanwhile, and the number is not known.
        if _TRACKS_DESCRIPTOR and runtime_dir.identity(self._system, spare) == identity:
            self._file_descriptor = spare, identity
        self._move_to(memory)

    def open_memory(self, pid: int, start_ticks: int, origin: Origin = (0, 0, b"")) -> None:
        """Move the ring into a memfd; uses no file system.

        Args:
            pid: The pid of this process in its own namespace.
            start_ticks: When this process started.
            origin: See `wire.ORIGIN`.

        Raises:
            OSError: No memory or descriptor is available, or it is forbidden (seccomp).
        """
        os = self._system.os
        runtime_dir.require_size(self.size)
        fd = _new_memory(os)
        is_ours = False
        identity: Any = None
        try:
            found = os.fstat(fd)
            identity = (found.st_dev, found.st_ino) if found.st_nlink == 0 else (0, 0)
            if found.st_nlink:  # the program closed it, and opened a file with a name
                raise OSError("the program closed the descriptor")
            os.ftruncate(fd, self.size)
            # The mapping will get the lowest free number, as this descriptor does.
            spare = os.dup(fd) if _TRACKS_DESCRIPTOR else fd
            if _TRACKS_DESCRIPTOR and runtime_dir.identity(self._system, spare) == identity:
                os.close(spare)
            memory = self._system.mmap(fd, self.size, **_UNTRACKED)
            _seal(fd)
            # Otherwise another thread opened a file meanwhile.
            is_ours = spare == fd or runtime_dir.identity(self._system, spare) != identity
        finally:
            if not is_ours and identity in (None, runtime_dir.identity(self._system, fd)):
                os.close(fd)
        self._write_header(memory, pid, start_ticks, origin)
        self._identity, self._descriptor, self._is_ours = (
            identity,
            fd if is_ours else spare,
            is_ours,
        )
        self._move_to(memory)

    def descriptor(self) -> int | None:
        """The descriptor of the memfd, or `None` if there is none.

        The program may have closed it (`os.closerange`), and may use its number for another file.
        """
        if self._descriptor is None:
            return None
        is_open = runtime_dir.identity(self._system, self._descriptor) == self._identity
        return self._descriptor if is_open else None

    @property
    def inode(self) -> int | None:
        """Inode number of the memfd."""
        return None if self._descriptor is None else self._identity[1]

    def handed_out(self) -> int:
        """Number of records begun so far.

        Only `repr` reads an `itertools.count` without advancing it in all of Python 3.10 to 3.15:
        `__reduce__` was removed in 3.14.
        """
        return int(repr(self.count)[6:-1])

    def slice_of(self, first: int, last: int) -> tuple[bytes, int]:
        """The raw records `first` to `last - 1`, up to the end of the slots.

        Returns:
            The bytes, and the number of the record after them.
        """
        begin = first & (self.slots - 1)
        count = min(last - first, self.slots - begin)
        return self.memory[self.offset(begin) : self.offset(begin + count)], first + count

    def header(self) -> bytes:
        """The page before the slots."""
        data: bytes = self.memory[: wire.HEADER_BYTES]
        return data

    def is_written(self, number: int) -> bool:
        """Whether record `number` is complete in its slot."""
        begin = self.offset(number & (self.slots - 1))
        return _number_in(self.memory, begin) == number + 1

    def step_aside(self) -> tuple[Any, int]:
        """Write to private memory from here on, before a fork.

        Records that the child writes before it has a ring of its own then stay in its copy of that
        memory, instead of appearing in the parent's ring. No system call is made that could fail.

        Returns:
            The arguments of `step_back`.
        """
        memory, number = self.memory, self.handed_out()
        self.memory = self._private
        return memory, number

    def step_back(self, memory: Any, number: int) -> None:
        """Return to the memory from before `step_aside`, with the records written meanwhile."""
        if memory is self._private:
            return
        self.memory = memory
        self._copy(self._private, memory, number)
        if self.memory is memory:
            self._forget_private()

    def restart(self) -> None:
        """Forget everything: this is a forked child, and the ring belongs to its parent."""
        self.count = itertools.count()
        self._use_private()

    def close(self) -> None:
        """Close file or memfd; later records are dropped."""
        self._mark.close()
        memory = self.memory
        self._use_private()
        if memory is not self._private and memory not in _abandoned:
            # A thread that reads from it afterwards gets an error.
            with contextlib.suppress(BufferError):
                memory.close()

    def offset(self, slot: int) -> int:
        """Offset of a slot in bytes from the start of the ring."""
        return wire.HEADER_BYTES + slot * wire.RECORD_BYTES

    def _write_header(self, memory: Any, pid: int, start_ticks: int, origin: Origin) -> None:
        wire.HEADER.pack_into(
            memory,
            0,
            wire.MAGIC,
            wire.PROTOCOL,
            wire.HEADER_BYTES,
            wire.RECORD_BYTES,
            self.slots,
            pid,
            start_ticks,
            self._system.time_ns(),
            self._system.monotonic_ns(),
        )
        wire.ORIGIN.pack_into(memory, wire.ORIGIN_AT, *origin)

    def _move_to(self, memory: Any) -> None:
        """Use other memory, with all records so far, while other threads record."""
        before = self.memory
        self._copy(before, memory, 0)
        number = self.handed_out()
        self.memory = self._mapping = memory
        # Records stored between the first copy and the exchange; later ones are there already.
        self._copy(before, memory, max(0, number - self.slots))
        if before is self._private:
            self._forget_private()

    def _use_private(self) -> None:
        """Use empty private memory, and close the descriptor of a memfd."""
        self._forget_private()
        fd = self.descriptor()
        mapping, self._mapping = self._mapping, None
        kept, self._file_descriptor = self._file_descriptor, None
        if self._descriptor is not None and not self._is_ours and fd is None:
            _abandoned.append(mapping)
        if kept is not None and runtime_dir.identity(self._system, kept[0]) != kept[1]:
            _abandoned.append(mapping)
        self.memory, self.path, self._descriptor = self._private, None, None
        if fd is not None and self._is_ours:
            self._system.os.close(fd)

    def _forget_private(self) -> None:
        self._private.madvise(_MADV_DONTNEED)

    def _copy(self, source: Any, target: Any, number: int) -> None:
        """Copy the complete records from `number` on that the target does not have yet."""
        last = self.handed_out()
        for each in range(max(number, last - self.slots), last):
            begin = self.offset(each & (self.slots - 1))
            data = source[begin : begin + wire.RECORD_BYTES]
            if _number_in(data, 0) == each + 1 and _number_in(target, begin) <= each:
                target[begin : begin + wire.RECORD_BYTES] = data


def _new_memory(os: Any) -> int:
    """A memfd that can be sealed.

    Raises:
        OSError: It is not available; ENOSYS also where Python was built without `memfd_create`.
    """
    create = getattr(os, "memfd_create", None)
    if create is None:
        raise OSError(errno.ENOSYS, "this Python has no memfd_create")
    flags = _MFD_CLOEXEC | _MFD_ALLOW_SEALING
    try:
        fd: int = create(MEMORY_NAME, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL or not foreign_exceptions.is_ours(error):
            raise
        fd = create(MEMORY_NAME, flags)  # Linux before 6.3
    return fd


def _seal(fd: int) -> None:
    """Fix the size of a memfd and forbid writing except by existing mappings."""
    seals = _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL
    try:
        fcntl.fcntl(fd, _F_ADD_SEALS, seals | _F_SEAL_FUTURE_WRITE)
    except OSError as error:
        if error.errno != errno.EINVAL or not foreign_exceptions.is_ours(error):
            raise
        fcntl.fcntl(fd, _F_ADD_SEALS, seals)  # Linux before 5.1


def _number_in(memory: Any, begin: int) -> int:
    """The first field of a slot: the number of its record plus one, or 0."""
    return int(wire.LOST.unpack_from(memory, begin)[0])


def make_record(ring: Ring, system: System) -> tuple[Record, Callable[[], None]]:
    """The function that writes a record, and one to call in a forked child after `Ring.restart`."""
    count, now = ring.count, system.monotonic_ns
    pack, header, mask = wire.RECORD.pack, wire.HEADER_BYTES, ring.slots - 1
    local = system.local()

    def record(
        kind: int,
        began_ns: int,
        flags: int = 0,
        size: int = 0,
        key: int = 0,
        key2: int = 0,
        aux: int = 0,
    ) -> None:
        at_ns = now()
        try:
            tid = local.tid
        except AttributeError:
            tid = begin_thread()
        number = next(count)
        try:
            data = pack(number + 1, at_ns, kind, flags, tid, at_ns - began_ns, size, key, key2, aux)
        except _UNFIT as error:
            # A value out of range leaves a hole, which readers count as lost.
            data = _HOLE
            if not foreign_exceptions.is_ours(error):
                raise
        try:
            begin = header + (number & mask) * 64
            ring.memory[begin : begin + 64] = data
        except ValueError as error:
            # Otherwise it was closed meanwhile.
            if not foreign_exceptions.is_ours(error):
                raise

    def begin_thread() -> int:
        tid: int = system.get_native_id()
        call = ring.on_new_thread
        if call is None:
            local.tid = tid
        else:
            call()
        return tid

    def restart() -> None:
        nonlocal count, local
        count, local = ring.count, system.local()

    return record, restart
