from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.hangs import feeder_thread_drops_batch, stuck_worker_io
from mpwatch.model.findings import Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Hook, Loader, Process, Snapshot, WorkerLoad
from mpwatch.model.source_code import EndlessLoop, SourceLine, Statement
from tests.builders.snapshots import (
    FETCHING_WORKER,
    IDLE_WORKER,
    MAIN,
    WAITING_MAIN,
    fds,
    found,
    log,
    main,
    only,
    pid,
    pipe,
    process,
    snapshot_of,
    thread,
)

STILL = 60.0
POLL = WaitedOn("poll", "poll", ("pipe:[500]",), timeout_s=5.0)


def waiting(*stack: str, wait: WaitedOn = POLL, **more: Any) -> Process:
    return main(threads=[thread(MAIN, *stack, waits=wait, still_s=STILL)], **more)


def idle(number: int, *stack: str, still_s: float = STILL, **more: Any) -> Process:
    return process(
        number,
        fds=fds(9, links=[pipe(6, 500, True)]),
        threads=[thread(number, *stack, waits=POLL, still_s=still_s)],
        **more,
    )


def test_a_lost_batch_is_named_from_stacks() -> None:
    job = snapshot_of(waiting(*WAITING_MAIN), idle(200, *IDLE_WORKER), idle(201, *IDLE_WORKER))

    finding = only(feeder_thread_drops_batch.check, job)

    assert finding.severity is Severity.CRITICAL
    assert "waited 60 s for a batch" in finding.evidence[0]
    assert "standard error" in finding.advice


def test_a_lost_batch_is_named_from_system_calls_alone() -> None:
    assert (
        only(feeder_thread_drops_batch.check, snapshot_of(waiting(), idle(200))).subject == "wait"
    )


def test_a_main_process_that_is_stopped_does_not_wait() -> None:
    held = waiting(*WAITING_MAIN)
    held = replace(held, sample=replace(held.sample, state="T"))

    assert found(feeder_thread_drops_batch.check, snapshot_of(held, idle(200, *IDLE_WORKER))) == []


def test_the_hook_reports_which_batch_was_lost_and_why() -> None:
    loader = Loader(pid(MAIN), 1, 1, next_task=417, outstanding=2, waiting_since_s=30.0)
    other = Loader(pid(MAIN), 2, 1)
    loss = log("lost-item", 200, "lost item: OSError; [Errno 28]")
    job = snapshot_of(
        waiting(*WAITING_MAIN), idle(200, *IDLE_WORKER), loaders=(other, loader), log=(loss,)
    )

    drop, wait = found(feeder_thread_drops_batch.check, job)

    assert drop.process == pid(200)
    assert "batch 417, which was lost" in wait.summary
    assert any("[Errno 28]" in each for each in wait.evidence)


@pytest.mark.parametrize(
    ("words", "cause", "fix"),
    [
        ("OSError: [Errno 28] No space left on device", "no space", "/dev/shm larger"),
        ("OSError: [Errno 24] Too many open files", "no descriptor", "ulimit -n"),
        ("OSError: AF_UNIX path too long", "TMPDIR is too long", "short TMPDIR"),
        ("TypeError: cannot pickle 'generator' object", "cannot be pickled", "Convert that object"),
        ("ValueError: 7", "the error above", "Fix the error above"),
    ],
)
def test_a_lost_item_has_the_error_of_its_feeder_thread_as_its_cause(
    words: str, cause: str, fix: str
) -> None:
    worker, plain = process(200), process(300, "spawned")
    job = snapshot_of(main(), worker, plain, log=(log("lost-item", 200, words),))
    other = snapshot_of(main(), worker, plain, log=(log("lost-item", 300, words),))

    of_loader, of_queue = (only(feeder_thread_drops_batch.check, each) for each in (job, other))

    for finding in (of_loader, of_queue):
        assert cause in finding.cause
        assert fix in finding.advice
    assert "DataLoader" in of_loader.cause + of_loader.advice
    assert "DataLoader" not in of_queue.cause + of_queue.advice


