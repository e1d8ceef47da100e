from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mpwatch.diagnose.rules import (
    feeder_thread_drops_batch,
    fork_openmp,
    fork_unsafe_library,
    fork_vs_pin_thread,
    fork_with_threads_lock,
    standing_still,
    stuck_worker_io,
)
from mpwatch.model.findings import Severity
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import ThreadSample, WaitedOn
from mpwatch.model.snapshot import Hook, Loader, Process, Snapshot, Thread, WorkerLoad
from tests.unit.diagnose.worlds import (
    FETCHING_WORKER,
    IDLE_WORKER,
    MAIN,
    WAITING_MAIN,
    fds,
    found,
    gone,
    history,
    line,
    log,
    main,
    maps,
    only,
    pid,
    pipe,
    process,
    thread,
    world,
)

STILL = 60.0
PYTHON_LOCK, NATIVE_LOCK = 9, 0


def futex(command: int | None = PYTHON_LOCK, **more: Any) -> WaitedOn:
    return WaitedOn("futex", "futex", ("futex 0x7f",), futex_command=command, **more)


def alone(*calls: str, wait: WaitedOn | None = None, **more: Any) -> Process:
    stack = calls or ("data.py:load:12",)
    return process(
        300,
        "spawned",
        start_method="fork",
        threads=[thread(300, *stack, waits=wait or futex(), still_s=STILL)],
        **more,
    )


def threaded_main(*names: str, start_ticks: int | None = 1) -> Process:
    old = tuple(
        ThreadSample(100 + i, name, "S", 0, start_ticks=start_ticks) for i, name in enumerate(names)
    )
    plain = main(threads=[thread(MAIN)])
    return replace(plain, sample=replace(plain.sample, threads=old))


FORK_RULES = (fork_with_threads_lock, fork_openmp, fork_unsafe_library, fork_vs_pin_thread)


def named(job: Snapshot) -> list[str]:
    return [f.rule for module in FORK_RULES for f in found(module.check, job)]


def test_a_forked_child_on_a_python_lock_is_named_with_its_parents_threads() -> None:
    job = world(threaded_main("python", "prefetcher"), alone())

    finding = only(fork_with_threads_lock.check, job)

    assert named(job) == ["fork-with-threads-lock"]
    assert "at data.py:12 load" in finding.evidence
    assert any("prefetcher" in each for each in finding.evidence)
    assert "60 s" in finding.summary


def test_where_the_parent_had_no_other_thread_the_child_may_hold_the_lock_itself() -> None:
    finding = only(fork_with_threads_lock.check, world(threaded_main(), alone()))

    assert "a lock that no thread of its own can release" in finding.summary
    assert "holds already" in finding.cause


AWAITS = ("threading.py:wait", "concurrent/futures/_base.py:result", "data.py:fetch:19")


def test_a_forked_child_that_waits_for_a_thread_pool_of_its_parent_waits_for_no_lock() -> None:
    job = world(threaded_main("ThreadPoolExecutor-0_0"), alone(*AWAITS))

    finding = only(fork_with_threads_lock.check, job)

    assert "has waited 60 s for a thread that was not forked with it" in finding.summary
    assert "lock" not in finding.summary + finding.cause
    assert "worker_init_fn" in finding.advice
    assert "at data.py:19 fetch" in finding.evidence


def test_one_that_waits_for_a_lock_and_one_for_a_thread_are_not_told_together() -> None:
    twin = replace(alone(*AWAITS), process=pid(301), label="spawned 301")
    job = world(threaded_main("prefetcher"), twin, alone())

    findings = found(fork_with_threads_lock.check, job)

    assert {finding.process: " lock " in finding.summary for finding in findings} == {
        pid(300): True,
        pid(301): False,
    }


def still_for(still_s: float, child: Process) -> Process:
    return replace(child, threads=(replace(child.threads[0], still_s=still_s),))


def test_a_wait_that_nobody_can_end_needs_no_long_look() -> None:
    child, seen = still_for(3.5, alone()), Thread(300, "python", "S", wchan="futex_do_wait")
    guessed = still_for(3.5, replace(alone(), threads=(seen,)))

    assert named(world(threaded_main("prefetcher"), child)) == ["fork-with-threads-lock"]
    assert named(world(threaded_main("prefetcher"), still_for(2.0, child))) == []
    assert named(world(threaded_main("prefetcher"), guessed)) == []


def test_children_of_one_parent_on_such_locks_are_told_together() -> None:
    twin = replace(alone(), process=pid(301), label="spawned 301")
    job = world(threaded_main("prefetcher"), alone(), twin)

    finding = only(fork_with_threads_lock.check, job)

    assert "spawned 300 (300) and 1 more have waited" in finding.summary
    assert finding.evidence[-1] == "so do 1 more: spawned 301 (301)"


