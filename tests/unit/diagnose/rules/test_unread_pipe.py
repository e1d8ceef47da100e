from __future__ import annotations

import pytest

from mpwatch.diagnose.rules.hangs import standing_still, stuck_worker_io
from mpwatch.model.findings import Severity
from mpwatch.model.samples import WaitedOn, WaitKind
from mpwatch.model.snapshot import Process, Snapshot
from tests.builders.snapshots import (
    FETCHING_WORKER,
    MAIN,
    fds,
    main,
    only,
    pipe,
    process,
    snapshot_of,
    thread,
)

FRAMES, ERRORS = 700, 701
STILL = 60.0
READS = WaitedOn("pipe-read", "read", (f"pipe:[{FRAMES}]",))
READING = fds(9, links=[pipe(6, FRAMES, False), pipe(7, ERRORS, False)])


def decoder(writes_to: int = ERRORS, parent: int = 200) -> Process:
    wait = WaitedOn("pipe-write", "write", (f"pipe:[{writes_to}]",), queued_bytes=65536)
    return process(
        300,
        "other",
        parent=parent,
        label="ffmpeg",
        segments=(),
        fds=fds(3, links=[pipe(1, FRAMES, True), pipe(2, ERRORS, True)]),
        threads=[thread(300, waits=wait, still_s=STILL)],
    )


def reader() -> Process:
    own = thread(200, *FETCHING_WORKER, waits=READS, still_s=STILL)
    return process(200, segments=(), fds=READING, threads=[own])


def job(writer: Process) -> Snapshot:
    return snapshot_of(main(segments=(), fds=fds(3, links=[])), reader(), writer)


def test_a_worker_that_does_not_read_standard_error_of_its_decoder_is_named() -> None:
    finding = only(stuck_worker_io.check, job(decoder()))

    assert finding.severity is Severity.CRITICAL
    assert "loader-worker 200 (200) and ffmpeg (300) have waited for each other" in finding.summary
    assert (
        "ffmpeg (300) is blocked writing to its standard error, pipe 701, where 64.0K lie"
        in finding.evidence
    )
    assert "storage" not in finding.cause + finding.advice
    assert "DEVNULL" in finding.advice


def test_a_worker_whose_decoder_sleeps_waits_for_data_from_its_pipe() -> None:
    asleep = process(300, "other", segments=(), fds=fds(3, links=[pipe(1, FRAMES, True)]))

    finding = only(stuck_worker_io.check, job(asleep))

    assert "sends nothing" in finding.cause


def test_a_pipe_that_is_read_at_the_moment_is_not_an_unread_one() -> None:
    finding = only(stuck_worker_io.check, job(decoder(writes_to=FRAMES)))

    assert "sends nothing" in finding.cause


@pytest.mark.parametrize("call", ["read", "poll"])
def test_a_main_process_that_does_not_read_standard_error_of_a_program_is_named(call: str) -> None:
    kind: WaitKind = "poll" if call == "poll" else "pipe-read"
    wait = WaitedOn(kind, call, (f"pipe:[{FRAMES}]",))
    waiting = main(
        segments=(),
        fds=READING,
        threads=[thread(MAIN, "train.py:frame:23", waits=wait, still_s=STILL)],
    )

    finding = only(standing_still.check, snapshot_of(waiting, decoder(parent=MAIN)))

    assert "does not read that pipe meanwhile" in finding.cause
    assert "DEVNULL" in finding.advice
    assert "main is at train.py:23 frame" in finding.evidence


def test_a_cycle_is_one_finding_though_others_wait_for_it() -> None:
    first, second = (
        process(
            number,
            "spawned",
            segments=(),
            fds=fds(9, links=[pipe(5, inward, False), pipe(6, outward, True), pipe(4, 800, True)]),
            threads=[
                thread(
                    number,
                    f"train.py:step:{number}",
                    waits=WaitedOn("pipe-read", "read", (f"pipe:[{inward}]",)),
                    still_s=STILL,
                )
            ],
        )
        for number, inward, outward in ((301, 901, 902), (302, 902, 901))
    )
    joins = WaitedOn("poll", "poll", ("pipe:[800]",))
    parent = main(
        segments=(),
        fds=fds(9, links=[pipe(5, 800, False)]),
        threads=[thread(MAIN, waits=joins, still_s=STILL)],
    )

    finding = only(standing_still.check, snapshot_of(parent, first, second))

    assert finding.process in (first.process, second.process)
    assert "spawned 301 is at train.py:301 step" in finding.evidence
    assert "spawned 302 is at train.py:302 step" in finding.evidence
