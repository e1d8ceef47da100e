"""Waits for another thread of the same process: results, locks, modules that are imported."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import standing_still
from mpwatch.model.samples import Frame, ThreadSample, WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from mpwatch.model.waits import WaitChain
from tests.builders.snapshots import (
    IDLE_FEEDER,
    MAIN,
    NOW_S,
    exited,
    fds,
    found,
    main,
    only,
    pid,
    pipe,
    process,
    snapshot_of,
    socket,
    thread,
)
from tests.builders.waits import chain_of

LOCKS = WaitedOn("futex", "futex", ("futex 0x1",), futex_command=9)
FUTURE = ("threading.py:wait", "concurrent/futures/_base.py:result")
IN_POOL = ("concurrent/futures/thread.py:run", "concurrent/futures/thread.py:_worker")
MANAGER = ("multiprocessing/connection.py:wait", "concurrent/futures/process.py:run")
HANDLER = ("multiprocessing/queues.py:get", "multiprocessing/pool.py:_handle_results")
EXECUTOR = "concurrent/futures/process.py"
IMPORTLIB = "<frozen importlib._bootstrap>"
LOOP = ("selectors.py:select", "asyncio/base_events.py:run_forever")
WAITS = thread(MAIN, *FUTURE, "train.py:load:9", waits=LOCKS)
STUCK = thread(101, *FUTURE, "data.py:merge:4", *IN_POOL, waits=LOCKS)
IDLE = thread(102, "concurrent/futures/thread.py:_worker", waits=LOCKS)
BUSY = thread(103, "data.py:read:7", *IN_POOL, state="R")


def with_threads(*threads: Thread) -> Process:
    return main(segments=(), threads=threads)


def test_a_pool_whose_threads_all_wait_for_calls_of_the_same_pool_is_a_dead_end() -> None:
    job = snapshot_of(with_threads(WAITS, STUCK, thread(104, *STUCK_STACK, waits=LOCKS)))

    finding = only(standing_still.check, job)

    assert "All 2 threads of its thread pool wait for results of further calls" in finding.summary
    assert "main waits for the result of a future, train.py:9 load" in finding.evidence
    assert "do the inner work directly" in finding.advice


STUCK_STACK = (*FUTURE, "data.py:merge:4", *IN_POOL)


@pytest.mark.parametrize(
    "others",
    [
        (STUCK, IDLE),
        (STUCK, BUSY),
        (STUCK, thread(105, *LOOP)),
        (STUCK, thread(105, "train.py:serve:3")),
        (thread(101, *STUCK_STACK, waits=WaitedOn("futex", "futex", timeout_s=9.0)),),
    ],
    ids=["idle", "busy", "event-loop", "own-thread", "timeout"],
)
def test_a_result_that_some_thread_may_bring_is_left_open(others: tuple[Thread, ...]) -> None:
    job = snapshot_of(with_threads(WAITS, *others))

    assert not any(each.verdict == "dead-end" for each in wait_graph(Index(job)).chains)


def test_a_process_pool_without_a_manager_brings_no_result() -> None:
    native = thread(105)

    finding = only(standing_still.check, snapshot_of(with_threads(WAITS, native)))

    assert "No thread of this process is an executor's, so none returns the result" in (
        finding.summary
    )
    assert "traceback of that thread" in finding.advice


@pytest.mark.parametrize(("lines", "is_left"), [("31-38", True), ("40-50", False)])
def test_a_result_of_a_pool_whose_block_was_left_is_lost(lines: str, is_left: bool) -> None:
    waits = thread(
        MAIN,
        "threading.py:wait",
        "multiprocessing/pool.py:wait",
        "multiprocessing/pool.py:get",
        "train.py:collect:46",
        still_s=60.0,
        waits=LOCKS,
    )
    header = Statement(31, "with mp.Pool(3) as pool:")
    block = Mark("pool-block", "/home/me/train.py", "submit", lines, header)
    job = replace(snapshot_of(with_threads(waits, thread(105))), marks=(block,))

    finding = only(standing_still.check, job)

    assert ("a Pool whose with block it has left" in finding.summary) is is_left
    assert ("`with mp.Pool(3) as pool:` at train.py:31 submit" in finding.cause) is is_left


def awaits_pool(*others: Thread, marks: tuple[Mark, ...] = ()) -> Snapshot:
    """Main takes the results of imap(), with these threads beside it."""
    waits = thread(
        MAIN, "threading.py:wait", "multiprocessing/pool.py:next", "train.py:build:93", waits=LOCKS
    )
    return replace(snapshot_of(with_threads(waits, *others)), marks=marks)


SLEEPS = thread(105, "train.py:walltime:101", waits=WaitedOn("timer", "nanosleep", timeout_s=60.0))
POOL_BLOCK = Mark(
    "pool-block", "/home/me/train.py", "load", "85-87", Statement(85, "with mp.Pool(3) as pool:")
)
LEFT = Mark(
    "pool-left", "/home/me/train.py", "load", "imap, 85", Statement(87, "rows = pool.imap(f, jobs)")
)


def test_results_of_a_pool_come_from_none_of_the_threads_of_the_program() -> None:
    other = POOL_BLOCK._replace(about="20-30", statement=Statement(20, "with Pool() as other:"))

    finding = only(standing_still.check, awaits_pool(SLEEPS, marks=(POOL_BLOCK, LEFT, other)))

    assert finding.summary == (
        "main (100) waits at train.py:93 build for results of a Pool that has ended with its with "
        "block: none of its workers is left"
    )
    assert "`rows = pool.imap(f, jobs)` at train.py:87 load only starts the calls" in finding.cause
    assert "`with mp.Pool(3) as pool:` at train.py:85 load" in finding.cause
    assert "generator" in finding.advice
    assert "call get() there" not in finding.advice


def test_a_pool_whose_results_a_thread_receives_has_not_ended() -> None:
    job = awaits_pool(SLEEPS, thread(106, *HANDLER, waits=LOCKS), marks=(POOL_BLOCK, LEFT))

    assert not any(each.verdict == "dead-end" for each in wait_graph(Index(job)).chains)


def test_a_thread_that_is_newer_than_the_stacks_may_bring_the_result() -> None:
    """Times of threads count from the start of the machine, as the clock of the readings does."""
    parent = with_threads(WAITS, thread(105))

    def started(at_s: float) -> WaitChain:
        new = ThreadSample(105, "python", "S", 0, start_ticks=round(at_s * 100))
        return chain_of(replace(parent, sample=replace(parent.sample, threads=(new,))))

    assert started(NOW_S - 9).verdict == "dead-end"
    assert started(NOW_S + 0.2).verdict == "unknown"


def test_a_process_pool_whose_workers_have_exited_is_a_dead_end() -> None:
    parent = with_threads(WAITS, thread(105, *MANAGER))
    worker = process(300, "spawned", threads=[thread(300, "data.py:f", state="R")])

    assert "No worker of its process pool is alive" in chain_of(parent).conclusion
    assert chain_of(parent, worker).verdict == "unknown"


@pytest.mark.parametrize(
    ("version", "status", "is_known"),
    [
        ("3.11", 0, True),
        ("3.14.2", 0, True),
        (None, 0, True),
        ("3.10", 0, False),
        ("3.14.7", 0, False),
        ("3.15", 0, False),
        ("3.11", 1, False),
    ],
)
def test_workers_that_ended_as_told_are_put_down_to_max_tasks_per_child(
    version: str | None, status: int, is_known: bool
) -> None:
    manager = ("selectors.py:select", f"{EXECUTOR}:wait_result_broken_or_wakeup", f"{EXECUTOR}:run")
    parent = with_threads(WAITS, thread(105, *manager))
    parent = replace(parent, sample=replace(parent.sample, python_version=version))
    worker = process(300, "pool-worker", ended=exited(300, exit_code=status))

    finding = only(standing_still.check, snapshot_of(parent, worker))

    assert ("max_tasks_per_child" in finding.cause) is is_known
    assert ("whose workers have all ended and are not replaced" in finding.summary) is is_known
    assert "BrokenProcessPool" not in finding.advice
    assert "other findings" not in finding.advice


SHUTS_DOWN = ("threading.py:join", "concurrent/futures/process.py:shutdown", "train.py:run:40")
HAS_NO_CALL = ("multiprocessing/queues.py:get", "concurrent/futures/process.py:_process_worker")


def shut_down(*workers: Process) -> Snapshot:
    """A job whose main ends an executor, the manager thread of which waits for results."""
    manager = ("selectors.py:select", f"{EXECUTOR}:wait_result_broken_or_wakeup", f"{EXECUTOR}:run")
    feeder = thread(106, *IDLE_FEEDER, waits=LOCKS)
    joins = thread(MAIN, *SHUTS_DOWN, waits=LOCKS)
    return snapshot_of(with_threads(joins, thread(105, *manager), feeder), *workers)


def of_executor(number: int, *stack: str, still_s: float = 60.0) -> Process:
    reads = WaitedOn("pipe-read", "read", ("pipe:[9]",))
    return process(
        number, "spawned", threads=[thread(number, *stack, waits=reads, still_s=still_s)]
    )


def test_an_executor_that_is_shut_down_and_whose_workers_are_idle_has_lost_calls() -> None:
    finding = only(
        standing_still.check,
        shut_down(of_executor(300, *HAS_NO_CALL), of_executor(301, *HAS_NO_CALL)),
    )

    assert finding.process == pid(MAIN)
    assert "main (100) waits at train.py:40 run for the end of an executor" in finding.summary
    assert "cannot pickle (a lambda" in finding.cause
    assert "function of a module in place of a lambda" in finding.advice


@pytest.mark.parametrize(
    "worker",
    [
        of_executor(300, "train.py:step:8", *HAS_NO_CALL[1:]),
        of_executor(300, "multiprocessing/queues.py:get", "train.py:step:8", *HAS_NO_CALL[1:]),
        of_executor(300, *HAS_NO_CALL, still_s=1.0),
    ],
    ids=["has-a-call", "its-call-reads-a-queue", "had-one-a-moment-ago"],
)
def test_an_executor_that_is_shut_down_while_a_worker_has_a_call_is_no_dead_end(
    worker: Process,
) -> None:
    chains = wait_graph(Index(shut_down(worker, of_executor(301, *HAS_NO_CALL)))).chains

    assert not any(each.verdict == "dead-end" for each in chains)


def test_a_copy_of_a_pool_in_a_forked_child_is_named_as_the_cause() -> None:
    """OpenMP's threads were started in the child; they run no Python."""
    parent = with_threads(thread(MAIN, state="R"), thread(105, *HANDLER))
    result = ("threading.py:wait", "multiprocessing/pool.py:wait", "multiprocessing/pool.py:get")
    own = thread(300, *result, "train.py:f", waits=LOCKS)
    child = process(300, "spawned", start_method="fork", threads=[own, thread(301)], label="worker")

    found = chain_of(parent, child)

    assert found.verdict == "dead-end"
    assert "It was forked from main, which has a pool's threads" in found.conclusion


