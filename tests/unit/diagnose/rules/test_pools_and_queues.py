from __future__ import annotations

import signal
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.hangs import (
    half_message,
    joinablequeue_join_hangs,
    pool_hang_after_worker_death,
    queue_join_feeder_deadlock,
)
from mpwatch.model.findings import Severity
from mpwatch.model.history import Point
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Mark, Skip, SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    cgroup,
    exited,
    fds,
    found,
    history,
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


KILLED = process(400, "spawned", ended=exited(400, signal=9))
FAILED = process(400, "spawned", ended=exited(400, exit_code=1))


POOL = (
    "threading.py:wait",
    "multiprocessing/pool.py:wait",
    "multiprocessing/pool.py:get",
    "train.py:f",
)


def pool_worker(number: int, **thread_fields: Any) -> Process:
    return process(
        number, "spawned", threads=[thread(number, **{"still_s": STILL, **thread_fields})]
    )


def test_a_pool_that_lost_a_task_is_named() -> None:
    job = snapshot_of(main(threads=[thread(MAIN, *POOL, still_s=STILL)]), pool_worker(300), KILLED)

    finding = only(pool_hang_after_worker_death.check, job)

    assert "1 living worker, idle" in finding.evidence
    assert "at train.py:1 f" in finding.evidence[0]


@pytest.mark.parametrize(
    "others",
    [
        (pool_worker(300),),
        (pool_worker(300, still_s=1.0), KILLED),
        (pool_worker(300), process(400, "spawned", ended=exited(400, exit_code=0))),
    ],
)
def test_a_pool_that_may_still_answer_is_quiet(others: tuple[Process, ...]) -> None:
    job = snapshot_of(main(threads=[thread(MAIN, *POOL, still_s=STILL)]), *others)

    assert found(pool_hang_after_worker_death.check, job) == []


def test_a_worker_that_was_killed_in_its_task_loses_it_while_others_still_work() -> None:
    in_task = ("data.py:nmap:25", "multiprocessing/pool.py:worker", "process.py:run")
    own = main(threads=[thread(MAIN, *POOL, still_s=STILL)])
    at_work = pool_worker(300, still_s=1.0)
    killed = replace(KILLED, threads=(thread(400, *in_task),))
    ended_idle = replace(KILLED, threads=(thread(400, *POOL_IDLE),))

    finding = only(pool_hang_after_worker_death.check, snapshot_of(own, at_work, killed))

    assert "one of which was lost with spawned 400 (400): it never arrives" in finding.summary
    assert finding.severity is Severity.WARNING
    assert "last seen at data.py:25 nmap" in finding.evidence
    assert not found(pool_hang_after_worker_death.check, snapshot_of(own, at_work, ended_idle))


POOL_IDLE = (
    "multiprocessing/queues.py:get",
    "multiprocessing/pool.py:worker",
    "multiprocessing/process.py:run",
    "multiprocessing/process.py:_bootstrap",
)


def idle_pool_worker(number: int, start_ticks: int) -> Process:
    made = process(number, "spawned", threads=[thread(number, *POOL_IDLE, still_s=STILL)])
    return replace(made, process=ProcessId(number, start_ticks))


def test_an_unobserved_exit_shows_in_a_worker_started_later() -> None:
    own = main(threads=[thread(MAIN, *POOL, still_s=STILL)])
    job = snapshot_of(own, idle_pool_worker(300, 5000), idle_pool_worker(301, 5250))

    finding = only(pool_hang_after_worker_death.check, job)

    assert "spawned 301 (301) was started 2.5 s after the others" in finding.evidence
    assert "died" not in finding.summary


