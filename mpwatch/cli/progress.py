"""A line on standard error while something takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType


class Progress:
    """Says what goes on and how much is left, on one line that is wiped at the end."""

    def __init__(self, what: str, seconds: float | None = None) -> None:
        self._what = what
        self._seconds = seconds
        self._began_s = time.monotonic()
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self.say("")
        return self

    def say(self, words: str) -> None:
        """Show some words beside the time that has passed."""
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
