"""Process groups, and the collectives of them that torch's flight recorder holds.

torch records each collective of gloo in a ring of 2000 entries, without any variable set
(`FlightRecorder.hpp`, torch 2.8 to 2.13). Its state of each process group is a few numbers: it is
read in 0.01 ms. All entries are up to 1 MB of JSON, which takes 50 ms: they are read only where no
number has changed for `STILL_NS`, and at most every `ENTRIES_NS`. Only the newest are decoded, one
at a time, because the collector counts the lists of each (`safe.one_call`).

The recorder of NCCL is another one (`_dump_nccl_trace_json`), which is not read: with entries it
asks CUDA for the state of events, and may so wait for a kernel that never ends.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..safe.unpatched import System

STILL_NS = 4_000_000_000
ENTRIES_NS = 10_000_000_000
STATUS_BYTES = 8192
"""Of the state of all groups: about fifty of them. What is longer is not decoded."""
GROUPS = 16
DECODED = 64
"""Entries decoded at a time."""
TAIL_BYTES = 64 << 10
"""Of all entries as much as these take: splitting the whole would copy it."""
_ENTRY = b'{"collective_seq_id":'
"""How each entry begins: the members of an object are sorted by name (nlohmann::json)."""
_TEXT = 64
_RANKS_TEXT = 200


class ProcessGroups:
    """The newest process groups of this process, as plain values, and the recorder to read.

    No group is kept: its last reference has to be dropped by the program.

    Args:
        recorder: `None` if this torch has none.
    """

    __slots__ = ("_facts", "_recorder")

    def __init__(self, recorder: FlightRecorder | None) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._recorder = recorder

    def add(self, name: str, size: int, rank: int, ranks: Iterable[int], backend: str) -> None:
        """Note a group, on a thread of the program."""
        self._facts[name[:_TEXT]] = {
            "size": size,
            "rank": rank,
            "ranks": ", ".join(map(str, ranks))[:_RANKS_TEXT],
            "backend": backend[:_TEXT],
        }
        while len(self._facts) > GROUPS:
            del self._facts[next(iter(self._facts))]

    def show(self) -> dict[str, Any]:
        """The gauge `collectives`; see `wire`."""
        groups = dict(self._facts)
        if self._recorder is None:
            return {"groups": groups, "error": "this torch has no flight recorder to read"}
        return {"groups": groups, "states": self._recorder.show()}


class FlightRecorder:
    """Reads the recorder of this process; used by the hook's thread."""

    __slots__ = ("_changed_ns", "_dump", "_entries", "_entries_ns", "_numbers", "_system")

    def __init__(self, system: System, dump: Callable[..., bytes]) -> None:
        self._system = system
        self._dump = dump
        self._numbers: dict[str, tuple[int, int]] = {}
        self._changed_ns = 0
        self._entries: dict[str, dict[str, Any]] = {}
        self._entries_ns = 0

    def show(self) -> list[dict[str, Any]]:
        """The state of each process group; see `collectives` in `wire`.

        Raises:
            ValueError: torch has a longer or another form of it than is known here.
        """
        text = self._dump(includeCollectives=False)
        if len(text) > STATUS_BYTES:
            raise ValueError(f"the state of all process groups has {len(text)} bytes")
        try:
            numbers = {
                name: (
                    int(status["last_enqueued_collective"]),
                    int(status["last_completed_collective"]),
                )
                for name, status in json.loads(text)["pg_status"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its form is not known: {type(error).__name__}: {error}") from None
        now_ns = self._system.monotonic_ns()
        if numbers != self._numbers:
            self._numbers, self._changed_ns, self._entries = numbers, now_ns, {}
        elif (
            not self._entries
            and numbers
            and now_ns - self._changed_ns >= STILL_NS
            and now_ns - self._entries_ns >= ENTRIES_NS
        ):
            self._entries_ns = now_ns
            self._entries = newest_entries(self._dump(includeCollectives=True), list(numbers))
        return [
            {
                "id": name,
                "enqueued": enqueued,
                "completed": completed,
                "unchanged_ns": now_ns - self._changed_ns,
                **self._entries.get(name, {}),
            }
            for name, (enqueued, completed) in list(numbers.items())[:GROUPS]
        ]


def newest_entries(text: bytes, ids: list[str]) -> dict[str, dict[str, Any]]:
    """Of each process group its oldest unfinished collective, or its newest if all have finished.

    Args:
        text: All entries, as the recorder writes them, oldest first.
        ids: The numbers of the groups in this process.
    """
    decode = json.JSONDecoder().raw_decode
    found: dict[str, dict[str, Any]] = {}
    ended: set[str] = set()
    for piece in reversed(text[-TAIL_BYTES:].rsplit(_ENTRY, DECODED)[1:]):
        if len(ended) == len(ids):
            break
        try:
            entry, _ = decode((_ENTRY + piece).decode("utf-8", "replace"))
            group = str(entry["pg_id"])
            if group in ended:
                continue
            if entry["retired"]:
                ended.add(group)
                if group in found:
                    continue  # those after it are unfinished, the oldest of them is there
            found[group] = _told(entry)
        except (ValueError, KeyError, TypeError, IndexError):
            continue  # cut short, or of another version
    return found


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    """What is sent of one entry: plain numbers and short texts."""
    return {
        "group": str(entry["process_group"][0])[:_TEXT],
        "description": str(entry["process_group"][1])[:_TEXT],
        "operation": str(entry["profiling_name"])[:_TEXT],
        "number": int(entry["collective_seq_id"]),
        "sizes": str(entry["input_sizes"])[:_TEXT],
        "types": ", ".join(map(str, entry["input_dtypes"]))[:_TEXT],
        "is_unfinished": not entry["retired"],
        "created_wall_ns": int(entry["time_created_ns"]),
    }
