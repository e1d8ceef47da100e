"""Real programs whose processes have left tracebacks in a file before mpwatch came."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import PROGRAMS
from tests.integration.observe.commands import watched

WATCHED_S = 8.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

Run = Callable[[str], int]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start a mode of the program with its output in a file; returns its pid when it has failed."""
    running: list[subprocess.Popen[bytes]] = []

    def begun(mode: str) -> int:
        log = tmp_path / "train.log"
        with log.open("wb") as file:
            running.append(
                subprocess.Popen(
                    [sys.executable, str(PROGRAMS / "written_errors.py"), mode],
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            )
        while not ("ready" in (text := log.read_text()) and "Error: " in text):
            time.sleep(0.05)
        return running[0].pid

    yield begun
    for program in running:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()


@pytest.mark.parametrize(
    ("mode", "rule", "words"),
    [
        (
            "died",
            "worker-exited-unexpectedly",
            "exit code 1, most likely indexer-7 by KeyError at written_errors.py:22 load",
        ),
        (
            "reaped",
            "worker-exited-unexpectedly",
            "indexer-7, a process that is gone, ended by KeyError at written_errors.py:22 load",
        ),
        (
            "main",
            "standing-still",
            "has most likely raised KeyError at written_errors.py:22 load and waits for reader",
        ),
        (
            "thread",
            "pool-hang-after-worker-death",
            "no thread receives results: it has ended at written_errors.py:54 add",
        ),
    ],
)
def test_what_has_ended_a_process_or_thread_is_read_from_its_traceback(
    run: Run, mode: str, rule: str, words: str
) -> None:
    first = watched(run(mode), WATCHED_S, "--no-hook")["findings"][0]

    assert (first["rule"], first["severity"]) == (rule, "critical")
    assert words in first["summary"]
    assert "train.log" in " ".join(first["evidence"])


def test_exceptions_that_workers_log_and_handle_are_no_failure(run: Run) -> None:
    findings = watched(run("handled"), WATCHED_S, "--no-hook")["findings"]

    assert [each for each in findings if each["severity"] != "info"] == []
    assert "KeyError" not in str(findings)
