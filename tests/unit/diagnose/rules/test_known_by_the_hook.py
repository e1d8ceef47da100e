from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.exits import worker_exited_unexpectedly
from mpwatch.diagnose.rules.hangs import pool_hang_after_worker_death
from mpwatch.diagnose.rules.transport import (
    forkserver_too_many_fds,
    max_map_count,
    raw_fork_inherits_sharer,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Hook, Process
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    exited,
    found,
    log,
    main,
    maps,
    only,
    process,
    snapshot_of,
    thread,
)
from tests.unit.diagnose.rules.test_pools_and_queues import pool_worker

HUNG_UP = log("receive-failed", 300, "receive failed: EOFError")


def test_a_sender_that_does_not_recognise_a_handle_is_named() -> None:
    job = snapshot_of(main(), process(300, "spawned"), log=(HUNG_UP,))
    certain = log("thread-died", 200, "thread died: KeyError: 2 in _serve")

    assert "unpickled twice" in only(raw_fork_inherits_sharer.check, job).summary
    assert only(raw_fork_inherits_sharer.check, snapshot_of(main(), log=(certain,))).severity is (
        Severity.CRITICAL
    )


@pytest.mark.parametrize(
    "reason",
    [
        {"log": (HUNG_UP, log("lost-item", 200, "OSError; [Errno 24] Too many open files"))},
        {"dead": process(200, "spawned", ended=exited(200, signal=9))},
    ],
)
def test_a_sender_that_closes_for_another_reason_has_no_foreign_handles(
    reason: dict[str, Any],
) -> None:
    dead = [reason["dead"]] if "dead" in reason else []
    job = snapshot_of(main(), process(300, "spawned"), *dead, log=reason.get("log", (HUNG_UP,)))

    assert found(raw_fork_inherits_sharer.check, job) == []


def test_the_first_of_several_failures_is_described() -> None:
    early = process(300, "spawned", ended=exited(300, at_s=NOW_S - 9, exit_code=1))
    late = process(200, "spawned", ended=exited(200, at_s=NOW_S - 5, exit_code=1))

    alone = only(
        worker_exited_unexpectedly.check, snapshot_of(main(), early, process(400, "spawned"))
    )
    both = only(worker_exited_unexpectedly.check, snapshot_of(main(), late, early))

    assert alone.key == both.key


def test_the_exception_of_a_failed_process_is_evidence_and_decides_the_fix() -> None:
    dead = process(200, "spawned", ended=exited(200, at_s=NOW_S - 9, exit_code=1))
    said = log("exception", 200, "exception: EOFError")

    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), dead, log=(said,)))
    at = log("exception", 200, "exception: EOFError, at train.py:31 load")
    placed = only(worker_exited_unexpectedly.check, snapshot_of(main(), dead, log=(at,)))
    silent = only(worker_exited_unexpectedly.check, snapshot_of(main(), dead))

    assert "exception: EOFError" in finding.evidence
    assert finding.advice.startswith("Fix the code that raises it.")
    assert placed.advice.startswith("Fix the code at the line shown.")
    assert "standard error" in silent.advice
    assert "num_workers" not in silent.advice + finding.advice


def test_an_exception_of_a_file_that_was_cut_is_put_down_to_the_file() -> None:
    dead = process(200, "spawned", ended=exited(200, at_s=NOW_S - 9, exit_code=1))
    words = "process start; ValueError; mmap length is greater than file size, at data.py:47 load"
    said = log("exception", 200, f"exception: {words}")

    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), dead, log=(said,)))

    assert "delete it and write it anew" in finding.advice
    assert "os.replace()" in finding.advice


def test_the_call_by_which_a_process_exited_is_evidence() -> None:
    dead = process(200, ended=exited(200, exit_code=3))
    left = log("exit", 200, "exit: code 3; by os._exit", how="os._exit", code=3)

    evidence = only(
        worker_exited_unexpectedly.check, snapshot_of(main(), dead, log=(left,))
    ).evidence

    assert "exit: code 3; by os._exit" in evidence


IMAP = ("threading.py:wait", "multiprocessing/pool.py:next", "train.py:main:9")


