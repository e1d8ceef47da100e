"""Which notes of a process were received, so that each one is one event."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict

from mpwatch.model.events import HookNote

GAPS_KEPT = 64
"""A hook that lost notes leaves gaps in their numbers. Beyond so many, the oldest gap is closed."""
UNNUMBERED_KEPT = 1024
"""Notes without a number that are remembered; the oldest is forgotten first."""


class ReceivedNotes:
    """The notes received from the hook of one process.

    The same note can arrive by the hook's socket, in the file that a process leaves when it dies,
    and once more from either. Its number identifies it. Notes of hooks and recordings without
    numbers are identified by time, kind and content.
    """

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        """Numbers received, as ranges `[first, after)` in order; nearly always a single one."""
        self._unnumbered: OrderedDict[tuple[int, str, str], None] = OrderedDict()

    def restart(self) -> None:
        """Another hook was loaded into the process: it counts from 0 again."""
        self._ranges.clear()

    def has(self, note: HookNote) -> bool:
        """Whether this note was received."""
        if note.number is None:
            return _content(note) in self._unnumbered
        place = bisect_right(self._ranges, note.number, key=_first)
        return place > 0 and note.number < self._ranges[place - 1][1]

    def add(self, note: HookNote) -> bool:
        """Remember a note, and return whether it is new."""
        if self.has(note):
            return False
        if note.number is None:
            self._unnumbered[_content(note)] = None
            if len(self._unnumbered) > UNNUMBERED_KEPT:
                self._unnumbered.popitem(last=False)
        else:
            self._add_number(note.number)
        return True

    def _add_number(self, number: int) -> None:
        """Extend the range before or after the number, join both, or begin a range."""
        place = bisect_right(self._ranges, number, key=_first)
        first, after = number, number + 1
        if place < len(self._ranges) and self._ranges[place][0] == after:
            after = self._ranges.pop(place)[1]
        if place > 0 and self._ranges[place - 1][1] == first:
            place -= 1
            first = self._ranges.pop(place)[0]
        self._ranges.insert(place, (first, after))
        if len(self._ranges) > GAPS_KEPT:
            (oldest, _), (_, end) = self._ranges[:2]
            self._ranges[:2] = [(oldest, end)]


def _first(numbers: tuple[int, int]) -> int:
    return numbers[0]


def _content(note: HookNote) -> tuple[int, str, str]:
    return note.at_ns, note.kind, repr(note.data)