def test_threads_that_may_have_ended_a_worker_are_named() -> None:
    """The wait of main is the program's, too; a thread of the Pool runs no code of the program."""
    guard = thread(150, "data.py:run:33", name="guard", still_s=0.1)
    handler = thread(151, "multiprocessing/pool.py:_handle_results", still_s=STILL)
    workers = (idle_pool_worker(300, 5000), idle_pool_worker(301, 5250))

    def job(oom_kills: int | None, *threads: Thread) -> Snapshot:
        own = main(threads=[thread(MAIN, *POOL, still_s=STILL), *threads])
        return snapshot_of(own, *workers, cgroup=cgroup(oom_kills=oom_kills))

    finding = only(pool_hang_after_worker_death.check, job(0, guard, handler))
    other = only(pool_hang_after_worker_death.check, job(1, handler))

    assert "waits at train.py:1 f for a Pool task that was lost with its worker" in finding.summary
    assert "its thread guard is at data.py:33 run" in finding.evidence
    assert "killed no process of this control group" in " ".join(finding.evidence)
    assert "How the worker ended was not seen" in finding.cause
    assert "os._exit() or sys.exit() in the task" in finding.cause
    assert "stop the job" in finding.advice
    assert "a signal (SIGKILL or SIGTERM by the program's own watchdog" in finding.cause
    assert "(its thread guard is at data.py:33 run)" in finding.advice
    assert "control group" not in " ".join(other.evidence)
    assert "thread" not in other.advice


def test_a_pool_whose_thread_for_results_has_ended_is_named_soon() -> None:
    handlers = [
        thread(MAIN + n, f"multiprocessing/pool.py:{name}", still_s=1.0)
        for n, name in enumerate(("_handle_workers", "_handle_tasks", "_handle_results"), 1)
    ]
    waits = thread(MAIN, "pool.py:wait", "pool.py:get", "train.py:main:33", still_s=4.0)

    finding = only(
        pool_hang_after_worker_death.check, snapshot_of(main(threads=[waits, *handlers[:2]]))
    )

    assert finding.summary.endswith("waits for a Pool's result, and no thread receives results")
    assert any("train.py:33 main" in each for each in finding.evidence)
    whole = snapshot_of(main(threads=[waits, *handlers]))
    assert found(pool_hang_after_worker_death.check, whole) == []
    young = snapshot_of(main(threads=[replace(waits, still_s=1.0), *handlers[:2]]))
    assert found(pool_hang_after_worker_death.check, young) == []


@pytest.mark.parametrize("is_callback", [True, False])
def test_what_ended_the_thread_for_results_of_a_pool_is_reported_by_the_hook(
    is_callback: bool,
) -> None:
    handlers = [
        thread(MAIN + n, f"multiprocessing/pool.py:{name}", still_s=1.0)
        for n, name in enumerate(("_handle_workers", "_handle_tasks"), 1)
    ]
    waits = thread(MAIN, "pool.py:wait", "pool.py:get", "train.py:main:33", still_s=4.0)
    own = [["add", "/home/me/report.py", 26]] if is_callback else []
    library = "/usr/lib/python3.11/multiprocessing"
    calls = ["_set" if is_callback else "recv", "_handle_results"]
    died = log(
        "thread-died",
        MAIN,
        "thread died: Thread-3 (_handle_results); IndexError; index 20 is out of bounds",
        frames=[*own, *([call, f"{library}/pool.py", 595] for call in calls)],
    )
    job = snapshot_of(main(threads=[waits, *handlers]), log=(died,))

    finding = only(pool_hang_after_worker_death.check, job)

    assert ("report.py:26 add" in finding.summary) == is_callback
    assert ("It is a callback" in finding.cause) == is_callback
    assert died.words in finding.evidence
    assert "most likely" not in finding.cause


def test_a_pool_of_one_age_or_with_one_at_work_is_quiet() -> None:
    own = main(threads=[thread(MAIN, *POOL, still_s=STILL)])
    first, last = idle_pool_worker(300, 5000), idle_pool_worker(301, 5250)

    assert found(pool_hang_after_worker_death.check, snapshot_of(own, first)) == []
    assert (
        found(pool_hang_after_worker_death.check, snapshot_of(own, first, last, pool_worker(302)))
        == []
    )


