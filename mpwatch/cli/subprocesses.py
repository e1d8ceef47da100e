"""A program started by a command: waited for, watched, and ended as it ended."""

from __future__ import annotations

import contextlib
import errno
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
"""How long a program that mpwatch ends may take after SIGTERM, before SIGKILL."""
ENDING_S = 10.0
"""How long mpwatch waits for a program after it passed SIGTERM or SIGHUP to it: as long as
`docker stop` leaves both of them."""
_LOOK_S = 0.1


def hooked_command(
    argv: Sequence[str], *, is_module: bool = False, python: Sequence[str] = (sys.executable,)
) -> list[str]:
    """The command line that runs a Python program with the hook loaded.

    Args:
        argv: The program or module, and its arguments.
        is_module: It is a module.
        python: The interpreter, with options.
    """
    import mpwatch.hook

    runner = os.path.join(os.path.dirname(mpwatch.hook.__file__), "run.py")
    return [*python, runner, *(["-m"] if is_module else []), *argv]


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


class PassedSignals:
    """SIGTERM and SIGHUP of this process, passed to its child.

    Attributes:
        first: The first of them, or `None`.
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._passed_s: float | None = None
        self.first: signal.Signals | None = None

    def pass_on(self, number: int, _frame: FrameType | None = None) -> None:
        """Send a signal to the child as well."""
        if self.first is None:
            self.first, self._passed_s = signal.Signals(number), time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)

    @property
    def is_time_over(self) -> bool:
        """Whether the child had its time to end after a signal and still runs."""
        passed_s = self._passed_s
        return passed_s is not None and time.monotonic() - passed_s > ENDING_S

    def wait(self) -> int:
        """Wait for the child; after a signal only for `ENDING_S`.

        Returns:
            The exit code for this process: the child's, or 128 + n if it does not end in time. It
            goes on then: it may be writing a checkpoint.
        """
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return leave_as(self._child.wait(_LOOK_S))
            if self.is_time_over and self.first is not None:
                with contextlib.suppress(OSError):
                    print(
                        f"mpwatch: process {self._child.pid} still runs {ENDING_S:.0f} s after "
                        f"{self.first.name}; it is left running.",
                        file=sys.stderr,
                        flush=True,
                    )
                return 128 + self.first


@contextlib.contextmanager
def passing_signals(child: subprocess.Popen[bytes]) -> Iterator[PassedSignals]:
    """Pass SIGTERM and SIGHUP on to the child; the terminal sends ctrl-c to it anyway."""
    passed = PassedSignals(child)
    before = {
        number: signal.signal(number, passed.pass_on) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    before[signal.SIGINT] = signal.signal(signal.SIGINT, _do_nothing)
    try:
        yield passed
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


def pour(path: str, child: subprocess.Popen[bytes], passed: PassedSignals) -> None:
    """Copy a growing file to standard output until its writer has ended.

    Ends as well once the writer had its time after a signal, or where nobody can read the output
    any more: a terminal that is gone counts as SIGHUP.
    """
    with open(path, "rb") as file:
        while not passed.is_time_over:
            is_over = child.poll() is not None
            try:
                shutil.copyfileobj(file, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                _drop_output()
                if passed.first is None:
                    passed.pass_on(signal.SIGHUP)
                return
            if is_over:
                return
            time.sleep(_LOOK_S)


def _drop_output() -> None:
    """Let what is still buffered go nowhere: flushing it at exit would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
