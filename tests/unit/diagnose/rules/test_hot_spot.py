"""The function in which a job spends its time, and jobs of which that is not told."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from mpwatch.diagnose.rules.throughput.hot_spot import check
from mpwatch.model.account import NO_CORE, Activity
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import SourceLine, Statement
from tests.builders.accounts import with_shares
from tests.builders.snapshots import found, main, only, pid, process, snapshot_of, thread

LETTERS = Activity("computing", "Python code", place="data.py:21 letters")
TRAINS = Activity("computing", "native code", place="train.py:68 train")
IDLE = Activity("idle", "work")
LOOP = Statement(20, "for each in text:")
EPOCHS = Statement(60, "for epoch in range(9):")


def source(text: str = "if each.isalpha():", function: str = "letters") -> tuple[SourceLine, ...]:
    return (
        SourceLine("/home/me/data.py", 21, function, Statement(21, text), (LOOP,)),
        SourceLine("/home/me/data.py", 40, "__iter__", Statement(40, "sizes = letters(text)")),
        SourceLine(
            "/home/me/train.py", 68, "train", Statement(68, "for batch in loader:"), (EPOCHS,)
        ),
        SourceLine("/home/me/train.py", 70, "train", Statement(70, "loss.backward()"), (EPOCHS,)),
    )


def job(
    shares: Mapping[Activity, float],
    *stack: str,
    lines: tuple[SourceLine, ...] | None = None,
    **others: Mapping[Activity, float],
) -> Snapshot:
    """Main with two loader workers that have nothing to do."""
    at = stack or ("data.py:letters:21", "data.py:__iter__:40", "train.py:train:68")
    first = main(threads=[thread(100, *at)])
    taken = snapshot_of(
        first, *(process(200 + n, label=f"worker {n}", threads=[thread(200 + n)]) for n in (0, 1))
    )
    idle = {f"p{200 + n}": {IDLE: 1.0} for n in (0, 1)}
    return replace(
        with_shares(taken, p100=shares, **{**idle, **others}),
        source=source() if lines is None else lines,
    )


def test_the_function_that_takes_the_time_is_named_with_the_loops_around_it() -> None:
    finding = only(check, job({LETTERS: 0.6, TRAINS: 0.4}))

    assert finding.severity is Severity.INFO
    assert finding.is_doubtful
    assert finding.process == pid(100)
    assert finding.summary == (
        "main (100) computes 100% of the time, most of it at data.py:21 letters"
    )
    assert "60% of its computing whose line is known is in letters()" in finding.evidence
    assert (
        "letters() was last called from data.py:40 __iter__, from train.py:68 train"
    ) in finding.evidence
    assert finding.cause.startswith(
        "data.py:21 letters is run in each round of `for each in text:` (data.py:20), which "
        "is run in each round of `for epoch in range(9):` (train.py:60)."
    )
    assert "worker 0 (200) and worker 1 (201) have little to do" in finding.advice


def test_time_without_a_core_is_left_out() -> None:
    finding = only(check, job({LETTERS: 0.3, NO_CORE: 0.6, IDLE: 0.1}))

    assert finding.summary.startswith("main (100) computes 75% of the time with a core, most")


def test_a_step_of_a_training_is_no_hot_spot() -> None:
    backward = Activity("computing", "native code", place="train.py:70 train")

    assert found(check, job({backward: 0.9, IDLE: 0.1})) == []
    in_forward = (*source("x = self.norm(x)", "forward")[:1],)
    bare = tuple(replace(each, within=()) for each in in_forward)
    spot = Activity("computing", "Python code", place="data.py:21 forward")
    assert found(check, job({spot: 0.9, IDLE: 0.1}, lines=bare)) == []
    assert len(found(check, job({spot: 0.9, IDLE: 0.1}, lines=in_forward))) == 1


def test_nothing_is_told_of_little_computing_or_of_many_places() -> None:
    assert found(check, job({LETTERS: 0.4, IDLE: 0.6})) == []
    apart = {Activity("computing", place=f"a.py:{n} f{n}"): 0.3 for n in range(3)}
    assert found(check, job({**apart, IDLE: 0.1})) == []
    assert found(check, job({LETTERS: 0.9, IDLE: 0.1}, lines=())) == []


def test_workers_are_named_where_main_only_waits() -> None:
    waits = {Activity("waiting", "batches", "batch"): 1.0}
    one = {LETTERS: 0.9, IDLE: 0.1}

    finding = only(check, job(waits, "train.py:train:68", p200=one, p201=one))

    assert finding.summary.startswith("worker 0 (200) and worker 1 (201) compute 90% of the time")
    assert [finding.process, *finding.others] == [pid(200), pid(201)]
    assert "little to do" not in finding.advice
