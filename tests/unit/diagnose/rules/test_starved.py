"""A writer that waits until a count of readers is 0, while readers go on to come."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import no_progress, standing_still
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import SegmentId, SegmentUse
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from mpwatch.model.waits import SETTLED_S
from tests.builders.snapshots import (
    MAIN,
    exited,
    fds,
    found,
    main,
    only,
    pid,
    process,
    segment,
    snapshot_of,
    thread,
)

READY, ROOM = 77, 78
"""Semaphores: of the condition, and of the room in a queue."""
CONDITION = ("multiprocessing/synchronize.py:wait", "data.py:acquire_write:23", "train.py:index:78")
PUTS = ("multiprocessing/queues.py:put", "train.py:ingest:63")
JOINS = ("threading.py:join", "train.py:search:52")
READS = ("train.py:serve:34",)
ADMITS = Mark(
    "admits",
    "/home/me/data.py",
    "acquire_read",
    "self.readers.value, acquire_write, 22-23, acquire_read/reading; train.py:26-42 serve",
    Statement(12, "self.readers.value += 1"),
)
BLOCK = SourceLine(
    "/home/me/train.py",
    34,
    "serve",
    Statement(34, "time.sleep(0.004)"),
    within=(Statement(26, "while True:"), Statement(29, "with lock.reading():")),
)


def at(inode: int) -> WaitedOn:
    return WaitedOn("semaphore", "futex", (), segment=SegmentId(9, inode), value=0)


def using(*inodes: int) -> tuple[SegmentUse, ...]:
    return tuple(
        SegmentUse(SegmentId(9, each), f"/dev/shm/sem.mp-{each}", "semaphore", False, None)
        for each in inodes
    )


def child(number: int, label: str, *inodes: int, threads: list[Thread], **more: Any) -> Process:
    taken: dict[str, Any] = {"fds": fds(9, links=()), "thread_count": len(threads), **more}
    taken |= {"threads": threads, "segments": using(*inodes), "signals_caught": 0}
    return process(number, "spawned", label=label, **taken)


def reader(number: int, still_s: float = 0.0, *stack: str, other_still_s: float = 0.0) -> Process:
    waits = WaitedOn("futex", "futex", ("futex 0x7f00",), futex_command=9)
    threads = [
        thread(number, *JOINS, waits=waits),
        thread(number + 1, *(stack or READS), still_s=still_s),
        thread(number + 2, *READS, still_s=other_still_s),
    ]
    return child(number, f"searcher {number}", READY, threads=threads)


def job(*more: Process, for_s: float = 49.0, marks: tuple[Mark, ...] = (ADMITS,)) -> Snapshot:
    indexer = [thread(300, *CONDITION, waits=at(READY), still_s=for_s)]
    ingester = [thread(310, *PUTS, waits=at(ROOM), still_s=for_s - 5)]
    return snapshot_of(
        main(
            threads=[thread(MAIN, "train.py:main:57", waits=WaitedOn("timer", "clock_nanosleep"))]
        ),
        child(300, "indexer", READY, ROOM, threads=indexer),
        child(310, "ingester", ROOM, READY, threads=ingester),
        *more,
        marks=marks,
        source=(BLOCK,),
        segments=(
            segment(READY, kind="semaphore", mappers=tuple(map(pid, (300, 310, 320, 330)))),
            segment(ROOM, kind="semaphore", mappers=tuple(map(pid, (300, 310)))),
        ),
    )


def starved(snapshot: Snapshot) -> list[Finding]:
    return [e for e in found(no_progress.check, snapshot) if e.subject == "starved"]


def test_a_writer_that_readers_keep_out_is_named_with_the_line_that_lets_them_in() -> None:
    finding = only(no_progress.check, job(reader(320), reader(330)))

    assert finding.severity is Severity.WARNING
    assert finding.process == pid(300)
    assert finding.summary == (
        "indexer (300) has waited 49 s at data.py:23 acquire_write for self.readers.value to "
        "become 0, while searcher 320 (320) and searcher 330 (330) go on to add to it"
    )
    assert finding.evidence[0] == (
        "`self.readers.value += 1` at data.py:12 acquire_read is reached in each round of the loop "
        "at train.py:26 serve"
    )
    assert "4 threads" in finding.evidence[2]
    assert "4 of them now in `with lock.reading():` of line 29" in finding.evidence[2]
    assert "an effect: ingester (310) waits for room in a full queue" in finding.evidence[3]
    assert finding.cause.startswith("Most likely it starves, as the writer of a read-write lock")
    assert "ingester (310) only waits behind it" in finding.cause
    assert "count those that wait in it" in finding.advice
    assert "More readers, notify_all() in place of notify()" in finding.advice


def test_no_cycle_goes_through_a_writer_that_seldom_running_readers_keep_out() -> None:
    readers = [reader(n, SETTLED_S + 1, other_still_s=SETTLED_S + 2) for n in (320, 330)]

    assert found(standing_still.check, job(*readers)) == []
    assert len(starved(job(*readers))) == 1
    (chain,) = (
        each for each in wait_graph(Index(job(*readers))).chains if each.links[0].name == "ingester"
    )
    assert [each.name for each in chain.links] == ["ingester", "indexer", "searcher 320"]


def test_two_minutes_of_it_are_critical() -> None:
    assert only(no_progress.check, job(reader(320), for_s=130.0)).severity is Severity.CRITICAL


@pytest.mark.parametrize(
    "snapshot",
    [
        job(reader(320), reader(330), marks=()),
        job(reader(320), for_s=6.0),
        # None goes on, or one alone.
        job(),
        job(child(320, "searcher", READY, threads=[thread(320, *READS, still_s=0.0)])),
        # One of them has stopped where it keeps the count above 0.
        job(reader(320), reader(330, 45.0)),
        # One that has ended may have left it above 0.
        job(
            reader(320),
            child(340, "x", READY, threads=[], ended=exited(340, signal=9)),
        ),
    ],
)
def test_a_count_that_may_have_another_reason_is_none(snapshot: Snapshot) -> None:
    assert starved(snapshot) == []


def test_a_reader_that_waits_for_work_outside_of_the_block_keeps_nothing() -> None:
    idle = SourceLine(
        "/home/me/train.py",
        28,
        "serve",
        Statement(28, "query = queries.get()"),
        within=(Statement(26, "while True:"),),
    )
    snapshot = job(reader(320), reader(330, 45.0, "train.py:serve:28"))

    assert len(starved(replace(snapshot, source=(BLOCK, idle)))) == 1


def test_a_thread_that_waits_for_others_of_its_process_is_named() -> None:
    waits = ("threading.py:wait", "data.py:acquire_write:23", "train.py:write:60")
    threads = [
        thread(MAIN, "threading.py:join", "train.py:main:80"),
        thread(101, *waits, name="writer", still_s=35.0),
        *(thread(102 + n, *READS, still_s=0.0) for n in range(3)),
    ]
    snapshot = snapshot_of(main(threads=threads), marks=(ADMITS,), source=(BLOCK,))

    assert starved(snapshot)[0].summary == (
        "thread writer of main (100) has waited 35 s at data.py:23 acquire_write for "
        "self.readers.value to become 0, while 3 other threads of it go on to add to it"
    )
