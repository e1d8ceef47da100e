"""Locks between processes whose holder has ended, known by what the living processes do."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import no_progress, standing_still
from mpwatch.model.account import Activity
from mpwatch.model.findings import Severity
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import Skip, SourceLine, Statement
from tests.builders.accounts import with_shares
from tests.builders.snapshots import (
    MAIN,
    exited,
    fds,
    found,
    frames,
    history,
    line,
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


CLAIM = ("data.py:claim:17", "contextlib.py:__enter__:137", "data.py:score:60")
SLOTS = (
    source("data.py", 17, "claim", "self.slots.acquire()"),
    source("data.py", 60, "score", "with self.slots.claim(fold):"),
    source(
        "train.py", 29, "run", "score(config)", within=(Statement(26, "with slots.claim(name):"),)
    ),
    source("train.py", 22, "early", "with slots.claim(name):"),
    *SOURCE[2:],
)


def claiming(number: int, *outer: str, **more: Any) -> Process:
    wait = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=LOCK, value=0, **more)
    own = thread(number, *CLAIM, *outer, waits=wait, still_s=30.0, waits_s=30.0)
    return process(
        number, "spawned", threads=[own], segments=(), fds=fds(9, links=()), start_method="fork"
    )


def inside(number: int) -> Process:
    """One that has a slot and waits for a second one."""
    return claiming(number, "train.py:run:29")


def outside(number: int) -> Process:
    """One that waits for its first slot."""
    wait = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=LOCK, value=0)
    stack = (*CLAIM[:2], "train.py:early:22")
    own = thread(number, *stack, waits=wait, still_s=30.0, waits_s=30.0)
    return process(
        number, "spawned", threads=[own], segments=(), fds=fds(9, links=()), start_method="fork"
    )


def test_those_that_took_a_semaphore_and_want_it_once_more_are_named_with_both_lines() -> None:
    job = job_of(collecting(links=()), inside(300), inside(301), outside(302), lines=SLOTS)

    finding = only(standing_still.check, job)

    assert finding.severity is Severity.CRITICAL
    assert "that spawned 300 (300) and spawned 301 (301) took at train.py:26" in finding.summary
    assert "want once more at data.py:60 score" in finding.summary
    assert "spawned 302 (302) waits for it too" in finding.cause
    assert "`with slots.claim(name):` (train.py:26)" in finding.advice
    assert found(no_progress.check, job) == []


ACQUIRES = (
    source("data.py", 2, "locked", "lock.acquire()"),
    source("data.py", 3, "locked", "function(*args)", held=(Statement(2, "lock.acquire()"),)),
    source("train.py", 13, "checkpoint", "return locked(self.lock, self._write)"),
    source("train.py", 7, "save", "return locked(self.lock, self._save, item)"),
    source("train.py", 9, "check", "return locked(self.other, self._save, item)"),
    source("train.py", 20, "report", "self.compact()", held=(Statement(18, "self.a.acquire()"),)),
    source("train.py", 30, "compact", "self.a.acquire()"),
    source("train.py", 31, "trim", "with self.a:"),
    source("train.py", 32, "other", "self.b.acquire()"),
    source("data.py", 40, "again", "lock.acquire()"),
    source("data.py", 41, "again", "again(lock, 0)", held=(Statement(40, "lock.acquire()"),)),
    source("data.py", 51, "again", "again(spare, 0)", held=(Statement(40, "lock.acquire()"),)),
    *SOURCE[2:],
)


@pytest.mark.parametrize(
    ("stack", "is_twice"),
    [
        pytest.param(("train.py:compact:30", "train.py:report:20"), True, id="acquire twice"),
        pytest.param(("train.py:trim:31", "train.py:report:20"), True, id="acquire, then with"),
        pytest.param(("data.py:again:40", "data.py:again:41"), True, id="calls itself"),
        pytest.param(("data.py:again:40", "data.py:again:51"), False, id="with another lock"),
        pytest.param(("train.py:other:32", "train.py:report:20"), False, id="another lock"),
        pytest.param(
            (
                "data.py:locked:2",
                "train.py:checkpoint:13",
                "data.py:locked:3",
                "train.py:save:7",
            ),
            True,
            id="one helper for both",
        ),
        pytest.param(
            (
                "data.py:locked:2",
                "train.py:checkpoint:13",
                "data.py:locked:3",
                "train.py:check:9",
            ),
            False,
            id="one helper for two locks",
        ),
    ],
)
def test_a_lock_that_was_acquired_without_a_block_is_reported_as_taken_twice(
    stack: tuple[str, ...], is_twice: bool
) -> None:
    wait = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=LOCK, value=0)
    own = [
        process(
            number,
            "spawned",
            threads=[thread(number, *stack, waits=wait, still_s=30.0, waits_s=30.0)],
            segments=(),
            fds=fds(9, links=()),
            start_method="fork",
        )
        for number in (300, 301)
    ]
    findings = found(standing_still.check, job_of(collecting(links=()), *own, lines=ACQUIRES))

    told = [each for each in findings if "once more at" in each.summary]
    assert bool(told) is is_twice
    for finding in told:
        assert "and not released it yet: called from there" in finding.cause
        way = " <- ".join(f"{each.split(':')[0]}:{each.split(':')[2]}" for each in stack[:2])
        assert way.replace(" <- ", f" {stack[0].split(':')[1]} <- ") in " ".join(finding.evidence)


OTHER_LOCK = replace(SLOTS[2], within=(Statement(26, "with files.open_one(name):"),))
AT_WORK = process(
    303, "spawned", threads=[thread(303, state="R")], segments=(), fds=fds(9, links=())
)


@pytest.mark.parametrize(
    ("job", "is_held"),
    [
        (job_of(collecting(), inside(300), inside(301), lines=SLOTS), True),
        (job_of(collecting(), inside(300), outside(301), lines=SLOTS), True),
        (job_of(collecting(), outside(300), outside(301), lines=SLOTS), False),
        (
            job_of(collecting(), inside(300), lines=(*SLOTS[:2], OTHER_LOCK, *SLOTS[3:])),
            False,
        ),
        (job_of(collecting(), inside(300), AT_WORK, lines=SLOTS), False),
        (
            job_of(
                collecting(),
                claiming(300, "train.py:run:29", timeout_s=5.0),
                lines=SLOTS,
            ),
            False,
        ),
        (job_of(collecting(), inside(300), lines=SLOTS[:2]), False),
    ],
)
def test_a_semaphore_is_taken_twice_only_if_none_but_those_that_wait_can_have_it(
    job: Snapshot, is_held: bool
) -> None:
    verdicts = {chain.verdict for chain in wait_graph(Index(job)).chains}

    assert ("dead-end" in verdicts) is is_held


READS = frames("multiprocessing/synchronize.py:__enter__", "multiprocessing/queues.py:get")


def test_a_semaphore_that_none_is_seen_to_hold_is_reported_while_the_others_only_poll() -> None:
    """Without source nothing shows who has it: main writes a line to its log now and then."""
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=0.2)
    polls = main(
        threads=[thread(MAIN, "train.py:loop:63", waits=sleeps, still_s=0.1)],
        segments=(),
        fds=fds(12, links=()),
    )
    held = [claiming(number, "train.py:run:29") for number in (300, 301)]
    asleep = {Activity("sleeping", place="train.py:63 loop"): 1.0}
    job = with_shares(job_of(polls, *held, lines=()), p100=asleep)
    working = with_shares(job_of(polls, *held, AT_WORK, lines=()), p100=asleep)
    past = history({(MAIN, "written_bytes"): line(9000.0, per_s=1.0)})

    finding = only(no_progress.check, job, past)

    assert finding.severity is Severity.INFO
    assert "waited 30 s for a semaphore at data.py:17 claim" in finding.summary
    assert "no process is at work that could release it" in finding.summary
    assert any("main (100) sleeps again and again" in each for each in finding.evidence)
    others = found(no_progress.check, working, past)
    assert not any("no process is at work" in each.summary for each in others)

    readers = [
        replace(each, threads=(replace(each.threads[0], stack=(*READS, *each.threads[0].stack)),))
        for each in held
    ]
    idle = found(no_progress.check, replace(job, processes=(polls, *readers)), past)
    assert not any("no process is at work" in each.summary for each in idle)


RING = (
    source(
        "train.py",
        28,
        "batch",
        "slot = self.ring.full.get()",
        skips=(
            Skip(
                Statement(28, "slot = self.ring.full.get()"),
                Statement(31, "continue"),
                Statement(29, "if not self.ring.valid[slot]:"),
                Statement(34, "self.ring.free.put(slot)"),
            ),
        ),
    ),
    source("data.py", 31, "act", "slot = ring.free.get()"),
)


def reading(number: int, inode: int, other: int, *stack: str, role: Any = "spawned") -> Process:
    wait = WaitedOn("pipe-read", "read", (f"pipe:[{inode}]",))
    own = thread(number, *stack, waits=wait, still_s=40.0, waits_s=40.0)
    links = (pipe(3, inode, False), pipe(4, other, True))
    return process(number, role, threads=[own], segments=(), fds=fds(9, links=links))


@pytest.mark.parametrize(
    ("statement", "is_told"),
    [("slot = ring.free.get()", True), ("task = ring.tasks.get()", False)],
)
def test_what_is_taken_and_not_given_back_on_one_way_is_told_to_those_that_wait_for_it(
    statement: str, is_told: bool
) -> None:
    learner = reading(MAIN, 800, 801, "train.py:batch:28", role="main")
    actor = reading(300, 801, 800, "data.py:act:31")
    lines = (RING[0], replace(RING[1], statement=Statement(31, statement)))

    finding = only(standing_still.check, snapshot_of(learner, actor, source=lines))

    assert finding.severity is Severity.CRITICAL
    assert ("likely `continue` at train.py:31 skips" in finding.summary) is is_told
    assert ("under `if not self.ring.valid[slot]:` of line 29" in finding.cause) is is_told
    assert ("self.ring.free.put(slot)" in finding.advice) is is_told
