"""A process that waits for another one which goes on with the requests of others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import writers_by_name
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History, Point
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
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
    snapshot_of,
    thread,
)

ACTOR, MONITOR = 300, 301
OUTBOX, INBOX = 500, 501
FILE = "/home/me/train.py"
GETS = "multiprocessing/queues.py:get"


def reads(inode: int, limit_s: float | None = None) -> WaitedOn:
    return WaitedOn("pipe-read", "read", (f"pipe:[{inode}]",), timeout_s=limit_s)


def forked(number: int, label: str, waits: WaitedOn, *stack: str) -> Process:
    """A child that has all ends of both pipes, as forked ones do."""
    ends = [pipe(fd, inode, fd % 2 == 1) for fd, inode in enumerate((OUTBOX,) * 2 + (INBOX,) * 2)]
    at = thread(number, *stack, waits=waits, still_s=8.0)
    return process(
        number, "spawned", label=label, segments=(), fds=fds(9, links=ends), threads=[at]
    )


def source(line: int, function: str, defined: int) -> SourceLine:
    return SourceLine(FILE, line, function, Statement(line, "x"), defined=defined)


def put(queue: str, line: int, function: str) -> Mark:
    return Mark("put", FILE, function, queue, Statement(line, f"{queue}.put(x)"))


def job(
    *marks: Mark, limit_s: float | None = 3.0, woken_per_s: float = 4.0
) -> tuple[Snapshot, History]:
    """Main waits for the outbox of an actor, and a monitor asks the actor now and then."""
    waits = main(
        fds=fds(5, links=[pipe(3, OUTBOX, False), pipe(4, INBOX, True)]),
        segments=(),
        threads=[thread(MAIN, GETS, "train.py:main:7", waits=reads(OUTBOX), still_s=60.0)],
    )
    serves = "train.py:actor_main:30"
    actor = forked(ACTOR, "actor", reads(INBOX, limit_s), GETS, serves)
    monitor = forked(
        MONITOR, "monitor", WaitedOn("timer", "clock_nanosleep", timeout_s=0.2), "train.py:poll:50"
    )
    takes = Mark("takes", FILE, "main", "self._outbox", Statement(7, "self._outbox.get()"))
    lines = (source(7, "main", 1), source(30, "actor_main", 20), source(50, "poll", 45))
    snapshot = snapshot_of(
        waits,
        monitor,
        actor,
        marks=(takes, put("inbox", 48, "poll"), *marks),
        source=lines,
    )
    wakes = tuple(Point(NOW_S - 60 + s, woken_per_s * s) for s in range(61))
    return snapshot, history({(ACTOR, "voluntary_switches"): wakes})


def only_finding(snapshot: Snapshot, past: History) -> Finding:
    [finding] = found(no_progress.check, snapshot, past)
    return finding


IN_NESTED = put("outbox", 25, "run")


def test_the_process_that_goes_on_with_other_requests_is_named_and_not_their_sender() -> None:
    finding = only_finding(*job(IN_NESTED))

    assert finding.severity is Severity.INFO
    assert finding.summary == (
        "main (100) has waited 60 s for actor (300), which goes on receiving at train.py:30 "
        "actor_main"
    )
    assert (
        "actor (300) is alive: its main thread is woken up about 4 times a second" in finding.cause
    )
    assert "those that wait have made no progress for 60 s" in finding.evidence
    assert "deadline" not in finding.cause


def test_a_deadline_that_each_request_puts_off_is_named_as_the_likely_cause() -> None:
    text = "group.deadline = time.monotonic() + self.wait"
    renews = Mark("renews-deadline", FILE, "ready", "group.deadline", Statement(17, text))

    finding = only_finding(*job(IN_NESTED, renews))

    assert f"`{text}` at train.py:17 ready sets it to a time from now" in finding.cause
    assert finding.process == pid(MAIN)


@pytest.mark.parametrize(
    ("limit_s", "woken_per_s"), [(0.25, 8.0), (3.0, 0.4)], ids=["polls", "is hardly woken"]
)
def test_one_that_its_own_time_limits_wake_up_is_not_said_to_receive(
    limit_s: float, woken_per_s: float
) -> None:
    snapshot, past = job(IN_NESTED, limit_s=limit_s, woken_per_s=woken_per_s)

    assert "goes on receiving" not in str(wait_graph(Index(snapshot, past)).chains)
    assert "goes on receiving" in str(wait_graph(Index(*job(IN_NESTED))).chains)


def test_one_that_is_woken_far_more_often_than_by_a_short_time_limit_is_said_to_receive() -> None:
    snapshot, past = job(IN_NESTED, limit_s=0.5, woken_per_s=12.0)

    assert "goes on receiving" in str(wait_graph(Index(snapshot, past)).chains)


def test_a_worker_that_gets_its_work_does_not_go_on_receiving() -> None:
    snapshot, past = job(IN_NESTED)
    actor = snapshot.processes[2]
    sample = replace(actor.sample, role="loader-worker")
    worker = replace(actor, role="loader-worker", sample=sample)
    loader = replace(snapshot, processes=(*snapshot.processes[:2], worker))

    assert "goes on receiving" not in str(wait_graph(Index(loader, past)).chains)


@pytest.mark.parametrize(
    ("marks", "writers"),
    [
        ((IN_NESTED,), [pid(ACTOR)]),
        ((put("self.outbox", 29, "actor_main"),), [pid(ACTOR)]),
        ((put("outbox", 46, "poll"), IN_NESTED), [pid(MONITOR), pid(ACTOR)]),
        ((put("outbox", 60, "other"),), []),
        ((put("log", 25, "run"),), []),
        ((), []),
    ],
)
def test_writers_of_a_queue_are_those_in_a_function_that_puts_into_one_of_its_name(
    marks: tuple[Mark, ...], writers: list[ProcessId]
) -> None:
    snapshot, past = job(*marks)
    [reader] = snapshot.processes[0].threads

    found = writers_by_name(Index(snapshot, past), reader, [pid(MONITOR), pid(ACTOR)])

    assert found == writers
