"""What findings say would end the waits that they are about."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.endings import endings_for
from mpwatch.diagnose.analysis.source.in_flight import with_limit_kept
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.source_code import (
    Ending,
    EndlessLoop,
    InFlight,
    LeftOut,
    Origin,
    OriginKind,
    OriginStep,
    SourceLine,
    Statement,
)
from tests.builders.snapshots import MAIN, main, snapshot_of, thread

FILE = "/home/me/train.py"
ENDING = Ending(
    "/home/me/data.py",
    "load",
    Statement(24, "self.ready.set()"),
    Statement(23, "if self.check():"),
    Statement(21, "if rank != 0: return"),
)
FINDING = Finding(
    rule="standing-still",
    severity=Severity.CRITICAL,
    process=main().process,
    summary="main (100) is blocked",
    evidence=("main is at train.py:11 run",),
    cause="No process can end that wait.",
    advice="Look at the lines.",
)
WORDS = (
    "as far as names tell, the wait at train.py:11 run would end by `self.ready.set()` at "
    "data.py:24 load, under `if self.check():` of line 23, after `if rank != 0: return` in line 21"
)


def index_of(*stack: str) -> Index:
    line = SourceLine(FILE, 11, "run", Statement(11, "self.ready.wait()"), ended_by=(ENDING,))
    threads = [thread(MAIN, *stack)] if stack else []
    return Index(snapshot_of(main(threads=threads), source=(line,)))


def test_a_wait_that_does_not_end_has_what_would_end_it() -> None:
    job = index_of("train.py:run:11", "data.py:load:30")

    assert endings_for(job, FINDING) == (WORDS,)


def test_a_function_in_which_no_thread_is_is_told_where_all_stacks_are_known() -> None:
    assert endings_for(index_of("train.py:run:11"), FINDING) == (
        f"{WORDS} (no thread is in load())",
    )
    assert endings_for(index_of(), FINDING) == (WORDS,)


@pytest.mark.parametrize(
    "finding",
    [
        replace(FINDING, rule="steady-growth"),
        replace(FINDING, cause="Nothing calls `self.ready.set()` at data.py:24 load."),
        replace(FINDING, evidence=("main is at train.py:40 close",)),
    ],
)
def test_other_findings_and_those_that_name_it_have_no_such_line(finding: Finding) -> None:
    assert endings_for(index_of("train.py:run:11"), finding) == ()


SETS = OriginStep("/home/me/data.py", "read", Statement(9, "self.good = os.path.exists(path)"))
BY_FILE = Origin(
    "/home/me/data.py", Statement(23, "if self.check():"), "file", "os.path.exists(path)", (SETS,)
)
TOLD = (
    "as far as names tell, `if self.check():` (data.py:23) depends on "
    "`self.good = os.path.exists(path)` (data.py:9 read): which files there are"
)


def test_the_condition_under_which_a_wait_would_end_is_told_with_its_origin() -> None:
    job = index_of("train.py:run:11", "data.py:load:30")
    with_origins = Index(replace(job.snapshot, origins=(BY_FILE,)))

    assert endings_for(with_origins, FINDING) == (WORDS, TOLD)


@pytest.mark.parametrize(
    "found",
    [
        BY_FILE._replace(steps=()),
        BY_FILE._replace(kind="argument", is_certain=False),
        BY_FILE._replace(kind="shared"),
        BY_FILE._replace(statement=Statement(22, "if other:")),
    ],
)
def test_an_origin_that_says_nothing_more_is_left_out(found: Origin) -> None:
    job = index_of("train.py:run:11", "data.py:load:30")

    assert endings_for(Index(replace(job.snapshot, origins=(found,))), FINDING) == (WORDS,)


def test_a_setting_tells_nothing_beside_what_the_condition_shows() -> None:
    job = index_of("train.py:run:11", "data.py:load:30")
    found = (BY_FILE._replace(kind="argument"), BY_FILE._replace(steps=()))

    assert endings_for(Index(replace(job.snapshot, origins=found)), FINDING) == (WORDS,)


def test_an_origin_whose_statement_the_finding_names_is_left_out() -> None:
    job = index_of("train.py:run:11", "data.py:load:30")
    known = replace(FINDING, cause="data.py:9 read has found no file.")

    assert endings_for(Index(replace(job.snapshot, origins=(BY_FILE,))), known) == (WORDS,)


@pytest.mark.parametrize("kind", ["", "argument", "queue"])
def test_a_loop_that_polls_is_told_with_what_its_condition_reads(kind: OriginKind) -> None:
    header = Statement(10, "while self.window.size() < self.least:")
    step = OriginStep(FILE, "size", Statement(30, "return len(self.games)"))
    line = SourceLine(
        FILE, 11, "run", Statement(11, "time.sleep(1)"), (header,), until=EndlessLoop(header)
    )
    origin = Origin(FILE, header, kind, "self.games", (step,))
    job = Index(snapshot_of(main(), source=(line,), origins=(origin,)))

    (told,) = endings_for(job, FINDING)

    assert told.startswith(
        "as far as names tell, `while self.window.size() < self.least:` (train.py:10) depends on "
        "`return len(self.games)` (train.py:30 size)"
    )


@pytest.mark.parametrize(
    ("text", "is_told"),
    [("item = q.get(timeout=1)", True), ("q.put(item)", False), ("dist.barrier()", False)],
)
def test_the_condition_of_a_loop_is_told_where_its_wait_comes_back_to_it(
    text: str, is_told: bool
) -> None:
    header = Statement(10, "while self.window.size() < self.least:")
    step = OriginStep(FILE, "size", Statement(30, "return len(self.games)"))
    line = SourceLine(FILE, 11, "run", Statement(11, text), (header,), until=EndlessLoop(header))
    origin = Origin(FILE, header, "queue", "self.games", (step,))
    job = Index(snapshot_of(main(), source=(line,), origins=(origin,)))

    assert bool(endings_for(job, FINDING)) is is_told


LIMIT = InFlight(
    "self.sent",
    Statement(30, "while self.sent < self.most:"),
    Statement(31, "self.sent += len(parts)"),
    "collect",
    Statement(40, "self.sent -= len(result.rows)"),
    by_content=True,
    left_out=LeftOut(
        FILE, "run", Statement(19, "rows.append(row)"), Statement(17, "if not row.ok: continue")
    ),
)
RECEIVES = SourceLine(
    "/home/me/main.py", 39, "collect", Statement(39, "result = self.results.get()")
)


def limited(limit: InFlight, answers: Ending | None = None) -> Index:
    """A worker that waits for a request, and a main process for its answer."""
    sends = Ending("/home/me/main.py", "dispatch", Statement(32, "self.requests.put(parts)"))
    waits = SourceLine(
        FILE,
        11,
        "run",
        Statement(11, "request = self.requests.get()"),
        ended_by=(sends._replace(limit=limit),),
    )
    receives = replace(RECEIVES, ended_by=(answers,) if answers is not None else ())
    return Index(snapshot_of(main(), source=(waits, receives)))


BOTH_WAIT = replace(
    FINDING, evidence=("main is at main.py:39 collect", "worker is at train.py:11 run")
)


def test_a_limit_on_what_is_in_flight_is_told_where_the_function_waits_that_gives_back() -> None:
    finding = with_limit_kept(limited(LIMIT), BOTH_WAIT)

    assert finding.evidence[2:] == (
        "as far as names tell, `self.requests.put(parts)` (main.py:32 dispatch) stands under a "
        "limit on what is in flight, `while self.sent < self.most:` (main.py:30): self.sent rises "
        "by `self.sent += len(parts)` (main.py:31) and is given back by "
        "`self.sent -= len(result.rows)` (main.py:40 collect)",
        "as far as names tell, `if not row.ok: continue` (train.py:17 run) leaves "
        "`rows.append(row)` (train.py:19) out, so that less is given back",
    )
    assert "the limit at main.py:30 is used up" in finding.cause
    assert "Most likely the limit at main.py:30" in finding.cause
    assert finding.advice.startswith("Give self.sent back by requests and not by results")
    assert "A greater limit, or more processes, only delays it." in finding.advice
    assert finding.advice.endswith(FINDING.advice)


def test_a_count_that_each_answer_lowers_is_the_cause_if_not_all_are_answered() -> None:
    by_one = LIMIT._replace(by_content=False, left_out=None)
    always = Ending(FILE, "run", Statement(20, "self.results.put(result)"))
    at_times = always._replace(under=Statement(18, "if result.rows:"))

    unlikely = with_limit_kept(limited(by_one, always), BOTH_WAIT)
    finding = with_limit_kept(limited(by_one, at_times), BOTH_WAIT)

    assert (len(unlikely.evidence), unlikely.cause) == (3, FINDING.cause)
    assert "It can be that the limit at main.py:30 is used up" in finding.cause
    assert "a request without an answer keeps its share for ever" in finding.cause
    assert finding.advice.startswith("Answer every request, also where it fails")
    assert "A greater limit, or more processes, only delays it." in finding.advice
    assert "by requests and not by results" not in finding.advice


@pytest.mark.parametrize(
    "finding",
    [
        FINDING,  # no thread is said to wait where it is given back
        replace(BOTH_WAIT, rule="steady-growth"),
    ],
)
def test_a_limit_is_not_told_of_other_waits(finding: Finding) -> None:
    assert with_limit_kept(limited(LIMIT), finding) == finding


def test_a_permit_is_told_with_what_releases_it() -> None:
    takes = Statement(31, "self.slots.acquire()")
    permit = InFlight("self.slots", takes, takes, "collect", Statement(40, "self.slots.release()"))

    (told,) = with_limit_kept(limited(permit), BOTH_WAIT).evidence[2:]

    assert told == (
        "as far as names tell, `self.requests.put(parts)` (main.py:32 dispatch) is reached with a "
        "permit only, by `self.slots.acquire()` (main.py:31), and `self.slots.release()` "
        "(main.py:40 collect) releases it"
    )
