"""Processes of which every thread waits for another thread."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.hangs import standing_still
from mpwatch.model.history import Point
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Snapshot, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    fds,
    found,
    history,
    main,
    pid,
    pipe,
    process,
    segment,
    snapshot_of,
    thread,
)
from tests.builders.waits import chain

LOCK = WaitedOn("futex", "futex", ("futex 0x7f00",), futex_command=9)
SIGTERM = 1 << 14
AT_EXIT = (
    "threading.py:join",
    "concurrent/futures/thread.py:_python_exit",
    "threading.py:_shutdown",
)
READS_QUEUE = ("threading.py:wait", "queue.py:get", "data.py:serve:20")
WAITS_FOR_EVENT = ("threading.py:wait", "threading.py:wait", "train.py:main:9")


def job(*threads: Thread, signals_caught: int = 0, thread_count: int | None = None) -> Snapshot:
    count = len(threads) if thread_count is None else thread_count
    one: Any = main(
        fds=fds(3, links=()),
        segments=(),
        threads=threads,
        thread_count=count,
        signals_caught=signals_caught,
    )
    return snapshot_of(one)


def waiting(tid: int, *stack: str, waits: WaitedOn = LOCK, **fields: Any) -> Thread:
    return thread(tid, *stack, waits=waits, **fields)


def test_a_program_that_joins_a_thread_that_does_not_end_is_named_at_its_exit() -> None:
    stuck = job(waiting(MAIN, *AT_EXIT), waiting(101, *READS_QUEUE, name="hardware_0"))

    [finding] = found(standing_still.check, stuck)

    assert "has come to its end and waits for a thread that does not end" in finding.summary
    assert "thread hardware_0 waits for an item of a queue at data.py:20 serve" in finding.cause
    assert "atexit" in finding.advice


def test_two_threads_that_take_two_locks_in_different_order_are_reported_with_their_lines() -> None:
    stuck = job(waiting(MAIN, "train.py:save:11"), waiting(101, "data.py:flush:6", name="logger"))

    [finding] = found(standing_still.check, stuck)

    assert "the main thread waits for a lock at train.py:11 save" in finding.cause
    assert "thread logger waits for a lock at data.py:6 flush" in finding.cause
    assert "same order" in finding.advice


LOGS = ("logging/__init__.py:handle", "logging/__init__.py:info")
FORMATS = ("data.py:locked:11", "logging/__init__.py:format", "logging/__init__.py:emit")


def test_a_thread_that_logs_with_a_lock_that_the_formatting_of_another_record_takes() -> None:
    writer = waiting(
        101, "logging/__init__.py:acquire", *LOGS, "data.py:add:57", "data.py:locked:12",
        name="events",
    )  # fmt: skip
    stuck = job(waiting(MAIN, *FORMATS, *LOGS, "train.py:report:54"), writer)

    [finding] = found(standing_still.check, stuck)

    assert "while logging formats its record (train.py:54 report)" in finding.summary
    assert "thread events waits for the log handler at data.py:57 add" in finding.summary
    assert "take the same two locks in opposite order" in finding.cause
    assert "__str__" in finding.advice


def test_a_lock_of_a_thread_that_waits_for_another_lock_of_its_process_is_a_dead_end() -> None:
    holder = waiting(101, "data.py:flush:6", "train.py:save:20", name="logger")

    assert chain(job(waiting(MAIN, "train.py:save:11"), holder)).verdict == "dead-end"


FULL = WaitedOn("semaphore", "futex", ("sem 9:7",), segment=SegmentId(9, 7))
PUTS = ("multiprocessing/queues.py:put", "data.py:produce:41")
JOINS = ("threading.py:join", "train.py:run:69")


def with_users(stuck: Snapshot, *users: int) -> Snapshot:
    """The job, where these processes have the semaphore of a queue."""
    made = segment(7, kind="semaphore", mappers=tuple(map(pid, users)))
    others = [process(each, fds=fds(3, links=()), segments=()) for each in users if each != MAIN]
    return replace(stuck, segments=(made,), processes=(*stuck.processes, *others))


def test_a_joined_thread_that_puts_into_a_queue_that_no_other_process_has_is_named() -> None:
    """All readers have ended, each by one item: the items that are left do not fit any more."""
    stuck = job(waiting(MAIN, *JOINS), waiting(101, *PUTS, name="producer", waits=FULL))

    [finding] = found(standing_still.check, with_users(stuck, MAIN))

    assert "thread producer, which waits for room in a full queue" in finding.summary
    assert "data.py:41 produce" in finding.cause
    assert "one for each reader" in finding.advice
    assert found(standing_still.check, with_users(stuck, MAIN, 300)) == []
    assert found(standing_still.check, stuck) == []


def test_the_only_thread_of_a_process_waits_for_ever() -> None:
    end = chain(job(waiting(MAIN, *READS_QUEUE)))

    assert (end.verdict, "there is none" in end.conclusion) == ("dead-end", True)
    # It starts a thread at this moment, which is not listed yet, and mostly waits for clients.
    passing = replace(waiting(MAIN, *READS_QUEUE), waits_s=40.0, futex_s=0.0)
    assert chain(job(passing)).verdict == "unknown"


@pytest.mark.parametrize(
    "other",
    [
        waiting(101, *READS_QUEUE, waits=WaitedOn("futex", "futex", timeout_s=5.0)),
        waiting(101, "data.py:accept:3", waits=WaitedOn("poll", "epoll_wait")),
        waiting(101, "train.py:step:3", still_s=0.5),
        thread(101, "train.py:step:3", state="R"),
    ],
    ids=["a time limit", "something from outside", "has just run", "runs"],
)
def test_a_thread_that_may_still_act_leaves_the_wait_open(other: Thread) -> None:
    assert chain(job(waiting(MAIN, *AT_EXIT), other)).verdict == "unknown"


def test_a_thread_that_was_not_read_leaves_the_wait_open() -> None:
    seen = (waiting(MAIN, *AT_EXIT), waiting(101, *READS_QUEUE))

    assert chain(job(*seen, thread_count=3)).verdict == "unknown"


def test_the_monitor_of_progress_bars_ends_no_wait_of_another_thread() -> None:
    monitor = waiting(
        102,
        "threading.py:wait",
        "tqdm/_monitor.py:run",
        waits=WaitedOn("futex", "futex", timeout_s=9.0),
    )
    stuck = job(waiting(MAIN, *AT_EXIT), waiting(101, *READS_QUEUE), monitor)

    assert chain(stuck).verdict == "dead-end"


@pytest.mark.parametrize(("caught", "verdict"), [(SIGTERM, "unknown"), (0, "dead-end")])
def test_an_event_that_a_signals_handler_may_set_is_left_open(caught: int, verdict: str) -> None:
    assert chain(job(waiting(MAIN, *WAITS_FOR_EVENT), signals_caught=caught)).verdict == verdict


def with_pipe(*threads: Thread, writers: tuple[int, ...] = (), **fields: Any) -> Snapshot:
    """The same of a process that holds both ends of a pipe; `writers` hold the writing end too."""
    one = main(
        fds=fds(4, links=[pipe(3, 500, False), pipe(4, 500, True)]),
        segments=(),
        threads=threads,
        thread_count=len(threads),
        signals_caught=fields.pop("signals_caught", 0),
    )
    others = [
        process(each, "spawned", fds=fds(4, links=[pipe(4, 500, True)]), segments=())
        for each in writers
    ]
    return snapshot_of(one, *others)


READS_PIPE = WaitedOn("pipe-read", "read", ("pipe:[500]",))
JOINS_THREAD = ("threading.py:join", "data.py:main:52")
RECEIVES = ("multiprocessing/connection.py:_recv", "data.py:run:20")


def test_a_thread_that_reads_a_pipe_to_which_only_its_process_can_write_never_ends() -> None:
    stuck = with_pipe(
        waiting(MAIN, *JOINS_THREAD), waiting(101, *RECEIVES, waits=READS_PIPE, name="watch-0")
    )

    [finding] = found(standing_still.check, stuck)

    assert "waits for its thread watch-0, which reads a pipe" in finding.summary
    assert "keeps the writing end open" in finding.cause
    assert "writer.close()" in finding.advice


@pytest.mark.parametrize(
    ("writers", "caught"), [((200,), 0), ((), SIGTERM)], ids=["another writer", "a handler"]
)
def test_a_pipe_that_may_still_be_written_to_leaves_the_wait_open(
    writers: tuple[int, ...], caught: int
) -> None:
    seen = with_pipe(
        waiting(MAIN, *JOINS_THREAD),
        waiting(101, *RECEIVES, waits=READS_PIPE),
        writers=writers,
        signals_caught=caught,
    )

    assert chain(seen).verdict == "unknown"


def test_a_reader_whose_thread_has_exited_is_pointed_to_the_traceback() -> None:
    [finding] = found(standing_still.check, job(waiting(MAIN, *READS_QUEUE)))

    assert "and the thread that was to put it is gone" in finding.summary
    assert "traceback is on standard error" in finding.cause


def test_an_event_loop_that_waits_for_a_lock_of_threading_is_explained() -> None:
    loop = ("asyncio/events.py:_run", "asyncio/base_events.py:_run_once")
    waits_for_child = waiting(
        101,
        "asyncio/unix_events.py:_do_waitpid",
        waits=WaitedOn("child", "wait4", ("pid 300",)),
        name="asyncio-waitpid-0",
    )
    idle = waiting(102, "concurrent/futures/thread.py:_worker", name="asyncio_0")
    stuck = job(waiting(MAIN, "data.py:_acquire:30", *loop), waits_for_child, idle)

    [finding] = found(standing_still.check, stuck)

    assert "the main thread waits for a lock at data.py:30 _acquire" in finding.cause
    assert "no coroutine runs" in finding.cause
    assert "asyncio.Lock" in finding.advice


def test_an_event_loop_that_joins_a_thread_which_asks_that_loop_is_told_to_await() -> None:
    loop = ("asyncio/events.py:_run", "asyncio/base_events.py:_run_once")
    asks = ("threading.py:wait", "concurrent/futures/_base.py:result", "data.py:score:28")
    joins = waiting(MAIN, "threading.py:join", "data.py:rank:38", *loop)

    [finding] = found(standing_still.check, job(joins, waiting(101, *asks, name="long-query")))

    assert finding.summary == (
        "a coroutine or callback blocks the event loop of main (100): it waits for the end of "
        "another thread at data.py:38 rank, and thread long-query for the result of a future at "
        "data.py:28 score"
    )
    assert "run_coroutine_threadsafe comes from that loop" in finding.cause
    assert "await the coroutine itself" in finding.advice
    assert "asyncio.Lock" not in finding.advice


def test_a_signal_that_wakes_a_thread_again_and_again_changes_nothing() -> None:
    again = waiting(MAIN, "data.py:flush:35", "data.py:flush:35", still_s=15.0, waits_s=15.0)
    past = history(
        {
            (MAIN, "voluntary_switches"): [Point(NOW_S - 20 + n, 40.0 * n) for n in range(21)],
            (MAIN, "cpu_percent"): [Point(NOW_S - 20 + n, 0.0) for n in range(21)],
        }
    )

    [finding] = found(standing_still.check, job(again), past)

    assert "It holds this lock itself" in finding.summary


INTERRUPTED = ("train.py:save:37", "train.py:notice:26", "train.py:step:47", "train.py:main:57")


def interrupted(*native: int, **fields: Any) -> Thread:
    """Main, which waits for a lock; native code has called the functions at these places."""
    at = waiting(MAIN, *INTERRUPTED, **fields)
    stack = [frame._replace(from_native=n in native) for n, frame in enumerate(at.stack)]
    return replace(at, stack=tuple(stack))


@pytest.mark.parametrize("others", [(), (waiting(101, "train.py:export:30", name="metrics"),)])
def test_a_handler_that_waits_for_the_lock_of_what_it_interrupted_is_reported_as_that(
    others: tuple[Thread, ...],
) -> None:
    (finding,) = found(standing_still.check, job(interrupted(1), *others, signals_caught=SIGTERM))

    assert finding.summary == (
        f"main ({MAIN}) waits at train.py:37 save for a lock that it most likely holds itself: a "
        "signal handler (train.py:26 notice) has interrupted step()"
    )
    assert "handles SIGTERM" in finding.cause
    assert "Let the handler (train.py:26 notice) only set a flag" in finding.advice
    assert "train.py:37 save <- train.py:26 notice <- train.py:47 step" in str(finding.evidence)


@pytest.mark.parametrize(("native", "caught"), [((), SIGTERM), ((1,), 0), ((3,), SIGTERM)], ids=str)
def test_threads_whose_locks_no_handler_explains_are_reported_without_one(
    native: tuple[int, ...], caught: int
) -> None:
    """Main itself is called by native code; so may be a property, where no signal is handled."""
    other = waiting(101, "train.py:export:30", name="metrics")
    (finding,) = found(
        standing_still.check, job(interrupted(*native), other, signals_caught=caught)
    )

    assert "handler" not in finding.summary
    assert "wait for locks that the others of them hold" in finding.summary


def test_a_handler_is_known_by_its_name_where_stacks_do_not_show_native_calls() -> None:
    stack = ("train.py:save:37", "train.py:on_term:26", "train.py:step:47", "train.py:main:57")
    other = waiting(101, "train.py:export:30", name="metrics")

    (finding,) = found(
        standing_still.check, job(waiting(MAIN, *stack), other, signals_caught=SIGTERM)
    )

    assert "a signal handler (train.py:26 on_term) has interrupted step()" in finding.summary


ROOM = ("threading.py:wait", "queue.py:put", "data.py:write:18")
EMPTIES = Mark(
    "empties", "/home/me/data.py", "run", "self.queue", Statement(30, "while not self.stopped():")
)
PUTS_TEXT = Mark(
    "put", "/home/me/data.py", "write", "self.queue", Statement(18, "self.queue.put(text)")
)
PRINTS = SourceLine("/home/me/collate.py", 55, "upload", Statement(55, "print('refused')"))


def full(*takers: Thread, marks: tuple[Mark, ...] = (EMPTIES, PUTS_TEXT)) -> str:
    stuck = job(waiting(MAIN, *ROOM, "train.py:step:39"), *takers)
    [finding] = found(standing_still.check, replace(stuck, marks=marks, source=(PRINTS,)))
    return f"{finding.summary}\n{finding.cause}\n{finding.advice}\n{finding.evidence}"


def test_a_thread_that_waits_for_room_in_the_queue_that_it_empties_is_named_with_its_way() -> None:
    way = ("collate.py:upload:55", "data.py:run:35")

    told = full(waiting(101, *ROOM, *way, name="task-log"))

    assert "thread task-log waits for room in the full queue that it has to empty itself" in told
    assert "`while not self.stopped():` at data.py:30 run" in told
    assert "by way of collate.py:55 upload, where it prints, and what is printed goes into" in told
    assert "sys.__stderr__" in told
    assert "data.py:35 run -> collate.py:55 upload -> data.py:18 write" in told
    assert "one for each reader" not in told


def test_a_thread_that_logs_into_the_queue_that_it_empties_is_named() -> None:
    way = ("/usr/lib/python3.11/logging/__init__.py:emit:9", "collate.py:send:8", "data.py:run:35")

    assert "by way of collate.py:8 send, where it logs" in full(waiting(101, *ROOM, *way))


def test_threads_that_put_what_they_find_into_the_queue_that_they_empty_are_named() -> None:
    crawl = EMPTIES._replace(function="crawl", about="todo", statement=Statement(5, "while True:"))
    puts = PUTS_TEXT._replace(function="crawl", about="todo", statement=Statement(9, "todo.put(x)"))
    stack = ("threading.py:wait", "queue.py:put", "data.py:crawl:9")

    told = full(waiting(101, *stack), waiting(102, *stack), marks=(crawl, puts))

    assert "each of these 2 threads waits for room in the full queue" in told


def test_threads_that_put_into_the_queue_of_another_one_are_not_said_to_empty_it() -> None:
    """Stages of a pipeline are objects of one class, each with a queue of its own."""
    stages = (
        full(waiting(101, *ROOM, "data.py:run:35"), waiting(102, *ROOM, "data.py:run:35")),
        full(waiting(101, *ROOM, "data.py:other:35")),
        full(
            waiting(101, *ROOM, "data.py:run:35"),
            marks=(EMPTIES, PUTS_TEXT._replace(about="self.next.queue")),
        ),
        full(
            waiting(101, *ROOM, "data.py:run:35"),
            marks=(EMPTIES._replace(about="queue"), PUTS_TEXT._replace(about="queue")),
        ),
    )

    assert not any("empty itself" in each for each in stages)
