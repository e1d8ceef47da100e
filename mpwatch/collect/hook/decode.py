"""Frames and rings of a hook, decoded into inputs; text of another process is cleaned here.

Records come as a slice on the socket or as a whole ring. A ring outlives its process: as a file
that the process had mapped, as memory of which the observer holds a descriptor, or as a file into
which such memory was copied now and then. Nothing in it is trusted: it may be cut, overwritten, or
being written at this moment.
"""

from __future__ import annotations

import functools
import json
import math
import os
import stat as modes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookGauges, HookHello, HookNote, HookSlice, present_kind
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import (
    FRAMES_LIMIT,
    Frame,
    FrameValues,
    NameValue,
    StackSample,
    StacksTaken,
    ValuesRead,
    WantedFrame,
)
from mpwatch.model.sanitize import MESSAGE_LIMIT, NAME_LIMIT, clean

DEPTH_LIMIT = 12
ITEMS_LIMIT = 20_000
_MULTILINE = frozenset(("text", "message", "traceback", "stack"))
_HELLO_FIELDS = frozenset(
    ("protocol", "pid", "start_ticks", "python", "torch", "started_by", "since_ns", "missing")
)
CLOCK_LIMIT_NS = 1 << 59
"""Eighteen years after the start of the machine. A ring gets less than one record a nanosecond,
so number and time distinguish a record from random bytes with a valid number."""
AHEAD_S = 5.0
"""So much later than it was received an event may seem to be; more, and its time is not believed:
what orders events by their time would wait for it for ever."""
NUMBER_LIMIT = 1 << 63
SLOTS_LIMIT = 1 << 20
"""A larger number in a header is not trusted."""


