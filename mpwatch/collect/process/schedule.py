"""When each part of a process is read: one interval for each part, one factor for the whole job.

A part is due when its interval times the factor has passed, and at once when a number that is cheap
to read shows a change. Costs of one process of torch, Linux 6.18:

| part | read again | change seen in | cost |
| --- | --- | --- | --- |
| `stat`, main thread's `syscall`, number of descriptors | always | | 20 us |
| threads, small counters | `THREADS_S` | any of those | 5 us a thread, 40 if it ran |
| descriptors, mappings | `listing_s` | numbers of descriptors, threads, shared MiB | 1 ms |
| memory (`smaps_rollup`) | `memory_s` | page faults, resident pages | 2 to 6 ms |

A calm job of 64 workers costs 0.88 of htop that way (all marks and identities kept from reading to
reading: 0.79), and 1.64 in its first minute (1.60), in one run on a loaded machine.

Whatever is due, a part that took t seconds of cpu is not read again for `COST_LIMIT` times t: at
most 2 % of a cpu for each part, however many threads, descriptors or mappings there are.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import NamedTuple

from msgspec import Struct

from mpwatch.model.ids import ProcessId

CALM_FACTOR = 5.0
"""Intervals of a calm job are so many times as long."""
CALM_AFTER_S = 5.0
"""A job is calm when no process of it has started or exited for so long."""
MANY = 8
"""Jobs of fewer processes are never calm: reading all of them costs little."""
THREADS_S = 0.9
"""At one reading a second: every reading; every fifth in a calm job."""
COUNTERS_S = 2.5
"""`status` and `io` of a process whose threads are read: 40 us."""
LISTING_MAX_S = 30.0
FILLING_S = 2.0
"""Lists of a process with a segment that is being written: no number shows how much of it is."""
MEMORY_FACTOR = 4.0
"""Memory is read so many times less often than descriptors."""
MEMORY_PAUSE_S = 2.0
"""Between two readings of memory of any processes, times the factor."""
COST_LIMIT = 50
SLACK = 3
"""With every batch a few descriptors are opened and closed: so many, and 5 %, are no change."""
MARKS_KEPT = 4
"""In the main process of many workers dozens come and go: numbers between those of the last runs
are no change."""
NEW_SHARE = 0.05
"""A change of memory: page faults for this part of what is private."""
SMALL_BYTES = 16 << 20
"""A part of less than this is no change."""


class Due(Struct, frozen=True):
    """How urgently each probe of a process should be run; `None` is not at all."""

    threads: float | None
    descriptors: float | None
    mappings: float | None
    memory: float | None


class Probes(NamedTuple):
    """Which probes of one process to run this time."""

    threads: bool
    descriptors: bool
    mappings: bool
    memory: bool


class Intervals(NamedTuple):
    """How old the newest result of each probe may become while nothing shows a change, seconds."""

    threads_s: float
    listing_s: float
    """Of descriptors and of mappings."""
    memory_s: float
    memory_pause_s: float
    """Between two readings of memory of any processes."""


class Schedule:
    """Gives the intervals of a job, stretched while it is calm."""

    def __init__(self) -> None:
        self._processes: Set[ProcessId] = frozenset()
        self._changed_at_s = -math.inf

    def intervals(self, processes: Set[ProcessId], at_s: float) -> Intervals:
        """The intervals now, those of a calm job `CALM_FACTOR` times as long.

        Args:
            processes: All processes of the job.
            at_s: The time of the reading.
        """
        if processes != self._processes:
            self._processes, self._changed_at_s = processes, at_s
        count = len(processes)
        is_calm = count >= MANY and at_s - self._changed_at_s >= CALM_AFTER_S
        return intervals(count, CALM_FACTOR if is_calm else 1.0)


def intervals(processes: int, factor: float = 1.0) -> Intervals:
    """The intervals in a job of so many processes.

    A segment that is sent lives for milliseconds, so an old list shows mostly closed ones. Half a
    second a process keeps the cost of lists for the whole job the same for any number of processes.
    """
    listing_s = factor * min(LISTING_MAX_S, max(2.0, processes / 2))
    return Intervals(
        threads_s=factor * THREADS_S,
        listing_s=listing_s,
        memory_s=MEMORY_FACTOR * listing_s,
        memory_pause_s=factor * MEMORY_PAUSE_S,
    )


class LastRun(Struct):
    """When a probe was run last, and what that cost."""

    at_s: float = -math.inf
    cost_s: float = 0.0
    marks: tuple[tuple[int, ...], ...] = ()
    """The numbers that showed no change at the last runs, the last one last."""

    def urgency(self, change: float, interval_s: float, at_s: float) -> float | None:
        """How urgently to read the part: by its age, and by how much has changed.

        Args:
            change: 0 while nothing shows a change.
            interval_s: How old the reading may become until then.
            at_s: The time now.
        """
        age_s = at_s - self.at_s
        if age_s < self.cost_s * COST_LIMIT or (not change and age_s < interval_s):
            return None
        return (1.0 + change) * age_s

    def change(self, mark: tuple[int, ...]) -> float:
        """By how much numbers have left the range that they had at the last runs.

        Args:
            mark: The numbers now.
        """
        if not self.marks or mark == self.marks[-1]:
            return 0.0
        ranges = zip(*self.marks, strict=True)
        return sum(map(_range_change, mark, ranges))

    def done(self, at_s: float, cost_s: float = 0.0) -> None:
        """Note that the probe was run."""
        self.at_s, self.cost_s = at_s, cost_s

    def mark(self, mark: tuple[int, ...]) -> None:
        """Note the numbers at this run."""
        self.marks = (*self.marks, mark)[-MARKS_KEPT:]


def count_change(now: int, then: int) -> float:
    """By how much a number has moved beyond what comes and goes with every batch."""
    moved = abs(now - then)
    return float(moved) if moved > SLACK + then // 20 else 0.0


def _range_change(now: int, then: tuple[int, ...]) -> float:
    """As `count_change`, from the nearest number between the least and the greatest earlier one."""
    return count_change(now, min(max(then), max(min(then), now)))


def memory_change(touched_bytes: int, private_bytes: int) -> float:
    """By how much memory may have grown, in units of the smallest change of interest."""
    change = touched_bytes / (NEW_SHARE * max(private_bytes, SMALL_BYTES))
    return change if change >= 1.0 else 0.0
