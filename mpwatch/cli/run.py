"""Commands that start a program: run, demo.

The program is waited for, signals are forwarded to it, and mpwatch exits with its status.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import IO, NamedTuple

from mpwatch.cli.configuration import read_configuration
from mpwatch.cli.dashboards import print_closing, watch
from mpwatch.cli.failures import Failure, check_recordable
from mpwatch.cli.targets import exiting_on_signals, ignore_signal
from mpwatch.cli.terminal import Progress, text_style
from mpwatch.collect.process import procfs
from mpwatch.collect.process.identify import CannotWatch, NotPython, identify
from mpwatch.hook.wire import disabled_by
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot

_CLOSED = "The dashboard is closed; the program still runs. Its output:"
GRACE_S = 5.0
"""Time between SIGTERM and SIGKILL when mpwatch ends a program."""
ENDING_S = 10.0
"""How long mpwatch waits for a program after it has forwarded SIGTERM or SIGHUP: as long as
`docker stop` waits by default."""
_POLL_S = 0.1


class _Launch(NamedTuple):
    """How a program is started."""

    command: list[str]
    is_python: bool
    """Its command line loads the hook; other programs pass it on to the Python programs below."""

    @property
    def environment(self) -> dict[str, str] | None:
        """The environment of the program; `None`: that of this process."""
        if self.is_python or disabled_by(os.environ):
            return None
        return {**os.environ, "PYTHONPATH": python_path_with_hook()}

    def identity(self, child: subprocess.Popen[bytes]) -> ProcessId:
        """Identify the started program.

        Raises:
            Failure: It has ended.
        """
        try:
            return identify(child.pid)
        except NotPython as error:
            stat = None if self.is_python else procfs.read_stat("/proc", child.pid)
            if stat is not None and stat.state not in "ZX":
                return stat.process
            message = error.message
        except CannotWatch as error:
            message = error.message
        raise Failure(f"The program ended at once: {message}", shlex.join(self.command))


def run(arguments: argparse.Namespace) -> int:
    """Run a program with the hook loaded; the exit code is the program's."""
    launch = _launch(arguments)
    if arguments.record is not None:
        check_recordable(arguments.record)
    if _has_terminal() and not arguments.headless:
        return _behind_dashboard(launch, arguments)
    if arguments.record is None:
        sys.stdout.flush()
        try:
            os.execve(launch.command[0], launch.command, launch.environment or os.environ)
        except OSError as error:
            sentence = f"{launch.command[0]} cannot be started: {error.strerror}."
            raise Failure(sentence, f"ls -l {shlex.quote(launch.command[0])}") from None
    return _recorded(launch, arguments)


def _launch(arguments: argparse.Namespace) -> _Launch:
    """How to start the target: a module, a file, or a command from PATH.

    Raises:
        Failure: The target does not exist, or cannot be run.
    """
    target = arguments.target
    argv = [target, *arguments.arguments]
    if arguments.is_module:
        return _Launch(hooked_command(argv, is_module=True), is_python=True)
    found = None
    if "/" not in target:
        # Beside this interpreter lie the commands of its environment, which need not be activated.
        own = os.path.dirname(sys.executable)
        found = shutil.which(target) or shutil.which(target, path=own)
    # A folder may be called like a command: the sources of accelerate, say.
    if os.path.exists(target) and (found is None or not _is_plain_folder(target)):
        return _launch_of_file(argv)
    if found is None:
        sentence = f"There is no file {target}, and no such command in PATH."
        raise Failure(sentence, "mpwatch run -m MODULE")
    argv = [found, *arguments.arguments]
    python = interpreter(found)
    if python is None:
        return _Launch(argv, is_python=False)
    return _Launch(hooked_command(argv, python=python), is_python=True)


def _is_plain_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.exists(os.path.join(path, "__main__.py"))