@pytest.mark.parametrize(
    "job",
    [
        snapshot_of(waiting(*WAITING_MAIN), idle(200, *FETCHING_WORKER)),
        snapshot_of(waiting("train.py:evaluate"), idle(200, *IDLE_WORKER)),
        snapshot_of(waiting(*WAITING_MAIN), idle(200, *IDLE_WORKER, still_s=1.0)),
        snapshot_of(
            main(threads=[thread(MAIN, *WAITING_MAIN, still_s=2.0)]), idle(200, *IDLE_WORKER)
        ),
        snapshot_of(
            main(threads=[thread(MAIN, *WAITING_MAIN, state="R")]), idle(200, *IDLE_WORKER)
        ),
        snapshot_of(main(), idle(200, *IDLE_WORKER)),
        snapshot_of(waiting(wait=WaitedOn("poll", "poll", ("pipe:[500]",))), idle(200)),
        snapshot_of(
            waiting(wait=WaitedOn("poll", "poll", ("pipe:[500]",), timeout_s=60)), idle(200)
        ),
        snapshot_of(waiting(wait=WaitedOn("poll", "poll", ("pipe:[7]",), timeout_s=5)), idle(200)),
        snapshot_of(waiting(wait=WaitedOn("timer", "nanosleep")), idle(200)),
        snapshot_of(waiting(), process(200)),
        snapshot_of(waiting(), process(200, threads=[thread(200)])),
        snapshot_of(waiting(), idle(200, more={"loader": WorkerLoad(0, task=4)})),
        snapshot_of(
            waiting(),
            process(
                200,
                fds=fds(9, links=[pipe(6, 500, True)]),
                threads=[
                    thread(200, waits=POLL, still_s=STILL),
                    thread(201, waits=WaitedOn("pipe-write", "write")),
                ],
            ),
        ),
        snapshot_of(
            waiting(),
            idle(200),
            process(201, threads=[thread(201, waits=WaitedOn("poll", "poll"))]),
        ),
    ],
)
def test_waiting_that_may_end_is_no_lost_batch(job: Snapshot) -> None:
    assert found(feeder_thread_drops_batch.check, job) == []


def blocked(
    kind: Any, *stack: str, still_s: float = STILL, state: str = "S", **more: Any
) -> Process:
    wait = WaitedOn(kind, "recvfrom", ("socket:[9]",))
    own = thread(200, *stack, waits=wait, still_s=still_s, state=state, wchan="wait_woken")
    return process(200, threads=[own], **more)


def test_a_worker_blocked_on_a_socket_is_named_with_its_line() -> None:
    finding = only(
        stuck_worker_io.check, snapshot_of(main(), blocked("socket-read", *FETCHING_WORKER))
    )

    assert finding.summary.endswith("blocked for 60 s, at data.py:31 decode")

    assert finding.severity is Severity.CRITICAL
    assert "at data.py:31 decode" in finding.evidence
    assert "in recvfrom on socket:[9]" in finding.evidence
    assert "Attach the hook" in finding.advice


def test_a_worker_in_disk_wait_is_a_warning_at_first() -> None:
    job = snapshot_of(main(), blocked("disk", state="D", still_s=20.0))

    assert only(stuck_worker_io.check, job).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("kind", "state", "named", "not_named"),
    [
        (
            "disk",
            "D",
            ("state D", "file system", "SIGKILL ends the wait only where"),
            ("socket", "decoder", "only when", "included"),
        ),
        ("socket-read", "S", ("socket",), ("state D", "FUSE", "corrupt", "decoder")),
        ("pipe-read", "S", ("pipe",), ("state D", "FUSE", "socket")),
    ],
)
def test_the_cause_names_only_the_observed_kind_of_wait(
    kind: str, state: str, named: tuple[str, ...], not_named: tuple[str, ...]
) -> None:
    job = snapshot_of(main(), blocked(kind, *FETCHING_WORKER, state=state))

    finding = only(stuck_worker_io.check, job)

    text = f"{finding.cause} {finding.advice}"
    assert all(each in text for each in named)
    assert not any(each in text for each in not_named)


