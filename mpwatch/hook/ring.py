"""The ring: the last things this process did, in a file that outlives it.

Writing takes no lock and no system call: a number from `itertools.count` is atomic, and it says the
slot. The file is mapped, so what was written is there even if the process is killed in the next
instruction.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import struct
import sys

from . import errors, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .pristine import System

    Record = Callable[..., None]

_MASK = 0xFFFFFFFFFFFFFFFF
_PAGE = 4096
_MAP_PRIVATE, _MAP_ANONYMOUS = 2, 32  # Linux, all architectures that have wheels of torch
_MADV_DONTNEED = 4
"""Private memory reads as zeros after it, and takes no room until it is written again."""
_MADV_POPULATE_WRITE = 23
"""Linux 5.14: touch pages for writing, and answer EFAULT where a plain store would be SIGBUS."""
_CHECK_NS = 10_000_000
"""How long a look at the file holds good. Each costs a system call of 1 to 6 us: not 0.1 %.

Within this time a file that somebody cuts short is SIGBUS for the process, and there is no way
around it that could be paid for. Only a privileged process, or this user after `chmod`, can do it.
Seals would forbid it, but Linux 6.18 grants them to nameless memory only, which does not outlive
the process; a lease answers with SIGIO, which ends a program that does not expect it; a look at
each record, or a system call in place of the store, takes 1.1 us where the store takes 0.25 us.
"""
_UNTRACKED = {"trackfd": False} if sys.version_info >= (3, 13) else {}
"""Before Python 3.13 a mapping keeps a descriptor of its own."""
_UNWRITABLE = (struct.error, ValueError, TypeError, IndexError, OSError)
_CUT_SHORT = "the ring file was cut short by somebody else"


class Ring:
    """Slots for records, in a mapped file where one could be had, else in private memory."""

    __slots__ = (
        "_private",
        "_system",
        "checked_until_ns",
        "count",
        "memory",
        "on_look",
        "on_lost",
        "on_new_thread",
        "path",
        "slots",
    )

    def __init__(self, system: System, slots: int = wire.DEFAULT_SLOTS) -> None:
        self._system = system
        self.slots = slots
        self.count = itertools.count()
        self.path: str | None = None
        size = wire.HEADER_BYTES + slots * wire.RECORD_BYTES
        # It costs nothing until it is touched, and is there when memory is short.
        self._private: Any = system.mmap(-1, size, flags=_MAP_PRIVATE | _MAP_ANONYMOUS)
        self.memory = self._private
        self.checked_until_ns = _MASK
        self.on_lost: Callable[[str], None] | None = None
        self.on_look: Callable[[], None] | None = None
        """Called where a record looks at the file; see `look_out`."""
        self.on_new_thread: Callable[[], None] | None = None
        """Called in each thread before its first record."""

    def open_file(self, path: str, pid: int, start_ticks: int) -> None:
        """Move the ring into a new file.

        The file is opened for reading only once it is mapped, so that nobody but root can cut it
        short: a store behind the end of a file is SIGBUS.

        Raises:
            OSError: It could not be made. All of its blocks are reserved here, because a page that
                finds no room later would be SIGBUS too.
        """
        system = self._system
        size = wire.HEADER_BYTES + self.slots * wire.RECORD_BYTES
        flags = system.os.O_RDWR | system.os.O_CREAT | system.os.O_EXCL | system.os.O_CLOEXEC
        fd = system.os.open(path, flags | system.os.O_NOFOLLOW, 0o400)
        try:
            system.os.posix_fallocate(fd, 0, size)
            memory = system.mmap(fd, size, **_UNTRACKED)
            self._copy_into(memory, 0)
        except BaseException:
            system.os.unlink(path)
            raise
        finally:
            system.os.close(fd)
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
            system.time_ns(),
            system.monotonic_ns(),
        )
        self.path = path
        self.checked_until_ns = 0 if self._can_check(memory) else _MASK
        self.memory = memory
        self._private.madvise(_MADV_DONTNEED)

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
        offset = wire.HEADER_BYTES + begin * wire.RECORD_BYTES
        length = count * wire.RECORD_BYTES
        if not self.is_whole(offset, length):
            self.lose_file(_CUT_SHORT)
        return bytes(self.memory[offset : offset + length]), first + count

    def is_written(self, number: int) -> bool:
        """Whether record `number` is complete in its slot."""
        offset = wire.HEADER_BYTES + (number & (self.slots - 1)) * wire.RECORD_BYTES
        if not self.is_whole(offset, wire.RECORD_BYTES):
            self.lose_file(_CUT_SHORT)
        return bool(wire.LOST.unpack_from(self.memory, offset)[0] == number + 1)

    def is_whole(self, offset: int, length: int) -> bool:
        """Whether these bytes of the mapping can be touched without SIGBUS."""
        memory = self.memory
        if self.path is None:
            return True
        begin = offset & ~(_PAGE - 1)
        end = min(offset + length + _PAGE, len(memory))
        try:
            memory.madvise(_MADV_POPULATE_WRITE, begin, end - begin)
        except OSError as error:
            # An older kernel does not know the question.
            return error.errno == errno.EINVAL
        return True

    def check(self, offset: int, at_ns: int) -> None:
        """Look whether the file is still behind a slot, and trust it for `_CHECK_NS`."""
        if self.is_whole(offset, wire.RECORD_BYTES):
            self.checked_until_ns = _MASK if self.path is None else at_ns + _CHECK_NS
        else:
            self.lose_file(_CUT_SHORT)
        if self.on_look is not None:
            self.checked_until_ns = at_ns + _CHECK_NS
            self.on_look()

    def look_out(self, call: Callable[[], None]) -> None:
        """Call something with the next record and then every now and then, until it is let go."""
        self.on_look = call
        self.checked_until_ns = 0

    def lose_file(self, reason: str) -> None:
        """Go on in private memory; what the file held is not touched again."""
        self._be_private()
        if self.on_lost is not None:
            self.on_lost(reason)

    def step_aside(self) -> tuple[Any, int]:
        """Write to private memory from here on: a fork is about to happen.

        What the child writes before it has a ring of its own then stays in its own copy of that
        memory, instead of appearing in the parent's file. Nothing is asked of the system that it
        could refuse.

        Returns:
            What `step_back` needs.
        """
        memory, number = self.memory, self.handed_out()
        self.memory = self._private
        return memory, number

    def step_back(self, memory: Any, number: int) -> None:
        """Return to the memory from before `step_aside`, with what was written meanwhile."""
        if memory is self._private:
            return
        self.memory = memory
        if self.handed_out() > number:
            if not self.is_whole(0, len(memory)):
                self.lose_file(_CUT_SHORT)
                return
            self._copy_from(self._private, memory, number)
        self._private.madvise(_MADV_DONTNEED)

    def restart(self) -> None:
        """Forget everything: this is a forked child, and the file belongs to its parent."""
        self.count = itertools.count()
        self.on_look = None
        self._be_private()

    def close(self) -> None:
        """Let go of the file, at once; records written from here on go nowhere."""
        memory = self.memory
        self._be_private()
        if memory is not self._private:
            # Whoever is about to write to it finds it closed, which costs that one record.
            with contextlib.suppress(BufferError):
                memory.close()

    def _be_private(self) -> None:
        """Be in private memory, with nothing in it."""
        self._private.madvise(_MADV_DONTNEED)
        self.memory = self._private
        self.path = None
        # Private memory cannot be cut short, so it needs no look.
        self.checked_until_ns = _MASK

    def _copy_into(self, memory: Any, number: int) -> None:
        """Carry what was recorded so far into new memory."""
        self._copy_from(self.memory, memory, max(number, self.handed_out() - self.slots))

    def _copy_from(self, source: Any, target: Any, number: int) -> None:
        """Carry the complete records from `number` on from one memory into another."""
        last = self.handed_out()
        for each in range(max(number, last - self.slots), last):
            offset = wire.HEADER_BYTES + (each & (self.slots - 1)) * wire.RECORD_BYTES
            if wire.LOST.unpack_from(source, offset)[0] == each + 1:
                end = offset + wire.RECORD_BYTES
                target[offset:end] = source[offset:end]

    def _can_check(self, memory: Any) -> bool:
        """Whether this kernel can tell a hole from memory (Linux 5.14 and later)."""
        try:
            memory.madvise(_MADV_POPULATE_WRITE, 0, _PAGE)
        except OSError:
            return False
        return True


def make_record(ring: Ring, system: System) -> tuple[Record, Callable[[], None]]:
    """The function that writes one record of `ring`; it never raises and never blocks.

    Whatever happens ends here, so its cost is the hook's. Of 0.38 us (CPython 3.11, 2.6 GHz, all in
    the caches) the call takes 45 ns, the clock 70, the thread's id 40, number and slot 65, the
    question whether the file needs a look 25, packing 130. Between processes that wake each other
    it is the number of bytecodes that counts, 53 with the call, at some 50 ns each; so nothing is
    put into a variable here that is needed once. What was tried and gains less than 25 ns: fewer
    fields in a shorter `Struct`, kind and thread packed as one number, names bound as defaults
    (from Python 3.13 on it loses 15). A closure, because a name in a cell costs a third of an
    attribute.

    Returns:
        The function, and one to call in a forked child after `Ring.restart`.
    """
    count, now = ring.count, system.monotonic_ns
    pack_into, header, mask = wire.RECORD.pack_into, wire.HEADER_BYTES, ring.slots - 1
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
            if at_ns > ring.checked_until_ns:
                ring.check(header + (number & mask) * 64, at_ns)
            pack_into(
                ring.memory, header + (number & mask) * 64, number + 1, at_ns, kind, flags, tid,
                at_ns - began_ns, size, key, key2, aux,
            )  # fmt: skip
        except _UNWRITABLE as error:
            # A value out of range leaves a hole, which readers count as lost.
            wire.LOST.pack_into(ring.memory, header + (number & mask) * 64, 0)
            if not errors.is_ours(error):
                raise

    def begin_thread() -> int:
        tid: int = system.get_native_id()
        local.tid = tid
        if ring.on_new_thread is not None:
            ring.on_new_thread()
        return tid

    def restart() -> None:
        nonlocal count, local
        count, local = ring.count, system.local()

    return record, restart