def _launch_of_file(argv: list[str]) -> _Launch:
    """How to start a program that is named by its path, which need not be executable."""
    path = argv[0]
    python = hooked_command(argv)
    if os.path.isdir(path) or path.endswith((".py", ".pyc", ".pyz", ".zip")):
        return _Launch(python, is_python=True)
    is_executable = os.access(path, os.X_OK)
    words = interpreter(path)
    if words is not None:
        own = hooked_command(argv, python=words) if is_executable else python
        return _Launch(own, is_python=True)
    head = _first_lines(path)[0]
    if head.startswith((b"#!", b"\x7fELF")) and is_executable:
        return _Launch([os.path.abspath(path), *argv[1:]], is_python=False)
    shell = _words(head[2:]) if head.startswith(b"#!") else ["/bin/sh"] * path.endswith(".sh")
    if shell and os.access(shell[0], os.X_OK):
        return _Launch([*shell, *argv], is_python=False)
    if head.startswith(b"\x7fELF"):
        raise Failure(f"{path} is not executable.", f"chmod +x {shlex.quote(path)}")
    return _Launch(python, is_python=True)


def demo(arguments: argparse.Namespace) -> int:
    """Run a demonstration and open the dashboard on it; without a terminal, print a report."""
    from mpwatch.demo import catalogue

    if arguments.list_scenarios:
        print(_scenario_table())
        return 0
    try:
        scenario = catalogue.find(arguments.scenario)
    except KeyError:
        sentence = f"There is no scenario {arguments.scenario!r}."
        raise Failure(sentence, "mpwatch demo --list") from None
    obstacle = catalogue.obstacle(scenario)
    if obstacle:
        raise Failure(f"{scenario.name} cannot be shown here: {obstacle}", "mpwatch demo --list")
    if importlib.util.find_spec("torch") is None:
        sentence = "The demonstrations are torch programs, and torch is not installed here."
        raise Failure(sentence, f"{shlex.quote(sys.executable)} -m pip install torch numpy")
    if arguments.mended and not scenario.neighbour:
        raise Failure(
            f"{scenario.name} shows no failure, so there is nothing to mend.",
            f"mpwatch demo {scenario.name}",
        )
    _, *argv = catalogue.command(scenario, sys.executable, mended=arguments.mended)
    launch = _Launch(hooked_command(argv), is_python=True)
    with captured() as output, exiting_on_signals():
        child = start(launch.command, output)
        try:
            if _has_terminal():
                return watch(launch.identity(child), refresh_hz=arguments.refresh)
            print(_report(child, launch, scenario.shows_s, output.name))
            return 0
        finally:
            end(child)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _behind_dashboard(launch: _Launch, arguments: argparse.Namespace) -> int:
    """Run a program with its output in a file while the dashboard uses the terminal."""
    last: list[tuple[Snapshot, str | None]] = []
    with captured() as output:
        child = start(launch.command, output, launch.environment)
        with forwarding_signals(child) as signals:
            code = watch(
                launch.identity(child),
                refresh_hz=arguments.refresh,
                record=arguments.record,
                on_stuck=lambda: signals.forward(signal.SIGHUP),
                on_closed=lambda snapshot, recording: last.append((snapshot, recording)),
            )
            if code > 128 and signals.first is None:
                signals.forward(code - 128)  # the dashboard handled the signal
            is_left_running = child.poll() is None and signals.first is None
            if is_left_running:
                _print_last(last)
            copy_output(output.name, child, signals, _CLOSED if is_left_running else "")
            if not is_left_running:
                _print_last(last)  # below the output, which may be long
            return signals.wait()


def _print_last(last: Sequence[tuple[Snapshot, str | None]]) -> None:
    for snapshot, recording in last:
        print_closing(snapshot, recording)


