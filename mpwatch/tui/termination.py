"""Ends a dashboard on SIGTERM, SIGHUP or loss of its terminal, within a time limit.

Textual handles neither signal, and without a terminal its output queue fills up and blocks the
program for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol

from mpwatch.collect.own_threads import OwnThreads

_STDIN, _STDOUT, _STDERR = 0, 1, 2
STUCK_AFTER_S = 3.0
"""Seconds in which a dashboard must end before it is killed."""


class Runnable(Protocol):
    """A Textual application, as far as it is run here."""

    @property
    def return_code(self) -> int | None:
        """The exit code that it was given; `None` before its end."""

    def run(self, *, inline: bool, inline_no_clear: bool, mouse: bool) -> Any:
        """Run it to its end; the value that it was given for its exit."""


class Exitable(Protocol):
    """The application to end."""

    def exit(self) -> None:
        """End the application; called on the thread of its event loop."""


class Termination:
    """Whether and why the dashboard must end.

    Args:
        on_stuck: Called on another thread before the process is killed.
        needs_terminal: Whether to end also if the terminal was lost before this was made: the
            signal of that had no handler here then. By default a program without one goes on.

    Attributes:
        signal: SIGTERM or SIGHUP once one arrived, SIGHUP also for a lost terminal.
    """

    def __init__(
        self, on_stuck: Callable[[], None] = lambda: None, *, needs_terminal: bool = False
    ) -> None:
        self._on_stuck = on_stuck
        self._is_over = threading.Event()
        # Behind textual-serve there is none.
        self._has_terminal = needs_terminal or os.isatty(_STDIN)
        self._app: Exitable | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.signal: signal.Signals | None = None

    @property
    def exit_code(self) -> int | None:
        """128 + n if signal n ended the dashboard, else `None`."""
        return None if self.signal is None else 128 + self.signal

    def run(self, app: Runnable, *, is_inline: bool = False) -> int:
        """Run an application to its end.

        Args:
            app: It calls `started` once it runs, and `check_terminal` now and then.
            is_inline: Below the prompt, where it stays.

        Returns:
            An exit code: 128 + n after SIGTERM or SIGHUP.
        """
        with self.watching():
            result = app.run(inline=is_inline, inline_no_clear=is_inline, mouse=not is_inline)
        if self.exit_code is not None:
            return self.exit_code
        return app.return_code or 0 if result is None else int(result)

    def started(self, app: Exitable) -> None:
        """Register the application; called within its event loop."""
        self._app, self._loop = app, asyncio.get_running_loop()
        self.check_terminal()
        if self.signal is not None:
            app.exit()

    def begin(self, number: signal.Signals) -> None:
        """End the dashboard; kill it if it does not end in time."""
        if self.signal is not None:
            return
        self.signal = number
        _silence_lost_outputs()
        if self._loop is not None and self._app is not None:
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                self._loop.call_soon_threadsafe(self._app.exit)
        # At a limit of processes it cannot start: then nothing ends a dashboard that hangs.
        OwnThreads().start(self._enforce, "mpwatch-termination")

    def check_terminal(self) -> None:
        """End the dashboard if its terminal is lost: isatty(3) is false after a hangup."""
        if self._has_terminal and not os.isatty(_STDIN):
            self.begin(signal.SIGHUP)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Handle the signals while the dashboard runs."""

        def taken(number: int, _frame: FrameType | None) -> None:
            # The SIGCONT that follows the SIGHUP of a lost terminal makes Textual start its threads
            # again; in a dashboard that is ending, nothing would stop them.
            signal.signal(signal.SIGCONT, signal.SIG_IGN)
            self.begin(signal.Signals(number))

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGHUP)
        # Textual does not remove its handlers of these signals. The kernel sends SIGCONT with the
        # SIGHUP of a lost terminal, and Textual's handler then fails without an event loop.
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


def _silence_lost_outputs() -> None:
    """Let standard output and error of a lost terminal accept what is still written to them.

    Each write fails with EIO there, and an application that is inline prints its last lines.
    """
    for fd in (_STDOUT, _STDERR):
        if _is_lost(fd):
            with contextlib.suppress(OSError):  # no descriptor is left
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, fd)
                os.close(null)


def _is_lost(fd: int) -> bool:
    try:
        os.get_terminal_size(fd)
    except OSError as error:
        return error.errno == errno.EIO
    return False
