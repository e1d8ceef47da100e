"""Reads the terminal without waking up while nobody types.

Textual 8.2 looks for input ten times a second, which costs a dashboard that is only looked at 1 ms
of cpu each second: a twentieth of all that htop takes.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from codecs import getincrementaldecoder

from textual import constants
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

READ_BYTES = 4096
DRAIN_BYTES = 64
AWAKE_S = 0.1
"""How often it is looked whether a key is complete, for a moment after the last input: an escape
that nothing follows is the key itself."""


class Bell(threading.Event):
    """An event that a selector can wait for together with files."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._turn = threading.Lock()
        """The pipe and the event say the same, whoever rings at once."""

    def fileno(self) -> int:
        """Readable while the event is set."""
        return self._reader

    def set(self) -> None:
        """Ring."""
        with self._turn:
            if not self.is_set():
                os.write(self._writer, b"!")
            super().set()

    def clear(self) -> None:
        """Be quiet again, whatever lies in the pipe: else a selector would never wait again."""
        with self._turn:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._reader, DRAIN_BYTES):
                    pass
            super().clear()

    def close(self) -> None:
        """Let go of both ends."""
        os.close(self._reader)
        os.close(self._writer)


class QuietDriver(LinuxDriver):
    """Textual's driver for terminals, with another way of waiting for input."""

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._bell = Bell()
        self.exit_event = self._bell

    def run_input_thread(self) -> None:
        """Hand on what is typed until the driver is asked to stop."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")().decode
        settled_s = max(1.0, 2 * constants.ESCAPE_DELAY)
        heard_s = time.monotonic()
        with selectors.PollSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while not self._bell.is_set():
                is_awake = time.monotonic() - heard_s < settled_s
                found = selector.select(AWAKE_S if is_awake else None)
                if any(key.fd == self.fileno for key, _ in found):
                    heard_s = time.monotonic()
                    data = decode(os.read(self.fileno, READ_BYTES))
                    if not data:  # the terminal is gone
                        selector.unregister(self.fileno)
                    for message in parser.feed(data) if data else ():
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)
        for _ in parser.feed(""):
            pass

    def close(self) -> None:
        """Let go of everything."""
        super().close()
        self._bell.close()
