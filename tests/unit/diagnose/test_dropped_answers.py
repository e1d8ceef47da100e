"""Readers of one queue that each drop the answers to the others, and wait for their own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.hangs import standing_still
from mpwatch.model.findings import Finding
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    fds,
    found,
    main,
    only,
    pid,
    pipe,
    process,
    segment,
    snapshot_of,
    thread,
)
from tests.builders.waits import DATA, WORK

READERS = SegmentId(9, 77)
GETS = ("multiprocessing/queues.py:get", "data.py:ask:88")
READS_PIPE = WaitedOn("pipe-read", "read", (f"pipe:[{DATA}]",))
READS_OTHER = WaitedOn("pipe-read", "read", ("pipe:[999]",))
FOR_LOCK = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=READERS)
FOR_SERVER = WaitedOn("poll", "poll", (f"pipe:[{WORK}]",))
DROPS = Mark(
    "takes-own",
    "/home/me/data.py",
    "ask",
    "self.answers, number",
    Statement(88, "got, answer = self.answers.get()"),
)


def asks(tid: int, waits: WaitedOn, *stack: str, name: str = "python") -> Thread:
    return thread(tid, *(stack or GETS), waits=waits, name=name, still_s=84.0)


def job(*threads: Thread, marks: tuple[Mark, ...] = (DROPS,)) -> Snapshot:
    """Main, whose threads ask, and a server that waits for the next request."""
    links = [pipe(5, DATA, False), pipe(8, WORK, True)]
    client = main(fds=fds(9, links=links), segments=(), threads=list(threads))
    server = process(
        300,
        "spawned",
        label="server",
        fds=fds(9, links=[pipe(6, DATA, True), pipe(7, WORK, False)]),
        segments=(),
        threads=[thread(300, "train.py:serve:51", waits=FOR_SERVER, still_s=84.0)],
    )
    return snapshot_of(client, server, marks=marks)


def told(*threads: Thread, marks: tuple[Mark, ...] = (DROPS,)) -> list[Finding]:
    findings = found(standing_still.check, job(*threads, marks=marks))
    return [each for each in findings if "drop those of each other" in each.summary]


MONITOR = asks(101, FOR_LOCK, name="monitor")


def test_two_threads_that_drop_the_answers_of_each_other_are_named() -> None:
    finding = only(standing_still.check, job(asks(MAIN, READS_PIPE), MONITOR))

    assert finding.summary == (
        "2 threads of main (100) wait at data.py:88 ask for their own answers from one queue, "
        "self.answers, and drop those of each other: likely the answer that one waits for is gone"
    )
    assert "thread monitor of main (100) waits at data.py:88 ask" in finding.evidence
    assert finding.cause.startswith("The main thread of main (100) and thread monitor of main")
    assert "drops each that is not equal to its own number" in finding.cause
    assert "Hold a threading.Lock" in finding.advice


def test_the_lock_of_the_readers_may_be_what_main_waits_for() -> None:
    assert told(asks(MAIN, FOR_LOCK), asks(101, READS_PIPE))


@pytest.mark.parametrize(
    ("threads", "marks"),
    [
        ((asks(MAIN, READS_PIPE),), (DROPS,)),
        ((asks(MAIN, READS_PIPE), MONITOR), ()),
        ((asks(MAIN, READS_PIPE), asks(101, READS_OTHER)), (DROPS,)),
        ((asks(MAIN, READS_PIPE), asks(101, WaitedOn("futex", "futex"))), (DROPS,)),
        (
            (
                asks(MAIN, READS_PIPE),
                asks(101, FOR_LOCK, "multiprocessing/queues.py:get", "data.py:other:88"),
            ),
            (DROPS,),
        ),
        (
            (
                asks(MAIN, READS_PIPE),
                asks(101, WaitedOn("futex", "futex"), "threading.py:__enter__", "data.py:ask:85"),
            ),
            (DROPS,),
        ),
    ],
    ids=["one thread", "keeps them", "two queues", "of threads", "another function", "has a lock"],
)
def test_readers_that_do_not_take_what_is_for_others_are_no_reason(
    threads: tuple[Thread, ...], marks: tuple[Mark, ...]
) -> None:
    assert told(*threads, marks=marks) == []


def other_reader(get: str, function: str = "data.py:other:70") -> Process:
    """A process that waits for an item of another queue, whose lock it has."""
    return process(
        400,
        "spawned",
        label="other",
        fds=fds(9, links=[pipe(6, 999, False), pipe(7, 999, True)]),
        segments=(),
        threads=[thread(400, get, function, waits=READS_OTHER, still_s=84.0)],
    )


@pytest.mark.parametrize(
    ("get", "count"),
    [("multiprocessing/queues.py:get", 0), ("multiprocessing/connection.py:recv", 1)],
    ids=["a queue", "a connection"],
)
def test_with_another_reader_the_lock_may_be_that_of_another_queue(get: str, count: int) -> None:
    one = job(asks(MAIN, READS_PIPE), MONITOR)
    both = replace(one, processes=(*one.processes, other_reader(get)))

    findings = found(standing_still.check, both)

    assert sum("drop those of each other" in each.summary for each in findings) == count


@pytest.mark.parametrize(
    "function",
    [
        "multiprocessing/pool.py:worker",
        "concurrent/futures/process.py:_process_worker",
        "torch/utils/data/_utils/worker.py:_worker_loop",
    ],
)
def test_an_idle_worker_has_the_lock_of_no_queue_of_the_program(function: str) -> None:
    one = job(asks(MAIN, READS_PIPE), MONITOR)
    idle = other_reader("multiprocessing/queues.py:get", function)

    findings = found(standing_still.check, replace(one, processes=(*one.processes, idle)))

    assert sum("drop those of each other" in each.summary for each in findings) == 1


def test_a_statement_of_many_lines_is_at_its_first() -> None:
    own = job(asks(MAIN, READS_PIPE, GETS[0], "data.py:ask:95"), MONITOR)
    line = SourceLine("/home/me/data.py", 95, "ask", DROPS.statement)

    findings = found(standing_still.check, replace(own, source=(line,)))

    assert any("drop those of each other" in each.summary for each in findings)


def test_two_processes_that_share_a_queue_of_answers_are_named() -> None:
    first = job(asks(MAIN, READS_PIPE))
    links = [pipe(5, DATA, False), pipe(8, WORK, True)]
    other: Process = process(
        200,
        "spawned",
        label="client",
        fds=fds(9, links=links),
        segments=(),
        threads=[asks(200, FOR_LOCK)],
    )
    lock = segment(77, kind="semaphore", mappers=(pid(MAIN), pid(200)))
    both = replace(first, processes=(*first.processes, other), segments=(lock,))

    summaries = [each.summary for each in found(standing_still.check, both)]

    assert any(
        each.startswith("main (100) and client (200) wait at data.py:88 ask") for each in summaries
    )
