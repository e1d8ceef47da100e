"""How often the expensive parts of a process are worth reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

SLOW_S = 30.0
"""Parts that did not move are read again after this long all the same."""
PATIENCE = 50
"""A part that took t seconds is not read again for t times this: at most 2 % of a cpu each."""
STEADY_LIMIT = 4
"""What was the same each time that it was read, and whose marks never moved, may become so many
times as old."""
NEAR = 3
"""A worker's descriptors go up and down by a few with every batch: no news for `SLOW_S`."""


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


@dataclass(slots=True)
class Slow:
    """When an expensive part was read, what that cost, and what it saw then."""

    read_at_s: float = float("-inf")
    cost_s: float = 0.0
    mark: tuple[int, ...] = ()
    """What moves when the part is worth reading again."""
    patience: int = 1
    """How many times as old as usual it may become."""

    def age_s(self, at_s: float) -> float:
        """How old the reading is; without end if there is none."""
        return at_s - self.read_at_s

    def has_moved(self, mark: tuple[int, ...]) -> bool:
        """Whether what was seen then has moved by more than the usual coming and going."""
        return len(mark) != len(self.mark) or any(
            abs(now - then) > NEAR + then // 20 for now, then in zip(mark, self.mark, strict=True)
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
        if mark == self.mark:
            return age_s > interval_s * self.patience and age_s >= self.cost_s * PATIENCE
        self.patience = 1
        return age_s >= self.cost_s * PATIENCE and (self.has_moved(mark) or age_s > interval_s)

    def done(
        self, mark: tuple[int, ...], at_s: float, cost_s: float, *, is_same: bool = False
    ) -> None:
        """Note a reading, and whether it was the same as the one before."""
        is_steady = is_same and mark == self.mark
        self.patience = min(STEADY_LIMIT, 2 * self.patience) if is_steady else 1
        self.mark, self.read_at_s, self.cost_s = mark, at_s, cost_s
