"""When to read a job again: at the pace that was asked for, and sooner where things happen."""

from __future__ import annotations

import time
from collections.abc import Callable

SOON_S = 0.1
"""The first readings, and those after a birth or an end: then twice as long each time."""
LISTEN_S = 0.1
"""How long to listen between two looks for births: hooks send at most ten times a second."""
CALM_LISTEN_S = 0.25
CALM_S = 30.0
"""A job in which nobody was born and nobody has ended for so long is listened to less often: each
time that a program wakes up costs it a tenth of a millisecond, however little it does then."""
PATIENCE = 20
"""A reading that took t seconds of cpu is not followed by an early one for t times this."""


class Pace:
    """Says when the next reading is due.

    A child that lives for a quarter of a second falls between two readings a second apart, and with
    it everything that only a reading tells: what it was, who started it, what it held.
    """

    def __init__(self, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.period_s = period_s
        self._clock = clock
        self._gap_s = SOON_S
        self._began_s = float("-inf")
        self._rest_s = 0.0
        self._due_s = float("-inf")
        self._changed_s = clock()

    @property
    def is_calm(self) -> bool:
        """Whether nothing has happened for a while."""
        return self._clock() - self._changed_s >= CALM_S

    @property
    def left_s(self) -> float:
        """Seconds until the next reading is due, 0 if it is."""
        return max(0.0, self._due_s - self._clock())

    def has_read(self, began_s: float, cost_s: float | None) -> None:
        """Note a reading that began then and took so much cpu time."""
        self._began_s = began_s
        self._rest_s = PATIENCE * (cost_s or 0.0)
        early_s = began_s + min(self.period_s, max(self._gap_s, self._rest_s))
        self._due_s = max(early_s, self._clock() + self.period_s / 4 if self._is_slow() else 0.0)
        self._gap_s = min(self.period_s, 2 * self._gap_s)

    def has_changed(self) -> None:
        """Note that a process was born or has ended."""
        self._gap_s = SOON_S
        self._changed_s = self._clock()
        soon_s = self._began_s + min(self.period_s, max(SOON_S, self._rest_s))
        self._due_s = min(self._due_s, soon_s)

    def _is_slow(self) -> bool:
        """Whether a reading takes about as long as what lies between two of them."""
        return self._clock() - self._began_s > self.period_s / 2
