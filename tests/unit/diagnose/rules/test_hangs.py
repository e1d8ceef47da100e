from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.hangs import (
    fork_openmp,
    fork_unsafe_library,
    fork_vs_pin_thread,
    fork_with_threads_lock,
    standing_still,
)
from mpwatch.model.findings import Severity
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import Frame, ThreadSample, WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import SourceLine, Statement, TakenLock
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    exited,
    fds,
    found,
    history,
    line,
    main,
    maps,
    only,
    pid,
    pipe,
    process,
    segment,
    snapshot_of,
    thread,
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
    job = snapshot_of(threaded_main("python", "prefetcher"), alone())

    finding = only(fork_with_threads_lock.check, job)

    assert named(job) == ["fork-with-threads-lock"]
    assert "at data.py:12 load" in finding.evidence
    assert any("prefetcher" in each for each in finding.evidence)
    assert "60 s" in finding.summary


def test_where_the_parent_had_no_other_thread_the_child_may_hold_the_lock_itself() -> None:
    finding = only(fork_with_threads_lock.check, snapshot_of(threaded_main(), alone()))

    assert "a lock that no thread of its own can release" in finding.summary
    assert "holds already" in finding.cause


def test_threads_of_the_parent_that_run_no_python_code_held_no_lock_of_python() -> None:
    parent = threaded_main("gloo_tcp_loop", "pt_gloo_runloop")
    seen = replace(parent, threads=(thread(MAIN, "train.py:spawn:9"),))

    finding = only(fork_with_threads_lock.check, snapshot_of(seen, alone()))

    assert "a lock that no thread of its own can release" in finding.summary
    assert "holds already" in finding.cause
    assert any(each.endswith("which run no Python code") for each in finding.evidence)


def written(
    number: int, function: str, text: str, around: str = "", *, defined: int, owner: str = ""
) -> SourceLine:
    """A line of data.py, and the header of the block that it is in."""
    within = (Statement(number - 1, around),) if around else ()
    locks = tuple(
        TakenLock("self._lock", Statement(*each), owner)
        for each in ((number, text), (number - 1, around))
        if each[1].startswith("with self._lock")
    )
    statement = Statement(number, text)
    return SourceLine(
        "/home/me/data.py", number, function, statement, within, defined=defined, locks=locks
    )


TAKES = "with self._lock:"
TWICE = ("data.py:load:12", "data.py:refresh:30", "data.py:load:14")


@pytest.mark.parametrize("outer", ["load", "add"])
def test_a_lock_taken_twice_by_one_thread_does_not_have_the_fork_as_its_cause(outer: str) -> None:
    twice = alone("data.py:load:12", "data.py:refresh:30", f"data.py:{outer}:14")
    source = (
        written(12, "load", TAKES, defined=11, owner="Sink"),
        written(14, outer, "self.refresh()", TAKES, defined=11, owner="Sink"),
    )
    job = replace(snapshot_of(threaded_main("main", "io"), twice), source=source)

    finding = only(standing_still.check, job)

    assert named(job) == []
    assert "It holds this lock itself" in finding.summary
    assert f"`{TAKES}` of line 13 in {outer}()" in finding.cause


def test_without_its_source_a_function_twice_on_a_stack_does_not_rule_out_the_fork() -> None:
    twice = alone(*TWICE)
    in_a_library = alone("logging/__init__.py:acquire", "data.py:load:12", "data.py:load:9")

    finding = only(fork_with_threads_lock.check, snapshot_of(threaded_main("main", "io"), twice))

    assert "Or this thread holds it itself" in finding.cause
    assert named(snapshot_of(threaded_main("prefetcher"), in_a_library)) == [
        "fork-with-threads-lock"
    ]
    assert named(snapshot_of(threaded_main("python"), twice)) == []


@pytest.mark.parametrize(("owner", "is_same"), [("Sink", True), ("Source", False)])
def test_a_thread_of_the_parent_that_takes_the_lock_of_a_forked_child_is_named(
    owner: str, *, is_same: bool
) -> None:
    """Two functions of one name, a method and one of the module, are not one function twice."""
    child = alone("data.py:record:25", "data.py:record:49", "train.py:run:33")
    parent = threaded_main("python", "flush")
    flush = thread(101, "data.py:_loop:30", name="flush")
    parent = replace(parent, threads=(*parent.threads, flush))
    source = (
        written(25, "record", TAKES, defined=24, owner="Sink"),
        written(49, "record", "_sink.record(name)", defined=48),
        replace(
            written(30, "_loop", "time.sleep(1)", defined=28),
            locks=(TakenLock("self._lock", Statement(31, TAKES), owner),),
        ),
    )
    job = replace(snapshot_of(parent, child), source=source)

    finding = only(fork_with_threads_lock.check, job)

    words = "thread flush of main (100) takes self._lock as well: `with self._lock:` at data.py:31"
    assert (words in finding.evidence) is is_same
    assert ("which takes it too" in finding.cause) is is_same
    assert "holds it itself" not in finding.cause
    assert "holds this lock itself" not in only(standing_still.check, job).summary


