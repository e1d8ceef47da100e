"""A wait without an end at a line that gives it a time limit."""

from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.rules.hangs import no_progress, standing_still
from mpwatch.model.findings import Finding
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import Origin, OriginStep, SourceLine, Statement
from tests.builders.snapshots import MAIN, fds, main, only, process, snapshot_of, socket, thread

QUEUE, PROGRAM = "/home/me/data.py", "/home/me/train.py"
POLL = Statement(26, "if not self.poller.poll(limit_ms):")
CALL = Statement(67, "answer = queue.dequeue(left)")
LEFT = Statement(65, "left = deadline - time.monotonic()")
STEPS = (
    OriginStep(QUEUE, "dequeue", Statement(25, "limit_ms = int(timeout * 1000)")),
    OriginStep(PROGRAM, "collect", CALL, is_call=True),
    OriginStep(PROGRAM, "collect", LEFT),
)
TIME_LEFT = Origin(
    QUEUE, POLL, "time-left", "deadline - time.monotonic()", STEPS, names=("limit_ms",)
)
AT_POLL = "data.py:dequeue:26"
MOST_LIKELY = "most likely that was below zero, which means none"


def polls(inode: int, timeout_s: float | None = None) -> WaitedOn:
    return WaitedOn("poll", "poll", (f"socket:[{inode}]",), timeout_s=timeout_s)


def one(number: int, waits: WaitedOn, *stack: str, ends: tuple[int, int]) -> Process:
    taken: dict[str, Any] = {
        "fds": fds(9, links=(socket(3, *ends),)),
        "segments": (),
        "threads": [thread(number, *stack, waits=waits)],
    }
    return main(**taken) if number == MAIN else process(number, "spawned", label="actor", **taken)


def job(
    *found: Origin,
    timeout_s: float | None = None,
    stack: tuple[str, ...] = (AT_POLL, "train.py:collect:67"),
    text: Statement = POLL,
) -> Snapshot:
    """Main and a worker each wait for the other one to send, in one function of the program."""
    source = (
        SourceLine(QUEUE, 26, "dequeue", text),
        SourceLine(PROGRAM, 67, "collect", CALL),
        SourceLine(PROGRAM, 57, "serve", Statement(57, "call = queue.dequeue()")),
    )
    return snapshot_of(
        one(MAIN, polls(700, timeout_s), *stack, ends=(700, 701)),
        one(300, polls(701), AT_POLL, "train.py:serve:57", ends=(701, 700)),
        source=source,
        origins=found,
    )


def said(finding: Finding) -> str:
    return " ".join((finding.summary, *finding.evidence, finding.cause, finding.advice))


def test_a_time_that_was_over_before_the_wait_is_its_cause() -> None:
    finding = only(standing_still.check, job(TIME_LEFT))

    assert finding.summary.startswith("main (100) waits for ever at data.py:26 dequeue")
    assert MOST_LIKELY in finding.summary
    assert "`deadline - time.monotonic()` (train.py:65 collect) is below zero" in finding.cause
    assert "actor (300) only waits for what it would send next" in finding.cause
    assert "never sent" not in finding.cause
    assert "max(0, deadline - time.monotonic()) at train.py:65 collect" in finding.advice
    given = "main (100) gives poll() the limit limit_ms at data.py:26 dequeue, and the kernel"
    assert any(each.startswith(given) for each in finding.evidence)
    assert not any("actor (300) gives" in each for each in finding.evidence)


@pytest.mark.parametrize(
    "changed",
    [
        job(),
        job(TIME_LEFT, timeout_s=5.0),
        job(TIME_LEFT, stack=(AT_POLL, "train.py:collect:71")),
        job(TIME_LEFT, stack=("selectors.py:select", AT_POLL, "train.py:collect:67")),
        job(TIME_LEFT, text=Statement(26, "answer = self.sock.recv(4)")),
    ],
    ids=["nothing known", "a limit", "another caller", "in a library", "no poll"],
)
def test_a_wait_for_another_reason_is_told_as_before(changed: Snapshot) -> None:
    finding = only(standing_still.check, changed)

    assert "below zero" not in said(finding)
    assert "each wait for the other" in finding.summary or "all wait" in finding.summary


@pytest.mark.parametrize(
    "origin", [TIME_LEFT._replace(is_certain=False), TIME_LEFT._replace(kind="", steps=STEPS[1:2])]
)
def test_a_limit_that_may_be_none_is_evidence_only(origin: Origin) -> None:
    finding = only(standing_still.check, job(origin))

    assert any("so it is below zero or None" in each for each in finding.evidence)
    assert MOST_LIKELY not in finding.summary
    assert "below zero" not in finding.cause


def test_a_lock_without_the_limit_that_its_line_gives_has_minus_one() -> None:
    taken = Statement(26, "if self.lock.acquire(timeout=self.limit):")
    origin = Origin(QUEUE, taken, "", "self.limit", names=("self.limit",))
    lock = WaitedOn("futex", "futex", ("futex 0x1",), futex_command=9)
    waits = main(threads=[thread(MAIN, AT_POLL, waits=lock)], segments=(), thread_count=1)
    source = (SourceLine(QUEUE, 26, "dequeue", taken),)

    finding = only(standing_still.check, snapshot_of(waits, source=source, origins=(origin,)))

    assert any("acquire() the limit self.limit" in each for each in finding.evidence)
    assert any("so it is -1 or None" in each for each in finding.evidence)


def test_one_that_waits_for_an_answer_from_elsewhere_is_told_with_its_limit() -> None:
    waits = WaitedOn("poll", "poll", ("socket:[77]",), (7,))
    at = thread(MAIN, AT_POLL, "train.py:collect:67", waits=waits, still_s=400.0)
    links = (socket(7, 77, None, "tcp 10.0.0.1:40000 > 10.0.0.2:80"),)
    asks = main(fds=fds(5, links=links), segments=(), threads=[at])
    source = (SourceLine(QUEUE, 26, "dequeue", POLL), SourceLine(PROGRAM, 67, "collect", CALL))

    finding = only(no_progress.check, snapshot_of(asks, source=source, origins=(TIME_LEFT,)))

    assert finding.cause.startswith("poll() takes a limit below zero for none. Most likely")
    assert "max(0, deadline - time.monotonic())" in finding.advice
