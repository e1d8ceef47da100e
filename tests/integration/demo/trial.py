"""One program run and diagnosed: what had to be said about it, and what was.

A program is watched from its line `ready` on by an observer of its own, from outside, or with the
hook where nothing less can tell. It is right if all it is about was named and nothing else was.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from mpwatch.demo.catalogue import Scenario, command, obstacle, scenarios
from tests.programs import healthy_variants

READY_S = 90.0
AFTER_DAMAGE_S = 8.0
HEALTHY_S = 20.0
LONGEST_S = 60.0
ENDS_WITHIN_S = 8.0


@dataclass(frozen=True)
class Case:
    """A program to run, and what has to be said about it."""

    name: str
    argv: tuple[str, ...]
    watch_s: float
    expected: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    layer: str = "proc"
    damage_s: float | None = None
    is_alone: bool = False
    """It loads the machine, or leaves something on it: nothing else may run beside it."""


@dataclass
class Row:
    """What was said about one program."""

    case: Case
    named_s: dict[str, float] = field(default_factory=dict)
    """Seconds from `ready` until each expected rule was first found."""
    alarms: set[str] = field(default_factory=set)
    """Rules found, as a warning or worse, that are not true of it."""
    remarks: set[str] = field(default_factory=set)
    """The same, but below a warning, or shown as an effect of what is true."""
    findings: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    left: tuple[str, ...] = ()
    """What it left behind: processes and segments."""

    @property
    def missed(self) -> list[str]:
        """Expected rules that were not found."""
        return [rule for rule in self.case.expected if rule not in self.named_s]


def cases() -> Iterator[Case]:
    """Everything that can be run here."""
    for scenario in scenarios():
        if not obstacle(scenario):
            yield failing(scenario)
    for name in healthy_variants.VARIANTS:
        argv = healthy_variants.command(sys.executable, name, HEALTHY_S + 5)
        yield Case(f"healthy: {name}", tuple(argv), HEALTHY_S)


def failing(scenario: Scenario) -> Case:
    """A demonstration, watched long enough to show itself, or until after the damage."""
    watch_s = max(scenario.shows_s, (scenario.damage_s or 0.0) + AFTER_DAMAGE_S)
    watch_s = min(watch_s if scenario.expected else HEALTHY_S, LONGEST_S)
    argv = command(scenario, sys.executable, watch_s + 20)
    if scenario.layer == "hook":
        argv = [argv[0], "-m", "mpwatch", "run", "--headless", *argv[1:]]
    return Case(
        name=scenario.name,
        argv=tuple(argv),
        watch_s=watch_s,
        expected=scenario.expected,
        also=scenario.also,
        layer=scenario.layer,
        damage_s=scenario.damage_s,
        is_alone=scenario.is_alone,
    )


def run(case: Case, settle_s: float | None = None) -> Row:
    """Run one program and look at it.

    Args:
        case: The program.
        settle_s: Stop this many seconds after all that is expected was named; `None` watches to
            the end.
    """
    row = Row(case)
    with tempfile.TemporaryFile() as output, started(case.argv, output) as program:
        if not wait_for_ready(program, output):
            row.problem = "never ready: " + text_of(output)[-200:].replace("\n", " | ")
            return row
        early = [] if settle_s is None else ["--settle", f"{settle_s:g}", *case.expected]
        observer = [sys.executable, "-m", "tests.integration.demo.observer"]
        observed = subprocess.run(
            [*observer, str(program.pid), f"{case.watch_s:g}", *early],
            capture_output=True,
            text=True,
            timeout=case.watch_s + 60,
            check=False,
        )
    if observed.returncode:
        row.problem = (observed.stderr.strip() or "no reason").splitlines()[-1][:200]
    for line in observed.stdout.splitlines():
        judge(row, json.loads(line))
    return row


def judge(row: Row, said: dict[str, Any]) -> None:
    """Enter one finding."""
    finding = said["finding"]
    rule = finding["rule"]
    row.findings.setdefault(rule, finding)
    if rule in row.case.expected:
        row.named_s.setdefault(rule, said["after_s"])
    elif rule not in row.case.also:
        is_effect = finding["effect_of"] in (*row.case.expected, *row.case.also)
        is_remark = is_effect or finding["severity"] == "info"
        (row.remarks if is_remark else row.alarms).add(rule)
    row.remarks -= row.alarms


@contextlib.contextmanager
def started(argv: tuple[str, ...], output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is told to end afterwards, and what outlives it too."""
    program = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    guardians = set(guardian_pids(program.pid))
    try:
        yield program
        guardians |= set(guardian_pids(program.pid))
    finally:
        program.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(ENDS_WITHIN_S)
        program.kill()
        program.wait()
        for pid in guardians:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def guardian_pids(pid: int) -> Iterator[int]:
    """The guardian of a demonstration: some demonstrations outlive their main process."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as cmdline:
                words = cmdline.read().split(b"\0")
                if str(pid).encode() in words and any(b"guardian.py" in word for word in words):
                    yield int(name)


def wait_for_ready(program: subprocess.Popen[bytes], output: IO[bytes]) -> bool:
    """Whether the program reports that it is in the state it shows."""
    pidfd = os.pidfd_open(program.pid)
    try:
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s:
            if "ready" in text_of(output).split():
                return True
            if select.select([pidfd], [], [], 0.1)[0]:
                return "ready" in text_of(output).split()
        return False
    finally:
        os.close(pidfd)


def text_of(output: IO[bytes]) -> str:
    """What a program has printed, read without moving where it writes."""
    return os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace")
