"""What watching costs: this process, and the hooks by their own account."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import OwnCost, Snapshot


class OwnMeter:
    """What watching costs this process and, by the hooks' own account, the job."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: tuple[float, float] | None = None
        self._threads = Rate()
        self._calls = Rate()
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
        hooks = [(p.process, p.hook) for p in snapshot.living()]
        threads = {p: hook.own_cost_ns for p, hook in hooks if hook.own_cost_ns is not None}
        calls = {p: hook.own_calls_ns for p, hook in hooks if hook.own_calls_ns is not None}
        self._cost = OwnCost(
            cpu_percent=percent,
            rss_bytes=_own_rss_bytes(),
            target_ns_per_s=self._threads.take(snapshot.at_s, threads),
            calls_ns_per_s=self._calls.take(snapshot.at_s, calls),
        )
        return self._cost


class Rate:
    """Nanoseconds per second of something that the hooks add up."""

    def __init__(self) -> None:
        self._before: tuple[float, dict[ProcessId, int]] | None = None
        self._rate: float | None = None

    def take(self, at_s: float, totals: Mapping[ProcessId, int]) -> float | None:
        """The rate since the last time, over the processes that were there then.

        Args:
            at_s: When.
            totals: What each process has added up.
        """
        before = self._before
        if not totals or (before is not None and at_s <= before[0]):
            return self._rate
        self._before = (at_s, dict(totals))
        if before is not None:
            grown = (max(0, each - before[1].get(p, each)) for p, each in totals.items())
            self._rate = sum(grown) / (at_s - before[0])
        return self._rate


def _own_rss_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError):
        return None
