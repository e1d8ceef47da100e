from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mpwatch.diagnose.rules.exits import task_errors_unread
from mpwatch.model.findings import Severity
from mpwatch.model.history import History
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import LogEntry, Process, Snapshot
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    found,
    history,
    line,
    log,
    main,
    only,
    process,
    snapshot_of,
    thread,
)

SLEEPS = WaitedOn("timer", "clock_nanosleep", timeout_s=0.1)
WAITS = WaitedOn("futex", "futex", ("futex 0x7f00",))
FRAMES = [
    ["score", "/home/me/train.py", 12],
    ["worker", "/usr/lib/python3/multiprocessing/pool.py", 125],
]


def failed(count: int = 1, worker: int = 200, ago_s: float = 60.0, **fields: Any) -> LogEntry:
    details = {"where": "task", "type": "ValueError", "text": "bad shape", "frames": FRAMES}
    entry = log(
        "exception", worker, "exception: ValueError", **{**details, "count": count, **fields}
    )
    return replace(entry, at_s=NOW_S - ago_s)


def worker(number: int = 200) -> Process:
    idle = thread(number, "multiprocessing/pool.py:worker", waits=WAITS, still_s=60.0)
    return process(number, role="pool-worker", label=f"pool worker {number - 200}", threads=[idle])


def job(*entries: LogEntry, waits: WaitedOn = WAITS, outstanding: int = 0) -> Snapshot:
    waiting = thread(MAIN, "train.py:run:30", waits=waits, still_s=60.0, waits_s=60.0)
    pool = {"kind": "Pool", "outstanding": outstanding, "queued": 0, "pids": [200, 201]}
    head = replace(main(threads=[waiting]), gauges={"pools": [pool]})
    return snapshot_of(head, worker(), worker(201), log=entries)


def quiet() -> History:
    flat = line(0.0, seconds=60.0)
    return history({(each, "cpu_percent"): flat for each in (MAIN, 200, 201)})


def test_a_process_that_waits_while_its_pool_has_nothing_left_is_warned_about() -> None:
    finding = only(task_errors_unread.check, job(failed(), failed(2), failed(worker=201)), quiet())

    assert finding.severity is Severity.WARNING
    assert finding.summary.startswith("3 tasks of the pool of main (100) have raised ValueError")
    assert "it waits at train.py:30 run for 60 s" in finding.summary
    assert finding.evidence[0] == "ValueError: bad shape, at train.py:12 score"
    assert "error_callback" in finding.advice


def test_a_loop_that_sleeps_and_looks_for_callbacks_waits_as_well() -> None:
    finding = only(task_errors_unread.check, job(failed(), waits=SLEEPS), quiet())

    assert finding.severity is Severity.WARNING


def test_a_loop_that_computes_between_short_sleeps_does_other_work() -> None:
    busy = history({(MAIN, "cpu_percent"): line(40.0, seconds=60.0)})

    finding = only(task_errors_unread.check, job(failed(), waits=SLEEPS), busy)

    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(
    "still_works",
    [
        job(failed(), outstanding=2),
        job(failed(ago_s=3.0)),
        job(failed(), waits=WaitedOn("timer", "clock_nanosleep", timeout_s=60.0)),
        job(failed(), waits=WaitedOn("socket-read", "recvfrom", ("socket:[77]",))),
    ],
    ids=["tasks are left", "it has just failed", "a long pause", "it waits for a socket"],
)
def test_errors_of_a_job_that_goes_on_are_information(still_works: Snapshot) -> None:
    finding = only(task_errors_unread.check, still_works, quiet())

    assert finding.severity is Severity.INFO
    assert "Whether the program has asked is not known" in finding.cause


def test_other_exceptions_are_not_those_of_tasks() -> None:
    assert found(task_errors_unread.check, job(failed(where="QUEUE_GET")), quiet()) == []
