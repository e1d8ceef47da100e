"""Whether a process does nothing, so that its last reading may stand for it for a moment."""

from __future__ import annotations

from mpwatch.collect.identity import Identity
from mpwatch.collect.procfs import Stat
from mpwatch.collect.roles import Part

REST_S = 2.5
"""A reading that stands for a process at rest is no older than this."""
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
        # A worker maps its next batch by a few page faults; that alone is no news for a second.
        has_moved = (
            before is None
            or stat.cpu_ticks != before.cpu_ticks
            or stat.state != before.state
            or stat.thread_count != before.thread_count
        )
        self._looks = 0 if has_moved else self._looks + 1
        self._stat, self._identity, self._part = stat, identity, part

    def holds(self, stat: Stat, identity: Identity, part: Part) -> bool:
        """Whether nothing shows that it has done anything since, nor for some readings before.

        Its members compare by identity: whoever reads them hands out the same object while nothing
        in it has changed.
        """
        return (
            self._looks >= LOOKS
            and stat.state in ("S", "I")
            and stat is self._stat
            and identity is self._identity
            and part is self._part
        )
