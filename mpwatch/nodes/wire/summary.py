"""The summary of a node: what the head knows of it without asking.

`SummaryWriter` turns the rows of a node into messages: all of them first, then only fields that
changed, and no more of them than fit into `BYTES_PER_S`. What does not fit is sent later, with the
value it has then; no row waits for others to be sent twice. `SummaryReader` puts the rows together
again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from mpwatch.nodes.wire.messages import Row, Sections, Summary, size_bytes

BYTES_PER_S = 5000
"""The most that a node sends for its summaries after the first one."""
OVERHEAD_BYTES = 160
"""Of a summary without rows: frame, names of its fields, names of its sections."""
ROWS_LIMIT = 1024
"""Most rows of a section that a head accepts."""


WAITS_ENOUGH = 30
"""A share of the time of fewer waits says little: steps differ. They are counted no further."""

MIXED = "mixed: "
"""How a fact begins on which the ranks of a node disagree."""
NOT_SET = "not set"
IN_RAY_GET = "ray.get"
IN_RAY_TASK = "a call of Ray"
IN_RAY_WAITING = "waiting for a call of Ray"
"""Values of `RankRow.place` in the processes of a Ray cluster."""


class NodeRow(msgspec.Struct, frozen=True):
    """A node as a whole; the only row of the section `node`."""

    state: str = "starting"
    """`starting` before the first reading, `watching`, `no-job`, `ended` once its job has ended."""
    processes: int = 0
    counts: dict[str, int] = {}
    """Number of living processes by role."""
    cpu_percent: int | None = None
    """Of all processes together, rounded to tens."""
    rss_bytes: int | None = None
    """Resident memory of all processes, shared pages counted for each; rounded to 64 MiB."""
    memory_percent: int | None = None
    """Used share of the memory that the job may have: of its cgroup's limit, else the machine's."""
    shm_percent: int | None = None
    """Used share of /dev/shm."""
    fds_percent: int | None = None
    """Descriptors of the process that is closest to its limit."""
    maps_percent: int | None = None
    """Mappings of the process that is closest to its limit."""
    hooks: int = 0
    """Number of processes whose hook answers."""
    facts: dict[str, str] = {}
    """What should be equal on all nodes, by name: versions, limits, common variables. One on which
    the ranks here disagree begins with `MIXED`."""
    environment: dict[str, str] | None = None
    """Further variables of the ranks here, likewise; one that is missing is not set. `None` if
    unknown: without ranks, with those of several jobs, or if there are too many."""
    problems: tuple[str, ...] = ()
    unread: str = ""
    """What of the job the agent may not read, why, and what mends it, in one sentence."""
    stacks: tuple[str, ...] = ()
    """Merged stacks of comparable processes, in words."""


class RankRow(msgspec.Struct, frozen=True):
    """One rank, or the root of a job without ranks; section `ranks`, keyed by process."""

    pid: int
    label: str
    rank: int | None = None
    world_size: int | None = None
    job: str = ""
    """The same for all ranks of a job: address of the rendezvous, or its number."""
    state: str = ""
    doing: str = ""
    place: str | None = None
    """The collective that it is in."""
    line: str = ""
    """Line of the user's code that its main thread is at."""
    has_stack: bool = False
    """Whether `place` and `line` are known: there is a stack since it last moved."""
    quiet_at_s: float | None = None
    """Since when it has made no progress; `None` if it does, or if unknown."""
    is_since_watched: bool = False
    """Whether that is when the agent has begun to watch it: it may have made none for longer."""
    is_ended: bool = False
    ended: str = ""
    """How it ended, in words."""
    has_failed: bool = False
    """Whether it ended otherwise than with status 0."""
    group: str = ""
    """Process group of the collective that torch has recorded last."""
    number: int | None = None
    """Number of that collective within its group, the same on all ranks."""
    operation: str = ""
    shape: str = ""
    """Type and size of its tensors."""
    is_unfinished: bool = False
    is_recorder_due: bool = False
    """Whether what torch has recorded of it can be read, and was not since it moved last."""
    batch: int | None = None
    """Batches that its DataLoader has delivered."""
    cpu_percent: int | None = None
    """Rounded to tens."""
    severity: str = ""
    """Of its worst finding."""
    is_ray_worker: bool = False
    root: int | None = None
    """The pid of the root of its job on this node."""
    waits_percent: int | None = None
    """Share of its time in which it waits in collectives, to 10; `None` until enough is known."""
    waits: int = 0
    """Of how many waits that is the share, at most `WAITS_ENOUGH`."""
    has_enough_waits: bool = False
    """Whether fewer are enough: they are alike."""
    usual_wait_s: int | None = None
    """How long it has waited in several of its last waits; `None` if shorter than some seconds."""
    usual_s: int | None = None
    """The same of its waits and of the times between them, whichever is longer."""
    works_at: str = ""
    """The line that most stacks have shown outside of collectives."""
    step_ms: int | None = None
    """Time of a step; `None` if unknown. Only a hook shows it."""
    step_of: str = ""
    """What the step is: from one `batch` or `collective` to the next."""
    group_ranks: str = ""
    """The ranks of `group`, see `text_of_group`; empty if unknown."""
    chain: str = ""
    """What it waits for, and what that waits for on its node, where it is in no collective."""


