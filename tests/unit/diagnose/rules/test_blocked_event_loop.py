from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.throughput.blocked_event_loop import check
from mpwatch.model.account import Activity
from mpwatch.model.findings import Severity
from mpwatch.model.samples import FdLink, WaitedOn
from mpwatch.model.snapshot import Snapshot, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.accounts import COMPUTES, answers_from, with_shares
from tests.builders.snapshots import (
    MAIN,
    fds,
    found,
    main,
    only,
    pid,
    process,
    snapshot_of,
    socket,
    thread,
)

FILE = "/home/me/train.py"
LOOP = ("asyncio/events.py:_run", "asyncio/base_events.py:_run_once", "asyncio/runners.py:run")
IN_FETCH = ("socket.py:recv_into", "train.py:get:12", "train.py:fetch:21", *LOOP)
IDLE = ("selectors.py:select", *LOOP[1:], "train.py:start:40")
ASKS = Activity("waiting", "data on socket 77", "socket", place="train.py:12 get")
SLEEPS = Activity("sleeping", place="train.py:21 fetch")
LISTENS = Activity("waiting", "data on socket 5", "socket", place="train.py:40 start")
STARTED = Mark("several-tasks", FILE, "crawl", "fetch", Statement(30, "await gather(*tasks)"))


def job(
    spent: dict[Activity, float] | None = None,
    *,
    stack: tuple[str, ...] = IN_FETCH,
    marks: tuple[Mark, ...] = (STARTED,),
    links: tuple[FdLink, ...] = (),
    is_async: bool = True,
) -> Snapshot:
    """A job whose main thread runs an event loop."""
    source = (
        SourceLine(FILE, 12, "get", Statement(12, "return session.get(url)")),
        SourceLine(FILE, 21, "fetch", Statement(21, "page = get(url)"), is_async=is_async),
        SourceLine(FILE, 40, "start", Statement(40, "asyncio.run(crawl(urls))")),
    )
    of_main = main(threads=[thread(MAIN, *stack)], fds=fds(9, links=links))
    taken = snapshot_of(of_main, source=source, marks=marks)
    return with_shares(taken, p100=spent or {ASKS: 0.8, COMPUTES: 0.2})


def test_a_coroutine_that_waits_for_a_socket_is_named_with_the_tasks_beside_it() -> None:
    finding = only(check, job())

    assert finding.severity is Severity.INFO
    assert finding.summary == (
        "the event loop of main (100) is blocked at least 80% of the time: its coroutine fetch() "
        "waits for a socket at train.py:12 get in a call that is not awaited"
    )
    assert finding.evidence[-1] == (
        "`await gather(*tasks)` at train.py:30 crawl starts tasks of fetch() that run beside each "
        "other"
    )
    assert "asyncio.to_thread" in finding.advice


def test_a_coroutine_that_sleeps_itself_is_known_without_its_stack() -> None:
    finding = only(check, job({SLEEPS: 0.6, LISTENS: 0.4}, stack=IDLE))

    assert "is blocked at least 60% of the time: its coroutine fetch() sleeps" in finding.summary
    assert finding.advice.startswith("Use await asyncio.sleep()")


def clients(count: int) -> tuple[FdLink, ...]:
    listens = socket(3, 3, None, "tcp listens on *:8000")
    ends = (f"tcp 127.0.0.1:8000 > 127.0.0.1:{5000 + n}" for n in range(count))
    return (listens, *(socket(4 + n, 4 + n, None, each) for n, each in enumerate(ends)))


def test_clients_that_are_connected_are_other_tasks() -> None:
    finding = only(check, job(marks=(), links=clients(2)))

    assert finding.evidence[-1] == "2 clients have a connection to main (100)"
    assert found(check, job(marks=(), links=clients(1))) == []


def asked(*numbers: int) -> Snapshot:
    """The job, with these processes, which wait for the one with the loop."""
    taken = job(marks=())
    clients = (process(number, "spawned", parent=None) for number in numbers)
    waits = {answers_from(100): 0.7, COMPUTES: 0.3}
    return with_shares(
        replace(taken, processes=(*taken.processes, *clients)),
        p100={ASKS: 0.8, COMPUTES: 0.2},
        **{f"p{number}": waits for number in numbers},
    )


def test_processes_that_wait_for_the_one_with_the_loop_make_it_a_warning() -> None:
    finding = only(check, asked(200, 201))

    assert (finding.severity, finding.others) == (Severity.WARNING, (pid(200), pid(201)))
    assert finding.evidence[-1] == "spawned 200 (200) and spawned 201 (201) wait for main (100)"


def test_one_client_waits_for_its_own_answer() -> None:
    assert found(check, asked(200)) == []


@pytest.mark.parametrize(
    "beside",
    [
        thread(170, "socket.py:accept", waits=WaitedOn("accept", "accept4")),
        thread(170, "socket.py:recv", waits=WaitedOn("socket-read", "recvfrom", ("socket:[4]",))),
        thread(170, *IN_FETCH),
    ],
    ids=["accepts", "reads from a client", "a loop for each client"],
)
def test_clients_of_other_threads_are_not_held_up_by_a_loop(beside: Thread) -> None:
    taken = job(marks=(), links=clients(2))
    own = taken.processes[0]
    both = replace(taken, processes=(replace(own, threads=(*own.threads, beside)),))

    assert found(check, both) == []


@pytest.mark.parametrize(
    "healthy",
    [
        {"marks": ()},
        {"marks": (STARTED._replace(about="report"),)},
        {"is_async": False},
        {"spent": {ASKS: 0.1, LISTENS: 0.8, COMPUTES: 0.1}},
        {"spent": {LISTENS: 0.9, COMPUTES: 0.1}, "stack": IDLE},
        {"spent": {COMPUTES: 1.0}},
        {"spent": {Activity("waiting", "the GIL", "gil", place="train.py:12 get"): 0.9}},
        {"stack": IN_FETCH[:3]},
    ],
    ids=[
        "one coroutine alone",
        "tasks of another one",
        "no coroutine",
        "it waits seldom",
        "the loop has nothing to do",
        "it computes",
        "it would run if it got the GIL",
        "no event loop",
    ],
)
def test_other_loops_are_not_reported(healthy: dict[str, Any]) -> None:
    assert found(check, job(**healthy)) == []
