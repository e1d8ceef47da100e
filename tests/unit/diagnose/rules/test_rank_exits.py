"""Several ranks exited: the first is named, and an abort in a collective has a rule of its own."""

from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.rules.distributed import collective_mismatch
from mpwatch.diagnose.rules.exits import worker_exited_unexpectedly, worker_segfault
from mpwatch.model.snapshot import LogEntry, Process
from tests.builders.snapshots import (
    NOW_S,
    exited,
    found,
    log,
    main,
    only,
    pid,
    process,
    snapshot_of,
    thread,
)

C10D = "torch/distributed/distributed_c10d.py"
REDUCING = (f"{C10D}:all_reduce", "train.py:step:40")
CLOSED = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:7580."


def rank(
    number: int,
    ago_s: float | None,
    *stack: str,
    group: str = "gloo_tcp_loop",
    **how: Any,
) -> Process:
    own = 300 + number
    ended = None if ago_s is None else exited(own, at_s=NOW_S - ago_s, **how)
    threads = [thread(own, *(stack or REDUCING), still_s=60.0), thread(own + 50, name=group)]
    return process(own, "spawned", label=f"rank {number}", threads=threads, ended=ended)


def raised(number: int, words: str, function: str = "all_reduce") -> LogEntry:
    frames = [[function, f"/x/{C10D}", 9], ["step", "train.py", 40]]
    return log("exception", 300 + number, words, frames=frames)


def test_a_rank_that_returned_is_named_where_the_others_failed_because_of_it() -> None:
    job = snapshot_of(
        main(), rank(0, 4.0, exit_code=1), rank(1, 6.0, exit_code=0), rank(2, 3.0, signal=15)
    )

    finding = only(worker_exited_unexpectedly.check, job)

    assert finding.process == pid(301)
    assert (
        "rank 1 (301) left the other ranks, with status 0, and rank 0 (300) failed 2.0 s"
        in finding.summary
    )
    assert finding.cause.startswith("Likely: rank 1 (301) left the process group")


def test_the_process_of_a_rank_that_returned_may_end_after_those_it_failed() -> None:
    job = snapshot_of(main(), rank(0, 6.0, exit_code=1), rank(1, 5.0, exit_code=0))

    finding = only(worker_exited_unexpectedly.check, job)

    assert finding.process == pid(301)
    assert "rank 0 (300) failed 1.0 s before its process had ended" in finding.summary


def test_the_first_rank_is_certain_where_the_hook_reported_the_exception() -> None:
    job = snapshot_of(
        main(),
        rank(0, 4.0, "train.py:load:3", exit_code=1),
        rank(1, 6.0, exit_code=0),
        log=(raised(0, CLOSED),),
    )

    finding = only(worker_exited_unexpectedly.check, job)

    assert finding.process == pid(301)
    assert finding.cause.startswith("rank 1 (301) left")
    assert any("Connection closed by peer" in each for each in finding.evidence)


def test_of_ranks_that_failed_the_one_with_an_error_of_its_own_is_named() -> None:
    """The parent saw the exit of the victim first."""
    job = snapshot_of(
        main(),
        rank(0, 6.0, exit_code=1),
        rank(1, 5.9, exit_code=1),
        log=(raised(0, CLOSED), raised(1, "ValueError: a label out of range", "forward")),
    )

    assert only(worker_exited_unexpectedly.check, job).process == pid(301)


def test_ranks_that_failed_because_another_was_killed_are_no_second_finding() -> None:
    job = snapshot_of(main(), rank(0, 5.0, exit_code=1), rank(1, 6.0, signal=9))

    finding = only(worker_exited_unexpectedly.check, job)

    assert finding.process == pid(301)
    assert "SIGKILL" in finding.summary


@pytest.mark.parametrize(
    ("failed", "entries"),
    [
        (rank(0, 2.0, "train.py:load:3", exit_code=1), ()),  # not in a collective, and later
        (rank(0, 4.0, exit_code=1), (raised(0, "ValueError: of its own"),)),
        (rank(0, 4.0, group="python", exit_code=1), ()),
        (rank(0, 11.0, exit_code=1), ()),  # long before the other exited
    ],
)
def test_a_rank_that_failed_for_another_reason_is_named_itself(
    failed: Process, entries: tuple[LogEntry, ...]
) -> None:
    job = snapshot_of(main(), failed, rank(1, 6.0, exit_code=0), log=entries)

    assert only(worker_exited_unexpectedly.check, job).process == pid(300)


def test_the_first_rank_is_called_possible_where_only_the_time_is_evidence() -> None:
    job = snapshot_of(
        main(), rank(0, 5.0, "train.py:load:3", exit_code=1), rank(1, 6.0, exit_code=0)
    )

    finding = only(worker_exited_unexpectedly.check, job)

    assert finding.process == pid(301)
    assert finding.cause.startswith("Possible: rank 1 (301) left")


def test_the_exit_of_the_first_rank_is_described_only_where_it_was_observed() -> None:
    job = snapshot_of(main(), rank(0, 5.0, exit_code=1), rank(1, 6.0))

    finding = only(worker_exited_unexpectedly.check, job)

    assert finding.summary.startswith("rank 1 (301) left the other ranks, and rank 0 (300) failed")
    assert "How it ended was not seen" in finding.cause


def test_ranks_that_all_return_are_no_finding() -> None:
    job = snapshot_of(main(), rank(0, 4.0, exit_code=0), rank(1, 6.0, exit_code=0))

    assert found(worker_exited_unexpectedly.check, job) == []


def test_an_abort_in_a_collective_is_a_finding_about_the_collective() -> None:
    job = snapshot_of(main(), rank(0, 5.0, exit_code=1), rank(1, 6.0, signal=6))

    finding = only(collective_mismatch.check, job)

    assert finding.process == pid(301)
    assert "rank 1 (301) was aborted (SIGABRT)" in finding.summary
    assert any("last seen in all_reduce at train.py:40 step" in each for each in finding.evidence)
    assert found(worker_segfault.check, job) == []
    assert found(worker_exited_unexpectedly.check, job) == []


@pytest.mark.parametrize(
    "aborted", [rank(1, 6.0, group="python", signal=6), rank(1, 6.0, signal=11)]
)
def test_an_abort_of_no_rank_and_a_crash_stay_crashes(aborted: Process) -> None:
    job = snapshot_of(main(), rank(0, None), aborted)

    assert found(collective_mismatch.check, job) == []
    assert only(worker_segfault.check, job).process == pid(301)