@pytest.mark.parametrize(
    ("makes", "later_s", "count"),
    [
        ("with mp.Pool(processes=2) as pool:", 20, 1),
        ("with mp.Pool(processes=2) as pool:", 1, 0),
        ("with mp.Pool(2, maxtasksperchild=1) as pool:", 20, 0),
        ("for each in names:", 20, 0),
    ],
)
def test_an_idle_worker_started_after_those_at_work_may_stand_for_a_lost_task(
    makes: str, later_s: int, count: int
) -> None:
    waits = Statement(56, "pool.starmap(work, rows)")
    line = SourceLine("/home/me/train.py", 1, "f", waits, within=(Statement(54, makes),))
    in_task = ("data.py:scan:6", "multiprocessing/pool.py:worker", "process.py:run")
    at_work = process(300, "spawned", threads=[thread(300, *in_task, still_s=0.1)])
    at_work = replace(at_work, process=ProcessId(300, 5000))
    server = replace(
        process(302, "spawned", threads=[thread(302, "data.py:serve:1", still_s=0.1)]),
        process=ProcessId(302, 9000),
    )
    own = main(threads=[thread(MAIN, *POOL, still_s=STILL)])
    young = idle_pool_worker(301, 5000 + 100 * later_s)
    job = replace(snapshot_of(own, at_work, young, server), source=(line,))

    reported = found(pool_hang_after_worker_death.check, job)

    assert len(reported) == count
    for finding in reported:
        assert "spawned 301 (301), started in its place, is idle" in finding.summary
        assert finding.severity is Severity.WARNING
        assert finding.is_doubtful


def test_a_pool_waited_for_briefly_is_quiet() -> None:
    job = snapshot_of(main(threads=[thread(MAIN, *POOL, still_s=1.0)]), KILLED)

    assert found(pool_hang_after_worker_death.check, job) == []


JOIN = ("multiprocessing/synchronize.py:wait", "multiprocessing/queues.py:join", "train.py:end:34")


def test_a_joinable_queue_no_process_works_on_is_named() -> None:
    job = snapshot_of(main(threads=[thread(MAIN, *JOIN, still_s=STILL)]), pool_worker(300), KILLED)

    finding = only(joinablequeue_join_hangs.check, job)

    assert "train.py:34 end" in finding.evidence[0]


def test_the_way_past_task_done_in_the_loop_of_the_consumers_is_named() -> None:
    gets = Statement(41, "node = jobs.get()")
    skip = Skip(
        gets,
        Statement(50, "continue"),
        Statement(48, "except Exception as exc:"),
        Statement(52, "jobs.task_done()"),
    )
    line = SourceLine("/home/me/data.py", 41, "work", gets, skips=(skip,))
    stack = ("multiprocessing/queues.py:get", "data.py:work:41")
    consumers = [
        process(n, "spawned", threads=[thread(n, *stack, still_s=STILL)]) for n in (300, 301)
    ]
    job = snapshot_of(main(threads=[thread(MAIN, *JOIN, still_s=STILL)]), *consumers)

    finding = only(joinablequeue_join_hangs.check, replace(job, source=(line,)))

    assert finding.summary == (
        "main (100) joins a queue whose tasks no process works on: likely `continue` at data.py:50 "
        "skips `jobs.task_done()` of line 52"
    )
    assert "under `except Exception as exc:` of line 48" in finding.cause
    assert "spawned 300 (300)" in finding.cause
    assert "data.py" in finding.advice


def test_a_joinable_queue_with_a_busy_consumer_is_quiet() -> None:
    busy = pool_worker(300, still_s=None)
    job = snapshot_of(main(threads=[thread(MAIN, *JOIN, still_s=STILL)]), busy)

    assert found(joinablequeue_join_hangs.check, job) == []
    sleeps = WaitedOn("timer", "clock_nanosleep")
    pausing = process(300, "pool-worker", threads=[thread(300, waits=sleeps, still_s=STILL)])
    job = snapshot_of(main(threads=[thread(MAIN, *JOIN, still_s=STILL)]), pausing)
    assert found(joinablequeue_join_hangs.check, job) == []
    waits = snapshot_of(main(threads=[thread(MAIN, *JOIN[:1], still_s=STILL)]))
    assert found(joinablequeue_join_hangs.check, waits) == []


