"""What watching costs: this process, and the hooks by their own account."""

from __future__ import annotations

import os
from collections.abc import Callable

from mpwatch.model.snapshot import OwnCost, Snapshot


class OwnMeter:
    """What watching costs this process and, by the hooks' own account, the job."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: tuple[float, float] | None = None
        self._hooks: tuple[float, int] | None = None
        self._cost = OwnCost()

    def read(self, snapshot: Snapshot) -> OwnCost:
        """The cost since the last reading; unchanged within a quarter of a second."""
        now_s = self._clock()
        times = os.times()
        used_s = times.user + times.system + times.children_user + times.children_system
        if self._last is not None and now_s - self._last[0] < 0.25:
            return self._cost
        percent = None
        if self._last is not None:
            percent = 100 * (used_s - self._last[1]) / (now_s - self._last[0])
        self._last = (now_s, used_s)
        self._cost = OwnCost(
            cpu_percent=percent,
            rss_bytes=_own_rss_bytes(),
            target_ns_per_s=self._target_cost(snapshot),
        )
        return self._cost

    def _target_cost(self, snapshot: Snapshot) -> float | None:
        costs = [p.hook.own_cost_ns for p in snapshot.living() if p.hook.own_cost_ns is not None]
        if not costs:
            return None
        total, earlier = sum(costs), self._hooks
        self._hooks = (snapshot.at_s, total)
        if earlier is None or snapshot.at_s <= earlier[0] or total < earlier[1]:
            return self._cost.target_ns_per_s
        return (total - earlier[1]) / (snapshot.at_s - earlier[0])


def _own_rss_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError):
        return None