def test_a_lock_that_the_only_thread_waits_for_was_taken_by_itself() -> None:
    """A signal handler has interrupted a function that holds the lock."""
    own = thread(MAIN, "train.py:on_signal:4", "train.py:save:7", "train.py:main:11", waits=LOCKS)

    finding = only(standing_still.check, snapshot_of(with_threads(own)))

    assert "It is the only thread of this process" in finding.summary
    assert "train.py:4 on_signal <- train.py:7 save <- train.py:11 main" in finding.evidence[-1]


def test_an_event_that_a_signal_handler_may_set_is_no_dead_end() -> None:
    own = thread(MAIN, "threading.py:wait", "train.py:main:11", waits=LOCKS)

    assert chain_of(with_threads(own)).verdict == "unknown"


def test_a_handler_that_puts_into_the_queue_which_it_interrupts_waits_for_itself() -> None:
    again = ("queue.py:put", "train.py:on_signal:4", "queue.py:put", "train.py:main:11")
    waits = thread(MAIN, *again, waits=LOCKS)

    finding = only(
        standing_still.check, snapshot_of(with_threads(waits, thread(105, "train.py:f")))
    )

    assert "in the same queue twice" in finding.summary
    assert "SimpleQueue" in finding.advice
    inside = ("queue.py:put", "train.py:on_signal:4", "threading.py:wait", "queue.py:get")
    released = thread(MAIN, *inside, "train.py:main:11", waits=LOCKS)
    assert chain_of(with_threads(released, thread(105, "train.py:f"))).verdict == "unknown"