def _recorded(launch: _Launch, arguments: argparse.Namespace) -> int:
    """Run a program in the terminal and record it until it ends."""
    from mpwatch.observe.recording.file import RecordingWriter
    from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for

    options = OneShotOptions(values=read_configuration().values)
    child = start(launch.command, environment=launch.environment)
    with forwarding_signals(child) as signals:
        try:
            process = launch.identity(child)
        except Failure:
            return signals.wait()
        writer = RecordingWriter(arguments.record, process)
        try:
            watch_for(
                process,
                365 * 86_400.0,
                options,
                keep=writer.write,
                stop=lambda: has_ended(child) or signals.is_time_over,
                period_s=1.0 / arguments.refresh,
            )
        finally:
            writer.close()
        if writer.problem is not None:
            print(f"mpwatch: {writer.problem}", file=sys.stderr)
        return signals.wait()


def _report(child: subprocess.Popen[bytes], launch: _Launch, shows_s: float, output: str) -> str:
    """The state of the demonstration as text, after the time its failure needs to show."""
    from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for
    from mpwatch.report import text as text_report

    seconds = shows_s + 10.0
    with Progress("running the demonstration", seconds) as progress:

        def each(seen: Snapshot) -> None:
            progress.show(f"{len(seen.living())} processes")

        snapshot = watch_for(launch.identity(child), seconds, OneShotOptions(), each=each)
    if snapshot is None:
        with open(output, encoding="utf-8", errors="replace") as file:
            sentence = f"The program ended at once and printed: {file.read(2000)}"
        raise Failure(sentence, shlex.join(launch.command))
    return text_report.dump_text(snapshot, style=text_style())


def _scenario_table() -> str:
    from mpwatch.demo import catalogue
    from mpwatch.report.table import Column, table

    rows = [
        (
            scenario.name,
            scenario.title + (f" ({scenario.not_runnable})" * bool(scenario.not_runnable)),
        )
        for scenario in catalogue.scenarios()
    ]
    return "\n".join(table([Column("SCENARIO"), Column("WHAT IT SHOWS")], rows, text_style()))


_HEAD_BYTES = 4096
_PYTHON = re.compile(r"python(\d+(\.\d+)?t?)?$")


def interpreter(path: str) -> list[str] | None:
    """The interpreter and its options that a script names; `None` if it is not a Python script."""
    first, second = _first_lines(path)
    if not first.startswith(b"#!"):
        return None
    words = _words(first[2:])
    if words and os.path.basename(words[0]) == "sh" and second.startswith(b"'''exec'"):
        # '''exec' "/path/to/python" "$0" "$@"
        words = [word for word in _words(second[len(b"'''exec'") :]) if not word.startswith("$")]
    elif words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if word not in ("-S", "--split-string")]
        found = shutil.which(words[0]) if words else None
        words = [found, *words[1:]] if found else []
    if not words or not _PYTHON.match(os.path.basename(words[0])):
        return None
    return words if os.access(words[0], os.X_OK) else None


def _first_lines(path: str) -> tuple[bytes, bytes]:
    """The first two lines of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            first, second, *_ = [*file.read(_HEAD_BYTES).split(b"\n"), b"", b""]
    except OSError:
        return b"", b""
    return first, second


def _words(line: bytes) -> list[str]:
    try:
        return shlex.split(os.fsdecode(line))
    except ValueError:
        return []


def hooked_command(
    argv: Sequence[str], *, is_module: bool = False, python: Sequence[str] = (sys.executable,)
) -> list[str]:
    """The command line that runs a Python program with the hook loaded.

    Args:
        argv: The program or module, and its arguments.
        is_module: It is a module.
        python: The interpreter, with options.
    """
    from mpwatch.hook.run import command

    return [*python, *command([*(["-m"] if is_module else []), *argv])[1:]]


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
            f"{command[0]} cannot be started: {error.strerror}.", f"ls -l {shlex.quote(command[0])}"
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
    before[signal.SIGINT] = signal.signal(signal.SIGINT, ignore_signal)  # the child handles it
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
