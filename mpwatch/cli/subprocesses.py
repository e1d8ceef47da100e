"""Start a program for a command, wait for it, and exit with its status."""

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
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import IO

from mpwatch.cli.failures import Failure

GRACE_S = 5.0
"""Time between SIGTERM and SIGKILL when mpwatch ends a program."""
ENDING_S = 10.0
"""How long mpwatch waits for a program after it has forwarded SIGTERM or SIGHUP: as long as
`docker stop` waits by default."""
_POLL_S = 0.1


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


def python_path_with_hook() -> str:
    """PYTHONPATH that has the Python programs among a program's descendants load the hook.

    Raises:
        Failure: The hook must not be loaded from where it is installed.
    """
    from mpwatch.hook.lifecycle import path_loader
    from mpwatch.hook.startup import sitecustomize

    directory = os.path.dirname(sitecustomize.DIRECTORY)
    problem = path_loader.untrusted(directory)
    if not problem and ":" in directory:
        problem = f"{directory} has a colon in it, so it cannot be a part of PYTHONPATH"
    if problem:
        raise Failure(f"The hook cannot be loaded: {problem}.", "mpwatch doctor")
    return sitecustomize.added(os.environ.get(sitecustomize.VARIABLE))


def start(
    command: Sequence[str],
    output: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program; its output goes to a file if one is given.

    Args:
        command: The program and its arguments.
        output: The file.
        environment: Of the program, if not this process's.

    Raises:
        Failure: The program cannot be started.
    """
    try:
        return subprocess.Popen(
            command,
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            env=environment,
        )
    except OSError as error:
        raise Failure(
            f"{command[0]} cannot be started: {error.strerror}.", f"ls -l {command[0]}"
        ) from None


class ForwardedSignals:
    """Forwards SIGTERM and SIGHUP of this process to its child.

    Attributes:
        first: The first forwarded signal, or `None`.
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._forwarded_s: float | None = None
        self.first: signal.Signals | None = None

    def forward(self, number: int, _frame: FrameType | None = None) -> None:
        """Forward a signal to the child."""
        if self.first is None:
            self.first, self._forwarded_s = signal.Signals(number), time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)

    @property
    def is_time_over(self) -> bool:
        """Whether `ENDING_S` has passed since the first forwarded signal."""
        forwarded_s = self._forwarded_s
        return forwarded_s is not None and time.monotonic() - forwarded_s > ENDING_S

    def wait(self) -> int:
        """Wait for the child; after a signal only for `ENDING_S`.

        Returns:
            The exit code for this process: the child's, or 128 + n if the child does not end in
            time. The child is not killed then: it may be writing a checkpoint.
        """
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return exit_like(self._child.wait(_POLL_S))
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
def forwarding_signals(child: subprocess.Popen[bytes]) -> Iterator[ForwardedSignals]:
    """Forward SIGTERM and SIGHUP to the child; the terminal sends it SIGINT for Ctrl-C."""
    signals = ForwardedSignals(child)
    before = {
        number: signal.signal(number, signals.forward) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    before[signal.SIGINT] = signal.signal(signal.SIGINT, _do_nothing)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Ignore SIGINT: the child handles it. A handler, because the child would inherit SIG_IGN."""


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether a program has exited; its exit status stays available.

    `poll` would reap it, and before Linux 6.15 only the process that reaps it gets the exit code.
    """
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def end(child: subprocess.Popen[bytes]) -> None:
    """End a program: SIGTERM, and SIGKILL after `GRACE_S`."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def exit_like(returncode: int) -> int:
    """The exit code of this process for a child's return code.

    If the child was killed by a signal, this process kills itself with the same signal, so that
    shells and launchers see no difference; if that signal does not kill it, the code is 128 + n.
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
    """Disable our core dump, which would overwrite the child's."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


@contextlib.contextmanager
def captured() -> Iterator[IO[bytes]]:
    """A temporary file for the output of a program that runs behind the dashboard."""
    with tempfile.NamedTemporaryFile(prefix="mpwatch-output-") as file:
        yield file


def copy_output(
    path: str, child: subprocess.Popen[bytes], signals: ForwardedSignals, notice: str
) -> None:
    """Copy a growing file to standard output until its writer has ended.

    Returns also when `ENDING_S` has passed after a signal, or when the terminal is gone, which
    counts as SIGHUP.

    Args:
        path: The file.
        child: Its writer.
        signals: The signals that were forwarded to the child.
        notice: Printed first, on standard error; may be empty.
    """
    with open(path, "rb") as file:
        try:
            if notice:
                print(notice, file=sys.stderr, flush=True)
            while not signals.is_time_over:
                is_over = child.poll() is not None
                shutil.copyfileobj(file, sys.stdout.buffer)
                sys.stdout.buffer.flush()
                if is_over:
                    return
                time.sleep(_POLL_S)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            _drop_output()
            if signals.first is None:
                signals.forward(signal.SIGHUP)


def _drop_output() -> None:
    """Redirect standard output and error to /dev/null: flushing them at exit would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