PUTS = "multiprocessing/queues.py:put"
LOGS = ("multiprocessing/util.py:debug", "multiprocessing/queues.py:_start_thread")


@pytest.mark.parametrize("enters", [("threading.py:__enter__",), ()])
def test_a_record_that_is_put_into_the_queue_that_logs_it_waits_for_itself(
    enters: tuple[str, ...],
) -> None:
    again = (*enters, PUTS, "logging/handlers.py:emit", *LOGS, PUTS, "logging/handlers.py:emit")
    text = "logger.addHandler(QueueHandler(records))"
    adds = Mark("queue-handler", "/home/me/log.py", "attach", "", Statement(31, text))
    waits = thread(MAIN, *again, "train.py:main:11", waits=LOCKS)
    others = thread(105, "train.py:f")

    finding = only(standing_still.check, snapshot_of(with_threads(waits, others), marks=(adds,)))

    assert "put() has logged the start of its feeder thread" in finding.summary
    assert f"`{text}` at log.py:31 attach adds that handler" in finding.cause
    once = thread(MAIN, *enters, PUTS, "logging/handlers.py:emit", "train.py:f", waits=LOCKS)
    assert chain_of(with_threads(once, others)).verdict == "unknown"


TAKES = Statement(39, "with self._lock:")
CALLBACK = (
    "train.py:remote_call:54",
    "data.py:on_done:48",
    "concurrent/futures/_base.py:set_result",
    "train.py:pump:42",
)


