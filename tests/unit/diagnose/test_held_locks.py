"""A server whose threads wait for a lock that one of them keeps while it waits itself."""

from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.providers import held_lock
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.findings import Severity
from mpwatch.model.history import History
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from tests.builders.snapshots import (
    MAIN,
    fds,
    history,
    line,
    main,
    only,
    pid,
    process,
    snapshot_of,
    socket,
    thread,
)
from tests.builders.waits import chain_of

SERVER, OURS, THEIRS, LISTENING = 300, 700, 701, 800
ACCEPTS = WaitedOn("accept", "accept4", (f"socket:[{LISTENING}]",))
ASKS = WaitedOn("socket-read", "read", (f"socket:[{OURS}]",))
LOCK = WaitedOn("futex", "futex", ("futex 0x7f00",), futex_command=9)
SLEEPS = WaitedOn("timer", "clock_nanosleep", timeout_s=0.05)
ACCEPTING = ("connection.py:accept", "train.py:run:30")


def client() -> Process:
    asks = thread(MAIN, "connection.py:recv", "train.py:main:58", waits=ASKS, still_s=40.0)
    return main(fds=fds(9, links=[socket(3, OURS, THEIRS)]), segments=(), threads=[asks])


def server(
    *threads: Thread, waits: WaitedOn = ACCEPTS, stack: tuple[str, ...] = ACCEPTING
) -> Process:
    first = thread(SERVER, *stack, waits=waits, still_s=40.0)
    links = [
        socket(4, THEIRS, OURS),
        socket(5, LISTENING, None, "unix listens on /tmp/replay.sock"),
    ]
    return process(
        SERVER,
        role="spawned",
        label="replay",
        start_method="fork",
        fds=fds(9, links=links),
        segments=(),
        threads=[first, *threads],
        thread_count=1 + len(threads),
    )


def holder(waits: WaitedOn | None = SLEEPS, at: int = 27, **more: Any) -> Thread:
    fields: dict[str, Any] = {"still_s": 0.1, "waits_s": 0.05, **more}
    return thread(301, f"train.py:serve:{at}", name="serve-1", waits=waits, **fields)


def waiter(tid: int = 302, at: int = 22) -> Thread:
    return thread(tid, f"train.py:serve:{at}", name=f"serve-{tid - 300}", waits=LOCK, still_s=40.0)


def job(*threads: Thread) -> Snapshot:
    return snapshot_of(client(), server(*threads))


def quiet(still_s: float = 40.0) -> History:
    flat = line(0.0, seconds=still_s)
    return history({(MAIN, "cpu_percent"): flat, (SERVER, "cpu_percent"): flat})


def test_the_chain_goes_to_the_thread_that_has_the_lock_not_to_the_idle_main_thread() -> None:
    chain = chain_of(client(), server(holder(), waiter(), waiter(303)))

    assert chain.verdict == "progress"
    assert chain.sentence == (
        "main waits for data on socket 700 <- replay sleeps at train.py:27 serve in its thread "
        "serve-1, likely with the lock for which 2 threads wait at train.py:22 serve"
    )


def test_the_finding_names_the_thread_its_line_and_those_that_wait_for_the_lock() -> None:
    finding = only(no_progress.check, job(holder(), waiter(), waiter(303)), quiet())

    assert finding.severity is Severity.WARNING
    assert "at train.py:27 serve in its thread serve-1" in finding.summary
    assert "2 threads (serve-2, serve-3) wait to take a lock" in finding.cause
    assert "Condition.wait_for()" in finding.advice


def test_the_chain_goes_on_where_the_thread_with_the_lock_waits_for_another_process() -> None:
    links = [socket(3, OURS, THEIRS), socket(6, 901, 900)]
    asks = thread(MAIN, "connection.py:recv", "train.py:main:58", waits=ASKS, still_s=40.0)
    one = main(fds=fds(9, links=links), segments=(), threads=[asks])
    two = server(holder(WaitedOn("socket-read", "read", ("socket:[900]",)), still_s=40.0), waiter())
    assert two.sample.fds is not None
    more = fds(9, links=[*(two.sample.fds.links or ()), socket(8, 900, 901)])
    two = process(
        SERVER, role="spawned", label="replay", fds=more, segments=(), threads=two.threads
    )

    chain = wait_graph(Index(snapshot_of(one, two))).chains[0]

    assert chain.links[1].process == two.process
    assert "replay waits for data on socket 900 in its thread serve-1, likely with the lock" in (
        chain.sentence
    )


@pytest.mark.parametrize(
    "threads",
    [
        (holder(), waiter(at=40)),
        (holder(), holder(), waiter()),
        (holder(),),
    ],
    ids=["nobody is past the line", "two are past the line", "nobody waits"],
)
def test_no_thread_is_blamed_where_the_stacks_do_not_show_one(threads: tuple[Thread, ...]) -> None:
    assert held_lock(Index(job(*threads)), pid(SERVER)) is None


def test_a_main_thread_that_works_is_not_blamed_for_a_lock_of_its_threads() -> None:
    working = server(holder(), waiter(), waits=SLEEPS, stack=("train.py:loop:70",))

    assert held_lock(Index(snapshot_of(client(), working)), pid(SERVER)) is None


def test_threads_that_have_just_begun_to_wait_take_turns() -> None:
    young = thread(302, "train.py:serve:22", waits=LOCK, still_s=0.5)

    assert held_lock(Index(job(holder(), young)), pid(SERVER)) is None


def test_the_lines_of_the_threads_of_an_idle_server_are_reported() -> None:
    busy = thread(301, "train.py:serve:27", name="serve-1", waits=SLEEPS, still_s=0.1)

    finding = only(no_progress.check, job(busy), quiet())

    assert "which waits for something to do" in finding.summary
    assert "replay: its thread serve-1 is at train.py:27 serve" in finding.evidence
