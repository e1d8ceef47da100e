"""Sends a terminal what changed, and not the line to the left of it, nor the same twice.

Textual 8.2 cuts what it sends of a changed line on the right only: each changed cell brings along
all that stands before it, once for each. With three cells in each of fifty rows that is most of
what a slow link carries, and of what a second costs. And a page that is opened has the whole screen
sent six times while it is laid out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rich.console import Console, RenderableType
from rich.control import Control
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.strip import Strip

BURST_S = 0.5
"""For how long a line is known to be on the screen. Not for longer: a terminal that somebody else
wrote to as well, or that lost something, is put right by the next whole screen."""


class Shown:
    """Whole lines that the terminal was sent a moment ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[int, tuple[float, int, Strip]] = {}

    def sparse(self, update: RenderableType | None) -> RenderableType | None:
        """The same update with less to send; anything else as it is."""
        if isinstance(update, ChopsUpdate):
            return _Pieces(self, update)
        if isinstance(update, LayoutUpdate):
            return _Lines(self, update)
        self.forget()
        return update

    def forget(self) -> None:
        """Nothing is known any more of what the terminal shows."""
        self._lines.clear()

    def is_new(self, y: int, x: int, strip: Strip) -> bool:
        """Whether a whole line has to be sent, and it is from here on."""
        now_s = self._clock()
        at_s, before_x, before = self._lines.get(y, (0.0, -1, None))
        if before == strip and before_x == x and now_s - at_s < BURST_S:
            return False
        self._lines[y] = (now_s, x, strip)
        return True

    def has_changed(self, y: int) -> None:
        """Note that a part of a line was sent."""
        self._lines.pop(y, None)


class _Lines(LayoutUpdate):
    """A whole screen, but for the lines that are there."""

    def __init__(self, shown: Shown, whole: LayoutUpdate) -> None:
        super().__init__(whole.strips, whole.region)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        """What the terminal is sent."""
        x, top = self.region.x, self.region.y
        sequences: list[str] = []
        for y, parts in enumerate(self.strips, top):
            strip = _one(parts)
            if self._shown.is_new(y, x, strip):
                sequences += (_jump(x, y), strip.render(console))
        return "".join(sequences)


class _Pieces(ChopsUpdate):
    """Parts of lines, cut on both sides."""

    def __init__(self, shown: Shown, whole: ChopsUpdate) -> None:
        super().__init__(whole.chops, whole.spans, whole.chop_ends)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        """What the terminal is sent: each piece behind a jump to its place."""
        sequences: list[str] = []
        for y, left, right in self.spans:
            chops, ends = self.chops[y], self.chop_ends[y]
            parts = [
                (start, end, strip)
                for end, (start, strip) in zip(ends, chops.items(), strict=False)
                if strip is not None and start < right and end > left
            ]
            is_whole = left <= 0 and right >= ends[-1] and len(parts) == len(ends)
            if not is_whole:
                self._shown.has_changed(y)
            elif not self._shown.is_new(y, 0, _one(strip for _, _, strip in parts)):
                continue
            for start, end, strip in parts:
                first, last = max(left, start), min(right, end)
                if (first, last) != (start, end):
                    strip = strip.crop(first - start, last - start)
                sequences += (_jump(first, y), strip.render(console))
        return "".join(sequences)


def _jump(x: int, y: int) -> str:
    return Control.move_to(x, y).segment.text


def _one(parts: Iterable[Strip]) -> Strip:
    """Strips side by side, comparable however they were cut."""
    return Strip.join(parts).simplify()
