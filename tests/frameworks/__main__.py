"""Runs programs of other people's frameworks: healthy ones and ones with a typical failure.

    python -m tests.frameworks                             # those that are installed here
    python -m tests.frameworks --python VENV/bin/python --rows FILE joblib Ray

mpwatch must be installed beside the frameworks. One program runs at a time. Each healthy program
runs alone and under `mpwatch run --headless`, and each failing one under `mpwatch run --headless`.
The table has the roles of all processes as mpwatch names them, in how many Python processes the
hook was attached, whether output and exit code were the same as without it, whether there was no
warning at any moment, and how long after the fault the first finding was the right one. `--rows`
keeps the results in a file, which a later run for other frameworks adds to. Threads about the
failures are in `catalogue.py`. The exit code is the number of frameworks with something wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

from tests.frameworks.catalogue import FRAMEWORKS, Framework
from tests.frameworks.trial import Failing, Healthy, try_failing, try_healthy

Row: TypeAlias = dict[str, Any]
"""`version`, and the fields of `Healthy` and of `Failing`; or `obstacle`: why it was not tried."""

VERSION = """
import importlib.metadata, sys
try: print(importlib.metadata.version(sys.argv[1]))
except importlib.metadata.PackageNotFoundError: pass
"""
TITLES = (
    "framework", "processes", "hook", "same result", "no warning", "failure", "named after",
)  # fmt: skip


def main() -> int:
    """Run all that are installed, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks")
    parser.add_argument("--python", default=sys.executable, help="with the frameworks installed")
    parser.add_argument("--rows", type=Path, help="file that keeps the results")
    parser.add_argument("--only", choices=("healthy", "failing"), help="half of each row")
    parser.add_argument("names", nargs="*", help="parts of names; all if none is given")
    options = parser.parse_args()
    rows: dict[str, Row] = {}
    if options.rows is not None and options.rows.exists():
        rows = json.loads(options.rows.read_text())
    chosen = [
        framework
        for framework in FRAMEWORKS
        if not options.names or any(each in framework.name for each in options.names)
    ]
    for framework in chosen:
        row = tried(framework, options.python, options.only)
        rows[framework.name] = {**rows.get(framework.name, {}), **row}
        print(f"{framework.name}: {row}", file=sys.stderr, flush=True)
        if options.rows is not None:
            options.rows.write_text(json.dumps(rows, indent=1))
    print(markdown(rows))
    return sum(is_wrong(rows[framework.name]) for framework in chosen)


def tried(framework: Framework, python: str, only: str | None) -> Row:
    """The row of one framework, or half of it."""
    found = subprocess.run(
        [python, "-c", VERSION, framework.package], capture_output=True, text=True, check=False
    )
    version = found.stdout.strip()
    if not version:
        return {"obstacle": f"{framework.package} is not installed"}
    row: Row = {"version": f"{framework.package} {version.partition('+')[0]}"}
    if only != "failing":
        try:
            row |= try_healthy(framework, python)._asdict()
        except subprocess.TimeoutExpired as error:
            row |= Healthy("", "", False, f"did not end in {error.timeout:.0f} s", ())._asdict()
    if only != "healthy" and framework.failure is not None:
        row |= try_failing(framework, framework.failure, python)._asdict()
    return row


def is_wrong(row: Row) -> bool:
    """Whether a result differs, a healthy program was warned about, or a failure not named."""
    is_sound = row.get("is_same", True) and not row.get("alarms")
    return not is_sound or ("first" in row and row["named_s"] is None)


def markdown(rows: dict[str, Row]) -> str:
    """The table of all rows, in the order of the catalogue."""
    lines = [f"| {' | '.join(TITLES)} |", "|" + " --- |" * len(TITLES)]
    for framework in FRAMEWORKS:
        row = rows.get(framework.name)
        if row is not None:
            lines.append(f"| {' | '.join(cells(framework, row))} |")
    return "\n".join(lines)


def cells(framework: Framework, row: Row) -> tuple[str, ...]:
    """One line of the table."""
    if "version" not in row:
        return (framework.name, f"not tried: {row['obstacle']}", "", "", "", "", "")
    failure = framework.failure
    after = ""
    if "first" in row:
        named = Failing(row["named_s"], row["first"])
        after = "not named" if named.named_s is None else f"{named.named_s:.0f} s"
    return (
        f"{framework.name} ({row['version']})",
        row.get("roles", "").replace("<", "&lt;"),
        row.get("hook", ""),
        "yes" if row.get("is_same") else "**no**",
        "**no**" if row.get("alarms") else "yes",
        failure.truth if failure else "",
        after,
    )


if __name__ == "__main__":
    sys.exit(main())