@pytest.mark.parametrize(("other_within", "is_told"), [((), True), ((TAKES,), False)])
def test_a_thread_that_calls_back_into_the_lock_it_holds_is_found_behind_the_wait_of_main(
    other_within: tuple[Statement, ...], is_told: bool
) -> None:
    pump = thread(101, *CALLBACK, name="pump-2", waits=LOCKS)
    receives = WaitedOn("socket-read", "read", ("socket:[9]",), (5,))
    idle = thread(102, "train.py:pump:34", name="pump-0", waits=receives)
    owner = replace(
        with_threads(
            thread(MAIN, "threading.py:wait", "data.py:collect:76", waits=LOCKS), pump, idle
        )
    )
    lines = [
        SourceLine("/home/me/train.py", 54, "remote_call", TAKES._replace(line=54)),
        SourceLine("/home/me/data.py", 48, "on_done", Statement(48, "self.stub.remote_call(x)")),
        SourceLine(
            "/home/me/train.py", 42, "pump", Statement(42, "set_result(v)"), within=(TAKES,)
        ),
        SourceLine("/home/me/train.py", 34, "pump", Statement(34, "recv()"), within=other_within),
        SourceLine("/home/me/data.py", 76, "collect", Statement(76, "results.get()")),
    ]

    found_now = found(standing_still.check, snapshot_of(owner, source=tuple(lines)))

    told = [each for each in found_now if "blocks itself" in each.cause]
    assert bool(told) is is_told
    if told:
        assert told[0].cause.startswith(
            "Its thread pump-2 blocks itself. It is still inside of `with self._lock:` of line 39 "
            "in pump(), which took the lock, and waits at train.py:54 remote_call to take it again"
        )
        assert "It comes there by way of on_done()." in told[0].cause


