"""Processes that wait for what no process will do: by locks, events, managers, pools and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.stack_patterns import shape_of
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import fork_with_threads_lock, no_progress, standing_still
from mpwatch.model.findings import Severity
from mpwatch.model.history import History, Point
from mpwatch.model.ids import SegmentId, SegmentUse
from mpwatch.model.samples import FdLink, FrameValues, NameValue, ThreadSample, ValuesRead, WaitedOn
from mpwatch.model.snapshot import Process, Segment, Snapshot, Thread
from mpwatch.model.source_code import Decider, Mark, Skip, SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    WALL_S,
    accounted,
    exited,
    fds,
    found,
    history,
    line,
    log,
    main,
    only,
    pid,
    pipe,
    process,
    segment,
    snapshot_of,
    socket,
    thread,
    with_threads,
)

LOCK = WaitedOn("futex", "futex", ("futex 0x7f00",), futex_command=9)
JOIN = ("multiprocessing/popen_fork.py:poll", "multiprocessing/process.py:join", "train.py:main:9")
EVENT = (
    "multiprocessing/synchronize.py:wait",
    "multiprocessing/synchronize.py:wait",
    "data.py:x:5",
)
CONDITION = ("multiprocessing/synchronize.py:wait", "data.py:consume:5")
GET = ("multiprocessing/connection.py:recv", "multiprocessing/queues.py:get", "train.py:main:8")
SEMAPHORE = 77


def at_semaphore(inode: int = SEMAPHORE) -> WaitedOn:
    return WaitedOn("semaphore", "futex", (), segment=SegmentId(9, inode), value=0)


def semaphore(*users: int) -> Segment:
    made: Segment = segment(SEMAPHORE, kind="semaphore", mappers=tuple(map(pid, users)))
    return made


def mapped(at: tuple[int, int] | None = None) -> tuple[SegmentUse, ...]:
    use = SegmentUse(SegmentId(9, SEMAPHORE), "/dev/shm/sem.mp-1", "semaphore", False, None)
    return (replace(use, ranges=() if at is None else (at,)),)


def one(
    number: int, waits: WaitedOn | None, *stack: str, links: tuple[FdLink, ...] = (), **more: Any
) -> Process:
    """Main or one of its children, with one thread."""
    threads = more.pop("threads", None) or [thread(number, *stack, waits=waits)]
    taken = {"fds": fds(9, links=links), "segments": (), "threads": threads, **more}
    taken.setdefault("thread_count", len(threads))
    taken.setdefault("signals_caught", 0)
    if number == MAIN:
        return main(**taken)
    label = taken.pop("label", f"actor {number - 300}")
    return process(number, taken.pop("role", "spawned"), label=label, **taken)


def joining(number: int = 300) -> Process:
    return one(MAIN, WaitedOn("child", "wait4", (f"pid {number}",)), *JOIN)


def test_an_event_whose_setter_has_ended_is_reported_with_it() -> None:
    setter = one(302, None, label="build_cache", ended=exited(302, exit_code=0), segments=mapped())
    jobs = [joining(), one(300, at_semaphore(), *EVENT), one(301, at_semaphore(), *EVENT), setter]

    finding = only(standing_still.check, snapshot_of(*jobs, segments=(semaphore(MAIN, 300, 301),)))

    assert "actor 0 (300) and actor 1 (301) wait for an event that no process sets" in (
        finding.summary
    )
    assert "build_cache (302) ended without doing it" in finding.summary
    assert "main (100) waits for the exit of actor 0 (300) at train.py:9 main" in finding.cause
    assert any("build_cache (302) ended: exit code 0" in each for each in finding.evidence)


def test_a_condition_that_was_notified_before_the_wait_is_not_put_down_to_an_ended_waiter() -> None:
    woken = one(301, None, label="actor 1", ended=exited(301, exit_code=0), segments=mapped())
    jobs = [joining(), one(300, at_semaphore(), *CONDITION), woken]

    finding = only(standing_still.check, snapshot_of(*jobs, segments=(semaphore(MAIN, 300),)))

    assert "actor 0 (300) waits for a condition that no process notifies" in finding.summary
    assert "one that came before" in finding.cause
    assert "ended without" not in finding.summary
    assert "wait_for" in finding.advice


@pytest.mark.parametrize(
    ("stack", "words", "never"),
    [
        (("data.py:decode:5",), "between acquire() and release()", "terminate()"),
        (
            ("multiprocessing/synchronize.py:__enter__", "data.py:decode:5"),
            "killed inside of a with block",
            "between acquire() and release()",
        ),
    ],
)
def test_a_lock_that_no_process_releases_is_reported_by_how_it_is_taken(
    stack: tuple[str, ...], words: str, never: str
) -> None:
    gone = one(302, None, ended=exited(302, exit_code=0), segments=mapped())
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    jobs = [
        one(MAIN, reads, *GET, links=(pipe(5, 500, False), pipe(6, 500, True))),
        *(one(n, at_semaphore(), *stack, links=(pipe(6, 500, True),)) for n in (300, 301)),
        gone,
    ]

    finding = only(standing_still.check, snapshot_of(*jobs, segments=(semaphore(MAIN, 300, 301),)))

    assert "wait for a lock or semaphore that no process releases" in finding.summary
    assert words in finding.cause
    assert never not in finding.cause + finding.advice
    assert "main (100) waits for an item of a queue" in finding.cause


def installers(
    *others: Process, gone: Sequence[Process] = (), by_error: bool = True, at: int = 38
) -> Snapshot:
    """Children that wait for permits in a function which skips the release when a call raises."""
    takes = Statement(38, "self.slots.acquire()")
    skip = Skip(
        takes,
        Statement(40, "digest = unpack(archive)"),
        None,
        Statement(42, "self.slots.release()"),
        by_error=by_error,
    )
    source = SourceLine(DATA, 38, "install", takes, skips=(skip,))
    catches = Mark("swallows", DATA, "run", "53-53", Statement(54, "except Exception as error:"))
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    stack = (f"data.py:install:{at}", "data.py:run:53")
    waiting = [one(n, at_semaphore(), *stack, links=(pipe(6, 500, True),)) for n in (300, 301)]
    jobs = [
        one(MAIN, reads, *GET, links=(pipe(5, 500, False), pipe(6, 500, True))),
        *waiting,
        *others,
        *gone,
    ]
    users = (MAIN, 300, 301, *(each.pid for each in others))
    return snapshot_of(*jobs, segments=(semaphore(*users),), source=(source,), marks=(catches,))


DATA = "/home/me/data.py"


def test_permits_of_processes_whose_release_an_exception_skips_are_reported_with_all_lines() -> (
    None
):
    finding = only(standing_still.check, installers())

    assert finding.summary == (
        "actor 0 (300) and actor 1 (301) wait at data.py:38 install for a lock or semaphore that "
        "no process is past: most likely an exception at data.py:40 has skipped "
        "`self.slots.release()` of line 42"
    )
    assert "main (100) waits for an item of a queue" in finding.cause
    assert "`self.slots.acquire()` (data.py:38)" in finding.cause
    assert "`self.slots.release()` (line 42)" in finding.cause
    assert "`digest = unpack(archive)` (line 40)" in finding.cause
    assert "`except Exception as error:` (data.py:54 run) has caught it" in finding.cause
    assert "`with self.slots:`" in finding.advice


def test_a_permit_that_a_process_has_is_not_reported_as_left() -> None:
    """It is past the line that takes it, and waits for something else."""
    inside = one(302, at_semaphore(), "data.py:unpack:9", "data.py:install:40", "data.py:run:53")

    assert "has skipped" not in only(standing_still.check, installers(inside)).summary
    assert "has skipped" not in only(standing_still.check, installers(by_error=False)).summary
    assert "has skipped" not in only(standing_still.check, installers(at=44)).summary


def test_permits_of_a_process_that_a_signal_has_ended_are_not_put_down_to_an_exception() -> None:
    gone = one(302, None, ended=exited(302, signal=9), segments=mapped())
    finding = only(standing_still.check, installers(gone=[gone]))

    assert "has skipped" not in finding.summary
    assert "so does the end of a process that has it" in finding.cause


def test_a_lock_that_only_one_process_can_hold_is_reported_with_it() -> None:
    """Main iterates over a loader inside of the block whose lock the workers need."""
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    enters = ("multiprocessing/synchronize.py:__enter__", "data.py:decode:5")
    jobs = [
        one(MAIN, reads, *GET, links=(pipe(5, 500, False),)),
        one(300, at_semaphore(), *enters, links=(pipe(6, 500, True),)),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs, segments=(semaphore(MAIN, 300),)))

    assert "for a lock that main (100) most likely holds while it waits for them" in finding.summary


def test_a_reader_of_a_queue_of_which_no_other_process_lives_is_reported() -> None:
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    job = snapshot_of(one(MAIN, reads, *GET, links=(pipe(5, 500, False), pipe(6, 500, True))))

    alone = only(standing_still.check, job)
    noted = only(standing_still.check, replace(job, log=(log("start", MAIN),)))

    assert "an item of a queue that no other living process has" in alone.summary
    assert "all processes that it has started have ended" in noted.summary


def test_consumers_that_wait_for_more_end_marks_than_were_sent_are_reported_with_their_parent() -> (
    None
):
    get = (
        "multiprocessing/synchronize.py:__enter__",
        "multiprocessing/queues.py:get",
        "data.py:c:6",
    )
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    both = (pipe(5, 500, False), pipe(6, 500, True))
    jobs = [
        one(MAIN, WaitedOn("child", "wait4", ("pid 300",)), *JOIN, links=both),
        one(300, at_semaphore(), *get, links=both),
        one(301, reads, *GET[:2], "data.py:c:6", links=both),
    ]

    findings = found(
        standing_still.check, snapshot_of(*jobs, segments=(semaphore(MAIN, 300, 301),))
    )

    assert "main (100) waits for the exit of actor 0 (300)" in findings[0].summary
    assert "for an item of a queue that no process puts" in findings[0].summary
    assert "one item that tells to end (None) for each reader" in findings[0].advice


# --- threads of one process ----------------------------------------------------------------------

HANDLERS = tuple(
    thread(
        tid,
        *stack,
        waits=waits,
        name=f"Thread-{tid}",
    )
    for tid, stack, waits in (
        (101, ("multiprocessing/pool.py:_handle_tasks",), LOCK),
        (
            102,
            ("multiprocessing/connection.py:recv", "multiprocessing/pool.py:_handle_results"),
            WaitedOn("pipe-read", "read", ("pipe:[500]",)),
        ),
        (
            103,
            ("multiprocessing/connection.py:wait", "multiprocessing/pool.py:_handle_workers"),
            WaitedOn("poll", "poll", (), timeout_s=0.1),
        ),
    )
)
IDLE = ("multiprocessing/queues.py:get", "multiprocessing/pool.py:worker")


OWN = "train.py:main:20"


def with_pool(*worker_stack: str, signals: int = 0, stack: tuple[str, ...] = ()) -> Snapshot:
    own = thread(MAIN, *(stack or ("threading.py:wait", "threading.py:wait", OWN)), waits=LOCK)
    top = one(
        MAIN,
        None,
        threads=[own, *HANDLERS],
        links=(pipe(5, 500, False),),
        signals_caught=signals,
    )
    worker = one(
        300,
        WaitedOn("pipe-read", "read", ("pipe:[600]",)),
        *worker_stack,
        role="pool-worker",
        links=(pipe(6, 500, True), pipe(7, 600, False)),
    )
    return snapshot_of(top, worker)


def test_an_event_that_only_a_callback_of_an_idle_pool_could_set_is_reported() -> None:
    finding = only(standing_still.check, with_pool(*IDLE))

    assert finding.process == pid(MAIN)
    assert "what a callback of its Pool was to do, and the Pool has no work left" in finding.summary
    assert "error_callback" in finding.advice


def test_an_event_that_is_cleared_right_before_the_wait_loses_what_was_set_before() -> None:
    line = SourceLine(
        "/home/me/train.py",
        20,
        "main",
        Statement(20, "self.event.wait()"),
        within=(Statement(15, "while not self.is_done:"),),
        cleared=Statement(19, "self.event.clear()"),
    )

    by_pool = only(standing_still.check, replace(with_pool(*IDLE), source=(line,)))
    alone = thread(MAIN, "threading.py:wait", "threading.py:wait", OWN, waits=LOCK)
    by_none = only(
        standing_still.check, replace(snapshot_of(one(MAIN, None, threads=[alone])), source=(line,))
    )

    assert by_pool.summary == (
        "main (100) waits at train.py:20 main for an event that it clears right before, in line "
        "19: likely it was set before that, and that is lost"
    )
    assert "error_callback" in by_pool.cause
    assert "`self.event.clear()`" in by_pool.cause
    assert "Clear the event first" in by_pool.advice
    assert by_none.summary == by_pool.summary


@pytest.mark.parametrize(
    "job",
    [
        with_pool("train.py:score:3", "multiprocessing/pool.py:worker"),
        with_pool(*IDLE, signals=1 << 14),
        with_pool(
            *IDLE, stack=("threading.py:wait", "multiprocessing/pool.py:wait", "train.py:m:2")
        ),
    ],
    ids=["a worker is at work", "a signal may set it", "waits for a result"],
)
def test_a_pool_that_may_still_call_back_is_left_alone(job: Snapshot) -> None:
    assert not any("callback" in each.summary for each in found(standing_still.check, job))


def forked(*others: str, stack: tuple[str, ...]) -> Snapshot:
    """A forked child with one thread, whose parent had some threads when it forked."""
    names = ("python", *others)
    old = tuple(ThreadSample(MAIN + n, name, "S", 0, start_ticks=1) for n, name in enumerate(names))
    top = joining()
    top = replace(top, sample=replace(top.sample, threads=old))
    return snapshot_of(top, one(300, LOCK, *stack, start_method="fork"))


FULL = ("threading.py:wait", "queue.py:put", "data.py:record:13")


def test_a_thread_of_the_child_itself_is_not_put_down_to_the_fork() -> None:
    job = forked("QueueFeederThread", stack=FULL)

    assert found(fork_with_threads_lock.check, job) == []
    assert found(fork_with_threads_lock.check, forked("loader", stack=FULL)) != []
    [finding] = found(standing_still.check, forked(stack=FULL))
    assert "the thread that was to take items out is gone" in finding.summary


def test_an_event_of_threading_of_which_children_have_copies_is_reported_as_that() -> None:
    waits = ("threading.py:wait", "threading.py:wait", "train.py:run:17")
    child = one(300, None, "data.py:act:3", start_method="fork", threads=[thread(300, state="R")])
    job = snapshot_of(one(MAIN, LOCK, *waits), child)

    finding = only(standing_still.check, job)

    assert "actor 0 (300) was forked and has a copy of it" in finding.cause
    assert "multiprocessing" in finding.advice
    [alone] = found(standing_still.check, snapshot_of(one(MAIN, LOCK, *waits)))
    assert "copy" not in alone.cause


def test_children_that_wait_to_send_put_nothing_into_their_copies_of_a_queue() -> None:
    """A thread of main that was to receive from them has died."""
    gets = ("threading.py:wait", "queue.py:get", "train.py:__iter__:22")
    puts = ("multiprocessing/queues.py:put", "data.py:stream:19")

    def job(waits: WaitedOn) -> Snapshot:
        child = one(300, waits, *puts, start_method="fork")
        return snapshot_of(one(MAIN, LOCK, *gets), child, segments=(semaphore(MAIN, 300),))

    [finding] = found(standing_still.check, job(at_semaphore()))

    assert finding.summary == (
        "main (100) waits for an item of a queue at train.py:22 __iter__, and the thread that was "
        "to put it is gone"
    )
    assert "copy" not in finding.cause
    assert "actor 0 (300) waits for room to send, and main (100) takes nothing" in finding.cause
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=9.0)
    [other] = found(standing_still.check, job(sleeps))
    assert "actor 0 (300) was forked and has a copy of it" in other.cause


def test_children_that_wait_for_main_take_nothing_out_of_their_copies_of_its_queue() -> None:
    """The thread of main that was to write what is put has died of an exception."""
    reads = WaitedOn("socket-read", "recvfrom", ("socket:[51]",))
    stack = ("multiprocessing/connection.py:recv", "data.py:serve:40")
    child = one(300, reads, *stack, start_method="fork", fds=fds(4, links=[socket(3, 51, 50)]))
    top = one(MAIN, LOCK, *FULL, fds=fds(4, links=[socket(3, 50, 51)]))

    [finding] = found(standing_still.check, snapshot_of(top, child))

    assert finding.summary == (
        "main (100) waits for room in a full queue at data.py:13 record, and the thread that was "
        "to take items out is gone"
    )
    assert "copy" not in finding.cause


LOOP = ("selectors.py:select", "asyncio/base_events.py:_run_once", "train.py:worker:17")


def loop(timeout_s: float | None = None, signals: int = 0, peer: int = 501) -> Snapshot:
    waits = WaitedOn("poll", "epoll_wait", ("socket:[500]",), timeout_s=timeout_s)
    links = (socket(3, 500, peer), socket(4, 501, 500))
    return snapshot_of(one(MAIN, waits, *LOOP, links=links, signals_caught=signals))


def test_an_event_loop_that_watches_only_itself_can_never_continue() -> None:
    finding = only(standing_still.check, loop())

    assert "no task of the event loop of main (100) can continue" in finding.summary


def test_an_event_loop_forked_without_the_threads_of_its_executor_is_reported_as_that() -> None:
    waits = WaitedOn("poll", "epoll_wait", ("socket:[500]",))
    links = (socket(3, 500, 501), socket(4, 501, 500))
    pool = thread(101, "concurrent/futures/thread.py:_worker", waits=LOCK, name="encode_0")
    own = [thread(300, *LOOP, waits=waits), replace(pool, tid=301, name="asyncio_0")]
    child = one(300, None, threads=own, links=links, start_method="fork")
    parent = one(MAIN, None, threads=[thread(MAIN, "train.py:main:9", state="R"), pool])

    finding = only(standing_still.check, snapshot_of(parent, child))

    assert "waits for an executor whose threads were not forked" in finding.summary
    assert "Create the executor in the child" in finding.advice
    has_own = [own[0], replace(pool, tid=301)]
    another = one(300, None, threads=has_own, links=links, start_method="fork")
    [other] = found(standing_still.check, snapshot_of(parent, another))
    assert "no task of the event loop" in other.summary


def test_a_thread_whose_death_the_hook_has_told_is_not_put_down_to_copies_of_a_fork() -> None:
    waits = ("threading.py:wait", "queue.py:get", "train.py:run:17")
    child = one(300, None, "data.py:act:3", start_method="fork", threads=[thread(300, state="R")])
    died = log("thread-died", MAIN, "thread died: Thread-1; ValueError; truncated sweep")

    finding = only(standing_still.check, snapshot_of(one(MAIN, LOCK, *waits), child, log=[died]))

    assert "the thread that was to put it is gone" in finding.summary
    assert "thread died: Thread-1; ValueError; truncated sweep" in finding.evidence


@pytest.mark.parametrize(
    "job",
    [loop(timeout_s=2.0), loop(signals=1 << 14), loop(peer=900)],
    ids=["a timer", "a signal's handler", "a connection"],
)
def test_an_event_loop_that_something_may_wake_up_is_left_alone(job: Snapshot) -> None:
    assert found(standing_still.check, job) == []


# --- pools, managers and servers -----------------------------------------------------------------


def test_a_result_leads_to_the_worker_that_runs_the_call() -> None:
    """The worker waits for an event that main sets once it has all results."""
    result = ("threading.py:wait", "concurrent/futures/_base.py:result", "train.py:main:13")
    runs = ("train.py:step:8", "concurrent/futures/process.py:_process_worker")
    idle = WaitedOn("pipe-read", "read", ("pipe:[9]",))
    jobs = [
        one(MAIN, LOCK, *result),
        one(300, idle, *GET[:2], runs[1], role="pool-worker"),
        one(301, at_semaphore(), *EVENT[:2], *runs, role="pool-worker"),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs, segments=(semaphore(MAIN, 301),)))

    assert "actor 1 (301) waits for an event that no process sets" in finding.summary
    assert "main (100) waits for the result of a future" in finding.cause


def proxied(method: str, manager_stack: tuple[str, ...], *more: Process) -> Snapshot:
    """Main in a call of a proxy, which the manager serves in a thread."""
    call = (
        "multiprocessing/connection.py:_recv",
        "multiprocessing/managers.py:_callmethod",
        f"<string>:{method}",
        "train.py:report:7",
    )
    waits = WaitedOn("socket-read", "recvfrom", ("socket:[500]",))
    serving = thread(301, *manager_stack, waits=LOCK)
    serves = thread(
        300, "threading.py:wait", "multiprocessing/managers.py:serve_forever", waits=TICKS
    )
    return snapshot_of(
        one(MAIN, waits, *call, links=(socket(3, 500, 501),)),
        one(300, None, threads=[serves, serving], links=(socket(4, 501, 500),), label="manager"),
        *more,
    )


TICKS = WaitedOn("futex", "futex", ("futex 0x7f00",), timeout_s=0.9)
SERVES_GET = ("threading.py:wait", "queue.py:get", "multiprocessing/managers.py:serve_client")


def test_an_item_of_a_managers_queue_that_nobody_puts_is_reported() -> None:
    gone = one(301, None, label="evaluate 3", ended=exited(301, exit_code=0))

    finding = only(standing_still.check, proxied("get", SERVES_GET, gone))

    assert finding.summary == (
        "main (100) waits for an item of a queue of the manager that no process puts"
    )
    assert "evaluate 3 (301) has ended" in finding.cause
    assert "exactly one answer" in finding.advice


def test_a_lock_of_a_manager_whose_holder_has_ended_is_reported() -> None:
    serves = ("multiprocessing/managers.py:serve_client",)
    gone = one(301, None, label="updater 1", ended=exited(301, exit_code=1))

    finding = only(standing_still.check, proxied("acquire", serves, gone))

    assert "waits for a lock of the manager that no process releases" in finding.summary
    assert "what it held may be lost" in finding.cause


def test_a_manager_that_is_asked_or_a_client_that_works_leaves_the_wait_open() -> None:
    idle = ("multiprocessing/connection.py:recv", "multiprocessing/managers.py:serve_client")
    works = one(301, None, threads=[thread(301, "train.py:step:3", state="R", still_s=0.0)])

    assert found(standing_still.check, proxied("get", idle)) == []
    assert found(standing_still.check, proxied("get", SERVES_GET, works)) == []


def server(*more: Any, client_still_s: float = 60.0) -> Snapshot:
    accepts = WaitedOn("accept", "accept4", ("socket:[700]",))
    listens = socket(3, 700, None, "tcp listens on 127.0.0.1:4000")
    links = (listens, socket(5, 801, 800))
    own = thread(MAIN, "socket.py:accept", "train.py:wait_for_clients:11", waits=accepts)
    receives = WaitedOn("socket-read", "recvfrom", ("socket:[800]",))
    client = thread(300, "data.py:client:20", waits=receives, still_s=client_still_s)
    return snapshot_of(
        one(MAIN, None, threads=[own, *more], links=links),
        one(300, None, threads=[client], links=(socket(3, 800, 801),)),
    )


def test_a_server_that_waits_for_one_more_client_is_reported_with_those_that_wait_for_it() -> None:
    finding = only(no_progress.check, server())

    assert finding.severity is Severity.INFO
    assert "a further connection to tcp 127.0.0.1:4000, and actor 0 (300) waits" in finding.summary


def test_a_server_with_threads_or_busy_clients_is_left_alone() -> None:
    answers = thread(101, "train.py:answer:30", waits=WaitedOn("socket-read", "recvfrom", ()))

    assert found(no_progress.check, server(answers)) == []
    assert found(no_progress.check, server(client_still_s=3.0)) == []


# --- polls, signals, ends of files ---------------------------------------------------------------

SLEEPS = WaitedOn("timer", "clock_nanosleep", timeout_s=0.1)
POOL_THREAD = "concurrent/futures/thread.py:_worker"


def past(written_ago_s: float = 40.0) -> History:
    written = (Point(NOW_S - 50, 0.0), Point(NOW_S - written_ago_s, 9.0))
    return history({(MAIN, "written_bytes"): written})


def polling(
    *others: Process,
    seconds: int = 40,
    more: Sequence[Thread] = (),
    awake: Sequence[int] = (),
) -> Snapshot:
    """Main polls at one line for some seconds, while others do as they are given.

    Args:
        others: The other processes.
        seconds: For how long.
        more: Other threads of main.
        awake: So many seconds ago, main was found asking for what it waits for.
    """
    own = thread(MAIN, "train.py:wait_for_steps:17", waits=SLEEPS, still_s=0.05)
    reads = WaitedOn("socket-read", "recvfrom", ())
    looks = thread(MAIN, "train.py:wait_for_steps:15", waits=reads, still_s=0.0)
    made = [
        snapshot_of(
            one(MAIN, None, threads=[looks if ago in awake else own, *more]),
            *others,
            at_s=NOW_S - ago,
        )
        for ago in range(seconds, -1, -1)
    ]
    return accounted(*made)


@pytest.mark.parametrize(("wakes_per_s", "is_told"), [(1.0, True), (0.0, False)])
def test_one_long_sleep_is_no_loop_that_looks_again(wakes_per_s: float, is_told: bool) -> None:
    written = (Point(NOW_S - 50, 0.0), Point(NOW_S - 40, 9.0))
    woken = line(90.0, per_s=wakes_per_s, seconds=40)
    seen = history({(MAIN, "written_bytes"): written, (MAIN, "voluntary_switches"): woken})

    assert bool(found(no_progress.check, polling(), seen)) is is_told


def test_a_loop_that_sleeps_while_all_that_it_started_has_ended_is_reported() -> None:
    gone = [one(n, None, ended=exited(n, exit_code=0), start_method="fork") for n in (300, 301)]

    finding = only(no_progress.check, polling(*gone), past())

    assert "main (100) sleeps and checks again in a loop at train.py:17" in finding.summary
    assert "2 processes of the job ended, and no other one is left" in finding.cause
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(
    ("header", "until", "cause"),
    [
        ("while self.path.exists():", "until a file is removed", "ended without doing so"),
        ("while os.path.exists(path):", "until a file is removed", "ended without doing so"),
        ("while not (folder / 'DONE').exists():", "until there is a file", "or folder"),
        ("while a.exists() and b.exists():", "", "If it is a file"),
        ("while counter.value < total:", "", "If it is a file"),
        ("while not os.path.exists(path):", "until there is a file", "another name or folder"),
        ("while not self.ready:", "until a variable changes", "its own copy"),
        ("while self.done < total:", "until a variable changes", "its own copy"),
        ("while self.running:", "until a variable changes", "its own copy"),
        ("while self.jobs or not tasks.empty():", "until work is done", "as unfinished"),
        ("while time.time() < end and self.jobs:", "", "If it is a file"),
        ("while not ready.is_set():", "", "If it is a file"),
        ("while True:", "", "If it is a file"),
    ],
)
def test_the_condition_of_a_loop_decides_what_it_waits_for(
    header: str, until: str, cause: str
) -> None:
    line = SourceLine(
        "/home/me/train.py",
        17,
        "wait_for_steps",
        Statement(17, "time.sleep(1)"),
        within=(Statement(16, header),),
    )
    job = replace(polling(), source=(line,))

    finding = only(no_progress.check, job, past())

    assert finding.summary.endswith(until or "at train.py:17 wait_for_steps")
    assert cause in finding.cause
    assert ("flock" in finding.advice) is (until == "until a file is removed")


@pytest.mark.parametrize(
    ("header", "still_s", "is_told"),
    [
        ("while self.jobs:", 40.0, True),
        ("while self.jobs:", 5.0, False),
        ("while not stop.is_set():", 40.0, False),
    ],
)
def test_a_loop_that_reads_figures_while_it_awaits_work_of_idle_processes_is_reported(
    header: str, still_s: float, is_told: bool
) -> None:
    idle = one(300, None, threads=[thread(300, "train.py:run:37", still_s=still_s)])
    line = SourceLine(
        "/home/me/train.py",
        17,
        "wait_for_steps",
        Statement(17, "time.sleep(1)"),
        within=(Statement(16, header),),
    )
    job = replace(polling(idle), source=(line,))

    told = found(no_progress.check, job, past(written_ago_s=2.0))

    assert [each.subject for each in told] == ["polls"] * is_told


PERMITS = Mark(
    "unreleased", "/app/pool.py", "run", "self.permits, 62", Statement(64, "reply = generate(x)")
)


@pytest.mark.parametrize(
    ("stack", "is_told"),
    [(("asyncio/base_events.py:_run_once",), True), (("socketserver.py:serve_forever",), False)],
)
def test_a_server_whose_handlers_may_wait_for_permits_is_reported_with_what_loses_them(
    stack: tuple[str, ...], is_told: bool
) -> None:
    loop = [thread(300, "selectors.py:select", *stack, "train.py:serve:37", still_s=40.0)]
    job = replace(polling(one(300, None, threads=loop)), marks=(PERMITS,))

    finding = only(no_progress.check, job, past())

    told = (
        "Possible: an exception at `reply = generate(x)` at pool.py:64 run leaves out the release "
        "of self.permits, which line 62 has acquired"
    )
    assert finding.cause.startswith(told) is is_told


def test_a_server_whose_coroutines_take_a_second_permit_is_reported_where_main_polls() -> None:
    here, there, listening = "127.0.0.1:4000", "127.0.0.1:51000", 800
    loop = ("selectors.py:select", "asyncio/base_events.py:_run_once", "train.py:serve:37")
    watches = WaitedOn("poll", "epoll_wait", (f"socket:[{listening}]", "socket:[701]"))
    server = one(
        300,
        None,
        links=(
            socket(3, listening, None, f"tcp listens on {here}"),
            socket(4, 701, 700, f"tcp {here} > {there}"),
        ),
        threads=[thread(300, *loop, waits=watches, still_s=40.0)],
    )
    asks = WaitedOn("socket-read", "recvfrom", ("socket:[700]",))
    client = one(
        301,
        None,
        links=(socket(3, 700, 701, f"tcp {there} > {here}"),),
        threads=[thread(301, "train.py:ask:20", waits=asks, still_s=40.0)],
    )
    again = Mark(
        "takes-again",
        "/home/me/train.py",
        "reply",
        "self.slots, 46, part, 54",
        Statement(50, "part = await self.part()"),
    )

    finding = only(no_progress.check, replace(polling(server, client), marks=(again,)), past())

    assert finding.subject == "polls"
    assert finding.cause.startswith("Most likely its coroutines wait for each other: reply keeps")
    assert finding.advice.startswith("Take only one at a time")


def test_a_loop_whose_values_were_read_is_reported_with_them() -> None:
    header = Statement(16, "while self.done < self.total:")
    line = SourceLine(
        "/home/me/train.py",
        17,
        "wait_for_steps",
        Statement(17, "time.sleep(1)"),
        within=(header,),
        deciders=(Decider(header, 17, ("self.done", "self.total")),),
    )
    values = NameValue("self.done", "int", 3), NameValue("self.total", "int", 4)
    frame = FrameValues(MAIN, "/home/me/train.py", "wait_for_steps", 17, values)
    read = ValuesRead(pid(MAIN), NOW_S, "hook", (frame,))

    finding = only(no_progress.check, replace(polling(), source=(line,), values=(read,)), past())

    assert finding.cause.startswith(
        "main (100) goes round in `while self.done < self.total:` of line 16: self.done is 3, "
        "self.total is 4. What the loop waits for does not come."
    )


@pytest.mark.parametrize(
    ("headers", "until", "ends"),
    [
        (("while True:", "except FileExistsError:"), "file is removed", "when a file is removed"),
        (("for n in range(9):", "except FileNotFoundError:"), "is a file", "when there is a file"),
        (("while os.path.exists(path):", "if verbose:"), "file is removed", "when a file is"),
        (("except FileExistsError:",), "wait_for_steps", "It wakes up by itself."),
        (("while True:", "except OSError:"), "wait_for_steps", "It wakes up by itself."),
    ],
)
def test_a_loop_that_tries_again_waits_for_what_its_clause_shows(
    headers: tuple[str, ...], until: str, ends: str
) -> None:
    line = SourceLine(
        "/home/me/train.py",
        17,
        "wait_for_steps",
        Statement(17, "time.sleep(1)"),
        within=tuple(Statement(10 + n, text) for n, text in enumerate(headers)),
    )
    job = replace(polling(), source=(line,))

    assert only(no_progress.check, job, past()).summary.endswith(until)
    assert ends in wait_graph(Index(job, past())).chains[0].conclusion


def test_a_loop_that_takes_new_memory_between_its_sleeps_does_something() -> None:
    gone = one(300, None, ended=exited(300, exit_code=0))
    written = (Point(NOW_S - 50, 0.0), Point(NOW_S - 40, 9.0))

    def taking(pages_per_s: float) -> History:
        faults = line(9000.0, per_s=pages_per_s)
        return history({(MAIN, "written_bytes"): written, (MAIN, "minor_faults"): faults})

    assert found(no_progress.check, polling(gone), taking(20.0)) == []
    assert len(found(no_progress.check, polling(gone), taking(0.1))) == 1


def test_memory_that_is_taken_all_at_once_as_by_the_hook_is_not_that_of_the_loop() -> None:
    gone = one(300, None, ended=exited(300, exit_code=0))
    written = (Point(NOW_S - 50, 0.0), Point(NOW_S - 40, 9.0))
    faults = tuple(Point(NOW_S - ago, 500.0 if ago < 9 else 0.0) for ago in range(60, -1, -1))
    seen = history({(MAIN, "written_bytes"): written, (MAIN, "minor_faults"): faults})

    assert len(found(no_progress.check, polling(gone), seen)) == 1


@pytest.mark.parametrize(("awake", "count"), [((2,), 1), ((26, 2), 1), ((4, 3, 2), 0)])
def test_a_loop_that_is_found_awake_now_and_then_polls_all_the_same(
    awake: tuple[int, ...], count: int
) -> None:
    gone = one(300, None, ended=exited(300, exit_code=0))

    assert len(found(no_progress.check, polling(gone, awake=awake), past())) == count


def test_names_of_files_that_are_sorted_as_texts_are_named_as_the_cause() -> None:
    gone = one(300, None, ended=exited(300, exit_code=0))
    takes = Statement(17, "paths = sorted(glob.glob(pattern))")
    mark = Mark("text-order", "/home/me/files.py", "latest", "model_{version}.pt", takes)

    finding = only(no_progress.check, replace(polling(gone), marks=(mark,)), past())

    assert "`paths = sorted(glob.glob(pattern))` at files.py:17 latest goes by" in finding.cause
    assert "such as model_{version}.pt have no fixed width" in finding.cause
    assert "key=os.path.getmtime" in finding.advice
    twice = replace(polling(gone), marks=(mark, mark._replace(function="oldest")))
    assert "order of texts" not in only(no_progress.check, twice, past()).cause


@pytest.mark.parametrize("counter", ["left.value", "right.value"])
def test_a_polled_counter_that_a_caught_exception_leaves_wrong_is_the_cause(counter: str) -> None:
    idle = one(300, None, threads=[thread(300, "train.py:run:37", still_s=40.0)])
    sleeps = Statement(17, "time.sleep(0.1)")
    loop = (Statement(16, "while self.left.value > 0:"),)
    line = SourceLine("/home/me/train.py", 17, "wait_for_steps", sleeps, within=loop)
    mark = Mark(
        "uncounted",
        "/home/me/data.py",
        "task",
        f"{counter}, 31, except Exception: in line 27",
        Statement(35, f"{counter} -= 1"),
    )

    finding = only(no_progress.check, replace(polling(idle), source=(line,), marks=(mark,)), past())

    is_it = counter == "left.value"
    assert ("Most likely it misses those that failed" in finding.cause) is is_it
    assert ("finally block around what may fail" in finding.advice) is is_it


def test_a_job_of_which_one_works_or_that_has_just_begun_to_poll_is_not_reported() -> None:
    works = one(300, None, threads=[thread(300, "data.py:act:3", state="R", still_s=0.0)])
    fills = thread(101, "data.py:run:6", waits=SLEEPS, still_s=0.05)
    started = one(300, SLEEPS, "data.py:act:3", born_wall_s=WALL_S - 5)

    assert found(no_progress.check, polling(), past()) != []
    assert found(no_progress.check, polling(works), past()) == []
    assert found(no_progress.check, polling(started), past()) == []
    assert found(no_progress.check, polling(more=[fills]), past()) == []
    assert found(no_progress.check, polling(), past(written_ago_s=5.0)) == []
    assert found(no_progress.check, polling(seconds=10), past()) == []


def test_a_wait_for_a_signal_is_reported_as_one() -> None:
    pause = WaitedOn("signal", "pause")
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    job = snapshot_of(
        one(MAIN, reads, *GET, links=(pipe(5, 500, False),)),
        one(300, pause, "data.py:worker:8", links=(pipe(6, 500, True),)),
    )

    finding = only(no_progress.check, job)

    assert "which waits for a signal at data.py:8 worker" in finding.summary
    assert "outside of this job" not in finding.cause


def test_an_end_of_file_that_an_inherited_end_keeps_away_is_explained() -> None:
    reads = WaitedOn("socket-read", "read", ("pipe:[500]",))
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=500.0)
    job = snapshot_of(
        joining(301),
        one(300, sleeps, "data.py:beat:14", links=(pipe(6, 500, True),), start_method="fork"),
        one(301, reads, "data.py:consume:10", links=(pipe(5, 500, False),), start_method="fork"),
        one(302, None, label="produce", ended=exited(302, exit_code=0)),
    )

    finding = only(no_progress.check, job)

    assert finding.severity is Severity.WARNING
    assert "it has inherited that end at its fork: produce (302) has ended" in finding.cause
    assert "close in every process the ends that it does not use" in finding.advice
    queue = (*GET[:2], "data.py:consume:10")
    job = snapshot_of(
        *(
            one(301, reads, *queue, links=(pipe(5, 500, False),)) if each.pid == 301 else each
            for each in job.processes
        )
    )
    assert "inherited" not in only(no_progress.check, job).cause


def test_an_inherited_end_is_a_warning_also_where_its_holder_sleeps_in_a_loop() -> None:
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    beats = WaitedOn("timer", "clock_nanosleep", timeout_s=0.3)
    jobs = [
        joining(301),
        one(300, beats, "data.py:beat:14", links=(pipe(6, 500, True),), start_method="fork"),
        one(301, reads, "data.py:consume:10", links=(pipe(5, 500, False),), start_method="fork"),
        one(302, None, label="produce", ended=exited(302, exit_code=0)),
    ]
    made = [snapshot_of(*jobs, at_s=NOW_S - 40 + second) for second in range(41)]

    finding = only(no_progress.check, accounted(*made))

    assert "which sleeps again and again" in finding.summary
    assert finding.severity is Severity.WARNING


def test_the_only_process_that_can_hold_a_lock_is_named_as_its_likely_holder() -> None:
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=200.0)
    jobs = [
        joining(),
        one(300, at_semaphore(), "multiprocessing/synchronize.py:__enter__", "data.py:step:10"),
        one(301, sleeps, "train.py:upload:4", "train.py:checkpointer:7"),
    ]
    segments = (semaphore(MAIN, 300, 301),)

    finding = only(no_progress.check, snapshot_of(*jobs, segments=segments))
    ended = one(302, None, ended=exited(302, exit_code=0))
    held = replace(jobs[2], gauges={"locks": {"held": [0x1000]}})
    held = replace(held, sample=replace(held.sample, segments=mapped((0x1000, 0x2000))))
    known = only(no_progress.check, snapshot_of(*jobs[:2], held, segments=segments))
    unsure = only(no_progress.check, snapshot_of(*jobs, ended, segments=segments))

    assert "that actor 1 (301) most likely holds: it sleeps at train.py:4 upload" in finding.summary
    assert "for a lock that actor 1 (301) holds, and it sleeps at" in known.summary
    assert "actor 1 (301) holds the lock while it sleeps" in known.cause
    assert "that no process is seen to hold" in unsure.summary


def test_a_sleep_that_is_begun_again_and_again_at_one_line_is_a_loop() -> None:
    """An actor tries to connect every two seconds, and main waits for its first item."""
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=0.1)
    top = one(MAIN, reads, *GET, links=(pipe(5, 500, False),))
    own = thread(300, "data.py:connect:8", waits=sleeps, waits_s=40.0, still_s=40.0)
    child = one(300, None, threads=[own], links=(pipe(6, 500, True),))
    made = [snapshot_of(top, child, at_s=NOW_S - 40 + second) for second in range(41)]

    finding = only(no_progress.check, accounted(*made))

    assert "which sleeps again and again at data.py:8 connect" in finding.summary
    assert "will wake up by itself" not in finding.cause


def test_a_task_of_a_pool_that_reads_a_queue_is_no_idle_worker() -> None:
    """Tasks take the number of a device from a queue, and one of them did not give it back."""
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    task = ("multiprocessing/queues.py:get", "data.py:infer:6", "multiprocessing/pool.py:worker")
    result = ("threading.py:wait", "multiprocessing/pool.py:wait", "train.py:main:13")
    both = (pipe(5, 500, False), pipe(6, 500, True))
    job = snapshot_of(
        one(MAIN, LOCK, *result, links=both),
        one(300, reads, *task, role="pool-worker", links=both),
    )

    finding = only(standing_still.check, job)

    assert shape_of(job.processes[1].threads[0].stack) == "queue-get"
    assert "a call of the pool of main (100) waits for an item of a queue" in finding.summary
    assert "in actor 0 (300)" in finding.summary
    assert "finally" in finding.advice


def test_semaphores_that_count_items_and_room_are_a_third_reason_for_a_circle() -> None:
    jobs = [
        joining(),
        one(300, at_semaphore(), "data.py:push:6"),
        one(301, at_semaphore(78), "data.py:pop:9"),
    ]
    other = replace(semaphore(300, 301), segment=SegmentId(9, 78))

    finding = only(standing_still.check, snapshot_of(*jobs, segments=(semaphore(300, 301), other)))

    assert "each wait to acquire what another one of them has to release" in finding.summary
    assert "one release() too few" in finding.cause


def test_a_full_queue_that_no_other_living_process_has_is_reported() -> None:
    put = ("multiprocessing/queues.py:put", "train.py:fill:8")

    finding = only(
        standing_still.check,
        snapshot_of(one(MAIN, at_semaphore(), *put), segments=(semaphore(MAIN),)),
    )

    assert "a full queue that no other living process reads" in finding.summary
    assert "Start the processes that read the queue before" in finding.advice


def test_a_thread_that_receives_from_a_child_leads_to_that_child() -> None:
    """Main joins the thread; the child waits for one more order on the same connection."""
    receives = WaitedOn("socket-read", "read", ("socket:[500]",))
    answers = WaitedOn("socket-read", "read", ("socket:[501]",))
    own = thread(MAIN, "threading.py:join", "train.py:run:19", waits=LOCK)
    reader = thread(101, "multiprocessing/connection.py:recv", "train.py:reader:12", waits=receives)
    job = snapshot_of(
        one(MAIN, None, threads=[own, reader], links=(socket(3, 500, 501),)),
        one(300, answers, *GET[:1], "data.py:child:6", links=(socket(4, 501, 500),)),
    )

    finding = only(standing_still.check, job)

    assert "main (100) and actor 0 (300) all wait to receive" in finding.summary


def test_a_loop_that_asks_a_manager_again_and_again_is_a_poll() -> None:
    serves = thread(
        300, "threading.py:wait", "multiprocessing/managers.py:serve_forever", waits=TICKS
    )
    manager = one(300, None, threads=[serves], label="manager")

    assert found(no_progress.check, polling(manager), past(written_ago_s=0.5)) != []
    assert found(no_progress.check, polling(), past(written_ago_s=0.5)) == []


def test_two_processes_that_have_called_each_other_are_explained() -> None:
    """The end for the answer is in a message that the other one has not read."""
    asks = ("multiprocessing/connection.py:recv", "train.py:call:6")
    job = snapshot_of(
        one(
            MAIN,
            WaitedOn("socket-read", "read", ("socket:[500]",)),
            *asks,
            links=(socket(3, 500, 501),),
        ),
        one(
            300,
            WaitedOn("socket-read", "read", ("socket:[600]",)),
            *asks,
            links=(socket(4, 501, 500), socket(5, 600, 601), socket(6, 601, 600)),
        ),
    )

    finding = only(standing_still.check, job)

    assert finding.summary == (
        "actor 0 (300) waits for an answer to a message that no process has read, and main (100) "
        "waits for actor 0 (300)"
    )
    assert "each of the two has called the other" in finding.cause


def at_store(
    number: int, *listens: FdLink, state: str = "S", server: str = "pt_tcpstore_uv", top: str = ""
) -> Process:
    """A process connected to a store at port 29745, whose native thread is in rank 0."""
    address = f"tcp 127.0.0.1:{40000 + number} > 127.0.0.1:29745"
    waits = WaitedOn("socket-read", "recvfrom", (f"socket:[{number}]",))
    own = thread(
        number,
        *((top,) if top else ()),
        f"train.py:run:{number}",
        state=state,
        waits=waits if state == "S" else None,
        still_s=60.0 if state == "S" else 0.0,
    )
    links = (socket(3, number, None, address), *listens)
    native = [thread(number + 50, name=server)] if listens else []
    return one(number, None, threads=[own, *native], links=links, torch_loaded=True)


def test_clients_of_another_server_of_the_job_are_not_taken_for_those_of_a_store() -> None:
    listens = socket(4, 900, None, "tcp listens on *:29745")
    server = [joining(), at_store(300, listens, server="python"), at_store(301)]
    reads = [joining(), at_store(300, listens), at_store(301, top="socket.py:readinto")]

    assert not any(
        "store" in each.summary for each in found(standing_still.check, snapshot_of(*server))
    )
    assert not any(
        "store" in each.summary for each in found(standing_still.check, snapshot_of(*reads))
    )


def test_ranks_that_all_wait_for_a_key_of_their_own_store_are_reported() -> None:
    store = socket(4, 900, None, "tcp listens on *:29745")
    jobs = [joining(), at_store(300, store), at_store(301)]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert finding.summary == (
        "actor 0 (300) and actor 1 (301) wait for keys of a store that no process sets"
    )
    assert "outside of this job" not in finding.cause
    works = at_store(302, state="R")
    assert found(standing_still.check, snapshot_of(*jobs, works)) == []


def test_a_process_that_py_spy_stops_for_a_moment_is_not_called_stopped() -> None:
    shortly = process(
        301,
        "rank",
        label="rank 1",
        state="t",
        threads=[thread(301, "train.py:evaluate:9", state="t", waits_s=0.2, still_s=30.0)],
    )
    traced = with_threads(shortly, [replace(shortly.threads[0], waits_s=30.0)])

    def edges(late: Process) -> list[str]:
        return [each.what for each in wait_graph(Index(snapshot_of(main(), late))).edges]

    assert edges(shortly) == []
    assert edges(traced) == ["stopped by a debugger or tracer"]


def test_a_reader_behind_another_one_belongs_to_those_that_all_wait_to_receive() -> None:
    results = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    tasks = WaitedOn("pipe-read", "read", ("pipe:[600]",))
    enters = ("multiprocessing/synchronize.py:__enter__", *GET[1:2], "data.py:loop:10")
    links = (pipe(5, 500, True), pipe(6, 600, False))
    job = snapshot_of(
        one(MAIN, results, *GET, links=(pipe(5, 500, False), pipe(6, 600, True))),
        one(300, at_semaphore(), *enters, links=links),
        one(301, tasks, *GET[:2], "data.py:loop:10", links=links),
        segments=(semaphore(MAIN, 300, 301),),
    )

    summaries = [each.summary for each in found(standing_still.check, job)]

    assert (
        "main (100), actor 0 (300) and actor 1 (301) all wait to receive, and none of them"
        in (summaries[0])
    )


def test_readers_of_one_queue_are_put_down_to_the_parent_that_joins_them() -> None:
    tasks = WaitedOn("pipe-read", "read", ("pipe:[600]",))
    enters = ("multiprocessing/synchronize.py:__enter__", *GET[1:2], "data.py:loop:10")
    links = (pipe(5, 600, False), pipe(6, 600, True))
    job = snapshot_of(
        joining(),
        one(300, at_semaphore(), *enters, links=links),
        one(301, tasks, *GET[:2], "data.py:loop:10", links=links),
        segments=(semaphore(MAIN, 300, 301),),
    )

    finding = only(standing_still.check, job)

    assert finding.summary.startswith("main (100) waits for the exit of actor 0 (300)")
    assert "main (100) is at train.py:9 main" in finding.evidence
    assert "Send each worker the item that tells it to end" in finding.advice


def test_a_parent_that_joins_may_be_the_one_that_holds_the_lock() -> None:
    enters = ("multiprocessing/synchronize.py:__enter__", "data.py:add:6")
    job = snapshot_of(
        joining(), one(300, at_semaphore(), *enters), segments=(semaphore(MAIN, 300),)
    )

    finding = only(standing_still.check, job)

    assert "Either main (100) holds it while it waits, or a process that has ended" in finding.cause


def test_a_join_of_a_process_that_waits_for_room_in_a_queue_is_reported() -> None:
    put = ("multiprocessing/queues.py:put", "data.py:simulate:4")
    job = snapshot_of(joining(), one(300, at_semaphore(), *put), segments=(semaphore(MAIN, 300),))

    finding = only(standing_still.check, job)

    assert "waits for the exit of actor 0 (300), which waits for room in a full" in finding.summary
    assert "out of the queue before main (100) joins" in finding.advice


def test_the_join_of_a_pool_leads_to_the_worker_that_runs_a_call() -> None:
    joins = ("threading.py:join", "multiprocessing/pool.py:join", "train.py:main:11")
    runs = ("train.py:task:6", "multiprocessing/pool.py:worker")
    tasks = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    jobs = [
        one(MAIN, LOCK, *joins, links=(pipe(6, 500, True),)),
        one(300, at_semaphore(), *EVENT[:2], *runs, role="pool-worker"),
        one(301, tasks, *IDLE, role="pool-worker", links=(pipe(5, 500, False),)),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs, segments=(semaphore(MAIN, 300, 301),)))

    assert "actor 0 (300) waits for an event that no process sets" in finding.summary
    assert "main (100) waits for the end of the calls of a Pool" in finding.cause


def test_an_event_loop_that_awaits_a_thread_which_reads_in_vain_is_reported_with_it() -> None:
    waits = WaitedOn("poll", "epoll_wait", ("socket:[500]",))
    reads = WaitedOn("pipe-read", "read", ("pipe:[700]",))
    links = (socket(3, 500, 501), socket(4, 501, 500), pipe(5, 700, False), pipe(6, 700, True))
    threads = [
        thread(MAIN, *LOOP, waits=waits),
        thread(
            101, *GET[:2], "concurrent/futures/thread.py:_worker", waits=reads, name="asyncio_0"
        ),
    ]

    finding = only(standing_still.check, snapshot_of(one(MAIN, None, threads=threads, links=links)))

    assert "thread asyncio_0 of main (100) waits for an item of a queue that no" in finding.summary


def test_threads_that_wait_for_a_semaphore_are_told_to_release_it_on_every_way_out() -> None:
    takes = ("threading.py:wait", "threading.py:acquire", "data.py:fetch:6")
    threads = [
        thread(MAIN, "threading.py:wait", "queue.py:get", "train.py:run:15", waits=LOCK),
        *(thread(n, *takes, waits=LOCK, name=f"dl-{n}") for n in (101, 102)),
    ]

    finding = only(standing_still.check, snapshot_of(one(MAIN, None, threads=threads)))

    assert finding.summary == (
        "main (100) waits for an item of a queue, and 2 of its threads wait for a semaphore: none "
        "of them runs"
    )
    assert "waits for a semaphore at data.py:6 fetch" in finding.cause
    assert "between acquire() and release() keeps a slot" in finding.advice


SCORES = "data.py:compute_score:47"


def scorers(*more: Thread, by_error: bool = True) -> Snapshot:
    """Threads that wait for a lock which their function releases, but for an exception."""
    takes = Statement(47, "self.lock.acquire()")
    skip = Skip(
        takes,
        Statement(48, "self.helper.stdin.write(line)"),
        None,
        Statement(51, "self.lock.release()"),
        by_error=by_error,
    )
    line = SourceLine("/home/me/data.py", 47, "compute_score", takes, skips=(skip,))
    threads = [
        thread(MAIN, "threading.py:wait", "queue.py:get", "train.py:run:15", waits=LOCK),
        *(thread(n, SCORES, waits=LOCK, name=f"score-{n}") for n in (101, 102)),
        *more,
    ]
    return replace(snapshot_of(one(MAIN, None, threads=threads)), source=(line,))


def test_a_lock_whose_release_an_exception_skips_is_reported_with_both_lines() -> None:
    finding = only(standing_still.check, scorers())

    assert finding.summary == (
        "2 threads of main (100) wait at data.py:47 compute_score for a lock that no thread is "
        "past: likely an exception has skipped `self.lock.release()` of line 51"
    )
    assert "`self.helper.stdin.write(line)` (line 48)" in finding.cause
    assert "with self.lock:" in finding.advice
    assert "same order" not in finding.advice


def test_a_lock_that_a_thread_further_down_has_is_not_reported_as_left() -> None:
    """Two of them wait for a further lock there: each object has a lock of its own."""
    stack = ("data.py:other:90", "data.py:compute_score:49")
    inside = [thread(n, *stack, waits=LOCK) for n in (103, 104)]

    assert "likely an exception" not in only(standing_still.check, scorers(*inside)).summary
    assert "likely an exception" not in only(standing_still.check, scorers(by_error=False)).summary


def test_output_that_a_process_outside_of_the_job_keeps_open_is_reported() -> None:
    """A grandchild that outlives its parent has the pipes of communicate()."""
    communicates = ("selectors.py:select", "subprocess.py:_communicate", "train.py:render:4")
    waits = WaitedOn("poll", "poll", ("pipe:[500]", "pipe:[501]"))
    links = (pipe(5, 500, False), pipe(6, 501, False))

    finding = only(no_progress.check, snapshot_of(one(MAIN, waits, *communicates, links=links)))

    assert "a process outside of the job has it open" in finding.cause


def test_an_event_that_only_its_waiter_has_is_reported_with_the_child_that_ended() -> None:
    waits = one(MAIN, at_semaphore(), *EVENT)
    child = process(300, "other", parent=MAIN, ended=exited(300, exit_code=3))

    told = only(standing_still.check, snapshot_of(waits, child, segments=(semaphore(MAIN),)))
    alone = only(standing_still.check, snapshot_of(waits, segments=(semaphore(MAIN),)))

    assert "for an event that no process sets; " in told.summary
    assert "ended without doing it" in told.summary
    assert any("exit code 3" in each for each in told.evidence)
    assert "for an event that no process sets" in alone.summary
    assert "ended without" not in alone.summary
    assert "was not started" in alone.cause


RECV = ("multiprocessing/connection.py:recv", "train.py:collect:64")
AT_PIPE = WaitedOn("socket-read", "read", ("socket:[51]",), (3,))


@pytest.mark.parametrize("parent_keeps", [True, False])
def test_copies_of_an_end_whose_writer_has_ended_are_told_by_who_has_them(
    parent_keeps: bool,
) -> None:
    """A child that was forked later has the end that the parent gave to the first one."""
    end = socket(4, 52, 51)
    kept = (end,) if parent_keeps else ()
    reads = WaitedOn("socket-read", "read", ("socket:[71]",), (7,))
    gone = one(201, None, label="site 2", links=(end,), ended=exited(201, exit_code=1))
    heir = one(200, reads, *RECV, links=(end, socket(7, 71, 72)), label="site 3")
    ours = (socket(3, 51, 52), socket(6, 72, 71), *kept)
    job = snapshot_of(one(MAIN, AT_PIPE, *RECV, links=ours), heir, gone)

    finding = only(standing_still.check, job)

    assert "whose writer has ended, and gets no end of file" in finding.summary
    assert "and in site 3 (200), which has it by the fork" in finding.cause or not parent_keeps
    told = "main (100), which has started its writer and has not closed its own copy"
    assert (told in finding.cause) is parent_keeps
    assert ("Let main (100) close the end that it has given" in finding.advice) is parent_keeps
