"""Equal stacks kept once: sixty-four idle workers, and as many feeder threads, show two."""

from __future__ import annotations

from mpwatch.model.samples import Frame

STACKS_KEPT = 4096
"""Different ones; when there are more, all are forgotten, and those still shown stay with them."""


class EqualStacks:
    """Hands out the same tuple for equal frames, so that what is derived of one holds for all."""

    def __init__(self) -> None:
        self._known: dict[tuple[Frame, ...], tuple[Frame, ...]] = {}

    def one_of(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """The first of all equal ones."""
        if len(self._known) >= STACKS_KEPT:
            self._known.clear()
        return self._known.setdefault(frames, frames)
