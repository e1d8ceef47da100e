"""Waits for a condition that was notified before they began."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mpwatch.diagnose.rules.hangs import no_progress, standing_still
from mpwatch.model.account import Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Mark, Statement
from tests.builders.accounts import COMPUTES, SLEEPS, with_shares
from tests.builders.snapshots import MAIN, found, history, line, main, process, snapshot_of, thread

WAIT = Mark(
    "unchecked-wait",
    "/home/me/data.py",
    "get",
    "self.cond, self.items, 22, put, 23",
    Statement(28, "while not self.cond.wait(poll):"),
)
WAKES = Mark("wakes", "/home/me/data.py", "put", "self.cond", Statement(23, "self.cond.notify()"))
PROXY = (
    "multiprocessing/connection.py:_recv",
    "multiprocessing/managers.py:_callmethod",
    "multiprocessing/managers.py:wait",
    "data.py:get:28",
    "train.py:main:50",
)
ASKS = Activity("waiting", "an event or condition of the manager", "event", (), "data.py:28 get")
ENTERS = Activity("waiting", "data on socket 7", "socket", (), "data.py:28 get")
ELSEWHERE = Activity("waiting", "an item of a queue", "queue", (), "data.py:70 collect")
POLLS = {ASKS: 0.6, ENTERS: 0.4}


def waits(number: int, *stack: str, kind: str = "socket-read") -> Thread:
    """A main thread that has begun this call just now."""
    waited = WaitedOn(kind, "read", ("socket:[7]",))  # type: ignore[arg-type]
    return thread(number, *(stack or PROXY), waits=waited, still_s=0.1)


MANAGER = process(
    150,
    "spawned",
    threads=[thread(150, "threading.py:wait", "multiprocessing/managers.py:serve_forever")],
    label="manager",
)


def job(*others: Process, marks: Sequence[Mark] = (WAIT, WAKES)) -> Snapshot:
    """The root, which waits, and its children."""
    return snapshot_of(main(threads=[waits(MAIN)]), *others, MANAGER, marks=tuple(marks))


def evaluator(*stack: str, kind: str = "socket-read") -> Process:
    return process(200, "spawned", threads=[waits(200, *stack, kind=kind)], label="evaluator")


def told(snapshot: Snapshot) -> list[Finding]:
    """The findings of that kind."""
    past = history(
        {
            (number, metric): line(9.0 if metric == "voluntary_switches" else 0.5, per_s=0.1)
            for number in (MAIN, 200)
            for metric in ("voluntary_switches", "main_read_bytes")
        }
    )
    findings = found(no_progress.check, snapshot, past)
    return [each for each in findings if each.subject == "lost-wakeup"]


def test_waits_that_begin_again_and_again_and_miss_what_was_sent_before() -> None:
    (finding,) = told(with_shares(job(evaluator()), p100=POLLS, p200=POLLS))

    assert finding.severity is Severity.WARNING
    assert finding.summary.startswith("main (100) and evaluator (200) have only waited at data.py")
    assert "`while not self.cond.wait(poll):` at data.py:28 get" in finding.cause
    assert "put changes self.items in line 22 and notifies in line 23" in finding.cause
    assert "`self.cond.notify()`" in finding.cause
    assert "self.cond.wait_for(lambda: ...)" in finding.advice


@pytest.mark.parametrize(
    "does",
    [
        {COMPUTES: 0.5, ASKS: 0.5},
        {SLEEPS: 0.5, ASKS: 0.5},
        {ELSEWHERE: 0.5, ASKS: 0.5},
        {Activity("waiting", "the GPU", "gpu", (), "data.py:28 get"): 1.0},
    ],
)
def test_a_process_that_does_anything_else_may_still_notify(does: dict[Activity, float]) -> None:
    assert told(with_shares(job(evaluator()), p100=POLLS, p200=does)) == []


def test_a_server_may_still_be_asked_from_outside() -> None:
    serves = evaluator("train.py:serve:70", kind="accept")

    assert told(with_shares(job(serves), p100=POLLS, p200={ELSEWHERE: 1.0})) == []


def test_what_waits_for_a_signal_may_notify_in_its_handler() -> None:
    """A service at rest, which a SIGHUP or SIGTERM wakes up."""
    at_rest = evaluator("service.py:main:12", kind="signal")

    assert told(with_shares(job(at_rest), p100=POLLS, p200={ELSEWHERE: 1.0})) == []


def test_the_manager_of_another_machine_may_have_other_clients() -> None:
    alone = snapshot_of(main(threads=[waits(MAIN)]), evaluator(), marks=(WAIT, WAKES))

    assert told(with_shares(alone, p100=POLLS, p200=POLLS)) == []


def test_a_process_alone_may_be_meant_to_wait() -> None:
    assert told(with_shares(job(), p100=POLLS)) == []


def test_consumers_that_nothing_has_told_to_end_have_missed_nothing() -> None:
    joins = [thread(MAIN, "multiprocessing/process.py:join", "train.py:main:50", still_s=60.0)]
    consumers = [
        process(number, "spawned", threads=[waits(number)], label="consumer")
        for number in (200, 201)
    ]
    job_of_two = snapshot_of(main(threads=joins), *consumers, MANAGER, marks=(WAIT, WAKES))
    at_join = Activity("waiting", "the exit of a child", "child", (), "train.py:50 main")

    shares = with_shares(job_of_two, p100={at_join: 1.0}, p200=POLLS, p201=POLLS)

    assert told(shares) == []


def test_nothing_is_said_of_waits_that_look_first() -> None:
    snapshot = job(evaluator(), marks=[WAKES])

    assert told(with_shares(snapshot, p100=POLLS, p200=POLLS)) == []


def test_threads_of_one_process_that_wait_for_ever() -> None:
    futex = WaitedOn("futex", "futex", futex_command=9)
    inner = ("threading.py:wait", "data.py:get:28")
    waiting = snapshot_of(
        main(
            threads=[
                thread(MAIN, *inner, "train.py:main:50", waits=futex),
                thread(101, *inner, "train.py:run:9", waits=futex, name="loader"),
            ],
            signals_caught=0,
            thread_count=2,
        ),
        marks=(WAIT, WAKES),
    )

    (finding,) = found(standing_still.check, waiting)

    assert "without looking first whether what it waits for is there" in finding.summary
    assert "put changes self.items in line 22" in finding.cause
