"""Run every demonstration and every healthy program, diagnose each, and print what was named.

    python -m tests.benchmarks.diagnosis_table              all of them, four at a time
    python -m tests.benchmarks.diagnosis_table NAME...      these (parts of names; =NAME: just this)
    python -m tests.benchmarks.diagnosis_table --without mended:   all but the healthy neighbours
    python -m tests.benchmarks.diagnosis_table --missed     show the findings of the wrong ones

A program is watched from its line `ready` on, from outside, or with the hook where nothing less
can tell. It is right if all it is about was named and nothing else was. What is said below a
warning, or as an effect of the right cause, stands in brackets and does not count.

Of a forecast the seconds until the damage are shown as they were first told, those that really
passed, and the first divided by the second.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence

from tests.integration.demo.schedule import JOBS, trials
from tests.integration.demo.trial import Row, cases, run


def line_of(row: Row) -> str:
    """One line of the table."""
    case = row.case
    verdict = "clean" if not case.expected else "named"
    if row.missed:
        verdict = "MISSED"
    if row.problem:
        verdict = "FAILED"
    named_s = named_after_s(row)
    before_s = before_damage_s(row)
    cells = [
        f"{case.name:<36}",
        f"{case.layer:<7}",
        f"{verdict:<7}",
        f"{named_s:5.1f}" if named_s is not None else "    -",
        f"{before_s:6.1f}" if before_s is not None else "     -",
        forecast_of(row),
        row.problem or " ".join(sorted(row.alarms)),
        f"({' '.join(sorted(row.remarks))})" if row.remarks else "",
        f"LEFT {', '.join(row.left)}" if row.left else "",
    ]
    return "  ".join(cells).rstrip()


def named_after_s(row: Row) -> float | None:
    """Seconds from `ready` until all that was named had been named."""
    return max(row.named_s.values(), default=None)


def before_damage_s(row: Row) -> float | None:
    """Seconds left until the damage when it was named; `None` where there is none to come."""
    named_s = named_after_s(row)
    return None if row.case.damage_s is None or named_s is None else row.case.damage_s - named_s


def forecast_of(row: Row) -> str:
    """The seconds told by the first forecast, those that passed, and by how much it erred."""
    if row.told is None:
        return f"{'-':>6} {'-':>6} {'-':>5}"
    came_s, told_s = row.came_s, row.told[1]
    if came_s is None:
        return f"{told_s:6.1f} {'-':>6} {'-':>5}"
    return f"{told_s:6.1f} {came_s:6.1f} {told_s / came_s:5.2f}"


def summary_of(rows: Sequence[Row]) -> str:
    """Recall over what was expected, precision over what was said, and the usual times."""
    named = sum(len(row.named_s) for row in rows)
    expected = sum(len(row.case.expected) for row in rows)
    alarms = sum(len(row.alarms) for row in rows)
    healthy = [row for row in rows if not row.case.expected]
    clean = sum(not row.alarms and not row.problem for row in healthy)
    times = [time_s for row in rows if (time_s := named_after_s(row)) is not None]
    ahead = [left_s for row in rows if (left_s := before_damage_s(row)) is not None and left_s > 0]
    lines = [
        f"recall {named}/{expected}, precision {named}/{named + alarms}, "
        f"{clean}/{len(healthy)} healthy programs clean"
    ]
    if times:
        lines.append(f"named after {statistics.median(times):.1f} s in the median")
    if ahead:
        lines.append(f"{len(ahead)} before the damage, by {statistics.median(ahead):.1f} s")
    errors = [row.told[1] / came_s for row in rows if row.told and (came_s := row.came_s)]
    if errors:
        worst = max(errors, key=lambda error: abs(math.log(error)))
        lines.append(f"{len(errors)} forecasts came true, the worst was off by {worst:.2f}")
    return "\n".join(lines)


def show(rows: Sequence[Row], *, missed: bool) -> None:
    """Print the rows in the order of the catalogue, with what was said wrongly if wanted."""
    for row in rows:
        print(line_of(row), flush=True)
        if missed:
            for rule in sorted(row.alarms):
                print(json.dumps(row.findings[rule], indent=2))


def is_meant(wanted: str, name: str) -> bool:
    """Whether a program is among those asked for."""
    return wanted[1:] == name if wanted.startswith("=") else wanted in name


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--without", action="append", default=[], help="leave these out")
    parser.add_argument("--missed", action="store_true", help="show findings that are wrong")
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many at a time (default 4)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is then ended as well
    wanted = [
        case
        for case in cases()
        if not options.names or any(is_meant(name, case.name) for name in options.names)
        if not any(is_meant(name, case.name) for name in options.without)
    ]
    began_s = time.monotonic()
    heads = "verdict  named  before    told   came   off  false alarms (remarks)"
    print(f"{'program':<36}  {'layer':<7}  {heads}")
    with trials(wanted, run, options.jobs) as rows:
        done: list[Row] = []
        for case in wanted:
            done.append(rows[case.name].result())
            show(done[-1:], missed=options.missed)
    print(summary_of(done))
    print(f"{time.monotonic() - began_s:.0f} s, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