def reader(*stack: str, wanted: int | None = 900_000, still_s: float = STILL) -> Process:
    wait = WaitedOn("pipe-read", "read", ("pipe:[500]",), wanted_bytes=wanted, queued_bytes=0)
    return main(
        fds=fds(9, links=[pipe(5, 500, False), pipe(6, 500, True)]),
        threads=[thread(MAIN, *stack, waits=wait, still_s=still_s)],
    )


RECV = (
    "multiprocessing/connection.py:_recv",
    "multiprocessing/connection.py:_recv_bytes",
    "train.py:f",
)


def test_a_partial_message_is_named() -> None:
    finding = only(half_message.check, snapshot_of(reader(*RECV), KILLED))

    assert "60 s for 879K more from pipe:[500], which is empty" in finding.evidence[0]
    assert "SIGKILL" in finding.evidence[1]
    assert "was killed" in finding.summary


def test_a_writer_that_called_os_exit_is_named_with_its_line() -> None:
    hasty = process(300, "spawned", ended=exited(300, exit_code=0))
    note = log("exit", 300, code=0, how="os._exit", file="solve.py", line=29, function="run")

    finding = only(half_message.check, snapshot_of(reader(*RECV), hasty, log=(note,)))

    assert "whose writer has called os._exit" in finding.summary
    assert any("solve.py" in each for each in finding.evidence), finding.evidence
    assert "join_thread" in finding.advice


def test_a_partial_message_is_named_by_its_stack_without_an_observed_exit() -> None:
    finding = only(half_message.check, snapshot_of(reader(*RECV)))

    assert len(finding.evidence) == 1
    assert "killed" not in finding.summary


@pytest.mark.parametrize(
    "job",
    [
        snapshot_of(reader(*RECV, wanted=4), KILLED),
        snapshot_of(reader(*RECV, wanted=8), KILLED),
        snapshot_of(reader(*RECV, wanted=None), KILLED),
        snapshot_of(reader(*RECV, still_s=1.0), KILLED),
        snapshot_of(reader("subprocess.py:communicate", wanted=32_768), KILLED),
        snapshot_of(reader(wanted=32_768)),
        snapshot_of(
            reader(*RECV),
            process(
                300,
                "spawned",
                fds=fds(9, links=[pipe(6, 500, True)]),
                threads=[thread(300, state="R")],
            ),
            KILLED,
        ),
    ],
)
def test_readers_of_heads_and_buffers_are_quiet(job: Snapshot) -> None:
    assert found(half_message.check, job) == []


@pytest.mark.parametrize(
    ("read_ago_s", "still_s", "are_told"),
    [(40.0, STILL, True), (2.0, STILL, False), (40.0, 0.5, False)],
    ids=["stuck", "the process reads on", "the thread goes on"],
)
def test_a_thread_that_receives_messages_all_the_time_waits_for_no_rest(
    read_ago_s: float, still_s: float, are_told: bool
) -> None:
    """The main thread sleeps meanwhile; each reading finds the thread inside a large message."""
    one = reader(*RECV)
    wait = one.threads[0].waits_on
    sleeps = thread(MAIN, "train.py:main:9", waits=WaitedOn("timer", "nanosleep"), still_s=STILL)
    receives = thread(101, *RECV, waits=wait, still_s=still_s)
    read = [Point(NOW_S - 60, 0.0), Point(NOW_S - read_ago_s, 9e6)]

    findings = found(
        half_message.check,
        snapshot_of(replace(one, threads=(sleeps, receives))),
        history({(MAIN, "read_bytes"): read}),
    )

    assert [each.tid for each in findings] == [101] * are_told


def joining(*stack: str, wait: WaitedOn | None = None, still_s: float = STILL) -> Process:
    joins = wait or WaitedOn("child", "wait4", ("pid 300",))
    return main(
        fds=fds(9, links=[pipe(5, 500, False)]),
        threads=[thread(MAIN, *stack, waits=joins, still_s=still_s)],
    )


