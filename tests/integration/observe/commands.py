"""Real commands on real processes, and programs written for one test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mpwatch.diagnose.rules.transport.file_system_strategy_leak import OTHER_JOBS

Document = dict[str, Any]


def mpwatch(*arguments: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; it shows no traceback, except that of a program it runs."""
    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert arguments[0] == "run" or "Traceback" not in done.stderr
    return done


def recorded(folder: Path, program: str, *arguments: str) -> tuple[int, Document]:
    """Run a program headless with a recording; its exit code, and what is diagnosed of it."""
    script, file = folder / "script.py", folder / "run.mpw"
    script.write_text(program)
    ran = mpwatch("run", "--headless", "--record", file, script, *arguments)
    return ran.returncode, diagnosed(file)


def diagnosed(file: Path) -> Document:
    """The diagnosis of a recording."""
    done = mpwatch("diagnose", file, "--json")
    assert done.returncode == 0, done.stderr
    document: Document = json.loads(done.stdout)
    return document


def watched(pid: int, watched_s: float, *arguments: str) -> Document:
    """The diagnosis of a running job after some seconds."""
    command = [sys.executable, "-m", "mpwatch", "diagnose", str(pid), "--json", *arguments]
    done = subprocess.run(
        [*command, "--for", f"{watched_s:g}"],
        capture_output=True,
        text=True,
        timeout=60 + 6 * watched_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document: Document = json.loads(done.stdout)
    return document


def open_findings(pid: int, watched_s: float) -> list[Document]:
    """The findings about a running job, without those that are resolved at the end."""
    return [each for each in watched(pid, watched_s)["findings"] if not each["resolved"]]


def of_this_job(findings: list[Document]) -> list[Document]:
    """The findings without those about what other jobs left on this machine.

    Tests that run at the same time, or that were killed, leave segments in /dev/shm.
    """
    return [each for each in findings if each["subject"] != OTHER_JOBS]


def rules(document: Document, least: str = "info") -> set[str]:
    """Rules that hold, at least so severe."""
    order = ("info", "warning", "critical")
    return {
        finding["rule"]
        for finding in document["findings"]
        if not finding["resolved"] and order.index(finding["severity"]) >= order.index(least)
    }