@pytest.mark.parametrize("role", ["spawned", "loader-worker"])
def test_only_a_loader_worker_gets_the_advice_for_a_dataloader(role: Any) -> None:
    child = replace(alone(), role=role)

    finding = only(fork_with_threads_lock.check, snapshot_of(threaded_main("prefetcher"), child))

    is_worker = role == "loader-worker"
    assert ("multiprocessing_context" in finding.advice) is is_worker
    assert ("exited unexpectedly" in finding.advice) is is_worker


AWAITS = ("threading.py:wait", "concurrent/futures/_base.py:result", "data.py:fetch:19")


def test_a_forked_child_that_waits_for_a_thread_pool_of_its_parent_waits_for_no_lock() -> None:
    job = snapshot_of(threaded_main("python", "ThreadPoolExecutor-0_0"), alone(*AWAITS))

    finding = only(fork_with_threads_lock.check, job)

    assert "has waited 60 s for a thread that was not forked with it" in finding.summary
    assert "lock" not in finding.summary + finding.cause
    assert "in each process at its first use" in finding.advice
    assert "at data.py:19 fetch" in finding.evidence


def test_a_worker_that_submits_to_the_executor_that_runs_it_is_named() -> None:
    """The executor holds its lock while it forks its workers."""
    worker = alone("concurrent/futures/process.py:submit", "data.py:part:5")

    finding = only(fork_with_threads_lock.check, snapshot_of(threaded_main(), worker))

    assert "60 s for an executor that was made before the fork" in finding.summary
    assert "holds already" not in finding.cause
    assert "do the inner work directly" in finding.advice


def test_a_wait_for_a_lock_and_one_for_a_thread_are_two_findings() -> None:
    twin = replace(alone(*AWAITS), process=pid(301), label="spawned 301")
    job = snapshot_of(threaded_main("python", "prefetcher"), twin, alone())

    findings = found(fork_with_threads_lock.check, job)

    assert {finding.process: " lock " in finding.summary for finding in findings} == {
        pid(300): True,
        pid(301): False,
    }


def still_for(still_s: float, child: Process) -> Process:
    return replace(child, threads=(replace(child.threads[0], still_s=still_s),))


def test_a_wait_that_no_process_can_end_is_reported_soon() -> None:
    child, seen = still_for(3.5, alone()), Thread(300, "python", "S", wchan="futex_do_wait")
    guessed = still_for(3.5, replace(alone(), threads=(seen,)))

    assert named(snapshot_of(threaded_main("prefetcher"), child)) == ["fork-with-threads-lock"]
    assert named(snapshot_of(threaded_main("prefetcher"), still_for(2.0, child))) == []
    assert named(snapshot_of(threaded_main("prefetcher"), guessed)) == []


def test_children_of_one_parent_on_such_locks_are_one_finding() -> None:
    twin = replace(alone(), process=pid(301), label="spawned 301")
    job = snapshot_of(threaded_main("prefetcher"), alone(), twin)

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
def test_native_waits_after_a_fork_are_distinguished_by_library(child: Process, rule: str) -> None:
    assert named(snapshot_of(main(), child)) == [rule]


def test_a_child_forked_during_a_pin_thread_is_named_with_it() -> None:
    job = snapshot_of(threaded_main("python", "pt_data_pin"), alone())

    assert named(job) == ["fork-vs-pin-thread"]


LIBRARY = "/usr/lib/python3.11"


@pytest.mark.parametrize(
    ("file", "rules"),
    [
        ("", []),
        ("train.py", []),  # lock.acquire() of either kind of lock
        (f"{LIBRARY}/multiprocessing/synchronize.py", []),
        (f"{LIBRARY}/multiprocessing/queues.py", []),
        ("/home/jvm/train.py", []),
        (f"{LIBRARY}/threading.py", ["fork-with-threads-lock"]),
        (f"{LIBRARY}/logging/__init__.py", ["fork-with-threads-lock"]),
        ("<frozen importlib._bootstrap>", ["fork-with-threads-lock"]),
        ("/usr/lib/libgomp.so.1", ["fork-openmp"]),
    ],
)
def test_a_hidden_system_call_is_judged_only_where_the_stack_shows_a_lock_of_threads(
    file: str, rules: list[str]
) -> None:
    """It may as well wait for a semaphore that processes share."""
    stack = (Frame("acquire", file, 7), Frame("load", "train.py", 9)) if file else ()
    waiting = Thread(300, "python", "S", wchan="futex_do_wait", still_s=STILL, stack=stack)
    child = process(300, "spawned", start_method="fork", threads=[waiting])
    job = snapshot_of(threaded_main("prefetcher"), child)

    assert named(job) == rules
    text = " ".join(
        line for module in FORK_RULES for f in found(module.check, job) for line in f.evidence
    )
    assert "futex" not in text


