"""A process that computes, or was killed, at a search whose time is like the square of a run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.costs import costly
from mpwatch.diagnose.rules.exits import worker_exited_unexpectedly
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.account import Activity
from mpwatch.model.findings import Finding
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import Mark, SourceLine, Statement
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
from tests.unit.diagnose.rules.test_no_progress import child, waiting

FILE = "/home/me/train.py"
TEXT = Statement(9, "text = BLANKS.sub('', text)")
AT = SourceLine(FILE, 9, "work", TEXT)
SQUARE = Mark("quadratic-pattern", FILE, "work", "4, [ \\t]+$", TEXT)
WORDS = (
    "the regular expression [ \\t]+$ of line 4 can take a time like the square of the length of a "
    "run of characters"
)
KILL = Statement(51, "state.process.kill()")
KILLS = Mark("kills", FILE, "end", "47; check, end; if now - seen > ttl: in line 50", KILL)
ROUNDS = SourceLine(FILE, 48, "check", Statement(48, "wait()"), (Statement(47, "while True:"),))


@pytest.mark.parametrize("mark", [SQUARE, SQUARE._replace(statement=Statement(12, "x"))])
def test_one_that_computes_at_such_a_search_is_said_to_do_so(mark: Mark) -> None:
    busy = child(None, state="R", still_s=0.0)
    job = snapshot_of(waiting(500.0), busy, source=(AT,), marks=(mark,))

    finding = only(no_progress.check, job)

    is_told = mark is SQUARE
    assert finding.summary.endswith(WORDS) is is_told
    assert ("re holds the GIL meanwhile" in finding.cause) is is_told
    assert finding.advice.startswith("Make [ \\t]+$ linear") is is_told


def test_a_line_that_takes_the_time_of_a_job_is_told_with_its_search() -> None:
    index = Index(snapshot_of(main(), source=(AT,), marks=(SQUARE,)))

    found = costly(index, "train.py:9 work")

    assert found is not None
    assert found.words == WORDS


COMPUTES = Activity("computing", "Python code", place="train.py:9 work")
UNSEEN = Activity("computing")
WAITS = Activity("waiting", "data", place="train.py:7 work")
AT_END = {COMPUTES: 0.05, WAITS: 0.95}


def killed(
    *stack: str,
    reported: bool = True,
    kills: Mark = KILLS,
    shares: Mapping[Activity, float] = AT_END,
) -> Snapshot:
    """A child was killed by main, as a hook reports, or as only the source shows."""
    dead = replace(dead_worker(role="spawned", signal=9), threads=(thread(200, *stack),))
    entry = log("kill", MAIN, pid=200, signal=9, site="train.py:51")
    watches = main(threads=[thread(MAIN, "train.py:check:48")])
    job = snapshot_of(
        watches,
        dead,
        source=(AT, ROUNDS),
        marks=(SQUARE, kills),
        log=(replace(entry, at_s=NOW_S - 5.0),) if reported else (),
    )
    return with_shares(job, p200=shares)


def test_one_of_several_ways_to_a_kill_is_most_likely_the_one_after_a_time() -> None:
    job = killed("train.py:work:9")
    other = KILLS._replace(about="; end; ")

    cause = of(replace(job, marks=(*job.marks, other))).cause

    assert "ended it, most likely under `if now - seen > ttl:` in line 50." in cause


def of(job: Snapshot) -> Finding:
    return only(worker_exited_unexpectedly.check, job)


def test_one_that_was_killed_at_such_a_search_was_most_likely_busy() -> None:
    finding = of(killed("train.py:work:9"))

    assert finding.summary.endswith(
        ", most likely while it was busy with a regular expression at train.py:9 work"
    )
    assert finding.cause.startswith(
        "main (100) at train.py:51 ended it, under `if now - seen > ttl:` in line 50. "
    )
    assert f"was most likely busy at train.py:9 work: {WORDS}." in finding.cause
    assert "most likely one that has to show that it is alive (a heartbeat) did not" in (
        finding.cause
    )
    assert "from a process of its own" in finding.advice


def test_one_that_was_seen_to_compute_there_for_long_was_busy() -> None:
    finding = of(killed("train.py:work:9", shares={COMPUTES: 0.8, WAITS: 0.2}))

    assert "was busy at train.py:9 work" in finding.cause
    assert "it had computed at that line for 8.0 s by then" in finding.evidence


def test_the_one_that_kills_may_be_known_by_the_source_alone() -> None:
    finding = of(killed("train.py:work:9", reported=False))

    assert finding.cause.startswith("Most likely main (100) at train.py:51 end ended it, under")
    assert "a heartbeat" in finding.cause


def test_one_whose_line_was_not_seen_was_possibly_there() -> None:
    finding = of(killed(shares={UNSEEN: 0.9, WAITS: 0.1}))

    assert ", possibly while it was busy with a regular expression at" in finding.summary
    assert f"Possible: it was busy at train.py:9 work: {WORDS}." in finding.cause
    assert "it had computed at lines that were not seen for 9.0 s by then" in finding.evidence


@pytest.mark.parametrize(
    "job",
    [
        killed("train.py:work:7", shares={UNSEEN: 1.0}),
        killed("data.py:load:9", shares={UNSEEN: 1.0}),
        killed("train.py:work:9", shares={WAITS: 0.5, COMPUTES: 0.5}),
        killed(shares={WAITS: 0.5, UNSEEN: 0.5}),
        killed(shares={UNSEEN: 1.0}, kills=KILLS._replace(about="47; check, end; ")),
    ],
    ids=["elsewhere", "another file", "has come back", "waits", "no condition"],
)
def test_one_that_was_killed_at_another_line_is_told_as_before(job: Snapshot) -> None:
    finding = of(job)

    assert "heartbeat" not in finding.cause
    assert finding.cause.startswith("main (100) at train.py:51 ended it")
