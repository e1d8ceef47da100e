"""The way to one agent: the launcher's process and its three pipes."""

from __future__ import annotations

import contextlib
import os
import selectors
import time

from mpwatch.model.sanitize import clean
from mpwatch.nodes.launchers.launch import Launch, Pipes

EXIT_S = 0.3
"""How long the exit status of a launcher whose output has ended is waited for."""
UNSENT_BYTES_LIMIT = 1 << 16
_POLL_S = 0.01
_CHUNK_BYTES = 1 << 16
_TOLD_BYTES = 4096


class Link:
    """The launcher of one node, which may be started several times.

    Attributes:
        told: What the launcher has printed to standard error last.
    """

    def __init__(self, launch: Launch, selector: selectors.BaseSelector, owner: object) -> None:
        """Make it, with nothing started.

        Args:
            launch: The node.
            selector: Where the pipes are registered, with `(owner, stream)` as their data.
            owner: Reads the pipes.
        """
        self.told = bytearray()
        self._launch = launch
        self._selector = selector
        self._owner = owner
        self._process: Pipes | None = None
        self._unsent = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether the launcher was started and not killed since."""
        return self._process is not None

    def start(self) -> None:
        """Start the launcher.

        Raises:
            OSError: Its program cannot be started.
            CannotLaunch: The node is gone.
        """
        self.told, self._unsent = bytearray(), bytearray()
        self._process = process = self._launch.start()
        for stream in (process.stdout, process.stderr, process.stdin):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        for stream in (process.stdout, process.stderr):
            self._selector.register(stream, selectors.EVENT_READ, (self._owner, stream))  # type: ignore[arg-type]

    def hang_up(self) -> None:
        """Close the agent's input, at which it ends."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the launcher; its exit status stays available."""
        end_s = time.monotonic() + seconds
        while self._process is not None and not self._process.has_ended():
            if time.monotonic() >= end_s:
                return
            time.sleep(_POLL_S)

    def kill(self, *, has_agent: bool) -> int | None:
        """Kill the launcher; its exit code, `None` if there was none.

        A launcher without an agent is killed with all that it has started. One with an agent is
        killed alone: the agent ends with its input, and py-spy, which the agent may have started,
        must not be killed while it has stopped a process.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.has_ended():
                pass
            elif has_agent:
                process.kill()
            else:
                process.kill_all()
        code = process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(stream)
                with contextlib.suppress(OSError):
                    stream.close()
        return code

    def send(self, frame: bytes) -> bool:
        """Send a frame as soon as the agent accepts it; whether that may happen."""
        if len(self._unsent) > UNSENT_BYTES_LIMIT:
            return False
        self._unsent += frame
        self.flush()
        return True

    def flush(self) -> None:
        """Send what the agent accepts now."""
        stream = self._process.stdin if self._process is not None else None
        if not self._unsent or stream is None:
            return
        try:
            del self._unsent[: os.write(stream.fileno(), self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()

    def read(self, stream: object) -> bytes | None:
        """What has arrived on a stream, if that is the output of the agent.

        Returns:
            Empty at the end of the output; `None` if nothing has arrived there.
        """
        process = self._process
        if process is None or process.stdout is None or process.stderr is None:
            return None
        is_output = stream is process.stdout
        source = process.stdout if is_output else process.stderr
        try:
            data = os.read(source.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(source)
        if is_output:
            return data
        self.told = (self.told + data)[-_TOLD_BYTES:]
        return None

    def read_last_words(self) -> None:
        """Wait a moment for the end of the launcher, and read what it still has to tell."""
        self.wait(EXIT_S)
        if self._process is not None and self._process.stderr is not None:
            with contextlib.suppress(OSError):
                self.told += os.read(self._process.stderr.fileno(), _TOLD_BYTES) or b""

    @property
    def told_text(self) -> str:
        """What the launcher has printed to standard error, not sanitized."""
        return self.told.decode("utf-8", "replace")


def last_line(*texts: str) -> str:
    """The last line of the first text that has one, sanitized, without a full stop.

    The command that mpwatch on the node suggests is left out: the sentence above it says why.
    """
    for text in texts:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and lines[-1].startswith("  try: "):
            del lines[-1]
        if lines:
            return clean(lines[-1].strip()).rstrip(".")
    return ""