PARKED = ("threading.py:wait", "threading.py:wait", "data.py:serve:40")


@pytest.mark.parametrize(
    ("caught", "threads", "count"),
    [(0x2, ("python", "prefetcher"), 1), (0x4002, ("python", "prefetcher"), 0), (0x2, (), 0)],
)
def test_a_child_that_waits_on_an_event_in_its_own_code_may_be_meant_to(
    caught: int, threads: tuple[str, ...], count: int
) -> None:
    """By a handler of SIGTERM (0x4000) that sets it, or until it is ended from outside."""
    child = alone(*PARKED)
    child = replace(child, sample=replace(child.sample, signals_caught=caught))

    assert len(named(snapshot_of(threaded_main(*threads), child))) == count


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
def test_children_that_another_thread_may_wake_are_quiet(child: Process) -> None:
    assert named(snapshot_of(main(), child)) == []


def test_workers_younger_than_a_pin_thread_are_a_risk() -> None:
    finding = only(
        fork_vs_pin_thread.check,
        snapshot_of(threaded_main("python", "pt_data_pin"), process(200, start_method="fork")),
    )

    assert finding.severity is Severity.INFO


def test_workers_older_than_the_pin_thread_or_spawned_are_no_risk() -> None:
    spawned = process(200, start_method="spawn")
    forked = process(200, start_method="fork")
    unknown = threaded_main("python", "pt_data_pin", start_ticks=None)

    assert found(fork_vs_pin_thread.check, snapshot_of(threaded_main("pt_data_pin"), spawned)) == []
    assert found(fork_vs_pin_thread.check, snapshot_of(unknown, forked)) == []


KILLED = process(400, "spawned", ended=exited(400, signal=9))


def cycle(still_s: float = STILL) -> Snapshot:
    work = WaitedOn("poll", "poll", ("pipe:[600]",), timeout_s=5.0)
    worker = process(
        200,
        fds=fds(9, links=[pipe(6, 500, True), pipe(7, 600, False)]),
        threads=[thread(200, waits=work, still_s=still_s)],
    )
    poll = WaitedOn("poll", "poll", ("pipe:[500]",), timeout_s=5.0)
    waiting = main(
        fds=fds(9, links=[pipe(8, 600, True)]), threads=[thread(MAIN, waits=poll, still_s=STILL)]
    )
    return snapshot_of(waiting, worker)


def test_a_lasting_cycle_is_named_with_its_chain() -> None:
    finding = only(standing_still.check, cycle())

    assert finding.evidence[0] == (
        "main waits for a batch on pipe 500 <- loader-worker 200 waits for work on pipe 600"
    )


def test_a_cycle_that_is_new_or_makes_progress_is_quiet() -> None:
    worked = history({(200, "cpu_percent"): line(50.0)})

    assert found(standing_still.check, cycle(still_s=5.0)) == []
    assert found(standing_still.check, cycle(still_s=1.0), worked) == []
    assert found(standing_still.check, snapshot_of(main(threads=[thread(MAIN, state="R")]))) == []


def left_by(ended_s: float, still_s: float | None = STILL) -> Snapshot:
    """Main waits for a semaphore that only a child mapped, which has exited some time ago."""
    semaphore = SegmentId(9, 77)
    lock = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=semaphore, value=0)
    dead = process(400, "spawned", ended=exited(400, at_s=NOW_S - ended_s, signal=9))
    mapped = segment(77, kind="semaphore", mappers=(pid(MAIN), pid(400)))
    waiting = main(threads=[thread(MAIN, waits=lock, still_s=still_s)])
    return snapshot_of(waiting, dead, segments=(mapped,))


def test_a_wait_for_an_exited_child_is_named() -> None:
    assert (
        "has exited, so this wait can never complete"
        in only(standing_still.check, left_by(30.0)).summary
    )


def test_a_wait_seen_only_before_the_exit_is_no_dead_end() -> None:
    assert found(standing_still.check, left_by(2.0)) == []


def test_a_dead_end_without_a_measured_duration_is_quiet() -> None:
    assert found(standing_still.check, left_by(30.0, still_s=None)) == []


def test_a_child_that_ended_after_a_long_run_is_no_dead_end() -> None:
    joins = WaitedOn("child", "wait4", ("pid 400",))
    job = snapshot_of(main(threads=[thread(MAIN, waits=joins, still_s=STILL)]), KILLED)

    assert found(standing_still.check, job) == []


def test_a_chain_that_ends_at_a_thread_that_does_not_exist_is_named_soon() -> None:
    joins = WaitedOn("child", "wait4", ("pid 300",))
    parent = main(threads=[thread(MAIN, waits=joins, still_s=1.0)])

    assert (
        "spawned 300" in only(standing_still.check, snapshot_of(parent, alone_for(6.0))).evidence[0]
    )
    assert found(standing_still.check, snapshot_of(parent, alone_for(2.0))) == []


def alone_for(still_s: float) -> Process:
    return still_for(still_s, alone())
