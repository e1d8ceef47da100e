"""The clock of a node minus the clock of the head, with its error."""

from __future__ import annotations

from typing import NamedTuple

CLOCKS_APART = 1e-3
"""Seconds by which two clocks may move apart in a second: Linux lets a time server change the rate
of a clock by 500 parts in a million (MAXFREQ in include/linux/timex.h, Linux 6.12)."""


class ClockOffset(NamedTuple):
    """The offset as estimated from one round trip."""

    offset_s: float
    error_s: float
    """Half of the round trip."""
    at_s: float
    """When it was estimated, by the monotonic clock of the head."""

    def error_at_s(self, now_s: float) -> float:
        """How far the offset may be wrong by now: the clocks move apart meanwhile."""
        return self.error_s + CLOCKS_APART * max(0.0, now_s - self.at_s)

    def is_better(self, newer: ClockOffset) -> bool:
        """Whether this says more than a newer estimate, and agrees with it.

        Two estimates that exclude each other mean that one of the clocks was set.
        """
        error_s = self.error_at_s(newer.at_s)
        agrees = abs(self.offset_s - newer.offset_s) <= error_s + newer.error_s
        return agrees and error_s <= newer.error_s
