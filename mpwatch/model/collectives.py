"""Collectives that torch's flight recorder holds of one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mpwatch.model.samples import Frame


@dataclass(frozen=True, slots=True)
class Recorded:
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


@dataclass(frozen=True, slots=True)
class RecordedGroup:
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


@dataclass(frozen=True, slots=True)
class RankRecord:
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
