"""Progress lines on standard error for long operations."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType


class Progress:
    """Shows an activity and its elapsed time on one line, which is cleared at the end."""

    def __init__(self, what: str, seconds: float | None = None) -> None:
        self._what = what
        self._seconds = seconds
        self._began_s = time.monotonic()
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self.say("")
        return self

    def say(self, words: str) -> None:
        """Show a text after the elapsed time."""
        if not self._is_shown:
            return
        passed_s = time.monotonic() - self._began_s
        of = "" if self._seconds is None else f" of {self._seconds:.0f}"
        sys.stderr.write(f"\r\x1b[K{self._what}: {passed_s:.0f}{of} s  {words}")
        sys.stderr.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


SHOWN_AFTER_S = 1.0
DRAWN_EVERY_S = 0.2
BAR_CELLS = 30


class ProgressBar:
    """A progress bar on one line, which is cleared at the end.

    Nothing is drawn in the first second, or if standard error is not a terminal.
    """

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._began_s = clock()
        self._next_s = self._began_s + SHOWN_AFTER_S
        self._is_terminal = sys.stderr.isatty()
        self._is_drawn = False

    def __enter__(self) -> ProgressBar:
        return self

    def update(self, part: float) -> None:
        """Set the completed fraction, 0 to 1; cheap enough to be called for every input."""
        if not self._is_terminal:
            return
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + DRAWN_EVERY_S
        self._is_drawn = True
        part = min(1.0, max(0.0, part))
        cells = round(part * BAR_CELLS)
        bar = "#" * cells + "." * (BAR_CELLS - cells)
        left = f", {(now_s - self._began_s) * (1 - part) / part:.0f} s left" if part > 0.02 else ""
        sys.stderr.write(f"\r\x1b[K{self._what} [{bar}] {part:.0%}{left}")
        sys.stderr.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
