"""Files of hooks whose processes have exited: rings and notes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId

MADE_NS = 50_000_000_000
WALL_NS = 1_800_000_000_000_000_000
SLOTS = 64

Record = tuple[int, int]
"""Kind, and milliseconds after the ring was made."""


def write_hook_files(
    folder: Path,
    process: ProcessId,
    records: Sequence[tuple[int, ...]] = (),
    notes: Sequence[dict[str, Any]] = (),
    origin: tuple[int, int, bytes] = (0, 0, b""),
) -> None:
    """Write a ring of records (kind, ms, aux, key2) and a file of notes (with `ms`).

    Args:
        folder: Where.
        process: The process whose hook wrote them.
        records: Its events.
        notes: Its notes.
        origin: Pid and start time of its parent, and its name there.
    """
    data = bytearray(wire.HEADER_BYTES + SLOTS * wire.RECORD_BYTES)
    wire.HEADER.pack_into(
        data,
        0,
        wire.MAGIC,
        wire.PROTOCOL,
        wire.HEADER_BYTES,
        wire.RECORD_BYTES,
        SLOTS,
        *process,
        WALL_NS,
        MADE_NS,
    )
    wire.ORIGIN.pack_into(data, wire.ORIGIN_AT, *origin)
    for number, (kind, ms, *rest) in enumerate(records):
        aux, key2 = (*rest, 0, 0)[:2]
        offset = wire.HEADER_BYTES + (number % SLOTS) * wire.RECORD_BYTES
        at_ns = MADE_NS + ms * 1_000_000
        wire.RECORD.pack_into(
            data, offset, number + 1, at_ns, kind, 0, process.pid, 2_000_000, 4096, 7, key2, aux
        )
    stem = folder / wire.stem(*process)
    stem.with_name(stem.name + wire.RING_SUFFIX).write_bytes(data)
    if notes:
        lines = [
            json.dumps(
                {
                    **{k: v for k, v in note.items() if k != "ms"},
                    "at_ns": MADE_NS + note["ms"] * 1_000_000,
                }
            )
            for note in notes
        ]
        stem.with_name(stem.name + wire.NOTES_SUFFIX).write_text("\n".join(lines) + "\n")


def start_note(child: int, ms: int = 1, worker_id: int | None = 0) -> dict[str, Any]:
    """The note of a parent that it started a child."""
    return {"kind": "start", "ms": ms, "pid": child, "worker_id": worker_id, "method": "fork"}
