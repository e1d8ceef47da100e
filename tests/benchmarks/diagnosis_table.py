"""Run every demonstration and every healthy program, diagnose each, and print what was named.

    python -m tests.benchmarks.diagnosis_table              all of them, one after the other
    python -m tests.benchmarks.diagnosis_table NAME...      these (parts of names)
    python -m tests.benchmarks.diagnosis_table --missed     show the findings of the wrong ones

A program is watched from its line `ready` on, from outside, or with the hook where nothing less
can tell. It is right if all it is about was named and nothing else was. What is said below a
warning, or as an effect of the right cause, stands in brackets and does not count.
"""

from __future__ import annotations

import argparse
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


@dataclass(frozen=True)
class Case:
    """A program to run, and what has to be said about it."""

    name: str
    argv: list[str]
    watch_s: float
    expected: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    layer: str = "proc"
    damage_s: float | None = None


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
        yield Case(f"healthy: {name}", argv, HEALTHY_S)


def failing(scenario: Scenario) -> Case:
    """A demonstration, watched long enough to show itself, or until after the damage."""
    watch_s = max(scenario.shows_s, (scenario.damage_s or 0.0) + AFTER_DAMAGE_S)
    watch_s = min(watch_s if scenario.expected else HEALTHY_S, LONGEST_S)
    argv = command(scenario, sys.executable, watch_s + 20)
    if scenario.layer == "hook":
        argv = [argv[0], "-m", "mpwatch", "run", "--headless", *argv[1:]]
    return Case(
        name=scenario.name,
        argv=argv,
        watch_s=watch_s,
        expected=scenario.expected,
        also=scenario.also,
        layer=scenario.layer,
        damage_s=scenario.damage_s,
    )


def observe(pid: int, seconds: float) -> None:
    """Watch a job as `mpwatch diagnose` does, and print its findings whenever they change."""
    from mpwatch.collect.proc import identify
    from mpwatch.model.snapshot import Snapshot
    from mpwatch.observe.once import LookOptions, watch_for
    from mpwatch.report.json import diagnose_json

    began_s = time.monotonic()
    said: set[tuple[str, str]] = set()

    def each(snapshot: Snapshot) -> None:
        for finding in diagnose_json(snapshot)["findings"]:
            key = (finding["rule"], finding["severity"])
            if key not in said:
                said.add(key)
                line = {"after_s": time.monotonic() - began_s, "finding": finding}
                print(json.dumps(line), flush=True)

    last = watch_for(identify(pid), seconds, LookOptions(), each=each)
    if last is not None:
        each(last)


def run(case: Case) -> Row:
    """Run one program and look at it."""
    row = Row(case)
    with tempfile.TemporaryFile() as output, started(case.argv, output) as program:
        if not wait_for_ready(program, output):
            row.problem = "never ready: " + text_of(output)[-200:].replace("\n", " | ")
            return row
        seconds = f"{case.watch_s:g}"
        observed = subprocess.run(
            [sys.executable, "-m", __spec__.name, "--observe", str(program.pid), seconds],
            capture_output=True,
            text=True,
            timeout=case.watch_s + 60,
            check=False,
        )
    if observed.returncode:
        row.problem = observed.stderr.strip().splitlines()[-1][:200]
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
def started(argv: list[str], output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
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
            program.wait(8)
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
                return False
        return False
    finally:
        os.close(pidfd)


def text_of(output: IO[bytes]) -> str:
    """What a program has printed, read without moving where it writes."""
    return os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace")


def line_of(row: Row) -> str:
    """One line of the table."""
    case = row.case
    verdict = "clean" if not case.expected else "named"
    if row.missed:
        verdict = "MISSED"
    if row.problem:
        verdict = "FAILED"
    named_s = max(row.named_s.values(), default=None)
    before_s = None if case.damage_s is None or named_s is None else case.damage_s - named_s
    cells = [
        f"{case.name:<36}",
        f"{case.layer:<7}",
        f"{verdict:<7}",
        f"{named_s:5.1f}" if named_s is not None else "    -",
        f"{before_s:6.1f}" if before_s is not None else "     -",
        row.problem or " ".join(sorted(row.alarms)),
        f"({' '.join(sorted(row.remarks))})" if row.remarks else "",
    ]
    return "  ".join(cells).rstrip()


def summary_of(rows: list[Row]) -> str:
    """Recall over what was expected, precision over what was said."""
    named = sum(len(row.named_s) for row in rows)
    expected = sum(len(row.case.expected) for row in rows)
    alarms = sum(len(row.alarms) for row in rows)
    healthy = [row for row in rows if not row.case.expected]
    clean = sum(not row.alarms and not row.problem for row in healthy)
    return (
        f"recall {named}/{expected}, precision {named}/{named + alarms}, "
        f"{clean}/{len(healthy)} healthy programs clean"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--missed", action="store_true", help="show findings that are wrong")
    parser.add_argument("--observe", nargs=2, metavar=("PID", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is then ended as well
    if options.observe:
        observe(int(options.observe[0]), float(options.observe[1]))
        return
    wanted = [
        case
        for case in cases()
        if not options.names or any(name in case.name for name in options.names)
    ]
    print(f"{'program':<36}  {'layer':<7}  verdict  named  before  false alarms (remarks)")
    rows = []
    for case in wanted:
        rows.append(run(case))
        print(line_of(rows[-1]), flush=True)
        if options.missed:
            for rule in sorted(rows[-1].alarms):
                print(json.dumps(rows[-1].findings[rule], indent=2))
    print(summary_of(rows))


if __name__ == "__main__":
    main()
