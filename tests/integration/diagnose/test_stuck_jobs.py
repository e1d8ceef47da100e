"""Jobs that make no progress are named by the process and the line that hold them up.

Their healthy look-alikes are idle by design: nothing is said of them, not even as information.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from mpwatch.cli.failures import EXIT_INTERRUPTED
from tests import procfs
from tests.conftest import Start
from tests.integration import on_demand
from tests.integration.observe.commands import mpwatch, of_this_job, watched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

WATCHED_S = 14.0
RETRIED_S = 26.0
"""For a lock that is tried for again and again: the same holder is seen for whole spans of 5 s; for
one whose holders all have to have waited for 10 s, on a loaded machine; and for readers that are
ended after a time."""
STARTED_S = 12.0
"""Longer than a job that makes progress is observed, with the start of the command."""
STOOD_S = 14.0
"""Longer than a wait lasts until it is told."""
STUCK = {
    "acquired_twice": ("standing-still", "and not released it yet", "refresh"),
    "copied_pipe_ends": ("standing-still", "a copy of its writing end itself", "receive_all"),
    "crossed_locks": ("standing-still", "different order", " cross"),
    "database": ("no-progress", "Commit or roll back", "keep_transaction"),
    "ended_writer": (
        "worker-exited-unexpectedly",
        "no living process can end that",
        "ended_writer",
    ),
    "event_of_the_dead": (
        "standing-still",
        "event that no process sets; python",
        "ended: exit code 3",
    ),
    "exit_with_unread_queue": ("standing-still", "never read", "64 KiB"),
    "flock_of_a_child": ("no-progress", "has closed its own descriptor", "LOCK_UN"),
    "flock_outside": ("no-progress", "(python) outside of this job", "flock_outside"),
    "full_queues": ("standing-still", "none of them reads", "full_queues"),
    "imported_pool": ("standing-still", "while it imports", "encodes_at_import.py"),
    "lock_lost_at_fork": ("fork-with-threads-lock", "most likely such a thread", "report"),
    "lock_twice": ("standing-still", "once more at", "update"),
    "lockf_in_the_job": ("no-progress", "has it and sleeps", "take_and_sleep"),
    "nested_calls": ("standing-still", "All 2 threads of its thread pool wait", "nested_calls"),
    "reaped_children": ("no-progress", "has none left", "take_any_status"),
    "renewed_readers": ("queue-lock-held-by-dead", "terminate()", "take"),
    "sleeping_worker": ("no-progress", "which sleeps", "doze"),
    "socket_outside": ("no-progress", "outside of the job and sends nothing", "fetch"),
    "stopped_worker": ("no-progress", "is stopped by a signal", "kill -CONT"),
    "thread_lock_twice": ("no-progress", "a lock or condition of its own process", "update"),
}
"""The rule, what it says, and a line that it names."""
USUAL = ("crossed_locks",)
USUAL_HEALTHY = ("served",)
HEALTHY = (
    "computing_worker",
    "idle_pool",
    "idle_workers",
    "joined_service",
    "polled_children",
    "served",
    "turns",
)


def findings(pid: int, for_s: float = WATCHED_S) -> list[dict[str, Any]]:
    """The findings from outside within some seconds."""
    found: list[dict[str, Any]] = watched(pid, for_s, "--no-hook")["findings"]
    return of_this_job(found)


@pytest.mark.parametrize("case", on_demand.cases(STUCK, USUAL))
def test_a_stalled_job_is_named(start: Start, case: str) -> None:
    rule, words, place = STUCK[case]
    job = start("stuck_jobs.py", case)
    job.wait_for("ready")

    takes_long = ("acquired_twice", "flock_of_a_child", "reaped_children", "renewed_readers")
    watched_s = RETRIED_S if case in takes_long else WATCHED_S
    found = findings(job.pid, watched_s)

    assert [each["rule"] for each in found[:1]] == [rule]
    first = found[0]
    text = " ".join([first["summary"], *first["evidence"], first["cause"], first["advice"]])
    assert words in text
    assert place in text


@pytest.mark.parametrize("case", on_demand.cases(HEALTHY, USUAL_HEALTHY))
def test_a_job_that_is_idle_by_design_is_clean(start: Start, case: str) -> None:
    job = start("stuck_jobs.py", case)
    job.wait_for("ready")

    assert findings(job.pid) == []


@on_demand.ON_DEMAND
def test_a_reader_that_holds_a_copy_of_its_pipe_and_is_fed_has_no_warning(start: Start) -> None:
    job = start("stuck_jobs.py", "fed_reader")
    job.wait_for("ready")

    assert {each["severity"] for each in findings(job.pid)} <= {"info"}


@on_demand.ON_DEMAND
def test_ctrl_c_ends_the_watch_with_the_report_and_its_own_exit_code(start: Start) -> None:
    job = start("stuck_jobs.py", "sleeping_worker")
    job.wait_for("ready")
    command = [sys.executable, "-m", "mpwatch", "diagnose", str(job.pid), "--no-hook", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        time.sleep(STARTED_S)
        assert watch.poll() is None, "a job that stands still is watched for longer"
        watch.send_signal(signal.SIGINT)
        out, _ = watch.communicate(timeout=60)

    assert watch.returncode == EXIT_INTERRUPTED
    assert json.loads(out)["root"] == job.pid


@pytest.mark.skipif(not procfs.has_last_runs(), reason="the kernel has no CONFIG_SCHED_DEBUG")
def test_what_has_stood_still_before_it_was_watched_is_told_at_one_look(start: Start) -> None:
    job = start("stuck_jobs.py", "sleeping_worker")
    job.wait_for("ready")
    ready_s = time.monotonic()
    assert procfs.eventually(lambda: time.monotonic() - ready_s > STOOD_S)

    def is_told() -> bool:  # not where other programs keep the clock of a cpu from being read
        document.update(json.loads(mpwatch("dump", str(job.pid), "--json", "--no-hook").stdout))
        return bool(of_this_job(document["findings"]))

    document: dict[str, Any] = {}
    assert procfs.eventually(is_told)
    first = of_this_job(document["findings"])[0]
    assert first["rule"] == "no-progress"
    assert "which sleeps" in first["summary"]
    assert min(edge["since_s"] for edge in document["waits"]["edges"]) >= STOOD_S / 2
