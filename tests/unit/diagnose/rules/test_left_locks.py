"""Locks between processes whose holder has ended, known by what the living processes do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import no_progress, standing_still
from mpwatch.model.findings import Severity
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    exited,
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

LOCK = SegmentId(9, 77)
RESULTS = 500
TAKES = Statement(17, "with self.access:")
ENTERS = ("multiprocessing/synchronize.py:__enter__", "data.py:take:17", "train.py:run:22")
GETS = (
    "multiprocessing/connection.py:poll",
    "multiprocessing/queues.py:get",
    "train.py:main:33",
    "train.py:<module>:44",
)


def source(file: str, at: int, function: str, text: str, **more: Any) -> SourceLine:
    return SourceLine(f"/home/me/{file}", at, function, Statement(at, text), **more)


SOURCE = (
    source("data.py", 17, "take", TAKES.text),
    source("train.py", 22, "run", "self.ring.take()"),
    source("train.py", 33, "main", "results.get(timeout=5)"),
    source("train.py", 44, "<module>", "main()"),
)
ENDED_CHILD = (pipe(5, RESULTS, False), pipe(7, 601, False), pipe(10, 602, True))
"""What a parent has of a child that has ended: its sentinel and the pipe it watches main by."""


def waiting(number: int, still_s: float = 30.0) -> Process:
    wait = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=LOCK, value=0)
    own = thread(number, *ENTERS, waits=wait, still_s=still_s, waits_s=still_s)
    links = (pipe(6, RESULTS, True),)
    return process(
        number, "spawned", threads=[own], segments=(), fds=fds(9, links=links), start_method="fork"
    )


def collecting(*stack: str, links: tuple[Any, ...] = ENDED_CHILD, **more: Any) -> Process:
    wait = WaitedOn("poll", "poll", (f"pipe:[{RESULTS}]",), timeout_s=4.0)
    own = thread(MAIN, *(stack or GETS), waits=wait, still_s=18.0, waits_s=60.0, **more)
    return main(threads=[own], segments=(), fds=fds(12, links=links))


def job_of(*processes: Process, lines: tuple[SourceLine, ...] = SOURCE) -> Snapshot:
    users = tuple(each.process for each in processes if each.ended is None)
    lock = segment(77, kind="semaphore", mappers=users)
    return snapshot_of(*processes, segments=(lock,), source=lines)


def test_a_lock_that_no_living_process_holds_was_left_by_one_that_has_ended() -> None:
    job = job_of(collecting(), waiting(300), waiting(301))

    finding = only(standing_still.check, job)

    assert finding.severity is Severity.CRITICAL
    assert finding.process == pid(300)
    assert "spawned 300 (300) and spawned 301 (301) wait for a lock" in finding.summary
    assert "whose holder has ended" in finding.summary
    assert any("main (100)" in each and "1 child" in each for each in finding.evidence)
    assert "terminate()" in finding.advice
    assert found(no_progress.check, job) == []
    assert {chain.verdict for chain in wait_graph(Index(job)).chains} == {"dead-end"}


def test_without_a_trace_of_an_ended_process_the_holder_is_left_open() -> None:
    finding = only(standing_still.check, job_of(collecting(links=()), waiting(300), waiting(301)))

    assert "wait for a lock that no living process is seen to hold" in finding.summary
    assert "Either" in finding.cause


def test_an_ended_process_that_was_seen_is_named() -> None:
    gone = process(302, "spawned", ended=exited(302, signal=9), start_method="fork")

    finding = only(standing_still.check, job_of(collecting(), waiting(300), gone))

    assert any("spawned 302 (302) ended: signal 9 (SIGKILL)" in each for each in finding.evidence)


INSIDE = source(
    "train.py", 33, "main", "results.get(timeout=5)", within=(Statement(30, "with ring.access:"),)
)
OF_VALUE = replace(INSIDE, within=(Statement(30, "with total.get_lock():"),))
OPENS = replace(INSIDE, within=(Statement(30, "with open(path) as file:"),))


@pytest.mark.parametrize(
    ("job", "is_left"),
    [
        (job_of(collecting(), waiting(300)), True),
        (job_of(collecting(), waiting(300), lines=(*SOURCE[:2], OPENS, SOURCE[3])), True),
        (job_of(collecting(), waiting(300), lines=(*SOURCE[:2], INSIDE, SOURCE[3])), False),
        (job_of(collecting(), waiting(300), lines=(*SOURCE[:2], OF_VALUE, SOURCE[3])), False),
        (job_of(collecting(), waiting(300), lines=SOURCE[:3]), False),
        (job_of(collecting(), waiting(300, still_s=4.0)), False),
        (job_of(collecting(stack_age_s=90.0), waiting(300)), False),
        (job_of(collecting(), waiting(300), process(303, "spawned", segments=None)), False),
        (
            job_of(
                collecting(),
                waiting(300),
                process(303, "spawned", threads=[thread(303, state="R")], segments=()),
            ),
            False,
        ),
    ],
)
def test_a_lock_is_left_only_if_every_process_is_seen_outside_of_such_a_block(
    job: Snapshot, is_left: bool
) -> None:
    assert any(chain.verdict == "dead-end" for chain in wait_graph(Index(job)).chains) is is_left


def test_a_process_that_is_seen_outside_of_the_block_is_not_said_to_hold_the_lock() -> None:
    unseen = process(303, "spawned", threads=[thread(303, state="S")], segments=())
    job = job_of(collecting(), waiting(300), unseen)

    texts = [each.summary for each in found(standing_still.check, job)]
    texts += [each.summary for each in found(no_progress.check, job)]

    assert not any("main (100) most likely holds" in each for each in texts)
