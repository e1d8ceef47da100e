"""Whether a process does nothing, so that its last reading may stand for it for a moment."""

from __future__ import annotations

from mpwatch.collect.job.roles import Part
from mpwatch.collect.process.procfs import Stat
from mpwatch.collect.process.static_facts import Identity

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
