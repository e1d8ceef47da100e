"""Records of a hook, decoded from a slice received on the socket or from a whole ring.

A ring outlives its process: as a file that the process had mapped, as memory of which the observer
holds a descriptor (`ring_memory`), or as a file into which such memory was copied now and then.
Nothing in it is trusted: it may be cut, overwritten, or being written at this moment.
"""

from __future__ import annotations

import os
import stat as modes
import struct
from typing import NamedTuple

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean

CLOCK_LIMIT_NS = 1 << 59
"""Eighteen years after the start of the machine. A ring gets less than one record a nanosecond,
so number and time distinguish a record from random bytes with a valid number."""
SLOTS_LIMIT = 1 << 20
"""A larger number in a header is not trusted."""


class RingHeader(NamedTuple):
    """The process a ring belongs to."""

    protocol: int
    slots: int
    pid_inside: int
    """The pid in the namespace of the process."""
    start_ticks: int
    wall_ns: int
    """When the ring was made, CLOCK_REALTIME."""
    monotonic_ns: int
    """The same moment, CLOCK_MONOTONIC of that boot."""
    parent: ProcessId | None = None
    """The parent in the job; start ticks of 0 are unknown. `None` also in older rings."""
    name: str = ""
    """Its name in `multiprocessing`."""
    copied_ns: int = 0
    """When this copy was made, CLOCK_MONOTONIC; 0 in a ring that the process itself mapped."""


class RingReading(NamedTuple):
    """The readable part of a ring file."""

    header: RingHeader | None
    events: tuple[HookEvent, ...] = ()
    """Oldest first."""
    lost: int = 0
    """Records that were begun and are missing: overwritten, torn or cut off."""
    problems: tuple[str, ...] = ()


def decode_slice(records: bytes | memoryview) -> tuple[tuple[HookEvent, ...], int]:
    """Decode consecutive records.

    Returns:
        The events, and how many of the records were holes: torn, or overwritten meanwhile.

    Raises:
        ValueError: The length is not a whole number of records.
    """
    try:
        rows = list(wire.RECORD.iter_unpack(records))
    except struct.error:
        raise ValueError(f"{len(records)} bytes are not whole records") from None
    # Record i of a slice bears the number first + i; one overwritten since bears a higher one.
    first = min((row[0] - i for i, row in enumerate(rows) if row[0]), default=0)
    events = tuple(
        HookEvent(number - 1, at_ns, kind, tid, duration_ns, size, key, key2, aux, flags)
        for i, (number, at_ns, kind, flags, tid, duration_ns, size, key, key2, aux) in enumerate(
            rows
        )
        if number == first + i and number
    )
    return events, len(rows) - len(events)


def read_ring(path: str) -> RingReading:
    """Read a ring file, of a living or a dead process; never raises."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        return RingReading(None, problems=(f"{path}: {error.strerror}",))
    try:
        return read_descriptor(fd, path)
    finally:
        os.close(fd)


def read_descriptor(fd: int, name: str) -> RingReading:
    """Read a whole ring from a descriptor; never raises.

    Args:
        fd: Descriptor of a file or of memory.
        name: Its name in `problems`.
    """
    try:
        found = os.fstat(fd)
        if not modes.S_ISREG(found.st_mode):
            return RingReading(None, problems=(f"{name} is not a regular file",))
        limit = wire.HEADER_BYTES + SLOTS_LIMIT * wire.RECORD_BYTES
        data = _read_all(fd, min(found.st_size, limit))
    except OSError as error:
        return RingReading(None, problems=(f"{name}: {error.strerror}",))
    return parse_ring(data)


def _read_all(fd: int, size: int) -> bytes:
    """The first `size` bytes; fewer if the file is cut short meanwhile."""
    parts = []
    offset = 0
    while offset < size and (part := os.pread(fd, min(size - offset, 1 << 20), offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def parse_ring(data: bytes) -> RingReading:
    """Parse the bytes of a ring file."""
    header, problem = _parse_header(data)
    if header is None:
        return RingReading(None, problems=(problem,))
    problems = []
    body = memoryview(data)[wire.HEADER_BYTES :]
    whole = min(len(body) // wire.RECORD_BYTES, header.slots)
    if whole < header.slots:
        problems.append(f"the file is cut: {whole} of {header.slots} slots are there")
    events = []
    scribbled = 0
    for slot, row in enumerate(wire.RECORD.iter_unpack(body[: whole * wire.RECORD_BYTES])):
        number, at_ns, kind, flags, tid, duration_ns, size, key, key2, aux = row
        if not number:
            continue
        if (number - 1) % header.slots != slot or not number <= at_ns < CLOCK_LIMIT_NS:
            scribbled += 1
            continue
        events.append(
            HookEvent(number - 1, at_ns, kind, tid, duration_ns, size, key, key2, aux, flags)
        )
    events.sort()
    # The oldest that can be there is one lap behind the newest: what is older is a leftover of a
    # torn slot.
    newest = events[-1].sequence if events else -1
    events = [event for event in events if event.sequence > newest - header.slots]
    if scribbled:
        problems.append(f"{scribbled} slots hold something else than their record")
    return RingReading(header, tuple(events), newest + 1 - len(events), tuple(problems))


def _parse_header(data: bytes) -> tuple[RingHeader | None, str]:
    """The header, or why there is none."""
    if len(data) < wire.HEADER_BYTES:
        return None, f"{len(data)} bytes are too few for a ring's header"
    magic, protocol, header_bytes, record_bytes, slots, *own = wire.HEADER.unpack_from(data)
    if magic != wire.MAGIC:
        return None, "not a ring file of mpwatch"
    if protocol != wire.PROTOCOL:
        return None, f"the ring has protocol {protocol}, this mpwatch {wire.PROTOCOL}"
    if header_bytes != wire.HEADER_BYTES or record_bytes != wire.RECORD_BYTES:
        return None, "the ring's header is damaged"
    if not 0 < slots <= SLOTS_LIMIT:
        return None, f"the ring's header is damaged: {slots} slots"
    pid_inside, start_ticks, wall_ns, monotonic_ns = own
    parent_pid, parent_ticks, name = wire.ORIGIN.unpack_from(data, wire.ORIGIN_AT)
    copied_ns, _ = wire.COPY.unpack_from(data, wire.COPY_AT)
    header = RingHeader(
        protocol,
        slots,
        pid_inside,
        start_ticks,
        wall_ns,
        monotonic_ns,
        ProcessId(parent_pid, parent_ticks) if parent_pid else None,
        clean(name.rstrip(b"\0")),
        copied_ns,
    )
    return header, ""