@pytest.mark.parametrize(
    ("child", "rule"),
    [
        (alone(wait=futex(NATIVE_LOCK)), "fork-openmp"),
        (alone("/usr/lib/libgomp.so.1:gomp_team_barrier_wait_end", "data.py:f"), "fork-openmp"),
        (alone("torch/nn/functional.py:linear", wait=futex(NATIVE_LOCK)), "fork-openmp"),
        (alone("/usr/lib/libopencv_core.so:wait", "data.py:f"), "fork-unsafe-library"),
        (
            alone(wait=futex(NATIVE_LOCK), maps=maps(9, libraries=("cv2.abi3.so",))),
            "fork-unsafe-library",
        ),
    ],
)
def test_native_waits_after_a_fork_are_told_apart(child: Process, rule: str) -> None:
    assert named(world(main(), child)) == [rule]


def test_a_child_forked_under_a_pin_thread_is_named_so() -> None:
    job = world(threaded_main("python", "pt_data_pin"), alone())

    assert named(job) == ["fork-vs-pin-thread"]


def test_a_hidden_system_call_is_judged_by_its_wait_channel() -> None:
    child = process(
        300,
        "spawned",
        start_method="fork",
        threads=[Thread(300, "python", "S", wchan="futex_do_wait", still_s=STILL)],
    )

    assert named(world(main(), child)) == ["fork-with-threads-lock"]


@pytest.mark.parametrize(
    "child",
    [
        alone(wait=futex(timeout_s=3.0)),
        alone(wait=WaitedOn("poll", "poll")),
        alone(wait=WaitedOn("semaphore", "futex", segment=SegmentId(1, 2))),
        process(300, "spawned", start_method="spawn", threads=[thread(300, waits=futex())]),
        process(
            300, "spawned", start_method="fork", threads=[thread(300, waits=futex()), thread(301)]
        ),
        process(
            300, "spawned", start_method="fork", threads=[thread(300, waits=futex(), still_s=2)]
        ),
        process(
            300, "spawned", start_method="fork", threads=[thread(300, waits=futex(), still_s=None)]
        ),
        process(300, "spawned", start_method="fork", threads=[thread(300, state="R")]),
        process(
            300, "spawned", start_method="fork", threads=[Thread(300, "python", "S", still_s=9)]
        ),
    ],
)
def test_children_that_may_still_be_woken_are_quiet(child: Process) -> None:
    assert named(world(main(), child)) == []


def test_workers_younger_than_a_pin_thread_are_a_risk() -> None:
    finding = only(
        fork_vs_pin_thread.check,
        world(threaded_main("python", "pt_data_pin"), process(200, start_method="fork")),
    )

    assert finding.severity is Severity.INFO


def test_workers_older_than_the_pin_thread_or_spawned_are_no_risk() -> None:
    spawned = process(200, start_method="spawn")
    forked = process(200, start_method="fork")
    unknown = threaded_main("python", "pt_data_pin", start_ticks=None)

    assert found(fork_vs_pin_thread.check, world(threaded_main("pt_data_pin"), spawned)) == []
    assert found(fork_vs_pin_thread.check, world(unknown, forked)) == []


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
    job = world(waiting(*WAITING_MAIN), idle(200, *IDLE_WORKER), idle(201, *IDLE_WORKER))

    finding = only(feeder_thread_drops_batch.check, job)

    assert finding.severity is Severity.CRITICAL
    assert "waited 60 s for a batch" in finding.evidence[0]
    assert "standard error" in finding.advice


def test_a_lost_batch_is_named_from_system_calls_alone() -> None:
    assert only(feeder_thread_drops_batch.check, world(waiting(), idle(200))).subject == "wait"


def test_a_main_that_somebody_stopped_waits_for_nothing() -> None:
    held = waiting(*WAITING_MAIN)
    held = replace(held, sample=replace(held.sample, state="T"))

    assert found(feeder_thread_drops_batch.check, world(held, idle(200, *IDLE_WORKER))) == []


def test_the_hook_says_which_batch_was_lost_and_why() -> None:
    loader = Loader(pid(MAIN), 1, 1, next_task=417, outstanding=2, waiting_since_s=30.0)
    other = Loader(pid(MAIN), 2, 1)
    loss = log("lost-item", 200, "lost item: OSError; [Errno 28]")
    job = world(
        waiting(*WAITING_MAIN), idle(200, *IDLE_WORKER), loaders=(other, loader), log=(loss,)
    )

    drop, wait = found(feeder_thread_drops_batch.check, job)

    assert drop.process == pid(200)
    assert "batch 417, which was lost" in wait.summary
    assert any("[Errno 28]" in each for each in wait.evidence)


