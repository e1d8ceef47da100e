"""How often the expensive parts of a process are read, and what an idle process skips."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from mpwatch.collect.job.roles import Part
from mpwatch.collect.process.procfs import Stat
from mpwatch.collect.process.static_facts import Identity

SLOW_S = 30.0
"""Parts that did not move are read again after this long all the same."""
PATIENCE = 50
"""A part that took t seconds is not read again for t times this: at most 2 % of a cpu each."""
STEADY_LIMIT = 4
"""What was the same each time that it was read, and whose marks never moved, may become so many
times as old."""
NEAR_LIMIT = 3
"""What hardly moved, and was found to be nearly as much as before, may become so many times as old:
it is the usual coming and going."""
MARKS_KEPT = 4
"""A main's descriptors go up and down by dozens while its workers send batches."""
NEAR = 3
"""A worker's descriptors go up and down by a few with every batch: no news for `SLOW_S`."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NEWS_SHARE = 0.05
SMALL_BYTES = 16 << 20
"""What is private to a process that does little: a part of less is no news."""
MEMORY_PATIENCE = 16
FIRST_PATIENCE = 4
"""Of what was read once it is not known whether it grows."""
MEMORY_LIMIT = 10
"""Memory may become so many times as old as other parts, whatever happened: others let go of what
was shared, too."""


class Plan(NamedTuple):
    """What to read of one process this time."""

    threads: bool
    links: bool
    maps: bool
    memory: bool
    resting: bool = False
    """Also ask the threads that have rested for long."""


class Due(NamedTuple):
    """How urgently the expensive parts of a process want reading; `None` is not at all."""

    links: float | None
    maps: float | None
    memory: float | None


def slow_s(processes: int) -> float:
    """How old a reading of descriptors or mappings that hardly moved may become in a job.

    A segment in flight lives for milliseconds, so an old list shows what is long gone. Half a
    second a process keeps the cost of reading them again the same for any number of them.
    """
    return min(SLOW_S, max(2.0, processes / 2))


def _no_marks() -> deque[tuple[int, ...]]:
    return deque(maxlen=MARKS_KEPT)


@dataclass(slots=True)
class Slow:
    """When an expensive part was read, what that cost, and what it saw then."""

    read_at_s: float = float("-inf")
    cost_s: float = 0.0
    mark: tuple[int, ...] = ()
    """What moves when the part is worth reading again."""
    patience: int = 1
    """How many times as old as usual it may become."""
    usual: deque[tuple[int, ...]] = field(default_factory=_no_marks)
    """The last marks: what goes up and down between them brings nothing new."""

    def age_s(self, at_s: float) -> float:
        """How old the reading is; without end if there is none."""
        return at_s - self.read_at_s

    def has_moved(self, mark: tuple[int, ...]) -> bool:
        """Whether what was seen then has moved by more than the usual coming and going."""
        if is_near(mark, self.mark):
            return False
        usual = [each for each in self.usual if len(each) == len(mark)]
        return not usual or any(
            now < low - _slack(low) or now > high + _slack(high)
            for now, low, high in zip(
                mark,
                map(min, zip(*usual, strict=True)),
                map(max, zip(*usual, strict=True)),
                strict=True,
            )
        )

    def urgency(
        self, mark: tuple[int, ...], at_s: float, interval_s: float = SLOW_S
    ) -> float | None:
        """How much its reading is wanted: by its age, the more the further it moved."""
        if mark == self.mark and at_s - self.read_at_s <= interval_s:
            return None
        if not self.is_due(mark, at_s, interval_s):
            return None
        return (1 + self.moved_by(mark)) * self.age_s(at_s)

    def moved_by(self, mark: tuple[int, ...]) -> int:
        """How much all of it has moved."""
        return sum(abs(now - then) for now, then in zip(mark, self.mark, strict=False))

    def is_due(self, mark: tuple[int, ...], at_s: float, interval_s: float = SLOW_S) -> bool:
        """Whether something moved or it was long ago, and it is not too expensive."""
        age_s = at_s - self.read_at_s
        if mark != self.mark:
            self.patience = min(NEAR_LIMIT, self.patience)
            if self.has_moved(mark):
                self.patience = 1
                return age_s >= self.cost_s * PATIENCE
        return age_s > interval_s * self.patience and age_s >= self.cost_s * PATIENCE

    def done(
        self,
        mark: tuple[int, ...],
        at_s: float,
        cost_s: float,
        *,
        is_same: bool = False,
        is_like: bool = False,
    ) -> None:
        """Note a reading, and whether it was the same as the one before, or nearly as much."""
        if is_same and mark == self.mark:
            self.patience = min(STEADY_LIMIT, 2 * self.patience)
        else:
            is_steady = (is_same or is_like) and not self.has_moved(mark)
            self.patience = NEAR_LIMIT if is_steady else 1
        self.mark, self.read_at_s, self.cost_s = mark, at_s, cost_s
        self.usual.append(mark)


def _slack(number: int) -> int:
    """By how much it comes and goes at any time."""
    return NEAR + number // 20


def is_near(now: tuple[int, ...], then: tuple[int, ...]) -> bool:
    """Whether all of these numbers differ by no more than the usual coming and going."""
    return len(now) == len(then) and all(
        abs(one - other) <= _slack(other) for one, other in zip(now, then, strict=True)
    )


@dataclass(slots=True)
class MemoryTurn:
    """When the memory of a process was read, and what it may have become since.

    A page becomes private by a fault, or because others let go of it; so memory without faults is
    what it was, but for the latter. Not every fault makes one: a worker that maps a batch has some
    each time and keeps nothing.
    """

    read_at_s: float = float("-inf")
    cost_s: float = 0.0
    touched: tuple[int, int] = (0, 0)
    """Page faults and resident pages then."""
    private_bytes: int = 0
    patience: int = 1
    """How many times the usual has to be touched: what was touched before did not stay."""

    def urgency(self, touched: tuple[int, int], at_s: float, interval_s: float) -> float | None:
        """How much a reading is wanted: by the part of it that may be new, and by its age."""
        limit_s = MEMORY_LIMIT * interval_s
        age_s = at_s - self.read_at_s
        if self.read_at_s == float("-inf"):
            return float("inf")
        news = self._news(touched) / self.patience
        if age_s < self.cost_s * PATIENCE or (news < NEWS_SHARE and age_s < limit_s):
            return None
        return news / NEWS_SHARE + age_s / limit_s

    def done(
        self, touched: tuple[int, int], at_s: float, cost_s: float, private_bytes: int | None
    ) -> None:
        """Note a reading, or that it could not be read."""
        private_bytes = self.private_bytes if private_bytes is None else private_bytes
        grown = abs(private_bytes - self.private_bytes)
        has_grown = grown > NEWS_SHARE / 2 * max(self.private_bytes, SMALL_BYTES)
        if self.read_at_s == float("-inf"):
            self.patience = FIRST_PATIENCE
        else:
            self.patience = 1 if has_grown else min(MEMORY_PATIENCE, 2 * self.patience)
        self.touched, self.private_bytes = touched, private_bytes
        self.read_at_s, self.cost_s = at_s, cost_s

    def _news(self, touched: tuple[int, int]) -> float:
        """What was touched since, as a part of what is private."""
        pages = max(touched[0] - self.touched[0], abs(touched[1] - self.touched[1]))
        return pages * PAGE_BYTES / max(self.private_bytes, SMALL_BYTES)


REST_S = 2.5
"""A reading that stands for a process at rest is no older than this."""
ASLEEP_S = 5.0
"""The same where it is seen each time that its main thread is in the very call it was read in."""
TRUSTED_S = 1.5
"""So young a reading stands for it without asking where its main thread is."""
FEW_PAGES = 64
"""A worker maps its next batch by some page faults; so few are no news for a moment."""
LOOKS = 1
"""How many readings in a row it must have used no cpu since the one before: its cpu use is 0."""


class Rest:
    """Follows what shows that a process has done something since the last reading."""

    __slots__ = ("_identity", "_looks", "_part", "_stat")

    def __init__(self) -> None:
        self._stat: Stat | None = None
        self._identity: Identity | None = None
        self._part: Part | None = None
        self._looks = 0

    def note(self, stat: Stat, identity: Identity, part: Part) -> None:
        """The process was read."""
        before = self._stat
        self._looks = self._looks + 1 if before is not None and _is_idle(stat, before) else 0
        self._stat, self._identity, self._part = stat, identity, part

    def holds(self, stat: Stat, identity: Identity, part: Part) -> bool:
        """Whether nothing shows that it has done much since, nor for some readings before.

        Its members compare by identity: whoever reads them hands out the same object while nothing
        in it has changed.
        """
        before = self._stat
        return (
            self._looks >= LOOKS
            and before is not None
            and stat.state in ("S", "I")
            and (stat is before or (_is_idle(stat, before) and _is_nearly(stat, before)))
            and identity is self._identity
            and part is self._part
        )


def _is_idle(stat: Stat, before: Stat) -> bool:
    """Whether no cpu time has passed, and it is in the same state with as many threads."""
    return (
        stat.cpu_ticks == before.cpu_ticks
        and stat.state == before.state
        and stat.thread_count == before.thread_count
    )


def _is_nearly(stat: Stat, before: Stat) -> bool:
    """Whether nothing else has moved but a few pages."""
    return (
        stat.minor_faults - before.minor_faults <= FEW_PAGES
        and abs(stat.rss_pages - before.rss_pages) <= FEW_PAGES
        and stat.major_faults == before.major_faults
        and stat.parent_pid == before.parent_pid
        and stat.name == before.name
        and stat.nice == before.nice
    )
