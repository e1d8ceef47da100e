"""Event loops that nothing wakes up: by calls of other threads, and tasks that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.hangs import standing_still
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Coroutines, Statement, UnreadTask, UnsafeWake
from tests.builders.snapshots import (
    MAIN,
    fds,
    found,
    frames,
    log,
    main,
    only,
    snapshot_of,
    socket,
    thread,
)

LOCK = WaitedOn("futex", "futex", ("futex 0x7f00",), futex_command=9)
WAKE_UP = WaitedOn("poll", "epoll_wait", ("socket:[500]",))
LOOP = ("selectors.py:select", "asyncio/base_events.py:_run_once", "train.py:main:40")
GETS = ("threading.py:wait", "queue.py:get", "train.py:work:20")
POOL = ("concurrent/futures/thread.py:_worker",)
FILE = frames("train.py:main:40")[0].file
WAKE = UnsafeWake(
    "Event",
    "self.done",
    "set",
    FILE,
    "work",
    Statement(23, "self.done.set()"),
    True,
    FILE,
    "start",
    Statement(12, "threading.Thread(target=self.work).start()"),
    False,
    FILE,
    "ask",
    Statement(31, "await self.done.wait()"),
    "asyncio.Event()",
)
TASK = UnreadTask(
    "produce",
    FILE,
    FILE,
    "main",
    Statement(38, "task = asyncio.create_task(produce(queue))"),
    "later",
    Statement(44, "await task"),
    "queue",
    "put",
    Statement(9, "await queue.put(load(number))"),
    FILE,
    "main",
    Statement(41, "item = await queue.get()"),
)


def waiting(tid: int, *stack: str, waits: WaitedOn | None = LOCK, **more: Any) -> Thread:
    return thread(tid, *stack, waits=waits, name=f"worker-{tid}", **more)


def job(
    *others: Thread,
    unsafe: Sequence[UnsafeWake] = (),
    unread: Sequence[UnreadTask] = (),
    first: Thread | None = None,
    **more: Any,
) -> Snapshot:
    loop = thread(MAIN, *LOOP, waits=WAKE_UP) if first is None else first
    taken = {"signals_caught": 0, **more}
    one: Process = main(
        fds=fds(9, links=(socket(3, 500, 501), socket(4, 501, 500))),
        segments=(),
        threads=(loop, *others),
        thread_count=1 + len(others),
        **taken,
    )
    return replace(snapshot_of(one), coroutines=Coroutines(tuple(unsafe), tuple(unread)))


def test_a_call_of_another_thread_that_does_not_wake_the_loop_up_is_named() -> None:
    finding = only(standing_still.check, job(waiting(101, *GETS), unsafe=[WAKE]))

    assert finding.summary == (
        "the event loop of main (100) is not woken up: most likely self.done.set() at train.py:23 "
        "work was called in another thread without call_soon_threadsafe"
    )
    assert "`threading.Thread(target=self.work).start()` at train.py:12 start" in finding.cause
    assert "`await self.done.wait()` at train.py:31 ask" in finding.cause
    assert "loop.call_soon_threadsafe(self.done.set)" in finding.advice
    assert (
        "main: thread worker-101 waits for an item of a queue at train.py:20 work"
        in finding.evidence
    )


def test_a_call_of_a_thread_that_has_ended_is_named_as_well() -> None:
    once = WAKE._replace(is_in_loop=False)

    assert "is not woken up" in only(standing_still.check, job(unsafe=[once])).summary
    assert (
        "is not woken up"
        in only(standing_still.check, job(waiting(7, *POOL), unsafe=[once])).summary
    )


@pytest.mark.parametrize(
    "wake",
    [
        WAKE._replace(is_in_loop=False),
        WAKE._replace(file="/x/a.py", started_file="", awaited_file=""),
    ],
    ids=["not reached yet", "another program"],
)
def test_a_call_that_a_thread_has_not_made_is_not_named(wake: UnsafeWake) -> None:
    finding = only(standing_still.check, job(waiting(101, *GETS), unsafe=[wake]))

    assert "no task of the event loop of main (100) can continue" in finding.summary
    assert "its other threads wait as well" in finding.cause


def test_a_function_that_was_awaited_in_a_thread_has_woken_the_loop_up_at_its_end() -> None:
    wake = WAKE._replace(wakes_at_end=True)

    assert "no task" in only(standing_still.check, job(waiting(7, *POOL), unsafe=[wake])).summary
    inside = job(waiting(101, *GETS), unsafe=[wake])
    assert "is not woken up" in only(standing_still.check, inside).summary


def test_a_thread_that_has_died_is_worth_more_than_a_call_that_it_may_not_have_made() -> None:
    died = log("thread-died", MAIN, "thread died: Thread-1; ValueError; bad row")
    dead = replace(job(unsafe=[WAKE]), log=(died,))

    assert "no task" in only(standing_still.check, dead).summary


@pytest.mark.parametrize(
    "other",
    [
        thread(101, "train.py:work:20", state="R"),
        waiting(101, *GETS, waits=WaitedOn("futex", "futex", ("futex 0x7f00",), timeout_s=3.0)),
        waiting(101, "train.py:work:20", waits=WaitedOn("timer", "clock_nanosleep", timeout_s=9.0)),
        waiting(101, "train.py:work:20", waits=WaitedOn("accept", "accept4", ("socket:[9]",))),
        waiting(101, *GETS, still_s=1.0),
    ],
    ids=["runs", "limit", "sleeps", "serves", "just now"],
)
def test_a_loop_that_a_thread_may_wake_up_is_left_alone(other: Thread) -> None:
    assert found(standing_still.check, job(other, unsafe=[WAKE], unread=[TASK])) == []


def test_a_loop_in_a_thread_of_which_main_wants_a_result_is_not_woken_up() -> None:
    asks = thread(MAIN, "threading.py:wait", "_base.py:result", "train.py:main:50", waits=LOCK)
    loop = waiting(101, *LOOP[:2], "train.py:run:60", waits=WAKE_UP)
    stuck = job(loop, waiting(102, *GETS), first=asks, unsafe=[WAKE])

    finding = only(standing_still.check, stuck)

    assert "the event loop of main (100) is not woken up" in finding.summary
    assert "waits in its event loop for another thread to wake it up" in finding.cause
    timed = replace(loop, waits_on=replace(WAKE_UP, timeout_s=1.0))
    assert found(standing_still.check, job(timed, waiting(102, *GETS), first=asks)) == []
    unknown = only(standing_still.check, job(loop, first=asks))
    assert unknown.summary == (
        "main (100) waits for the result of a future, and its thread worker-101 waits in its event "
        "loop for another thread to wake it up: none of them runs"
    )


def test_a_task_that_has_ended_and_that_nobody_reads_is_named() -> None:
    finding = only(standing_still.check, job(unread=[TASK]))

    assert finding.summary == (
        "the event loop of main (100) has nothing left to do: most likely a coroutine waits at "
        "train.py:41 main for what only the task produce() does, which has ended"
    )
    assert "`await task` in line 44 would raise its exception" in finding.cause
    assert "no timer, connection or call in a thread for which it could wait" in finding.cause
    in_thread = job(waiting(101, *GETS), unread=[TASK])
    assert "no timer or connection for which it" in only(standing_still.check, in_thread).cause


def test_a_task_that_may_wait_itself_is_not_said_to_have_ended() -> None:
    waits = TASK._replace(how="kept", read=None, waits=Statement(5, "row = await rows.get()"))

    finding = only(standing_still.check, job(unread=[waits]))

    assert "which has ended or waits as well" in finding.summary
    assert "or it waits itself in `row = await rows.get()` of line 5" in finding.cause
    both = only(standing_still.check, job(unread=[waits, TASK]))
    assert "`await task` in line 44" in both.cause