@pytest.mark.parametrize(
    "job",
    [
        world(waiting(*WAITING_MAIN), idle(200, *FETCHING_WORKER)),
        world(waiting("train.py:evaluate"), idle(200, *IDLE_WORKER)),
        world(waiting(*WAITING_MAIN), idle(200, *IDLE_WORKER, still_s=1.0)),
        world(main(threads=[thread(MAIN, *WAITING_MAIN, still_s=2.0)]), idle(200, *IDLE_WORKER)),
        world(main(threads=[thread(MAIN, *WAITING_MAIN, state="R")]), idle(200, *IDLE_WORKER)),
        world(main(), idle(200, *IDLE_WORKER)),
        world(waiting(wait=WaitedOn("poll", "poll", ("pipe:[500]",))), idle(200)),
        world(waiting(wait=WaitedOn("poll", "poll", ("pipe:[500]",), timeout_s=60)), idle(200)),
        world(waiting(wait=WaitedOn("poll", "poll", ("pipe:[7]",), timeout_s=5)), idle(200)),
        world(waiting(wait=WaitedOn("timer", "nanosleep")), idle(200)),
        world(waiting(), process(200)),
        world(waiting(), process(200, threads=[thread(200)])),
        world(waiting(), idle(200, more={"loader": WorkerLoad(0, task=4)})),
        world(
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
        world(
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
    finding = only(stuck_worker_io.check, world(main(), blocked("socket-read", *FETCHING_WORKER)))

    assert finding.severity is Severity.CRITICAL
    assert "at data.py:31 decode" in finding.evidence
    assert "in recvfrom on socket:[9]" in finding.evidence
    assert "Bring the hook in" in finding.advice


def test_a_worker_in_disk_wait_is_a_warning_at_first() -> None:
    job = world(main(), blocked("disk", state="D", still_s=20.0))

    assert only(stuck_worker_io.check, job).severity is Severity.WARNING


def test_a_call_inside_a_sample_counts_where_the_stack_shows_it() -> None:
    job = world(main(), blocked("pipe-read", *FETCHING_WORKER))

    assert only(stuck_worker_io.check, job).process == pid(200)


def test_the_hook_names_the_sample_that_takes_too_long() -> None:
    load = WorkerLoad(0, fetch_p99_s=0.2, task=41, task_since_s=45.0, index="13342")
    busy = process(
        200,
        threads=[thread(200, state="R", still_s=None)],
        hook=Hook("ready"),
        more={"loader": load},
    )

    finding = only(stuck_worker_io.check, world(main(), busy))

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
    assert found(stuck_worker_io.check, world(main(), worker)) == []


KILLED = process(400, "spawned", ended=gone(400, signal=9))


def circle(still_s: float = STILL) -> Snapshot:
    work = WaitedOn("poll", "poll", ("pipe:[600]",), timeout_s=5.0)
    worker = process(
        200,
        fds=fds(9, links=[pipe(6, 500, True), pipe(7, 600, False)]),
        threads=[thread(200, waits=work, still_s=still_s)],
    )
    return world(waiting(fds=fds(9, links=[pipe(8, 600, True)])), worker)


def test_a_circle_that_stands_is_named_with_its_chain() -> None:
    finding = only(standing_still.check, circle())

    assert finding.evidence[0] == (
        "main waits for a batch on pipe 500 <- loader-worker 200 waits for work on pipe 600"
    )


def test_a_circle_that_is_young_or_works_is_quiet() -> None:
    worked = history({(200, "cpu_percent"): line(50.0)})

    assert found(standing_still.check, circle(still_s=5.0)) == []
    assert found(standing_still.check, circle(still_s=1.0), worked) == []
    assert found(standing_still.check, world(main(threads=[thread(MAIN, state="R")]))) == []


def test_a_dead_end_at_a_dead_child_is_named() -> None:
    joins = WaitedOn("child", "wait4", ("pid 400",))
    job = world(main(threads=[thread(MAIN, waits=joins, still_s=STILL)]), KILLED)

    assert "is gone" in only(standing_still.check, job).summary


def test_a_dead_end_of_which_nobody_was_watched_is_quiet() -> None:
    joins = WaitedOn("child", "wait4", ("pid 400",))
    job = world(main(threads=[thread(MAIN, waits=joins, still_s=None)]), KILLED)

    assert found(standing_still.check, job) == []


def test_a_chain_that_ends_at_a_thread_that_does_not_exist_is_named_soon() -> None:
    joins = WaitedOn("child", "wait4", ("pid 300",))
    parent = main(threads=[thread(MAIN, waits=joins, still_s=1.0)])

    assert "spawned 300" in only(standing_still.check, world(parent, alone_for(6.0))).evidence[0]
    assert found(standing_still.check, world(parent, alone_for(4.0))) == []


def alone_for(still_s: float) -> Process:
    return still_for(still_s, alone())