def waiting_for(**pool: Any) -> Process:
    reading = {"kind": "Pool", "outstanding": 1, "oldest": 3, "queued": 0, "pids": [301], **pool}
    return main(threads=[thread(MAIN, *IMAP)], more={"gauges": {"pools": [reading]}})


def hooked_worker(**job: Any) -> Process:
    worker = pool_worker(301)
    return replace(worker, hook=Hook("ready"), gauges={"job": {"job": None, "done": 4, **job}})


def test_a_call_that_no_worker_has_is_lost_without_an_observed_exit() -> None:
    finding = only(pool_hang_after_worker_death.check, snapshot_of(waiting_for(), hooked_worker()))

    assert "1 call without a result, not queued, and no worker is running one" in finding.evidence


@pytest.mark.parametrize(
    ("pool", "job"),
    [
        ({"queued": 2}, {}),
        ({}, {"since_ns": 5}),
        ({"outstanding": 0}, {}),
        ({"pids": [301, 9]}, {}),
    ],
)
def test_calls_that_may_still_be_done_are_not_lost(
    pool: dict[str, Any], job: dict[str, Any]
) -> None:
    job_world = snapshot_of(waiting_for(**pool), hooked_worker(**job))

    assert found(pool_hang_after_worker_death.check, job_world) == []


def test_a_pool_without_outstanding_calls_waits_for_nothing() -> None:
    job = snapshot_of(
        waiting_for(outstanding=0), hooked_worker(), process(300, ended=exited(300, signal=9))
    )

    assert found(pool_hang_after_worker_death.check, job) == []


def test_a_pool_whose_next_task_is_being_made_is_quiet() -> None:
    feeding = thread(150, "data.py:read_lines:7", "multiprocessing/pool.py:_handle_tasks")
    waiting = main(threads=[thread(MAIN, *IMAP), feeding])
    dead = process(300, "spawned", ended=exited(300, signal=11))

    assert (
        found(pool_hang_after_worker_death.check, snapshot_of(waiting, dead, pool_worker(301)))
        == []
    )


BURDEN = log("many-storages", MAIN, storages=70_000, path="._args[1].steps", object="Process")


def test_the_hook_reports_which_attribute_holds_the_many_tensors() -> None:
    job = snapshot_of(main(maps=maps(60_000, torch=59_000)), log=(BURDEN,))

    evidence = only(max_map_count.check, job).evidence

    assert "70000 storages are in ._args[1].steps of the Process handed over" in evidence


def test_a_mapping_that_was_refused_is_named_after_its_process_has_ended() -> None:
    words = "unable to mmap 96 bytes from file </torch_1_2_65174>: Cannot allocate memory (12)"
    over = main(maps=maps(60_000, torch=59_000), ended=exited(MAIN, exit_code=1))
    job = snapshot_of(over, log=(log("exception", MAIN, words),))

    assert "it has used up vm.max_map_count" in only(max_map_count.check, job).summary


def test_a_refused_mapping_far_below_the_limit_has_another_limit_as_its_cause() -> None:
    words = "unable to mmap 96 bytes from file </torch_1_2_65174>: Cannot allocate memory (12)"
    job = snapshot_of(main(maps=maps(1_200, torch=90)), log=(log("exception", MAIN, words),))

    finding = only(max_map_count.check, job)

    assert "used up" not in finding.summary
    assert "RLIMIT_AS" in finding.cause
    assert "1200 of 65530 mappings in use when last counted" in finding.evidence


def test_arguments_that_the_fork_server_nearly_refused_are_a_warning() -> None:
    def started(fds: int, method: str = "forkserver") -> list[Finding]:
        start = log("start", MAIN, pid=7, fds=fds, method=method)
        return found(forkserver_too_many_fds.check, snapshot_of(main(), log=(start, BURDEN)))

    assert [finding.severity for finding in started(230)] == [Severity.WARNING]
    assert any("._args[1].steps" in each for each in started(230)[0].evidence)
    assert started(60) == []
    assert started(900, "spawn") == []


def test_arguments_that_the_fork_server_refused_are_named_by_attribute() -> None:
    said = log("exception", MAIN, "exception: process start; ValueError; too many fds")

    finding = only(forkserver_too_many_fds.check, snapshot_of(main(), log=(said, BURDEN)))

    assert any("._args[1].steps" in each for each in finding.evidence)
