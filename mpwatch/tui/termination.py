"""Ends a dashboard when SIGTERM or SIGHUP arrives or its terminal is gone, and within a bound.

Textual alone would go on: it handles neither signal, and without a terminal its output queue fills
up and blocks the program for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

_STDIN = 0
STUCK_AFTER_S = 3.0
"""How long a dashboard may take to end by itself."""


class Ending(Protocol):
    """What is ended."""

    def exit(self) -> None:
        """End; called on the thread of its event loop."""


class Termination:
    """Whether and why the dashboard is to end.

    Args:
        on_stuck: Called on another thread before the process is ended by force.

    Attributes:
        signal: SIGTERM or SIGHUP once one arrived, SIGHUP also for a terminal that is gone.
    """

    def __init__(self, on_stuck: Callable[[], None] = lambda: None) -> None:
        self._on_stuck = on_stuck
        self._is_over = threading.Event()
        self._has_terminal = os.isatty(_STDIN)  # behind textual-serve there is none
        self._app: Ending | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.signal: signal.Signals | None = None

    @property
    def exit_code(self) -> int | None:
        """128 + n if a signal ended it, else `None`."""
        return None if self.signal is None else 128 + self.signal

    def started(self, app: Ending) -> None:
        """Note what is to be ended, from within its event loop."""
        self._app, self._loop = app, asyncio.get_running_loop()
        if self.signal is not None:
            app.exit()

    def begin(self, number: signal.Signals) -> None:
        """End the dashboard, by force if it does not end in time."""
        if self.signal is not None:
            return
        self.signal = number
        threading.Thread(target=self._enforce, name="mpwatch-termination", daemon=True).start()
        if self._loop is not None and self._app is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._app.exit)

    def look_at_terminal(self) -> None:
        """End the dashboard if its terminal is gone: of one that hung up, isatty(3) is false."""
        if self._has_terminal and not os.isatty(_STDIN):
            self.begin(signal.SIGHUP)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Take the signals while the dashboard runs."""

        def taken(number: int, _frame: FrameType | None) -> None:
            self.begin(signal.Signals(number))

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGHUP)
        # Textual leaves its handlers of these behind. That of SIGCONT, which the kernel sends with
        # the SIGHUP of a terminal that is gone, then fails for want of an event loop.
        before = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT)}
        before |= {number: signal.signal(number, taken) for number in numbers}
        try:
            yield
        finally:
            self._is_over.set()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _enforce(self) -> None:
        if self._is_over.wait(STUCK_AFTER_S):
            return
        try:
            self._on_stuck()
        finally:
            os._exit(self.exit_code or 1)
