"""Runs a program of a framework alone and under `mpwatch run`, and notes what mpwatch shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mpwatch.collect.process import procfs
from mpwatch.collect.process.identify import CannotWatch, identify
from mpwatch.describe.findings import labelled_fields, unresolved
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for
from tests.frameworks.catalogue import Failure, Framework, says_all

AFTER_FAULT_S = 45.0
"""How long a failing program is watched after its fault: `diagnose` takes 35 s at most."""
SETTLED_S = 5.0
"""How long the right finding must stay the first one."""
LAST_S = 1.0
END_S = 8.0
"""How long a program may take to end on SIGTERM."""


class Healthy(NamedTuple):
    """The result of a healthy program."""

    roles: str
    hook: str
    is_same: bool
    differs: str
    """Exit code and result lines with the hook and without it, where these are not the same."""
    alarms: tuple[str, ...]
    """Findings of severity warning and worse, at any moment."""


class Failing(NamedTuple):
    """The result of a failing program."""

    named_s: float | None
    """Seconds after the fault from which on the first finding was the right one."""
    first: str
    """The first finding at the end."""
    seen: tuple[str, ...] = ()
    """All findings at the end, and what each process does."""


class Trial:
    """A program under `mpwatch run`, watched by the calling thread."""

    def __init__(self, command: Sequence[str], folder: str) -> None:
        self.lines: list[str] = []
        self.fault_s: float | None = None
        """When the program said that its fault is there, on the monotonic clock."""
        self._seen: set[ProcessId] = set()
        self.process = subprocess.Popen(
            command,
            env=environment(folder),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def watch(
        self, limit_s: float, each: Callable[[Snapshot], None], stop: Callable[[], bool]
    ) -> None:
        """Call `each` with every snapshot until the program has ended."""

        def keep(snapshot: Snapshot) -> None:
            self._seen |= {process.process for process in snapshot.processes}
            each(snapshot)

        try:
            root = identify(self.process.pid)
        except CannotWatch:
            return
        watch_for(
            root,
            limit_s,
            OneShotOptions(),
            each=keep,
            stop=lambda: stop() or self.process.poll() is not None,
        )

    def end(self) -> int | None:
        """End what still runs of the program; its exit code if it had ended by itself."""
        try:
            # A process whose main thread has ended may still have others that end.
            code: int | None = self.process.wait(LAST_S)
        except subprocess.TimeoutExpired:
            code = None
            self.process.terminate()
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for process in self._seen:
            stat = procfs.read_stat("/proc", process.pid)
            if stat is not None and stat.process == process:
                os.kill(process.pid, signal.SIGKILL)
        self._reader.join(END_S)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"fault") and self.fault_s is None:
                self.fault_s = time.monotonic()
            self.lines.append(line.decode(errors="replace").rstrip())


def environment(folder: str) -> dict[str, str]:
    """The environment of a program, with places of its own for what it writes.

    Output stays buffered: with PYTHONUNBUFFERED each argument of a `print` is a write of its own,
    and the lines of two ranks mix.
    """
    inherited = {key: text for key, text in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return {
        **inherited,
        "XDG_RUNTIME_DIR": folder,
        "XDG_CACHE_HOME": folder,
        "HF_HOME": folder,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TMPDIR": folder,
    }


def try_healthy(framework: Framework, python: str) -> Healthy:
    """Run the healthy program alone, and under `mpwatch run`.

    Raises:
        subprocess.TimeoutExpired: It did not end.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        alone = subprocess.run(
            [python, *framework.command()],
            env=environment(folder),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=framework.limit_s,
            check=False,
            text=True,
        )
    seen = Seen()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        trial = Trial(hooked(python, framework.command()), folder)
        try:
            trial.watch(framework.limit_s, seen.add, lambda: False)
        finally:
            code = trial.end()
    hooked_end = code, results(trial.lines)
    bare_end = alone.returncode, results(alone.stdout.splitlines())
    is_same = hooked_end == bare_end and bare_end[1] != []
    differs = "" if is_same else f"{hooked_end} and {bare_end}"
    return Healthy(seen.roles, seen.hook, is_same, differs, tuple(sorted(seen.alarms)))