def test_a_wait_for_an_import_names_the_thread_that_imports() -> None:
    importlib = "<frozen importlib._bootstrap>"
    stack = (Frame("acquire", importlib, 120), Frame("f", "/home/me/train.py", 7))
    waits = thread(MAIN, "train.py:f", waits=LOCKS)
    imports = thread(105, "data.py:<module>:2", name="loader")
    frames = (*imports.stack, Frame("_load_unlocked", importlib, 690))

    found = chain_of(with_threads(_with(waits, stack), _with(imports, frames)))

    assert "main waits for the lock of a module that is being imported" in found.sentence
    assert "Its thread loader runs the code of that module, at data.py:2 <module>" in (
        found.conclusion
    )


def _with(thread: Thread, stack: tuple[Frame, ...]) -> Thread:
    return replace(thread, stack=stack)


def test_a_result_that_is_waited_for_during_the_import_its_thread_needs_is_a_dead_end() -> None:
    importing = replace(WAITS, stack=(*WAITS.stack, Frame("_load_unlocked", IMPORTLIB, 1)))
    feeder = replace(
        thread(101, "multiprocessing/queues.py:_feed", name="QueueFeederThread", waits=LOCKS),
        stack=(Frame("acquire", IMPORTLIB, 1), Frame("dumps", "/usr/lib/python3/pickle.py", 5)),
    )
    manager = thread(102, *MANAGER)

    finding = only(standing_still.check, snapshot_of(with_threads(importing, feeder, manager)))

    assert "a thread that is to do what it waits for waits for that import" in finding.summary
    assert any("QueueFeederThread waits for a module" in each for each in finding.evidence)
    assert "top level of a module" in finding.advice


IMPORTS = ("train.py:load:9", "data.py:<module>:32")
TASKS = replace(
    thread(102, "multiprocessing/pool.py:_handle_tasks", name="Thread-2", waits=LOCKS),
    stack=(
        Frame("acquire", IMPORTLIB, 1),
        Frame("_handle_tasks", "/usr/lib/python3/multiprocessing/pool.py", 5),
    ),
)
IDLE_WORKER = ("multiprocessing/queues.py:get", "multiprocessing/pool.py:worker")


def importing_with_a_pool(
    *wait: str, worker: tuple[str, ...] = IDLE_WORKER, others: tuple[Thread, ...] = (TASKS,)
) -> Snapshot:
    """Main waits while it imports `data`; a thread of a Pool reads the results of its worker."""
    reads = WaitedOn("pipe-read", "read", ("pipe:[9]",))
    receives = WaitedOn("pipe-read", "read", ("pipe:[8]",))
    loads = (
        *thread(MAIN, *wait, *IMPORTS).stack,
        Frame("_load_unlocked", IMPORTLIB, 1),
        *thread(MAIN, "train.py:main:3").stack,
    )
    own = main(
        segments=(),
        fds=fds(9, links=[pipe(3, 8, False), pipe(4, 9, True)]),
        threads=[
            replace(thread(MAIN, waits=LOCKS), stack=loads),
            thread(101, *HANDLER, waits=receives),
            *others,
        ],
    )
    work = process(
        300,
        "pool-worker",
        segments=(),
        fds=fds(9, links=[pipe(3, 9, False), pipe(4, 8, True)]),
        threads=[thread(300, *worker, waits=reads)],
    )
    return snapshot_of(own, work)


def test_a_pool_whose_thread_needs_the_module_that_main_imports_is_a_dead_end() -> None:
    """The workers have no task, which says nothing: the thread that sends tasks waits for main."""
    job = importing_with_a_pool("threading.py:wait", "multiprocessing/pool.py:wait")

    finding = only(standing_still.check, job)

    assert finding.process == pid(MAIN)
    assert "waits at train.py:9 load while it imports data.py (line 32)" in finding.summary
    assert "top level of a module" in finding.advice
    assert any("Thread-2 waits for a module" in each for each in finding.evidence)


