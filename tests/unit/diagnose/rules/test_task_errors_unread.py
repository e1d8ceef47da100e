from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.exits import task_errors_unread
from mpwatch.model.account import Activity
from mpwatch.model.findings import Severity
from mpwatch.model.history import History
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import LogEntry, Process, Snapshot
from mpwatch.model.source_code import DroppedResult, Mark, SourceLine, Statement
from tests.builders.accounts import COMPUTES, with_shares
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    found,
    history,
    line,
    log,
    main,
    only,
    pid,
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


def test_of_an_executor_nothing_is_said_of_callbacks_which_are_called_in_any_case() -> None:
    known = job(failed())
    worker_loop = thread(200, "concurrent/futures/process.py:_process_worker", waits=WAITS)
    own = [
        replace(each, threads=(worker_loop,)) if each.role == "pool-worker" else each
        for each in known.processes
    ]

    finding = only(task_errors_unread.check, replace(known, processes=tuple(own)), quiet())

    assert "(result() of its future), and nothing is printed" in finding.cause
    assert "callback" not in finding.cause


def test_a_release_that_such_an_exception_leaves_out_is_the_cause() -> None:
    text = "on_result(item, task.result())"
    mark = Mark("unreleased", "/home/me/gate.py", "done", "self.slots, 0", Statement(33, text))
    source = SourceLine("/home/me/train.py", 30, "run", Statement(30, "self.slots.acquire()"))
    waiting = replace(job(failed()), marks=(mark,), source=(source,))

    finding = only(task_errors_unread.check, waiting, quiet())

    assert finding.cause.startswith(
        f"Most likely: an exception at `{text}` at gate.py:33 done leaves out the release of "
        "self.slots below it, and the `except` clause around it does not release it"
    )
    assert finding.advice.startswith("Release self.slots on every way")


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


POOL_THREAD = "concurrent/futures/thread.py:_worker"


def partition(number: int, *stack: str) -> Process:
    """A process whose main thread sleeps, with one thread of an executor."""
    own = thread(number, "train.py:run:25", waits=SLEEPS)
    pool = thread(number + 50, *(stack or (POOL_THREAD,)), name="consume_0", waits=WAITS)
    return process(number, "spawned", label=f"partition-{number}", threads=[own, pool])


def test_exceptions_of_calls_in_threads_are_told_of_the_process_that_has_the_threads() -> None:
    entries = [failed(worker=300, pool="threads"), failed(worker=301, pool="threads")]

    finding = only(
        task_errors_unread.check, snapshot_of(main(), partition(300), partition(301), log=entries)
    )

    assert finding.summary == (
        "2 calls in thread pools of partition-300 (300) and partition-301 (301) have raised "
        "ValueError, and no code had asked for the result"
    )
    assert finding.process == pid(300)
    assert finding.severity is Severity.INFO
    assert any("have nothing to do now, 60 s after" in each for each in finding.evidence)


DROPPED = DroppedResult(
    "/home/me/train.py", 23, "submit", Statement(23, "pool.submit(self._consume)")
)
APPLIED = DroppedResult(
    "/home/me/train.py", 19, "apply_async", Statement(19, "self.pool.apply_async(compact, (n,))")
)
WATCHED = history(started_at_s=NOW_S - 30)


def test_calls_whose_results_are_dropped_may_have_raised_where_no_thread_runs_one() -> None:
    idle = snapshot_of(main(), partition(300), dropped=(DROPPED,))
    busy = snapshot_of(
        main(), partition(300, "train.py:_consume:9", POOL_THREAD), dropped=(DROPPED,)
    )

    finding = only(task_errors_unread.check, idle, WATCHED)

    assert finding.summary == (
        "possible: calls that partition-300 (300) starts at train.py:23 have raised unseen"
    )
    assert finding.is_doubtful
    assert finding.severity is Severity.INFO
    assert "cannot be seen from outside" in finding.cause
    assert found(task_errors_unread.check, busy, WATCHED) == []
    assert found(task_errors_unread.check, replace(idle, dropped=()), WATCHED) == []
    assert found(task_errors_unread.check, idle, history(started_at_s=NOW_S - 5)) == []


@pytest.mark.parametrize(("works", "is_told"), [(0.02, True), (0.5, False)])
def test_tasks_whose_results_are_dropped_may_have_raised_where_workers_are_idle(
    works: float, is_told: bool
) -> None:
    gets = ("multiprocessing/queues.py:get", "multiprocessing/pool.py:worker")
    workers = [replace(worker(n), threads=(thread(n, *gets, waits=WAITS),)) for n in (200, 201)]
    idle = snapshot_of(job().processes[0], *workers, dropped=(APPLIED,))
    doing = {COMPUTES: works, Activity("idle", "waits for something to do"): 1 - works}
    told = with_shares(idle, p200=doing, p201=doing)

    assert bool(found(task_errors_unread.check, told, WATCHED)) is is_told


def test_workers_that_sleep_in_their_tasks_have_something_to_do() -> None:
    gets = ("multiprocessing/queues.py:get", "multiprocessing/pool.py:worker")
    workers = [replace(worker(n), threads=(thread(n, *gets, waits=WAITS),)) for n in (200, 201)]
    idle = snapshot_of(job().processes[0], *workers, dropped=(APPLIED,))
    asleep = {Activity("sleeping", "sleeps", place="train.py:7 score"): 0.5}

    assert (
        found(task_errors_unread.check, with_shares(idle, p200=asleep, p201=asleep), WATCHED) == []
    )
    # A main thread beside the threads of an executor may sleep as it likes.
    consumers = snapshot_of(main(), partition(300), dropped=(DROPPED,))
    assert found(task_errors_unread.check, with_shares(consumers, p300=asleep), WATCHED)


def test_a_known_exception_is_reported_in_place_of_a_possible_one() -> None:
    known = replace(job(failed()), dropped=(APPLIED,))

    assert "have raised unseen" not in only(task_errors_unread.check, known, WATCHED).summary
