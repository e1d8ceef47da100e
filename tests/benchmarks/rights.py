"""Run every demonstration under each kind of rights, and print what is named under which.

    python -m tests.benchmarks.rights --jobs 2
    python -m tests.benchmarks.rights --results FILE NAME...    these only (parts of names)

| right | the observer |
| --- | --- |
| proc | reads /proc as the same user and may not trace, as under Yama's scope 1 |
| py-spy | may trace, and takes stacks by py-spy; there is no hook |
| run | the program was started by `mpwatch run`: the hook is there from its start |
| attach | injects the hook once the program is in the state that it shows |

Each result is a line of FILE as soon as it is there; what FILE has is not run again. A program is
watched for as long as it needs to show itself, and for 2 s more once it has been named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from mpwatch.demo.catalogue import scenarios
from tests.integration.demo.program import Program, started
from tests.integration.demo.trial import ROOT, Case, Row, argv_of, cases, judge

RIGHTS = ("proc", "py-spy", "run", "attach")
TOGETHER = (("proc", "py-spy"), ("run",), ("attach",))
"""Rights that are tried on one run of a program: its observers do not disturb each other."""
SETTLE_S = 2.0
OBSERVER_ENDS_S = 60.0


def rows_under(case: Case, rights: Sequence[str]) -> list[Row]:
    """Run one program, watched by an observer for each of the rights."""
    plain = argv_of(next(s for s in scenarios() if s.name == case.name), layer=layer_of(rights))
    rows = [Row(replace(case, argv=plain, layer=right)) for right in rights]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rights-")))
        observers = [stack.enter_context(_observer(row.case, folder)) for row in rows]
        program = stack.enter_context(
            started(plain, {**os.environ, "XDG_RUNTIME_DIR": str(folder)})
        )
        if program.is_ready():
            _watch(program, rows, observers)
        else:
            for row in rows:
                row.problem = "never ready: " + program.text[-200:].replace("\n", " | ")
        program.end()
        for row in rows:
            _read(row, folder)
    return rows


def layer_of(rights: Sequence[str]) -> str:
    """Whether the program is started with the hook."""
    return "hook" if "run" in rights else "proc"


@contextlib.contextmanager
def _observer(case: Case, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """An observer that waits for the pid; what it prints goes to a file."""
    rights = case.layer if case.layer in ("proc", "attach") else "usual"
    settle = ["--settle", f"{SETTLE_S:g}", *case.expected, "--"]
    command = ["-m", "tests.integration.demo.observer", "--rights", rights, *settle]
    with (folder / case.layer).open("w") as said, (folder / f"{case.layer}.err").open("w") as err:
        observer = subprocess.Popen(
            [sys.executable, *command, f"{case.watch_s:g}"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=err,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
            cwd=ROOT,
        )
    try:
        yield observer
    finally:
        observer.kill()
        observer.communicate()


def _watch(program: Program, rows: list[Row], observers: list[subprocess.Popen[str]]) -> None:
    program.look_around()
    for observer in observers:
        assert observer.stdin is not None
        print(program.pid, file=observer.stdin, flush=True)
    for row, observer in zip(rows, observers, strict=True):
        try:
            code = observer.wait(row.case.watch_s + OBSERVER_ENDS_S)
        except subprocess.TimeoutExpired:
            row.problem = "its observer did not end"
        else:
            row.problem = f"its observer ended with {code}" if code else ""


def _read(row: Row, folder: Path) -> None:
    for line in (folder / row.case.layer).read_text().splitlines():
        judge(row, json.loads(line))
    if row.problem.startswith("its observer"):
        errors = (folder / f"{row.case.layer}.err").read_text().strip().splitlines()
        row.problem += ": " + (errors or ["no reason"])[-1][:200]


def result_of(row: Row) -> dict[str, Any]:
    """What is kept of one row."""
    return {
        "name": row.case.name,
        "right": row.case.layer,
        "named_s": {rule: round(at_s, 1) for rule, at_s in row.named_s.items()},
        "missed": row.missed,
        "alarms": sorted(row.alarms),
        "problem": row.problem,
        "load": round(os.getloadavg()[0], 1),
        "date": date.today().isoformat(),
    }


class Results:
    """The file of results, one line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.by_key = {(each["name"], each["right"]): each for each in map(json.loads, lines)}

    def add(self, rows: Sequence[Row]) -> None:
        """Keep what was found, and show it."""
        with self._lock, self._path.open("a") as file:
            for row in rows:
                result = result_of(row)
                self.by_key[result["name"], result["right"]] = result
                print(json.dumps(result), file=file, flush=True)
                print(line_of(result), flush=True)


def line_of(result: dict[str, Any]) -> str:
    """One result in words."""
    verdict = result["problem"] or ("missed" if result["missed"] else cell_of(result) + " s")
    alarms = f"  false: {' '.join(result['alarms'])}" if result["alarms"] else ""
    return f"{result['name']:<36} {result['right']:<7} {verdict}{alarms}"


def cell_of(result: dict[str, Any] | None) -> str:
    """Seconds until all was named; `-` if it was not, `?` if that is not known."""
    if result is None or result["problem"]:
        return "?"
    return "-" if result["missed"] else f"{max(result['named_s'].values()):.1f}"


def table_of(results: Results, names: Sequence[str]) -> str:
    """All results, and for each right how many failures were named and when."""
    lines = [f"{'program':<36}" + "".join(f"{right:>8}" for right in RIGHTS)]
    for name in names:
        cells = [cell_of(results.by_key.get((name, right))) for right in RIGHTS]
        lines.append(f"{name:<36}" + "".join(f"{cell:>8}" for cell in cells))
    for right in RIGHTS:
        found = [results.by_key.get((name, right)) for name in names]
        tried = [each for each in found if each is not None and not each["problem"]]
        times = [max(each["named_s"].values()) for each in tried if not each["missed"]]
        alarms = sum(len(each["alarms"]) for each in tried)
        median = f", after {statistics.median(times):.1f} s in the median" if times else ""
        lines.append(f"{right}: {len(times)} of {len(tried)} named{median}; {alarms} wrong")
    return "\n".join(lines)


def main() -> None:
    """Run what is not in the file yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time (default 2)")
    parser.add_argument("--results", type=Path, default=Path("rights.jsonl"))
    parser.add_argument("--table", action="store_true", help="only print what the file has")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is then ended as well
    failing = [
        case
        for case in cases()
        if case.expected and (not options.names or any(n in case.name for n in options.names))
    ]
    results = Results(options.results)
    began_s = time.monotonic()
    if not options.table:
        run_all(failing, results, options.jobs)
    print(table_of(results, [case.name for case in failing]))
    print(f"{time.monotonic() - began_s:.0f} s, load {os.getloadavg()[0]:.1f}")


def run_all(failing: Sequence[Case], results: Results, jobs: int) -> None:
    """Run what is not known, several at a time; last, one by one, what needs the machine alone."""

    def trial(case: Case, rights: tuple[str, ...]) -> None:
        if any((case.name, right) not in results.by_key for right in rights):
            results.add(rows_under(case, rights))

    for is_alone in (False, True):
        with ThreadPoolExecutor(1 if is_alone else jobs) as pool:
            wanted = [case for case in failing if case.is_alone == is_alone]
            trials = [pool.submit(trial, case, rights) for case in wanted for rights in TOGETHER]
            try:
                for each in trials:
                    each.result()
            finally:
                pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
