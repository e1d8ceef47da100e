"""A program started by a command: waited for, watched, and ended as it ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import IO

from mpwatch.cli.failures import Failure

GRACE_S = 5.0
"""How long a program may take to end after SIGTERM."""


def hooked_command(argv: Sequence[str], *, is_module: bool = False) -> list[str]:
    """The command line that runs a Python program with the hook in."""
    import mpwatch.hook

    runner = os.path.join(os.path.dirname(mpwatch.hook.__file__), "run.py")
    return [sys.executable, runner, *(["-m"] if is_module else []), *argv]


def start(command: Sequence[str], output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start a program; its output goes to a file if one is given.

    Raises:
        Failure: It cannot be started.
    """
    try:
        return subprocess.Popen(
            command,
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
        )
    except OSError as error:
        raise Failure(f"{command[0]} cannot be started: {error.strerror}.") from None


@contextlib.contextmanager
def passing_signals(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Hand SIGTERM and SIGHUP on to the child; a Ctrl-C reaches it from the terminal anyway."""

    def hand_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, _do_nothing)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Stay: the child decides what Ctrl-C means. A handler, since ignoring would be inherited."""


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether a program has ended, leaving it for others to see how.

    `poll` would collect it, and before Linux 6.15 nobody but its collector learns its exit code.
    """
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def end(child: subprocess.Popen[bytes]) -> None:
    """Ask a program to end, and make it if it does not."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def leave_as(returncode: int) -> int:
    """The exit code that tells our parent what the child's end told us.

    A child killed by a signal lets this process die of the same one, so that shells and launchers
    see no difference; where that signal does not kill, 128 + n is what shells print.
    """
    if returncode >= 0:
        return returncode
    number = -returncode
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    _without_core()
    sys.stdout.flush()
    os.kill(os.getpid(), number)
    return 128 + number


def _without_core() -> None:
    """The child has left its core already; ours would only overwrite it."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


@contextlib.contextmanager
def captured() -> Iterator[IO[bytes]]:
    """A temporary file for the output of a program that runs behind the dashboard."""
    with tempfile.NamedTemporaryFile(prefix="mpwatch-output-") as file:
        yield file


def pour(path: str, child: subprocess.Popen[bytes]) -> None:
    """Copy a growing file to standard output until its writer has ended."""
    with open(path, "rb") as file:
        while True:
            has_ended = child.poll() is not None
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            if has_ended:
                return
            time.sleep(0.1)