GROUP_LIMIT = 1 << 17
"""Ranks of a group that are believed: the text comes from another machine."""
_GROUP_TEXT_LIMIT = 160


def text_of_group(ranks: Collection[int]) -> str:
    """The numbers of the ranks of a group: `0-7`, `0-56/8` for every eighth, or `0,3,4`.

    Empty if that is too long to be sent for each rank.
    """
    numbers = sorted(ranks)
    steps = {later - number for number, later in pairwise(numbers)}
    if len(numbers) > 2 and len(steps) == 1:
        (step,) = steps
        return f"{numbers[0]}-{numbers[-1]}" + (f"/{step}" if step > 1 else "")
    text = ",".join(map(str, numbers))
    return text if len(text) <= _GROUP_TEXT_LIMIT else ""


@lru_cache(maxsize=64)  # a set of `GROUP_LIMIT` numbers takes 8 MB
def ranks_in_group(text: str) -> frozenset[int]:
    """The numbers that `text_of_group` has written; empty for anything else."""
    found = _GROUP_RANGE.fullmatch(text)
    if found is None:
        parts = text.split(",")
        is_list = all(each.isascii() and each.isdecimal() and len(each) < 8 for each in parts)
        return frozenset(map(int, parts)) if is_list else frozenset()
    first, last, step = (int(each or 1) for each in found.groups())
    numbers = range(first, last + 1, step) if step else range(0)
    return frozenset(numbers) if len(numbers) <= GROUP_LIMIT else frozenset()


_GROUP_RANGE = re.compile(r"([0-9]{1,7})-([0-9]{1,7})(?:/([0-9]{1,7}))?")


class SocketRow(msgspec.Struct, frozen=True):
    """One end of a TCP connection that leads out of the jobs of a node; section `sockets`."""

    pid: int
    label: str
    local: str
    """`10.0.0.1:4000`."""
    remote: str
    """Of connections with the same local end, such as those that one listener has accepted, the
    other ends of all of them, separated by blanks."""
    is_awaited: bool = False
    """Whether the main thread waits to read from it."""


class FindingRow(msgspec.Struct, frozen=True):
    """One unresolved finding of a node; section `findings`."""

    rule: str
    severity: str
    summary: str
    order: int = 0
    """Its place among the findings of the node, most urgent first."""
    pid: int | None = None
    label: str = ""
    eta_s: int | None = None


class NodeSummary(msgspec.Struct, frozen=True):
    """The state of a node at one moment."""

    at_s: float = 0.0
    """Monotonic seconds of the node."""
    node: NodeRow = msgspec.field(default_factory=NodeRow)
    ranks: tuple[RankRow, ...] = ()
    """By rank, those without a number last; the same object until one of them changes."""
    findings: tuple[FindingRow, ...] = ()
    """Most urgent first."""
    sockets: tuple[SocketRow, ...] = ()


_ROWS: Mapping[str, type[msgspec.Struct]] = {
    "node": NodeRow,
    "findings": FindingRow,
    "ranks": RankRow,
    "sockets": SocketRow,
}
"""Sections in the order in which their changes are sent where all have waited as long."""


def row_of(value: msgspec.Struct) -> Row:
    """The fields of a row, all of them: a field that is left out would count as unchanged."""
    row: Row = msgspec.to_builtins(value)
    return row