def feeding(still_s: float = STILL, number: int = 300) -> Process:
    write = WaitedOn("pipe-write", "write", ("pipe:[500]",), queued_bytes=61_608)
    return process(
        number,
        "spawned",
        fds=fds(9, links=[pipe(5, 500, False), pipe(6, 500, True)]),
        threads=[
            thread(number, waits=WaitedOn("futex", "futex"), still_s=still_s),
            thread(number + 1, name="QueueFeederThread", waits=write, still_s=still_s),
        ],
    )


def test_a_join_before_the_queue_is_read_is_named() -> None:
    finding = only(queue_join_feeder_deadlock.check, snapshot_of(joining(), feeding()))

    assert "main (100) joins spawned 300 (300) before it has read" in finding.summary
    assert "61608 bytes unread" in finding.evidence[1]


def test_a_joined_child_that_handles_sigterm_may_have_been_told_to_end() -> None:
    sets_a_flag, plain = feeding(), feeding()
    sample = replace(sets_a_flag.sample, signals_caught=1 << (signal.SIGTERM - 1))
    sets_a_flag = replace(sets_a_flag, sample=sample)

    finding = only(queue_join_feeder_deadlock.check, snapshot_of(joining(), sets_a_flag))
    other = only(queue_join_feeder_deadlock.check, snapshot_of(joining(), plain))

    assert "spawned 300 (300) has a handler for SIGTERM" in finding.cause
    assert "terminate() does not end it" in finding.cause
    assert "signal.SIG_DFL" in finding.advice
    assert "terminate()" not in other.cause + other.advice


def test_children_that_are_not_joined_yet_are_part_of_the_same_finding() -> None:
    parent = joining("connection.py:wait", "process.py:join", "train.py:f")
    job = snapshot_of(parent, feeding(), feeding(number=400), feeding(number=500))

    finding = only(queue_join_feeder_deadlock.check, job)

    assert "main (100) joins spawned 300 (300)" in finding.summary
    assert (
        "no process reads what spawned 400 (400) and spawned 500 (500) would send"
        in (finding.evidence[-1])
    )


def test_a_join_under_spawn_is_named_by_its_stack() -> None:
    poll = WaitedOn("poll", "poll", ("pipe:[9]",))
    parent = joining("connection.py:wait", "process.py:join", "train.py:f", wait=poll)

    assert only(queue_join_feeder_deadlock.check, snapshot_of(parent, feeding())).process == pid(
        MAIN
    )


@pytest.mark.parametrize(
    "job",
    [
        snapshot_of(joining(still_s=1.0), feeding()),
        snapshot_of(joining(), feeding(still_s=1.0)),
        snapshot_of(joining(wait=WaitedOn("timer", "nanosleep")), feeding()),
        snapshot_of(main(), feeding()),
        snapshot_of(joining(), process(300, "spawned", threads=[thread(300)])),
        snapshot_of(
            joining(),
            feeding(),
            process(
                302,
                "spawned",
                fds=fds(9, links=[pipe(5, 500, False)]),
                threads=[thread(302, state="R")],
            ),
        ),
    ],
)
def test_back_pressure_is_no_deadlock(job: Snapshot) -> None:
    assert found(queue_join_feeder_deadlock.check, job) == []


@pytest.mark.parametrize(
    "stack",
    [
        ("threading.py:wait", "multiprocessing/pool.py:next", "train.py:main:9"),
        ("threading.py:join", "multiprocessing/pool.py:join", "train.py:main:9"),
    ],
)
def test_a_pool_hangs_wherever_its_result_is_waited_for(stack: tuple[str, ...]) -> None:
    waiting = main(threads=[thread(MAIN, *stack)])
    dead = process(300, "spawned", ended=exited(300, signal=11))
    idle = pool_worker(301)

    assert (
        "whose worker exited"
        in only(pool_hang_after_worker_death.check, snapshot_of(waiting, dead, idle)).summary
    )


