"""The terminal of a command: width, colour, progress lines; thresholds of the garbage collector."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpwatch.report.table import TextStyle


def text_style() -> TextStyle:
    """Width of standard output in columns (100 for a pipe), and whether to use colour."""
    # Imported here: JSON output does not need the module.
    from mpwatch.report.table import TextStyle

    is_terminal = sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal else 100
    return TextStyle(width=max(60, width), has_colour=is_terminal and "NO_COLOR" not in os.environ)


START = 200_000
"""Net allocations that start a collection, in place of Python's 700 (2,000 from 3.13): more than
the start of a command or one sample needs."""
RUNNING = 50_000
"""The same for a dashboard: such a collection takes 20 ms.

Each sample of a job allocates thousands of small values, and reference counts free those of the
sample before; cycles are rare. With a collection every 700 objects, the collector took a tenth of
all the cpu time of a dashboard (64 workers, Python 3.11), and as much of a start."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect rarely inside the context; restores the thresholds, for callers of `main`."""
    before = gc.get_threshold()
    gc.set_threshold(START, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def set_aside_what_is_loaded() -> None:
    """Exclude all existing objects (modules, classes, styles) from later collections.

    For long-running commands, once everything is imported.
    """
    gc.freeze()
    gc.set_threshold(RUNNING, *gc.get_threshold()[1:])


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
