"""Collectives: what torch and NCCL record of them, and how ranks usually wait in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame

RANKS_LIMIT = 16384
"""Numbers of ranks kept of one group or part of a job."""


class Recorded(Struct, frozen=True):
    """One collective, or one transfer between two ranks, that a rank has called."""

    group: str
    """Name of the process group, the same on all its ranks."""
    description: str
    operation: str
    """`all_reduce`; of a transfer `send` or `recv`."""
    number: int
    """Which of the group's collectives it is, from 1; the same on all its ranks."""
    sizes: str
    types: str
    is_unfinished: bool
    ranks: frozenset[int] | None = None
    """The job's numbers of the ranks in the group; `None` if unknown or too many."""
    other_place: int | None = None
    """Of a transfer the place of the other rank in the group, from 0; `None` for a collective."""
    created_wall_ns: int | None = None
    """When the rank called it, nanoseconds since 1970."""
    stack: tuple[Frame, ...] = ()
    """Where it was called, innermost frame first; empty if the recorder keeps no stacks."""

    @property
    def call(self) -> str:
        """`collective 12 of group 0 (default_pg)`."""
        known = self.description not in ("", "undefined")
        group = f"{self.group} ({self.description})" if known else self.group
        kind = "transfer" if self.other_place is not None else "collective"
        return f"{kind} {self.number} of group {group}"

    @property
    def words(self) -> str:
        """`collective 12 of group 0 (default_pg): all_reduce of Float [[3, 4]], unfinished`."""
        shape = f" of {self.types} {self.sizes}" if self.types else ""
        state = "unfinished" if self.is_unfinished else "finished"
        return f"{self.call}: {self.operation}{shape}, {state}"


class RecordedGroup(Struct, frozen=True):
    """What one rank has called of one process group."""

    name: str
    description: str
    ranks: tuple[int, ...] | None
    """The job's numbers of its ranks, by their place in the group; `None` if unknown."""
    called: int | None
    """Number of the newest collective that the rank has called; `None` if unknown."""
    calls: tuple[Recorded, ...] = ()
    """The newest finished collective and the unfinished ones, oldest first; bounded."""
    transfers: tuple[Recorded, ...] = ()
    """Unfinished transfers between two ranks, oldest first; bounded."""
    local_id: str = ""
    """The number of the group within the process."""

    @property
    def unfinished(self) -> Recorded | None:
        """Its oldest unfinished collective."""
        return next((call for call in self.calls if call.is_unfinished), None)

    @property
    def newest(self) -> Recorded | None:
        """The newest collective that it holds."""
        return self.calls[-1] if self.calls else None


class RankRecord(Struct, frozen=True):
    """What the flight recorder of one rank has held at a moment."""

    rank: int
    """The rank's number in the job."""
    source: str
    """The file it was read from."""
    written_wall_s: float
    """When the file was last changed, seconds since 1970."""
    groups: Mapping[str, RecordedGroup] = field(default_factory=dict)
    """By name."""
    entries: int = 0
    """Collectives and transfers that the file holds."""
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Number of the newest collective or transfer of each group that was called, by the number that
    the group has within the process."""


NcclRemarkKind: TypeAlias = Literal["unresponsive", "dead", "no-data", "not-in-it", "error"]
"""What NCCL RAS says of one rank: it does not respond, is considered dead, sent no data for an
unknown reason, responds but is not part of the communicator, or reported an error."""


class NcclRemark(NamedTuple):
    """What NCCL RAS says of one rank of a communicator."""

    rank: int
    """Its number in the communicator."""
    kind: NcclRemarkKind
    pid: int | None = None
    """Of its process, as that process sees itself."""
    host: str = ""
    """Address of its machine."""
    error: str = ""


class NcclPart(NamedTuple):
    """The ranks of a communicator that are equal in one respect, in which others differ."""

    what: str
    """`AllReduce`, empty for collectives of any kind: the value is how many were launched.
    `status`: the value is RUNNING, INIT, FINALIZE, ABORT or NOCOMM."""
    value: str
    size: int
    """How many ranks these are."""
    ranks: tuple[int, ...] = ()
    """Their numbers in the communicator; empty if unknown, bounded."""


class NcclCommunicator(Struct, frozen=True):
    """A communicator of NCCL whose ranks differ, are missing or have failed."""

    name: str
    """Its hash, as in NCCL's log: `0xcf264af53edbe986`."""
    size: int | None = None
    """How many ranks it has."""
    missing: int = 0
    """How many of them sent no data."""
    remarks: tuple[NcclRemark, ...] = ()
    parts: tuple[NcclPart, ...] = ()
    """In order of what they are about; of one `what` the largest first."""


