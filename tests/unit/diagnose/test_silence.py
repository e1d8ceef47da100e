"""Processes that were ended for their silence while they were at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.exits import worker_exited_unexpectedly
from mpwatch.model.account import Activity
from mpwatch.model.findings import Finding
from mpwatch.model.snapshot import Thread
from mpwatch.model.source_code import Mark, Statement
from tests.builders.accounts import with_shares
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    dead_worker,
    log,
    main,
    only,
    snapshot_of,
    thread,
)

FILE = "/home/me/train.py"
JUDGES = Mark(
    "judges-silence",
    FILE,
    "check",
    "beats, 51, 30",
    Statement(50, "if now - beats[number] > 30:"),
)
BEATS = Mark(
    "notes-time", FILE, "run", "beats, again", Statement(7, "beats[number] = time.monotonic()")
)
COMPUTES = Activity("computing", "Python code", place="train.py:9 work")
SLEEPS = Activity("sleeping", place="train.py:9 work")
ASKS = Activity(
    "waiting", "data on tcp 10.0.0.1:4 > 10.0.0.2:80", "socket", place="train.py:9 work"
)
FOR_LOCK = Activity("waiting", "a lock of its process", "lock", place="train.py:9 work")
ELSEWHERE = Activity("computing", "Python code", place="train.py:15 other")
WORKS = ("train.py:work:9", "train.py:run:8")
LOOP = ("train.py:work:9", "asyncio/base_events.py:_run_once", "train.py:main:20")


def killed(
    *stack: str,
    shares: Mapping[Activity, float],
    marks: Sequence[Mark] = (JUDGES, BEATS),
    more: Sequence[Thread] = (),
) -> Finding:
    """A child was ended by main, as a hook reports."""
    dead = replace(dead_worker(role="spawned", signal=9), threads=(thread(200, *stack), *more))
    entry = log("kill", MAIN, pid=200, signal=9, site="train.py:51")
    job = snapshot_of(
        main(threads=[thread(MAIN, "train.py:check:48")]),
        dead,
        marks=tuple(marks),
        log=(replace(entry, at_s=NOW_S - 5.0),),
    )
    return only(worker_exited_unexpectedly.check, with_shares(job, p200=shares))


def test_one_whose_thread_notes_the_time_itself() -> None:
    it = killed(*WORKS, shares={COMPUTES: 1.0})

    assert it.summary.endswith(", while it was at work at train.py:9 work")
    assert it.cause.startswith(
        "main (100) at train.py:51 ended it, under `if now - beats[number] > 30:` in line 50. "
    )
    assert "had been at train.py:9 work for at least 60 s by then, where it computed" in it.cause
    assert (
        "`beats[number] = time.monotonic()` at train.py:7 run, is done by the same thread"
    ) in it.cause
    assert it.advice.startswith("Let a thread of its own show")


def test_one_that_was_at_several_lines_of_one_function() -> None:
    other = COMPUTES._replace(place="train.py:10 work")
    shares = {COMPUTES: 0.5, other: 0.5}

    it = killed(*WORKS, shares=shares)

    assert "had been in work() of train.py for at least 60 s by then" in it.cause
    here = BEATS._replace(function="work")
    assert "while it" not in killed(*WORKS, shares=shares, marks=(JUDGES, here)).summary


@pytest.mark.parametrize("doing", [COMPUTES, SLEEPS, ASKS])
def test_one_that_blocks_its_event_loop(doing: Activity) -> None:
    beat = BEATS._replace(about="beats, async again", function="beat")

    it = killed(*LOOP, shares={doing: 1.0}, marks=(JUDGES, beat))

    assert "is done by a coroutine of the event loop that this blocks" in it.cause
    assert "asyncio.to_thread" in it.advice


def test_an_event_loop_that_is_idle_blocks_nothing() -> None:
    beat = BEATS._replace(about="beats, async again", function="beat")
    idle = ("selectors.py:select", "asyncio/base_events.py:_run_once", "train.py:work:9")

    assert "at work" not in killed(*idle, shares={ASKS: 1.0}, marks=(JUDGES, beat)).summary


def test_one_with_a_single_thread_whose_sign_of_life_does_not_show() -> None:
    it = killed(*WORKS, shares={COMPUTES: 1.0}, marks=(JUDGES,))

    assert "It had no other thread with Python code" in it.cause
    assert it.advice.startswith("If `beats` is when it was last heard of, let a thread")
    assert "the limit is one for the work" in it.advice


def test_one_that_sleeps_may_have_had_nothing_to_do() -> None:
    """A worker that looks for a job now and then, ended as it was idle for long."""
    assert "at work" not in killed(*WORKS, shares={SLEEPS: 1.0}, marks=(JUDGES,)).summary


def test_a_time_that_is_noted_once_is_no_sign_of_life() -> None:
    once = BEATS._replace(about="beats, once")

    assert (
        "is done by the same thread"
        not in killed(*WORKS, shares={COMPUTES: 1.0}, marks=(JUDGES, once)).cause
    )


@pytest.mark.parametrize(
    "shares",
    [
        {FOR_LOCK: 1.0},
        {COMPUTES: 0.5, ELSEWHERE: 0.5},
    ],
)
def test_one_that_waits_for_the_job_or_goes_on(shares: Mapping[Activity, float]) -> None:
    assert "while it" not in killed(*WORKS, shares=shares).summary


def test_a_limit_that_is_longer_than_it_was_seen_there() -> None:
    longer = JUDGES._replace(about="beats, 51, 600")

    assert "while it" not in killed(*WORKS, shares={COMPUTES: 1.0}, marks=(longer, BEATS)).summary


def test_another_thread_that_shows_that_it_is_alive() -> None:
    beat = BEATS._replace(function="beat")
    beating = thread(201, "train.py:beat:7", name="beat")

    it = killed(*WORKS, shares={COMPUTES: 1.0}, marks=(JUDGES, beat), more=[beating])

    assert "while it" not in it.summary


def test_a_signal_that_was_not_sent_under_that_condition() -> None:
    other = JUDGES._replace(about="beats, 45, 30", statement=Statement(44, "if now - x > 30:"))

    assert "while it" not in killed(*WORKS, shares={COMPUTES: 1.0}, marks=(other, BEATS)).summary
