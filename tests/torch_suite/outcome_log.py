"""A pytest plugin: appends to a file what each test began and how it ended.

It runs where neither this package nor mpwatch can be imported, and the file is there even if the
process is not any more.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

_worst: dict[str, str] = {}
_ORDER = ("passed", "skipped", "xfailed", "xpassed", "failed", "error")


def _append(*row: object) -> None:
    with open(os.environ["MPWATCH_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _append("began", nodeid, "_mpwatch_hook" in sys.modules)


def pytest_runtest_logreport(report: Any) -> None:
    outcome = report.outcome
    if outcome == "failed" and report.when != "call":
        outcome = "error"
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if outcome == "skipped" else "xpassed"
    before = _worst.get(report.nodeid, "passed")
    _worst[report.nodeid] = max(before, outcome, key=_ORDER.index)


def pytest_runtest_logfinish(nodeid: str) -> None:
    _append("ended", nodeid, _worst.get(nodeid, "passed"))