class NcclProcess(NamedTuple):
    """A process that NCCL RAS does not reach."""

    pid: int
    host: str
    gpus: str
    """`5`; of several `0,1`."""
    is_dead: bool
    """Whether it is considered dead; else it has not responded yet."""


class NcclAnswer(Struct, frozen=True):
    """What NCCL RAS says of a job, on all its machines."""

    version: str
    """Of NCCL: `2.28.7`."""
    total: int
    """How many communicators there are."""
    communicators: tuple[NcclCommunicator, ...] = ()
    """Those of which there is something to tell; bounded."""
    processes: tuple[NcclProcess, ...] = ()


class NcclStatus(Struct, frozen=True):
    """An input: NCCL RAS of a job has answered; see `mpwatch.collect.job.nccl_ras`."""

    process: ProcessId
    """A process that listens for such requests."""
    at_s: float
    answer: NcclAnswer | None = None
    """`None`: the ranks have gone on since, and the answer before no longer counts."""
    since_s: float | None = None
    """When the first of the successive answers was received that are equal to this one."""


# --- how ranks usually wait -----------------------------------------------------------------------

HABIT = 2.0
"""Ranks that have often waited for long, as in steps of half a minute of which one rank needs all,
are at a standstill only after so many times that."""
HABIT_KEPT_S = 3600.0
"""Long waits count for so long: an evaluation may come after hundreds of short steps."""


class Length(NamedTuple):
    """How long a wait, or the time between two, has taken."""

    seconds: float
    until_s: float
    """Its end, monotonic seconds."""


class WaitReading(NamedTuple):
    """What a reading has found the main thread of a rank doing."""

    at_s: float
    waits: bool
    """Whether it waited for a condition of its own process, without a timeout: as in a collective
    of gloo."""
    ticks: int
    """Its cpu time so far."""


class RankHabit(Struct, frozen=True):
    """What the readings of one rank have found so far."""

    process: ProcessId
    moved_s: float | None = None
    """When it was last seen to begin or end a wait for the others, monotonic seconds. Steps of half
    a minute may take next to no cpu and few switches: no counter shows them."""
    waits_elsewhere: bool = False
    """Whether the last stack of such a wait was one for something else than a collective."""
    long_waits: tuple[Length, ...] = ()
    """The longest waits, shortest first."""
    long_work: tuple[Length, ...] = ()
    """The longest times between two waits."""
    readings: tuple[WaitReading, ...] = ()
    """The last ones."""
    wait: tuple[float, float] | None = None
    """The first and the last reading of the present wait, or of the last one that has ended."""
    worked: tuple[float, int] | None = None
    """The first reading since then that has found it at work, and how many have."""
    has_worked: bool = False
    """Whether it has gone on since, and was not only found awake."""
    work_since_s: float | None = None
    """When the wait before has ended; `None` if none was seen."""
    stack_s: float | None = None
    """Time of the last stack that is taken into account."""
    place: str = ""
    """The collective that this stack was in; empty if none."""

    def usual_wait_s(self, now_s: float) -> float:
        """The second longest wait within an hour, seconds; 0 without two.

        One long wait is no habit: the others wait once for a rank that saves a checkpoint.
        """
        return _second(self.long_waits, now_s)

    def usual_s(self, now_s: float) -> float:
        """The same of waits and of the times between them, whichever is longer."""
        return max(self.usual_wait_s(now_s), _second(self.long_work, now_s))


def _second(known: tuple[Length, ...], now_s: float) -> float:
    lengths = [each.seconds for each in known if now_s - each.until_s < HABIT_KEPT_S]
    return lengths[-2] if len(lengths) > 1 else 0.0
