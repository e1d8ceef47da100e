"""The terminal of a command: whether there is one, width, colour, progress, what was recorded."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO, TypeVar

from mpwatch.cli.failures import Failure
from mpwatch.model.sanitize import clean
from mpwatch.model.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from mpwatch.report.table import TextStyle


def text_style(stream: TextIO | None = None) -> TextStyle:
    """Width of a stream in columns (100 for a pipe), and whether to use colour.

    Args:
        stream: `None` for standard output.
    """
    # Imported here: JSON output does not need the module.
    from mpwatch.report.table import TextStyle

    stream = stream or sys.stdout
    is_terminal = stream.isatty()
    width = os.get_terminal_size(stream.fileno()).columns if is_terminal else 100
    return TextStyle(width=max(60, width), has_colour=is_terminal and "NO_COLOR" not in os.environ)


def need_terminal(instead: str) -> None:
    """Require a terminal, or a browser by textual-serve.

    Raises:
        Failure: Standard input or output is not a terminal.
    """
    if not is_served() and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure("The dashboard needs a terminal, and there is none here.", instead)


def is_served() -> bool:
    """Whether Textual shows the dashboard elsewhere than on a terminal, as textual-serve has it."""
    return "TEXTUAL_DRIVER" in os.environ


Line = TypeVar("Line", bound="_StatusLine")


class _StatusLine:
    """One line on standard error that is drawn again and again, and cleared at the end.

    Nothing is drawn if standard error is not a terminal.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._is_drawn = False

    def __enter__(self: Line) -> Line:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_drawn:
            self._draw("")

    def _draw(self, text: str) -> None:
        if self._is_terminal:
            self._is_drawn = True
            width = _columns(sys.stderr)
            if 1 < width <= len(text):  # a line that wraps cannot be drawn over
                text = f"{text[: width - 2]}…"
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()


def _columns(stream: TextIO) -> int:
    """Columns of a terminal; zero if they are not known."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return 0


class Progress(_StatusLine):
    """Shows an activity and its elapsed time."""

    def __init__(self, activity: str, seconds: float | None = None) -> None:
        super().__init__()
        self._activity = activity
        self._seconds = seconds
        self._started_s = time.monotonic()
        self.show("")

    def show(self, words: str) -> None:
        """Show a text after the elapsed time."""
        passed_s = time.monotonic() - self._started_s
        of = "" if self._seconds is None else f" of {self._seconds:.0f}"
        self._draw(f"{self._activity}: {passed_s:.0f}{of} s  {words}")


SHOWN_AFTER_S = 1.0
DRAWN_EVERY_S = 0.2
BAR_CELLS = 30


class ProgressBar(_StatusLine):
    """A progress bar with the remaining time; not drawn in the first second."""

    def __init__(self, activity: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._activity = activity
        self._clock = clock
        self._started_s = clock()
        self._next_s = self._started_s + SHOWN_AFTER_S

    def update(self, part: float) -> None:
        """Set the completed fraction, 0 to 1; cheap enough to be called for every input."""
        if not self._is_terminal:
            return
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + DRAWN_EVERY_S
        part = min(1.0, max(0.0, part))
        cells = round(part * BAR_CELLS)
        bar = "#" * cells + "." * (BAR_CELLS - cells)
        left = ""
        if part > 0.02:
            left = f", {(now_s - self._started_s) * (1 - part) / part:.0f} s left"
        self._draw(f"{self._activity} [{bar}] {part:.0%}{left}")


def tell_recorded(path: str, seconds: float | None) -> None:
    """Say on standard error what was recorded, and the command that shows it.

    Args:
        path: Of the file.
        seconds: How long what is in it lasts; `None` without a reading.
    """
    name = clean(path)
    if seconds is None:
        print(f"mpwatch: {name} has no reading of the job.", file=sys.stderr)
        return
    try:
        size = bytes_text(os.path.getsize(path))
    except OSError as error:
        print(f"mpwatch: {name} cannot be read: {error.strerror}.", file=sys.stderr)
        return
    command = f"mpwatch replay {shlex.quote(name)}"
    print(
        f"mpwatch: recorded {seconds_text(seconds)} in {name} ({size}). To see it: {command}",
        file=sys.stderr,
    )
