"""A program that is run and diagnosed: which findings were expected, and which there were.

A program is observed from its line `ready` on by a process of its own, from outside, or with the
hook where no other layer can tell. It is right if all expected rules were named and no others.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpwatch.demo.catalogue import Scenario, command, obstacle, scenarios
from mpwatch.diagnose.consequences import ONLY_ALONE
from tests.integration.demo.program import READY_S, Program, started
from tests.integration.demo.signals import Signal
from tests.programs import healthy_variants

ROOT = Path(__file__).parents[3]
AFTER_DAMAGE_S = 20.0
HEALTHY_S = 20.0
LONGEST_S = 60.0


@dataclass(frozen=True)
class Case:
    """A program to run, and the findings that are expected."""

    name: str
    argv: tuple[str, ...]
    watch_s: float
    expected: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    layer: str = "proc"
    damage_s: float | None = None
    is_alone: bool = False
    """It loads the machine, or leaves files on it: no other program may run beside it."""
    says: str = ""
    """Start of the line that reports the damage; its exit reports it if empty."""
    never: tuple[str, ...] = ()
    """Rules that must not be found, not even below a warning: those of its failing neighbour."""


@dataclass
class Row:
    """The findings about one program."""

    case: Case
    named_s: dict[str, float] = field(default_factory=dict)
    """Seconds from `ready` until each expected rule was first found."""
    alarms: set[str] = field(default_factory=set)
    """False rules of severity warning or worse."""
    remarks: set[str] = field(default_factory=set)
    """False rules below a warning, shown as an effect of a true one, or general ones about a
    program that does fail."""
    findings: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    is_shown: bool | None = None
    """Whether the failure was seen by its raw signal; `None` if that was not checked."""
    told: tuple[float, float] | None = None
    """When the first forecast of an expected rule was made, and the seconds it gave."""
    damaged_at_s: float | None = None
    """When the damage was done, on the same clock; `None` if it was not done meanwhile."""
    left: tuple[str, ...] = ()
    """Processes, segments and folders that it left."""

    @property
    def came_s(self) -> float | None:
        """Actual seconds from the forecast until the damage."""
        if self.told is None or self.damaged_at_s is None or self.damaged_at_s <= self.told[0]:
            return None
        return self.damaged_at_s - self.told[0]

    @property
    def missed(self) -> list[str]:
        """Expected rules that were not found."""
        return [rule for rule in self.case.expected if rule not in self.named_s]


def cases() -> Iterator[Case]:
    """Everything that can be run here."""
    for scenario in scenarios():
        if not obstacle(scenario):
            yield failing(scenario)
    for scenario in scenarios():
        if scenario.neighbour and not obstacle(scenario):
            yield mended(scenario)
    for name in healthy_variants.VARIANTS:
        argv = healthy_variants.command(sys.executable, name, HEALTHY_S + READY_S)
        yield Case(f"healthy: {name}", tuple(argv), HEALTHY_S)


def failing(scenario: Scenario) -> Case:
    """A demonstration, observed long enough to fail, or until after the damage."""
    watch_s = max(scenario.shows_s, (scenario.damage_s or 0.0) + AFTER_DAMAGE_S)
    watch_s = min(watch_s if scenario.expected else HEALTHY_S, LONGEST_S)
    return Case(
        name=scenario.name,
        argv=argv_of(scenario),
        watch_s=watch_s,
        expected=scenario.expected,
        also=scenario.also,
        layer=scenario.layer,
        damage_s=scenario.damage_s,
        says=scenario.says,
        is_alone=scenario.is_alone,
    )


def mended(scenario: Scenario) -> Case:
    """The healthy variant of a demonstration, observed for as long as that."""
    return Case(
        name=f"mended: {scenario.name}",
        argv=argv_of(scenario, mended=True),
        watch_s=max(HEALTHY_S, failing(scenario).watch_s),
        layer=scenario.layer,
        is_alone=scenario.is_alone,
        never=scenario.expected,
    )


def argv_of(
    scenario: Scenario, *, mended: bool = False, layer: str | None = None
) -> tuple[str, ...]:
    """Arguments that run a demonstration, with the hook where nothing less can tell, or as told."""
    python, *rest = command(scenario, sys.executable, LONGEST_S + READY_S, mended=mended)
    layer = scenario.layer if layer is None else layer
    hook = ["-m", "mpwatch", "run", "--headless"] if layer == "hook" else []
    return (python, *hook, *rest)


def run(
    case: Case,
    *,
    settle_s: float | None = None,
    signal: Signal | None = None,
    env: Mapping[str, str] = os.environ,
) -> Row:
    """Run one program and look at it.

    Args:
        case: The program.
        settle_s: Stop this many seconds after all that is expected was named; `None` watches to
            the end.
        signal: Tells by other means, while the program is watched, whether it fails as it should.
        env: The environment of the program and its observer.
    """
    row = Row(case)
    # The observer is started before the program, so that it observes all of it.
    observer = _observer(case, settle_s, env)
    try:
        with started(case.argv, env) as program:
            if not program.is_ready():
                row.problem = "never ready: " + program.text[-200:].replace("\n", " | ")
                return row
            program.look_around()
            assert observer.stdin is not None
            print(program.pid, file=observer.stdin, flush=True)
            with damage(program, row):
                row.is_shown = None if signal is None else signal(program)
                said, complaint = observer.communicate(timeout=case.watch_s + 60)
            if not case.expected and (how := program.fails()):
                row.problem = "not healthy: " + how
            row.left = program.end()
    finally:
        observer.kill()
        observer.communicate()
    if observer.returncode and not row.problem:
        row.problem = (complaint.strip() or "no reason").splitlines()[-1][:200]
    for line in said.splitlines():
        judge(row, json.loads(line))
    return row


@contextlib.contextmanager
def damage(program: Program, row: Row) -> Iterator[None]:
    """Note when the damage is done, within the block."""
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.05):
            lines = program.text.splitlines() if row.case.says else ()
            if program.has_ended() or any(line.startswith(row.case.says) for line in lines):
                row.damaged_at_s = time.monotonic()
                return

    looking = threading.Thread(target=look, daemon=True)
    if row.case.damage_s is not None:
        looking.start()
    try:
        yield
    finally:
        is_over.set()
        if looking.ident is not None:
            looking.join()


def _observer(case: Case, settle_s: float | None, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """The process that will observe a program; it waits for the pid."""
    early = [] if settle_s is None else ["--settle", f"{settle_s:g}", *case.expected, "--"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.demo.observer", *early, f"{case.watch_s:g}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=ROOT,
    )


def judge(row: Row, said: dict[str, Any]) -> None:
    """Add one finding to the row."""
    finding = said["finding"]
    rule = finding["rule"]
    row.findings.setdefault(rule, finding)
    if rule in row.case.expected:
        row.named_s.setdefault(rule, said["after_s"])
        if finding["eta_s"] is not None and row.told is None:
            row.told = (said["at_s"], finding["eta_s"])
    elif rule not in row.case.also:
        is_effect = finding["effect_of"] in (*row.case.expected, *row.case.also)
        # A program that fails may be reported as stalled before its cause is certain.
        is_early = bool(row.case.expected) and rule in ONLY_ALONE
        is_remark = is_effect or is_early or finding["severity"] == "info"
        is_remark = is_remark and rule not in row.case.never
        (row.remarks if is_remark else row.alarms).add(rule)
    row.remarks -= row.alarms
