"""Frames of a hook, decoded into inputs; text of another process is cleaned here."""

from __future__ import annotations

import functools
import json
import math
import os
from typing import Any

from mpwatch.collect.hook.ring_decode import CLOCK_LIMIT_NS, decode_slice
from mpwatch.hook import wire
from mpwatch.model.events import HookGauges, HookHello, HookNote, HookSlice
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, StackSample, StacksTaken
from mpwatch.model.sanitize import MESSAGE_LIMIT, NAME_LIMIT, clean

DEPTH_LIMIT = 12
ITEMS_LIMIT = 20_000
FRAMES_LIMIT = 400
_MULTILINE = frozenset(("text", "message", "traceback", "stack"))
_HELLO_FIELDS = frozenset(
    ("protocol", "pid", "start_ticks", "python", "torch", "started_by", "since_ns", "missing")
)


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


def hello(process: ProcessId, at_s: float, said: dict[str, Any]) -> HookHello:
    """The hello of a hook.

    Raises:
        ValueError: It speaks another protocol, or introduces another process.
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
    events, torn = decode_slice(memoryview(payload)[wire.LOST.size :])
    return HookSlice(process, at_s, events, lost + torn)


def note(process: ProcessId, said: dict[str, Any]) -> HookNote:
    """An event with text."""
    number = said.pop("n", None)
    kind = said.pop("kind", "")
    at_ns = _whole(said.pop("at_ns", 0))
    at_ns = at_ns if 0 <= at_ns < CLOCK_LIMIT_NS else 0
    return HookNote(process, at_ns, str(kind), said, number=number if type(number) is int else None)


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