_FILE = "/home/me/train.py"
GIVES = Mark(
    "pool-callback",
    _FILE,
    "f",
    'callback, self.table.add; 7 row["mean"]',
    Statement(3, "pool.apply_async(work, (x,), callback=self.table.add)"),
)


def with_handlers(
    sends: tuple[str, ...] = ("multiprocessing/pool.py:_handle_tasks",),
    receives: tuple[str, ...] = (
        "multiprocessing/connection.py:recv",
        "multiprocessing/pool.py:_handle_results",
    ),
    stack: tuple[str, ...] = POOL,
    timeout_s: float | None = None,
) -> Process:
    """A main process that waits for a Pool's result, with the threads of that Pool."""
    waits = WaitedOn("futex", "futex", timeout_s=timeout_s)
    return main(
        threads=[
            thread(MAIN, *stack, waits=waits, still_s=STILL),
            thread(MAIN + 1, "multiprocessing/pool.py:_handle_workers", still_s=STILL),
            thread(MAIN + 2, *sends, still_s=STILL),
            thread(MAIN + 3, *receives, waits=WaitedOn("pipe-read", "read"), still_s=STILL),
        ]
    )


def without_a_task(number: int, kind: Any = "pipe-read", still_s: float = STILL) -> Process:
    waits = WaitedOn(kind, "read")
    own = thread(number, *POOL_IDLE, waits=waits, still_s=still_s)
    return process(number, "spawned", threads=[own])


def test_a_call_that_no_worker_has_is_named_without_the_hook() -> None:
    job = snapshot_of(with_handlers(), without_a_task(300), without_a_task(301, "semaphore"))

    finding = only(pool_hang_after_worker_death.check, job)

    assert "that no worker has any more" in finding.summary
    assert "2 living workers, idle" in finding.evidence


def test_a_callback_that_looks_up_keys_is_named_with_its_lines() -> None:
    job = snapshot_of(with_handlers(), without_a_task(300), marks=(GIVES,))

    finding = only(pool_hang_after_worker_death.check, job)

    assert 'its callback self.table.add has raised a KeyError, at `row["mean"]`' in finding.summary
    assert "(train.py:7)" in finding.summary
    assert "goes on without a message" in finding.cause
    assert "get() or imap_unordered()" in finding.advice


def test_a_callback_is_named_where_the_hook_knows_that_the_call_is_lost() -> None:
    gauge = {"kind": "Pool", "outstanding": 1, "queued": 0, "pids": [300]}
    own = replace(with_handlers(), gauges={"pools": [gauge]})
    worker = replace(without_a_task(300), hook=replace(own.hook, state="ready"))

    named = only(pool_hang_after_worker_death.check, snapshot_of(own, worker, marks=(GIVES,)))
    unnamed = only(pool_hang_after_worker_death.check, snapshot_of(own, worker))

    assert "its callback self.table.add" in named.summary
    assert "1 call without a result, not queued, and no worker is running one" in named.evidence
    assert "callback" not in unnamed.summary + unnamed.cause


@pytest.mark.parametrize(
    "job",
    [
        (with_handlers(), without_a_task(300, still_s=2.0)),
        (with_handlers(), without_a_task(300), pool_worker(301)),
        (with_handlers(), without_a_task(300, "semaphore")),
        (with_handlers(timeout_s=5.0), without_a_task(300)),
        (
            with_handlers(("queue.py:get", "multiprocessing/pool.py:_handle_tasks")),
            without_a_task(300),
        ),
        (
            with_handlers(receives=("train.py:add:9", "multiprocessing/pool.py:_handle_results")),
            without_a_task(300),
        ),
        (with_handlers(stack=("queue.py:get", "train.py:f")), without_a_task(300)),
    ],
)
def test_a_pool_whose_call_may_still_be_answered_is_quiet(job: tuple[Process, ...]) -> None:
    assert not found(pool_hang_after_worker_death.check, snapshot_of(*job, marks=(GIVES,)))