def try_failing(framework: Framework, failure: Failure, python: str) -> Failing:
    """Run the failing program under `mpwatch run` until it is named, or for long enough."""
    named = Named(failure)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        trial = Trial(hooked(python, framework.command(fails=True)), folder)

        def is_over() -> bool:
            now_s = time.monotonic()
            if named.since_s is not None and now_s > named.since_s + SETTLED_S:
                return True
            return trial.fault_s is not None and now_s > trial.fault_s + AFTER_FAULT_S

        try:
            trial.watch(framework.limit_s, named.add, is_over)
        finally:
            trial.end()
    if trial.fault_s is None:
        return Failing(None, "the fault did not appear")
    named_s = None if named.since_s is None else max(0.0, named.since_s - trial.fault_s)
    return Failing(named_s, named.first, named.seen)


def hooked(python: str, command: Sequence[str]) -> list[str]:
    """The command with the hook loaded."""
    return [python, "-m", "mpwatch", "run", "--headless", *command]


def results(lines: Sequence[str]) -> list[str]:
    """The result lines: ranks print in any order, and libraries print how long they took."""
    return sorted(line for line in lines if line.startswith("result"))


class Seen:
    """What mpwatch showed of a healthy program while it ran."""

    def __init__(self) -> None:
        self.roles = self.hook = ""
        self.alarms: set[str] = set()
        self._count = 0, 0

    def add(self, snapshot: Snapshot) -> None:
        """Note the roles of most processes, and all warnings."""
        self.alarms |= {
            f"{finding.rule}: {finding.summary}"
            for finding in snapshot.findings
            if finding.severity is not Severity.INFO
        }
        living = [each for each in snapshot.living() if each.sample.is_python]
        able = [each for each in living if each.role != "resource-tracker"]
        hooked_count = sum(each.hook.state == "ready" for each in able)
        if (len(living), hooked_count) >= self._count:
            self._count = len(living), hooked_count
            self.roles = summary(living)
            self.hook = f"{hooked_count} of {len(able)}"


class Named:
    """Since when the first finding about a failing program has been the right one."""

    def __init__(self, failure: Failure) -> None:
        self.since_s: float | None = None
        self.first = ""
        self.seen: tuple[str, ...] = ()
        self._failure = failure

    def add(self, snapshot: Snapshot) -> None:
        """Read the first finding."""
        findings = unresolved(snapshot)
        self.first = f"{findings[0].severity.word}: {findings[0].summary}" if findings else ""
        self.seen = (
            *(f"{each.rule}: {each.summary}" for each in findings),
            *(f"{each.label}: {each.doing}" for each in snapshot.processes),
        )
        if not findings or not says_all(text_of(findings[0]), self._failure):
            self.since_s = None
        elif self.since_s is None:
            self.since_s = time.monotonic()


def text_of(finding: Finding) -> str:
    """All fields of a finding."""
    return "\n".join([finding.summary, *(text for _, text in labelled_fields(finding))])


def summary(processes: Sequence[Process]) -> str:
    """Labels of processes: `main, worker 0 to 3, 2 spawned`."""
    numbers: dict[str, list[int]] = {}
    plain: Counter[str] = Counter()
    for process in processes:
        match = re.fullmatch(r"(.+) (\d+)", process.label)
        if match is None:
            plain[process.label] += 1
        else:
            numbers.setdefault(match[1], []).append(int(match[2]))
    words = [f"{count} {label}" if count > 1 else label for label, count in plain.items()]
    for label, found in numbers.items():
        first, last = min(found), max(found)
        if len(found) == 1 or len(found) != len(set(found)):
            words.append(f"{label} {', '.join(map(str, sorted(found)))}")
        else:
            words.append(f"{label} {first} to {last}")
    return ", ".join(words)