def test_a_thread_that_is_joined_during_the_import_that_it_needs_is_a_dead_end() -> None:
    needs = thread(101, "data.py:read", name="reader", waits=LOCKS)
    needs = replace(needs, stack=(Frame("acquire", IMPORTLIB, 1), *needs.stack))
    joins = thread(MAIN, "threading.py:join", *IMPORTS, waits=LOCKS)
    joins = replace(joins, stack=(*joins.stack, Frame("_load_unlocked", IMPORTLIB, 1)))

    finding = only(standing_still.check, snapshot_of(with_threads(joins, needs)))

    assert "imports data.py (line 32)" in finding.summary


@pytest.mark.parametrize(
    "job",
    [
        importing_with_a_pool(
            "threading.py:wait",
            "multiprocessing/pool.py:wait",
            worker=("data.py:encode", "multiprocessing/pool.py:worker"),
        ),
        importing_with_a_pool(
            "threading.py:wait", "multiprocessing/pool.py:wait", others=(TASKS, BUSY)
        ),
        importing_with_a_pool("threading.py:wait", "multiprocessing/pool.py:wait", worker=()),
        importing_with_a_pool("threading.py:wait", "multiprocessing/pool.py:wait", others=()),
    ],
)
def test_a_result_that_a_worker_or_thread_may_bring_during_an_import_is_left_open(
    job: Snapshot,
) -> None:
    assert not any(each.verdict == "dead-end" for each in wait_graph(Index(job)).chains)


def with_pool(*stack: str, waits: WaitedOn) -> list[WaitChain]:
    """The chains of main, whose Pool has an idle worker."""
    idle = ("multiprocessing/queues.py:get", "multiprocessing/pool.py:worker")
    reads = WaitedOn("pipe-read", "read", ("pipe:[9]",))
    receives = WaitedOn("pipe-read", "read", ("pipe:[8]",))
    own = main(
        segments=(),
        fds=fds(9, links=[pipe(3, 8, False), pipe(4, 9, True)]),
        threads=[thread(MAIN, *stack, waits=waits), thread(101, *HANDLER, waits=receives)],
    )
    worker = process(
        300,
        "pool-worker",
        label="pool worker",
        segments=(),
        fds=fds(9, links=[pipe(3, 9, False), pipe(4, 8, True)]),
        threads=[thread(300, *idle, waits=reads)],
    )
    chains = wait_graph(Index(snapshot_of(own, worker))).chains
    return [each for each in chains if each.links[0].process == pid(MAIN)]


def test_main_waits_by_way_of_its_pool_only_where_it_waits_for_a_result_of_it() -> None:
    result = ("threading.py:wait", "multiprocessing/pool.py:wait", "train.py:main:9")
    (by_pool,) = with_pool(*result, waits=LOCKS)
    (sleeps,) = with_pool("train.py:main:9", waits=WaitedOn("timer", "nanosleep", timeout_s=9.0))

    assert [link.words for link in by_pool.links][-1] == "waits for something to do"
    assert [link.words for link in sleeps.links] == ["sleeps, train.py:9 main"]
    assert sleeps.verdict == "progress"


CALL = ("multiprocessing/connection.py:_recv", "train.py:get:39", "data.py:evaluate:41")
LOOP_OF_CALLS = "train.py:worker_main:49"
SCHEDULES = ("selectors.py:select", "multiprocessing/connection.py:wait", "train.py:schedule:91")