def test_a_long_sample_is_not_explained_by_storage() -> None:
    load = WorkerLoad(0, fetch_p99_s=0.2, task=41, task_since_s=45.0)
    busy = process(
        200,
        threads=[thread(200, state="R", still_s=None)],
        hook=Hook("ready"),
        more={"loader": load},
    )

    finding = only(stuck_worker_io.check, snapshot_of(main(), busy))

    assert "blocked" not in finding.summary
    assert "45 s" in finding.summary
    assert "state D" not in f"{finding.cause} {finding.advice}"
    assert "times its usual time" in finding.cause


def test_a_call_inside_a_sample_counts_where_the_stack_shows_it() -> None:
    job = snapshot_of(main(), blocked("pipe-read", *FETCHING_WORKER))

    assert only(stuck_worker_io.check, job).process == pid(200)


def test_a_pipe_whose_writing_end_only_the_worker_has_is_left_to_the_rule_for_dead_ends() -> None:
    reads = WaitedOn("pipe-read", "read", ("pipe:[9]",), (4,))
    own = thread(200, *FETCHING_WORKER, waits=reads, still_s=STILL)
    ends = [pipe(4, 9, False), pipe(5, 9, True)]
    alone = process(200, threads=[own], fds=fds(9, links=ends), segments=())
    root = main(fds=fds(3, links=[]), segments=())
    writes = process(300, "spawned", fds=fds(9, links=[pipe(5, 9, True)]), threads=[thread(300)])

    assert found(stuck_worker_io.check, snapshot_of(root, alone)) == []
    assert only(stuck_worker_io.check, snapshot_of(root, alone, writes)).process == pid(200)


def test_the_hook_names_the_sample_that_takes_too_long() -> None:
    load = WorkerLoad(0, fetch_p99_s=0.2, task=41, task_since_s=45.0, index="13342")
    busy = process(
        200,
        threads=[thread(200, state="R", still_s=None)],
        hook=Hook("ready"),
        more={"loader": load},
    )

    finding = only(stuck_worker_io.check, snapshot_of(main(), busy))

    assert "in batch 41, index 13342" in finding.evidence
    assert "hook" not in finding.advice


@pytest.mark.parametrize(
    "worker",
    [
        idle(200, *IDLE_WORKER),
        blocked("socket-read", still_s=3.0),
        blocked("timer", *FETCHING_WORKER),
        blocked("futex", *FETCHING_WORKER),
        process(200, threads=[thread(200, state="R")]),
        process(200, threads=[thread(200)]),
        process(200),
        process(
            200,
            threads=[thread(200, state="R")],
            more={"loader": WorkerLoad(0, fetch_p99_s=10.0, task=1, task_since_s=45.0)},
        ),
    ],
)
def test_idle_slow_and_computing_workers_are_not_blocked(worker: Process) -> None:
    assert found(stuck_worker_io.check, snapshot_of(main(), worker)) == []


def test_one_batch_that_does_not_end_is_reported_by_the_loop_that_the_worker_is_in() -> None:
    load = WorkerLoad(2, fetched=50, fetch_p50_s=0.1, fetch_p99_s=0.1, task_since_s=48.0, task=22)
    draws = thread(201, "data.py:draw:9", "data.py:__getitem__:30", state="R")
    source = SourceLine(
        "/home/me/data.py",
        30,
        "__getitem__",
        Statement(30, "keep = draw()"),
        within=(Statement(29, "while True:"),),
        endless=EndlessLoop(
            Statement(29, "while True:"), ends=(Statement(33, "if keep.any(): break"),)
        ),
    )
    job = snapshot_of(
        waiting(*WAITING_MAIN),
        process(201, threads=[draws], more={"loader": load}),
        source=(source,),
    )

    finding = only(stuck_worker_io.check, job)

    assert finding.summary.endswith("in a loop without an end at data.py:30 __getitem__")
    assert "It ends only by `if keep.any(): break` (line 33)" in finding.cause
    assert "Count the rounds" in finding.advice
