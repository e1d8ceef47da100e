"""The ring: the last things this process did, in a file that outlives it.

Writing takes no lock: a number from `itertools.count` is atomic, and it says the slot. The file is
mapped, so what was written is there even if the process is killed in the next instruction.

A store behind the end of a mapped file is SIGBUS, and root may cut any file short. So nothing
touches the mapping without a look directly before, `madvise` of the page, which answers EFAULT
where a store would be SIGBUS (Linux 5.14; before it nothing can be asked, and there is no look).

From the look to the store no other thread may have its turn, for that can take 5 ms. CPython gives
the GIL away only as a function begins, as a loop goes back, and after a call. So the look is no
call: it is the step of a `for` over an iterator in C, and the store, an assignment to a slice, is
the body of that loop, which is left at once. `madvise` itself keeps the GIL. What remains are the
95 ns of these two (CPython 3.11, 2.6 GHz). A file cut short from another core at that moment does
no harm either, because the core that stores is told of it later than that: one of 400 processes
that did nothing but record died (Linux 6.18). What ends a process is that the kernel takes its core
away between the two and gives it to whoever cuts the file: of those 400 on the one core they shared
with him 73 died, and all of them where a look held good for 10 ms.

The look waits where the first touch of a page waits, for the lock of the process's mappings: up to
90 ms while C code forks a process of 4 GB (`os.fork` has the GIL all that time anyway).

Two other ways. Seals would forbid it, but Linux 6.18 grants them to nameless memory only, which
does not outlive the process. A system call that copies the record would answer EFAULT in one with
the store, but those of the standard library give the GIL away, which costs 5 ms where another
thread computes, and need a descriptor, which may be somebody else's by then.

Whatever happens ends in a record, so its cost is the hook's. Of 0.7 us (CPython 3.11, 2.6 GHz, all
in the caches) the look takes 250 ns, what is around it and the store 100, packing 130, the clock
70, number and slot 65, the call 45, the thread's id 40; without looks it was 0.36. Between
processes that wake each other it is the number of bytecodes that counts, 77 with the call, at some
50 ns each; so nothing is put into a variable that is needed once, unless that brings the store
nearer to the look. To pack into the mapping itself would take 50 ns less, but come 200 ns after the
look. What was tried and gains less than 25 ns: fewer fields in a shorter `Struct`, kind and thread
packed as one number, names bound as defaults (from Python 3.13 on it loses 15). A closure, because
a name in a cell costs a third of an attribute.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import struct
import sys
from mmap import PAGESIZE

from . import errors, places, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .pristine import System

    Record = Callable[..., None]
    Place = tuple[Iterator[None], list[int], Any]
    """A look, where it is to look, and the memory it looks at: read together they never mismatch.

    Threads share the second. Each says where to look and looks before another has its turn.
    """

_TO_PAGE = -PAGESIZE
_MAP_PRIVATE, _MAP_ANONYMOUS = 2, 32  # Linux, all architectures that have wheels of torch
_MADV_DONTNEED = 4
"""Private memory reads as zeros after it, and takes no room until it is written again."""
_MADV_POPULATE_WRITE = 23
_HOLE = bytes(wire.RECORD_BYTES)
_UNTRACKED = {"trackfd": False} if sys.version_info >= (3, 13) else {}
"""Before Python 3.13 a mapping keeps a descriptor of its own."""
_UNFIT = (struct.error, ValueError, TypeError, IndexError)
_GONE = (OSError, ValueError)
"""The file is not behind the mapping any more, or this is closed."""
_KEPT: list[Place] = []
"""Mappings that must not be freed."""
_CUT_SHORT = "the ring file was cut short by somebody else"


class Ring:
    """Slots for records, in a mapped file where one could be had, else in private memory."""

    __slots__ = (
        "_descriptor",
        "_file",
        "_private",
        "_system",
        "count",
        "on_lost",
        "on_new_thread",
        "path",
        "place",
        "slots",
    )

    def __init__(self, system: System, slots: int = wire.DEFAULT_SLOTS) -> None:
        self._system = system
        self.slots = slots
        self.count = itertools.count()
        self.path: str | None = None
        self._descriptor: tuple[int, int] | None = None
        self._file: Place | None = None
        """The mapped file, also while a fork writes to private memory."""
        size = wire.HEADER_BYTES + slots * wire.RECORD_BYTES
        # It costs nothing until it is touched, and is there when memory is short.
        memory = system.mmap(-1, size, flags=_MAP_PRIVATE | _MAP_ANONYMOUS)
        self._private = _private_place(memory)
        self.place = self._private
        self.on_lost: Callable[[str], None] | None = None
        self.on_new_thread: Callable[[], None] | None = None
        """Called in each thread before its first record; while it is set, no thread gets beyond."""

    def open_file(
        self, path: str, pid: int, start_ticks: int, origin: tuple[int, int, bytes] = (0, 0, b"")
    ) -> None:
        """Move the ring into a new file.

        The file is opened for reading only once it is mapped, so that nobody but root can cut it
        short.

        Args:
            path: Where it shall be.
            pid: Of this process, as it sees itself.
            start_ticks: When this process started.
            origin: See `wire.ORIGIN`.

        Raises:
            OSError: It could not be made. All of its blocks are reserved here, because a page that
                finds no room later would be SIGBUS too.
        """
        system = self._system
        size = wire.HEADER_BYTES + self.slots * wire.RECORD_BYTES
        flags = system.os.O_RDWR | system.os.O_CREAT | system.os.O_EXCL | system.os.O_CLOEXEC
        (fd,) = places.opened(system, path, flags | system.os.O_NOFOLLOW, 0o400)
        try:
            system.os.posix_fallocate(fd, 0, size)
            memory = system.mmap(fd, size, **_UNTRACKED)
            self._descriptor = None if _UNTRACKED else _descriptor_of_mapping(system, fd)
            place = _file_place(memory)
            self._copy(self.place, place, 0)
            header = wire.HEADER.pack(
                wire.MAGIC,
                wire.PROTOCOL,
                wire.HEADER_BYTES,
                wire.RECORD_BYTES,
                self.slots,
                pid,
                start_ticks,
                system.time_ns(),
                system.monotonic_ns(),
            )
            _put(place, 0, header)
            _put(place, wire.ORIGIN_AT, wire.ORIGIN.pack(*origin))
        except BaseException:
            system.os.unlink(path)
            raise
        finally:
            system.os.close(fd)
        self.path = path
        self.place = self._file = place
        self._forget_private()

    def handed_out(self) -> int:
        """How many records were begun so far.

        `repr` is the one way to read an `itertools.count` without moving it that all of Python
        3.10 to 3.15 have: `__reduce__` went away in 3.14.
        """
        return int(repr(self.count)[6:-1])

    def slice_of(self, first: int, last: int) -> tuple[bytes, int]:
        """The raw records `first` to `last - 1` as far as one run of slots holds them.

        Returns:
            The bytes, and the number of the record after them.
        """
        begin = first & (self.slots - 1)
        count = min(last - first, self.slots - begin)
        return self._read(begin, count), first + count

    def is_written(self, number: int) -> bool:
        """Whether record `number` is complete in its slot."""
        return _is_in(self._read(number & (self.slots - 1), 1), number)

    def write(self, number: int, data: bytes) -> None:
        """Put a record into its slot; if the file is not behind that any more, do without it."""
        place, begin = self.place, self._offset(number & (self.slots - 1))
        try:
            _put(place, begin, data)
        except OSError as error:
            if not errors.is_ours(error):
                raise
            self._lose_file(place, error)
            _put(self._private, begin, data)
        except ValueError as error:
            # Otherwise it was closed meanwhile.
            if not errors.is_ours(error):
                raise

    def step_aside(self) -> tuple[Place, int]:
        """Write to private memory from here on: a fork is about to happen.

        What the child writes before it has a ring of its own then stays in its own copy of that
        memory, instead of appearing in the parent's file. Nothing is asked of the system that it
        could refuse.

        Returns:
            What `step_back` needs.
        """
        place, number = self.place, self.handed_out()
        self.place = self._private
        return place, number

    def step_back(self, place: Place, number: int) -> None:
        """Return to the place from before `step_aside`, with what was written meanwhile."""
        if place is self._private:
            return
        self.place = place
        try:
            self._copy(self._private, place, number)
        except OSError as error:
            if not errors.is_ours(error):
                raise
            # What was written meanwhile is where it should be.
            self._lose_file(place, error)
        if self.place is place:
            self._forget_private()

    def restart(self) -> None:
        """Forget everything: this is a forked child, and the file belongs to its parent."""
        self.count = itertools.count()
        self._be_private()

    def close(self) -> None:
        """Let go of the file, at once; records written from here on go nowhere."""
        place = self.place
        self._be_private()
        if place is not self._private and all(place is not kept for kept in _KEPT):
            # Whoever is about to read from it finds it closed.
            with contextlib.suppress(BufferError):
                place[2].close()

    def _lose_file(self, place: Place, error: OSError) -> None:
        """Go on in private memory, unless the ring is somewhere else by now."""
        if self.place is not place:
            return
        self.place, self.path = self._private, None
        if self.on_lost is not None:
            is_short = error.errno == errno.EFAULT
            self.on_lost(_CUT_SHORT if is_short else f"the ring file is lost: {error.strerror}")

    def _be_private(self) -> None:
        """Be in private memory, with nothing in it."""
        self._forget_private()
        self._spare_descriptor()
        self.place, self.path = self._private, None

    def _spare_descriptor(self) -> None:
        """Keep the mapping for good if its descriptor has become somebody else's.

        To free it is to close that number, which a program that closes all descriptors may have
        used again.
        """
        place, self._file = self._file, None
        if place is None or self._descriptor is None:
            return
        number, inode = self._descriptor
        self._descriptor = None
        try:
            is_its_own = self._system.os.fstat(number).st_ino == inode
        except OSError as error:
            if not errors.is_ours(error):
                raise
            is_its_own = False
        if not is_its_own:
            _KEPT.append(place)

    def _forget_private(self) -> None:
        self._private[2].madvise(_MADV_DONTNEED)

    def _read(self, slot: int, count: int) -> bytes:
        """So many slots, as they are at this moment; those of a file that is lost are empty."""
        place = self.place
        try:
            return _get(place, self._offset(slot), self._offset(slot + count))
        except OSError as error:
            if not errors.is_ours(error):
                raise
            self._lose_file(place, error)
            return _get(self._private, self._offset(slot), self._offset(slot + count))

    def _copy(self, source: Place, target: Place, number: int) -> None:
        """Carry the complete records from `number` on from one place to another."""
        last = self.handed_out()
        for each in range(max(number, last - self.slots), last):
            offset = self._offset(each & (self.slots - 1))
            data = _get(source, offset, offset + wire.RECORD_BYTES)
            if _is_in(data, each):
                _put(target, offset, data)

    def _offset(self, slot: int) -> int:
        return wire.HEADER_BYTES + slot * wire.RECORD_BYTES


def _descriptor_of_mapping(system: System, fd: int) -> tuple[int, int] | None:
    """Number and inode of the descriptor that a mapping keeps before Python 3.13.

    Args:
        system: The operating system.
        fd: The descriptor that the mapping was made from.
    """
    inode = system.os.fstat(fd).st_ino
    for entry in system.os.listdir("/proc/self/fd"):
        try:
            if int(entry) != fd and system.os.fstat(int(entry)).st_ino == inode:
                return int(entry), inode
        except OSError as error:
            if not errors.is_ours(error):
                raise
    return None


def _private_place(memory: Any) -> Place:
    """Nobody can take this memory away."""
    return itertools.repeat(None), [0, 0, 0], memory


def _file_place(memory: Any) -> Place:
    """Each step of the look raises where a store into the page of `where[1]` would kill.

    Raises:
        OSError: The first page is not there any more.
    """
    where = [_MADV_POPULATE_WRITE, 0, PAGESIZE]
    try:
        memory.madvise(*where)
    except OSError as error:
        if error.errno != errno.EINVAL or not errors.is_ours(error):
            raise
        return _private_place(memory)  # Linux before 5.14
    return itertools.starmap(memory.madvise, itertools.repeat(where)), where, memory


def _put(place: Place, begin: int, data: bytes) -> None:
    """Write to one page."""
    look, where, memory = place
    end = begin + len(data)
    where[1] = begin & _TO_PAGE
    for _ in look:
        memory[begin:end] = data
        break


def _get(place: Place, begin: int, end: int) -> bytes:
    """Read from any number of pages."""
    look, where, memory = place
    parts = []
    while begin < end:
        page = begin & _TO_PAGE
        stop = min(end, page + PAGESIZE)
        where[1] = page
        for _ in look:
            part = memory[begin:stop]
            break
        parts.append(part)
        begin = stop
    return b"".join(parts)


def _is_in(data: bytes, number: int) -> bool:
    """Whether a slot holds this record."""
    return bool(wire.LOST.unpack_from(data)[0] == number + 1)


def make_record(ring: Ring, system: System) -> tuple[Record, Callable[[], None]]:
    """The function that writes a record, and one to call in a forked child after `Ring.restart`."""
    count, now = ring.count, system.monotonic_ns
    pack, header, mask = wire.RECORD.pack, wire.HEADER_BYTES, ring.slots - 1
    to_page = _TO_PAGE
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
            if not errors.is_ours(error):
                raise
        try:
            look, where, memory = ring.place
            begin = header + (number & mask) * 64
            end = begin + 64
            where[1] = begin & to_page
            for _ in look:
                memory[begin:end] = data
                break
        except _GONE as error:
            ring.write(number, data)
            if not errors.is_ours(error):
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