def of_own_pool(
    *stacks: tuple[str, ...], scheduler: WaitedOn | None = None, extra: tuple[Process, ...] = ()
) -> Snapshot:
    """Main waits for a result; its thread reads the sockets of workers that it has forked."""
    ends = [socket(10 + n, 20 + n, 30 + n) for n in range(len(stacks))]
    polls = WaitedOn("poll", "poll", tuple(f"socket:[{20 + n}]" for n in range(len(stacks))))
    own = main(
        segments=(),
        fds=fds(9, links=ends),
        thread_count=2,
        threads=[
            thread(MAIN, "threading.py:wait", "train.py:fetch:83", waits=LOCKS),
            thread(101, *SCHEDULES, name="scheduler", waits=scheduler or polls),
        ],
    )
    workers = [
        process(
            300 + n,
            "spawned",
            label=f"worker {n}",
            start_method="fork",
            segments=(),
            fds=fds(9, links=[socket(3, 30 + n, 20 + n), *ends[:n]]),
            threads=[
                thread(
                    300 + n,
                    *stack,
                    waits=WaitedOn("socket-read", "read", (f"socket:[{30 + n}]",)),
                )
            ],
        )
        for n, stack in enumerate(stacks)
    ]
    return snapshot_of(own, *workers, *extra)


def test_workers_whose_calls_all_wait_for_calls_of_the_same_workers_are_a_dead_end() -> None:
    job = of_own_pool((*CALL, LOOP_OF_CALLS), (*CALL, LOOP_OF_CALLS))

    finding = only(standing_still.check, job)

    assert finding.process == pid(MAIN)
    assert (
        "all 2 workers wait at data.py:41 evaluate, inside of a call, for results of further"
        in (finding.summary)
    )
    assert any("waits in train.py:39 get" in each for each in finding.evidence)
    assert "submit the inner calls from the main process" in finding.advice

    submits = Mark("submits", "/home/me/data.py", "evaluate", "", Statement(40, "fold.remote(n)"))
    other = submits._replace(function="main", statement=Statement(39, "evaluate.remote(n)"))
    known = only(standing_still.check, replace(job, marks=(submits, other)))

    words = "`fold.remote(n)` at data.py:40 evaluate submits the inner calls"
    assert [each for each in known.evidence if "submits" in each] == [words]


@pytest.mark.parametrize(
    "job",
    [
        of_own_pool((*CALL, LOOP_OF_CALLS), ("data.py:fold:3", LOOP_OF_CALLS)),
        of_own_pool((*CALL, LOOP_OF_CALLS), (LOOP_OF_CALLS,)),
        of_own_pool(
            ("multiprocessing/connection.py:_recv", "train.py:lock:3", *CALL[2:], LOOP_OF_CALLS)
        ),
        of_own_pool(
            (*CALL, LOOP_OF_CALLS),
            scheduler=WaitedOn("poll", "poll", ("socket:[20]",), timeout_s=1.0),
        ),
        of_own_pool(
            (*CALL, LOOP_OF_CALLS),
            scheduler=WaitedOn("poll", "poll", ("socket:[20]", "socket:[77]")),
        ),
        of_own_pool((*CALL, LOOP_OF_CALLS), extra=(process(390, "spawned", fds=fds(9, links=[])),)),
    ],
)
def test_a_worker_that_may_run_a_call_is_no_dead_end(job: Snapshot) -> None:
    """One that works or is idle, a call that waits for something else, or another sender."""
    assert not any(each.verdict == "dead-end" for each in wait_graph(Index(job)).chains)


def test_a_thread_pool_of_multiprocessing_whose_threads_all_wait_for_it_is_a_dead_end() -> None:
    awaits = ("threading.py:wait", "multiprocessing/pool.py:wait")
    worker = thread(102, *awaits, "data.py:merge:4", "multiprocessing/pool.py:worker", waits=LOCKS)
    handler = thread(103, "queue.py:get", "multiprocessing/pool.py:_handle_tasks", waits=LOCKS)
    waits = thread(MAIN, *awaits, "train.py:load:9", waits=LOCKS)

    finding = only(standing_still.check, snapshot_of(with_threads(waits, worker, handler)))

    assert "The only thread of its thread pool waits for results of further calls" in (
        finding.summary
    )
