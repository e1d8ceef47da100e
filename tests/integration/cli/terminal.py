"""A real pseudo-terminal with a command of mpwatch in it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
WITHIN_S = 60.0


class Terminal:
    """A session of its own with a controlling terminal; `close` hangs it up.

    Args:
        arguments: Of the command.
        variables: More of its environment.
        width: Columns.
        height: Lines.
        program: What the interpreter runs; mpwatch if not given.
    """

    def __init__(
        self,
        *arguments: str,
        variables: Mapping[str, str],
        width: int = 120,
        height: int = 40,
        program: Sequence[str] = ("-m", "mpwatch"),
    ) -> None:
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(REPOSITORY)}
        environment |= variables
        for name in ("COLUMNS", "LINES"):  # pytest-xdist sets them: they would hide the real size
            environment.pop(name, None)
        self.output = b""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
            command = [sys.executable, *program, *arguments]
            os.execve(sys.executable, command, environment)
        self._status: int | None = None

    def read_until(self, words: str, within_s: float = WITHIN_S) -> None:
        """Read its output until it has these words, with no colour change inside."""
        deadline_s = time.monotonic() + within_s
        while words.encode() not in self.output:
            assert time.monotonic() < deadline_s, f"no {words!r} in {self.output[-3000:]!r}"
            self._read()

    def read_some(self) -> None:
        """Read what it has written, waiting a moment for it."""
        self._read()

    def forget(self) -> None:
        """Drop the output so far."""
        self.output = b""

    def press(self, keys: str) -> None:
        """Type these characters."""
        os.write(self._fd, keys.encode())

    def signal(self, number: int) -> None:
        """Send a signal to the command alone."""
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Close the other end, as when a terminal window is closed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def wait(self, within_s: float = WITHIN_S) -> int:
        """Wait for its exit, reading its output meanwhile; the exit code as a shell shows it."""
        deadline_s = time.monotonic() + within_s
        while self._status is None:
            assert time.monotonic() < deadline_s, f"it runs on; it printed {self.output[-2000:]!r}"
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self._status = status
            elif self._fd >= 0:
                self._read()
            else:
                time.sleep(0.02)
        while self._fd >= 0 and self._read():
            pass
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def end(self) -> None:
        """Kill the command with its children, and close the terminal."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.hang_up()

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 0.05)[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            time.sleep(0.02)
            return False
        self.output += data
        return bool(data)


def idle_program(
    variables: Mapping[str, str], *, before: str = "", cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """A Python program that sleeps in small steps, after what it does `before`."""
    program = f"{before}import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.02)"
    environment = {**os.environ, **variables}
    popen = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env=environment,
        cwd=cwd,
        start_new_session=True,
    )
    assert popen.stdout is not None
    assert popen.stdout.readline() == b"ready\n"
    return popen