class SummaryWriter:
    """Turns the rows of a node into messages.

    Attributes:
        is_complete: Whether the head has every change that `next` was given.
    """

    def __init__(self, bytes_per_s: int = BYTES_PER_S) -> None:
        self.is_complete = False
        self._bytes_per_s = bytes_per_s
        self._sequence = 0
        self._sent: Sections | None = None
        self._sent_in: dict[tuple[str, str], int] = {}
        """In which message each row was sent last."""
        self._last_s = 0.0

    def restart(self) -> None:
        """Send all rows in the next message."""
        self._sent = None

    def next(self, at_s: float, sections: Sections) -> Summary:
        """The next message; it counts as sent.

        Args:
            at_s: Monotonic seconds.
            sections: All rows as they are now. They are kept, and must not be changed afterwards.
        """
        sequence, self._sequence = self._sequence, self._sequence + 1
        elapsed_s, self._last_s = min(1.0, max(0.0, at_s - self._last_s)), at_s
        if self._sent is None:
            self._sent = {section: dict(rows) for section, rows in sections.items()}
            self._sent_in = {}
            self.is_complete = True
            return Summary(sequence, at_s, is_full=True, changed=sections)
        room_bytes = int(self._bytes_per_s * elapsed_s) - OVERHEAD_BYTES
        self.is_complete = True
        removed, room_bytes = self._removed(sections, room_bytes)
        changed: Sections = {}
        for section, key, fields in self._changes(sections):
            needed_bytes = size_bytes(key) + size_bytes(fields)
            if needed_bytes > room_bytes:
                self.is_complete = False
                if changed or removed:
                    break
                fields = _as_fit(fields, room_bytes - size_bytes(key))
            room_bytes -= needed_bytes
            changed.setdefault(section, {})[key] = fields
            rows = self._sent.setdefault(section, {})
            rows[key] = {**rows.get(key, {}), **fields}
            self._sent_in[section, key] = sequence
        return Summary(sequence, at_s, changed=changed, removed=removed)

    def _removed(self, sections: Sections, room_bytes: int) -> tuple[dict[str, list[str]], int]:
        """The keys of rows that are no more, which count as sent, and the room that is left."""
        removed: dict[str, list[str]] = {}
        for section, rows in (self._sent or {}).items():
            for key in [key for key in rows if key not in sections.get(section, {})]:
                room_bytes -= size_bytes(key)
                if room_bytes < 0:
                    self.is_complete = False
                    return removed, 0
                del rows[key]
                self._sent_in.pop((section, key), None)
                removed.setdefault(section, []).append(key)
        return removed, room_bytes

    def _changes(self, sections: Sections) -> Iterator[tuple[str, str, Row]]:
        """Changed fields by section and key, those first that were not sent for the longest time.

        So rows that change each second do not keep others from being sent, whichever section they
        are in, and a row that changes for the first time is sent at once.
        """
        sent = self._sent or {}
        rows = [(section, key) for section in _ROWS for key in sections.get(section, {})]
        for section, key in sorted(rows, key=lambda row: self._sent_in.get(row, -1)):
            fields = _difference(sent.get(section, {}).get(key), sections[section][key])
            if fields:
                yield section, key, fields


def _difference(before: Row | None, now: Row) -> Row:
    """The fields that differ."""
    if before is None:
        return now
    return {name: value for name, value in now.items() if before.get(name, _ABSENT) != value}


def _as_fit(fields: Row, room_bytes: int) -> Row:
    """The first of the fields that fit, and one at least; those that a row must have are first."""
    found: Row = {}
    for name, value in fields.items():
        room_bytes -= size_bytes(name) + size_bytes(value)
        if room_bytes < 0 and found:
            break
        found[name] = value
    return found


_ABSENT = object()


class MalformedSummary(ValueError):
    """A summary does not fit to the one before, or has more rows than a node may have."""


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class SummaryReader:
    """Puts the rows of a node together from its messages."""

    def __init__(self) -> None:
        self._sequence: int | None = None
        self._at_s = 0.0
        self._rows: dict[str, dict[str, Row]] = {section: {} for section in _ROWS}
        self._typed: dict[str, dict[str, Any]] = {section: {} for section in _ROWS}
        self._ranks: tuple[RankRow, ...] | None = None
        self._summary: NodeSummary | None = None

    def apply(self, message: Summary) -> bool:
        """Add a message.

        Returns:
            Whether it fits; if not, it was ignored and a full summary is needed.

        Raises:
            MalformedSummary: It has too many rows, or fields of the wrong type.
        """
        if message.is_full:
            self._rows = {section: {} for section in _ROWS}
            self._typed = {section: {} for section in _ROWS}
        elif self._sequence is None or message.sequence != self._sequence + 1:
            return False
        self._sequence, self._at_s, self._summary = message.sequence, message.at_s, None
        if message.is_full or message.changed.get("ranks") or message.removed.get("ranks"):
            self._ranks = None
        for section, kind in _ROWS.items():
            rows, typed = self._rows[section], self._typed[section]
            for key in message.removed.get(section, ()):
                rows.pop(key, None)
                typed.pop(key, None)
            for key, fields in message.changed.get(section, {}).items():
                rows[key] = {**rows.get(key, {}), **fields}
                try:
                    typed[key] = msgspec.convert(rows[key], kind, strict=False)
                except msgspec.ValidationError as error:
                    raise MalformedSummary(f"a row of {section}: {error}") from None
            if len(rows) > ROWS_LIMIT:
                raise MalformedSummary(f"more than {ROWS_LIMIT} rows of {section}")
        return True

    def full(self) -> Summary | None:
        """All rows as one message, to which the next message of the node fits; `None` if none."""
        if self._sequence is None:
            return None
        return Summary(self._sequence, self._at_s, is_full=True, changed=self._rows)

    def summary(self) -> NodeSummary:
        """The state of the node by the last message; the same object until the next one."""
        if self._summary is None:
            self._summary = self._new_summary()
        return self._summary

    def _new_summary(self) -> NodeSummary:
        if self._ranks is None:
            self._ranks = tuple(sorted(self._typed["ranks"].values(), key=_by_rank))
        findings: list[FindingRow] = list(self._typed["findings"].values())
        node = next(iter(self._typed["node"].values()), NodeRow())
        return NodeSummary(
            at_s=self._at_s,
            node=node,
            ranks=self._ranks,
            findings=tuple(sorted(findings, key=lambda row: row.order)),
            sockets=tuple(self._typed["sockets"].values()),
        )


def _by_rank(row: RankRow) -> tuple[bool, int, int]:
    return (row.rank is None, row.rank or 0, row.pid)