def parse_object(payload: bytes | bytearray) -> dict[str, Any]:
    """A JSON object, cleaned throughout.

    Raises:
        ValueError: It is something else.
    """
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        raise ValueError("a frame is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("a frame is not a JSON object")
    return _clean_dict(found, DEPTH_LIMIT)


def frame(buffer: bytes | bytearray, start: int = 0) -> tuple[int, bytes, int] | None:
    """Kind and payload of the frame at `start`, and where it ends; `None` until it is complete.

    Raises:
        ValueError: It is longer than a frame may be.
    """
    if len(buffer) - start < wire.FRAME.size:
        return None
    length, kind = wire.FRAME.unpack_from(buffer, start)
    if length > wire.MAX_FRAME_BYTES:
        raise ValueError(f"its hook sent a frame of {length} bytes")
    begin = start + wire.FRAME.size
    if len(buffer) < begin + length:
        return None
    return kind, bytes(memoryview(buffer)[begin : begin + length]), begin + length


def announced(said: Mapping[str, Any]) -> tuple[int, int]:
    """How many records and notes a hook had made at its hello; 0 where it does not say."""
    own = said.get("own")
    found = own if isinstance(own, Mapping) else {}
    return _whole(found.get("records")), _whole(found.get("notes"))


def hello(process: ProcessId, at_s: float, said: dict[str, Any]) -> HookHello:
    """The hello of a hook.

    Raises:
        ValueError: It has another protocol, or is about another process.
    """
    protocol = _whole(said.get("protocol"))
    if protocol != wire.PROTOCOL:
        raise ValueError(
            f"its hook uses protocol {said.get('protocol')}, this mpwatch {wire.PROTOCOL}: "
            "use the same version of mpwatch on both sides"
        )
    if said.get("start_ticks") not in (None, 0, process.start_ticks):
        raise ValueError("its hook reports another process")
    missing = said.get("missing")
    note_other_version(said)
    torch, since_ns = said.get("torch"), said.get("since_ns")
    return HookHello(
        process=process,
        at_s=at_s,
        protocol=protocol,
        python=str(said.get("python") or ""),
        torch=str(torch) if torch is not None else None,
        pid_inside=_whole(said.get("pid")) or process.pid,
        started_by=str(said.get("started_by") or ""),
        since_ns=_whole(since_ns) if since_ns is not None else None,
        missing={name: str(why) for name, why in missing.items()}
        if isinstance(missing, dict)
        else {},
        data={name: value for name, value in said.items() if name not in _HELLO_FIELDS},
    )


def note_other_version(said: dict[str, Any]) -> None:
    """Note in the problems of a hello that its hook has another version than this mpwatch."""
    version = said.get("version")
    if version is None or version == own_version():
        return
    problems = said.get("problems")
    said["problems"] = [
        *(problems if isinstance(problems, list) else []),
        f"its hook is of another version ({version}) than this mpwatch ({own_version()}): detach it"
        " and attach again to have it replaced",
    ]


@functools.cache
def own_version() -> str:
    """The version of the hook in this installation, see `wire.sources_version`."""
    return wire.sources_version(os.path.dirname(wire.__file__))


def records(process: ProcessId, at_s: float, payload: bytes | bytearray) -> HookSlice:
    """A slice of the ring; a new connection begins with all that the ring still holds.

    Raises:
        ValueError: It is not a slice.
    """
    if len(payload) < wire.LOST.size:
        raise ValueError("a slice of records is cut short")
    (lost,) = wire.LOST.unpack_from(payload)
    latest_ns = int((at_s + AHEAD_S) * 1e9)
    events, torn = decode_slice(memoryview(payload)[wire.LOST.size :], latest_ns)
    return HookSlice(process, at_s, events, lost + torn)


def note(process: ProcessId, said: dict[str, Any]) -> HookNote:
    """An event with text."""
    number = said.pop("n", None)
    kind = present_kind(str(said.pop("kind", "")))
    at_ns = _whole(said.pop("at_ns", 0))
    at_ns = at_ns if 0 <= at_ns < CLOCK_LIMIT_NS else 0
    return HookNote(process, at_ns, kind, said, number=number if type(number) is int else None)


def gauges(process: ProcessId, at_s: float, said: dict[str, Any]) -> HookGauges:
    """Gauges that the hook has read."""
    return HookGauges(process, at_s, {k: v for k, v in said.items() if k != "id"})


def stacks(process: ProcessId, at_s: float, said: dict[str, Any]) -> StacksTaken:
    """Stacks of all threads, innermost frame first."""
    threads = said.get("threads")
    if not isinstance(threads, list):
        why = str(said.get("error") or "its answer is not as expected")
        return StacksTaken(process, at_s, "hook", problem=f"The hook gave no stacks: {why}.")
    found = [_stack(process, at_s, each) for each in threads if isinstance(each, dict)]
    cpu_ns = said.get("cpu_ns")
    return StacksTaken(
        process,
        at_s,
        "hook",
        tuple(sorted(found, key=lambda s: s.tid or 0)),
        # Hooks of an earlier version do not say.
        cost_s=cpu_ns / 1e9 if isinstance(cpu_ns, int) and cpu_ns >= 0 else None,
    )


def _stack(process: ProcessId, at_s: float, thread: dict[str, Any]) -> StackSample:
    """One thread."""
    frames = thread.get("frames")
    tid = thread.get("tid")
    return StackSample(
        process=process,
        tid=tid if isinstance(tid, int) else None,
        thread_name=str(thread.get("name") or ""),
        frames=tuple(
            Frame(str(row[0]), str(row[1]), _whole(row[2]))
            for row in (frames if isinstance(frames, list) else ())[:FRAMES_LIMIT]
            if isinstance(row, list) and len(row) >= 3
        ),
        source="hook",
        at_s=at_s,
    )


def values(
    process: ProcessId, at_s: float, said: dict[str, Any], wanted: Sequence[WantedFrame]
) -> ValuesRead:
    """Values of the names that were asked for; others are left out."""
    frames = said.get("frames")
    found = []
    for each in frames if isinstance(frames, list) else ():
        number, of_names = (
            each.get(name) if isinstance(each, dict) else None for name in _OF_FRAME
        )
        if isinstance(number, int) and 0 <= number < len(wanted) and isinstance(of_names, dict):
            frame = wanted[number]
            shown = tuple(
                _value(name, of_names[name])
                for name in frame.names
                if isinstance(of_names.get(name), dict)
            )
            line = _whole(each.get("line"))
            found.append(FrameValues(frame.tid, frame.file, frame.function, line, shown))
    return ValuesRead(process, at_s, "hook", tuple(found))


_OF_FRAME = ("frame", "values")


def _value(name: str, said: dict[str, Any]) -> NameValue:
    """The value of one name."""
    kind = str(said.get("type") or "")
    number, length, has_graph = said.get("number"), said.get("length"), said.get("has_graph")
    is_number = isinstance(number, int | float) and abs(number) < NUMBER_LIMIT
    if is_number and kind == "bool":
        number = bool(number)
    return NameValue(
        name,
        kind.rpartition(".")[2],
        number if is_number else None,
        length if type(length) is int else None,
        has_graph if isinstance(has_graph, bool) else None,
    )


def _clean_dict(found: dict[str, Any], depth: int) -> dict[str, Any]:
    """All keys and values of an object; texts that may be long keep more of their length."""
    return {
        clean(key): clean(value, MESSAGE_LIMIT)
        if isinstance(value, str) and key in _MULTILINE
        else _clean_value(value, depth - 1)
        for key, value in list(found.items())[:ITEMS_LIMIT]
    }


def _clean_value(value: Any, depth: int) -> Any:
    """A JSON value with all text cleaned; what is nested too deep is dropped."""
    if isinstance(value, str):
        return clean(value, 4 * NAME_LIMIT)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):  # no number of a hook has more bits, and larger ones are no floats
        return value if -1 << 63 <= value < 1 << 64 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth <= 0:
        return None
    if isinstance(value, dict):
        return _clean_dict(value, depth)
    return [_clean_value(each, depth - 1) for each in value[:ITEMS_LIMIT]]


def _whole(value: Any) -> int:
    """A whole number, 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


class RingHeader(Struct, frozen=True):
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


class RingReading(Struct, frozen=True):
    """The readable part of a ring file."""

    header: RingHeader | None
    events: tuple[HookEvent, ...] = ()
    """Oldest first."""
    lost: int = 0
    """Records that were begun and are missing: overwritten, torn or cut off."""
    problems: tuple[str, ...] = ()


def _is_possible(number: int, at_ns: int, latest_ns: int) -> bool:
    """Whether number and time of a record can be those of a hook, see `CLOCK_LIMIT_NS`."""
    return 0 < number <= at_ns < latest_ns


def decode_slice(
    records: bytes | memoryview, latest_ns: int = CLOCK_LIMIT_NS
) -> tuple[tuple[HookEvent, ...], int]:
    """Decode consecutive records.

    Args:
        records: Whole records.
        latest_ns: The time before which all of them were made.

    Returns:
        The events, and how many of the records were holes: torn, overwritten meanwhile, or with a
        time that cannot be.

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
        if number == first + i and _is_possible(number, at_ns, latest_ns)
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
        is_possible = _is_possible(number, at_ns, CLOCK_LIMIT_NS)
        if (number - 1) % header.slots != slot or not is_possible:
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
