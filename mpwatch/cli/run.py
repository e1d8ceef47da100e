"""Commands that start a program: run, demo."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

from mpwatch.cli import subprocesses
from mpwatch.cli.dashboards import watch
from mpwatch.cli.failures import Failure, check_recordable
from mpwatch.cli.targets import exiting_on_signals
from mpwatch.cli.terminal import Progress, text_style
from mpwatch.collect.process.identify import CannotWatch, identify
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot

_CLOSED = "The dashboard is closed; the program still runs. Its output:"


def run(arguments: argparse.Namespace) -> int:
    """Run a program with the hook loaded; the exit code is the program's."""
    command = _command(arguments)
    if arguments.record is not None:
        check_recordable(arguments.record)
    if _has_terminal() and not arguments.headless:
        return _behind_dashboard(command, arguments)
    if arguments.record is None:
        sys.stdout.flush()
        os.execv(command[0], command)
    return _recorded(command, arguments)


def _command(arguments: argparse.Namespace) -> list[str]:
    """The command line that runs the target: a module, a file, or a Python command from PATH.

    Raises:
        Failure: The target does not exist, or is not Python.
    """
    argv = [arguments.target, *arguments.arguments]
    if arguments.is_module or os.path.exists(arguments.target):
        return subprocesses.hooked_command(argv, is_module=arguments.is_module)
    path = None if "/" in arguments.target else shutil.which(arguments.target)
    if path is None:
        sentence = f"There is no file {arguments.target}, and no such command in PATH."
        raise Failure(sentence, "mpwatch run -m MODULE")
    python = interpreter(path)
    if python is None:
        sentence = f"{path} is not a Python script, so the hook cannot be loaded into it."
        raise Failure(sentence, "mpwatch run FILE.py, or mpwatch run -m MODULE")
    return subprocesses.hooked_command([path, *arguments.arguments], python=python)


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
        raise Failure(sentence, f"{sys.executable} -m pip install torch numpy")
    if arguments.mended and not scenario.neighbour:
        raise Failure(
            f"{scenario.name} shows no failure, so there is nothing to mend.",
            f"mpwatch demo {scenario.name}",
        )
    _, *argv = catalogue.command(scenario, sys.executable, mended=arguments.mended)
    command = subprocesses.hooked_command(argv)
    with subprocesses.captured() as output, exiting_on_signals():
        child = subprocesses.start(command, output)
        try:
            if _has_terminal():
                return watch(_identity(child, command), refresh_hz=arguments.refresh)
            print(_report(child, command, scenario.shows_s, output.name))
            return 0
        finally:
            subprocesses.end(child)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _identity(child: subprocess.Popen[bytes], command: list[str]) -> ProcessId:
    try:
        return identify(child.pid)
    except CannotWatch as error:
        raise Failure(f"The program ended at once: {error.message}", shlex.join(command)) from None


def _behind_dashboard(command: list[str], arguments: argparse.Namespace) -> int:
    """Run a program with its output in a file while the dashboard uses the terminal."""
    with subprocesses.captured() as output:
        child = subprocesses.start(command, output)
        with subprocesses.forwarding_signals(child) as signals:
            code = watch(
                _identity(child, command),
                refresh_hz=arguments.refresh,
                record=arguments.record,
                on_stuck=lambda: signals.forward(signal.SIGHUP),
            )
            if code > 128 and signals.first is None:
                signals.forward(code - 128)  # the dashboard handled the signal
            is_left_running = child.poll() is None and signals.first is None
            subprocesses.copy_output(
                output.name, child, signals, _CLOSED if is_left_running else ""
            )
            return signals.wait()


def _recorded(command: list[str], arguments: argparse.Namespace) -> int:
    """Run a program in the terminal and record it until it ends."""
    from mpwatch.observe.recording.file import RecordingWriter
    from mpwatch.observe.sources.oneshot import LookOptions, watch_for

    child = subprocesses.start(command)
    with subprocesses.forwarding_signals(child) as signals:
        try:
            process = _identity(child, command)
        except Failure:
            return signals.wait()
        writer = RecordingWriter(arguments.record, process)
        try:
            watch_for(
                process,
                365 * 86_400.0,
                LookOptions(),
                keep=writer.write,
                stop=lambda: subprocesses.has_ended(child) or signals.is_time_over,
                period_s=1.0 / arguments.refresh,
            )
        finally:
            writer.close()
        if writer.problem is not None:
            print(f"mpwatch: {writer.problem}", file=sys.stderr)
        return signals.wait()


def _report(child: subprocess.Popen[bytes], command: list[str], shows_s: float, output: str) -> str:
    """The state of the demonstration as text, after the time its failure needs to show."""
    from mpwatch.observe.sources.oneshot import LookOptions, watch_for
    from mpwatch.report import text as text_report

    seconds = shows_s + 10.0
    with Progress("running the demonstration", seconds) as progress:

        def each(seen: Snapshot) -> None:
            progress.show(f"{len(seen.living())} processes")

        snapshot = watch_for(_identity(child, command), seconds, LookOptions(), each=each)
    if snapshot is None:
        with open(output, encoding="utf-8", errors="replace") as file:
            sentence = f"The program ended at once and printed: {file.read(2000)}"
        raise Failure(sentence, shlex.join(command))
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
    try:
        with open(path, "rb") as file:
            first, second, *_ = [*file.read(_HEAD_BYTES).split(b"\n"), b"", b""]
    except OSError:
        return None
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


def _words(line: bytes) -> list[str]:
    try:
        return shlex.split(os.fsdecode(line))
    except ValueError:
        return []
