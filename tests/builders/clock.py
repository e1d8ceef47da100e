"""Clocks that a test sets."""

from __future__ import annotations


class Clock:
    """A clock in seconds, which shows what a test has set."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class NanosecondClock:
    """A clock in nanoseconds, as a hook's `System` has one; only sleeping advances it by itself."""

    def __init__(self, now_ns: int = 10**12) -> None:
        self.now_ns = now_ns
        self._limit_ns = now_ns + 10**10

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, duration_s: float) -> None:
        self.now_ns += int(duration_s * 1e9)
        assert self.now_ns < self._limit_ns, "it sleeps without end"
