from __future__ import annotations

from dataclasses import replace

import pytest

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import standing_still
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    exited,
    fds,
    main,
    pid,
    pipe,
    process,
    snapshot_of,
    thread,
)
from tests.builders.snapshots import (
    found as rule_found,
)
from tests.builders.waits import DATA, chain


def test_a_join_before_the_queue_is_drained_is_a_cycle() -> None:
    joins = main(
        fds=fds(9, links=[pipe(5, DATA, False), pipe(6, DATA, True)]),
        segments=(),
        threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 300",)))],
    )
    stuck = process(
        300,
        "spawned",
        fds=fds(9, links=[pipe(5, DATA, False), pipe(6, DATA, True)]),
        segments=(),
        threads=[
            thread(
                300,
                "threading.py:join",
                "multiprocessing/queues.py:_finalize_join",
                waits=WaitedOn("futex", "futex"),
            ),
            thread(
                301,
                name="QueueFeederThread",
                waits=WaitedOn("pipe-write", "write", (f"pipe:[{DATA}]",), queued_bytes=65536),
            ),
        ],
    )

    found = chain(snapshot_of(joins, stuck))

    assert found.verdict == "cycle"
    assert "by way of its thread QueueFeederThread" in found.sentence
    assert "a reader of pipe 500" in found.sentence


def test_a_write_into_a_pipe_that_only_the_writer_can_read_is_a_dead_end() -> None:
    survivor = process(
        200,
        parent=None,
        fds=fds(9, links=[pipe(5, DATA, False), pipe(6, DATA, True)]),
        segments=(),
        threads=[
            thread(200, waits=WaitedOn("pipe-write", "write", (f"pipe:[{DATA}]",))),
        ],
    )

    found = chain(snapshot_of(survivor))

    assert found.verdict == "dead-end"
    assert "never read" in found.conclusion


def test_output_piped_to_a_program_outside_the_job_is_not_a_dead_end() -> None:
    writes = main(
        fds=fds(9, links=[pipe(1, DATA, True)]),
        segments=(),
        threads=[thread(MAIN, waits=WaitedOn("pipe-write", "write", (f"pipe:[{DATA}]",)))],
    )

    assert chain(snapshot_of(writes)).verdict == "unknown"


def test_a_missing_holder_proves_nothing_where_descriptors_could_not_be_read() -> None:
    survivor = process(
        200,
        parent=None,
        fds=fds(9, links=[pipe(5, DATA, False), pipe(6, DATA, True)]),
        segments=(),
        threads=[thread(200, waits=WaitedOn("pipe-write", "write", (f"pipe:[{DATA}]",)))],
    )

    assert chain(snapshot_of(survivor, process(201, segments=()))).verdict == "unknown"
    assert chain(snapshot_of(survivor, process(201, fds=fds(3, links=())))).verdict == "unknown"


def test_a_thread_that_reads_a_pipe_counts_where_its_stack_is_known() -> None:
    wait = WaitedOn("pipe-read", "read", (f"pipe:[{DATA}]",))
    reader = thread(101, "train.py:reader", waits=wait)
    nameless = thread(102, waits=wait)
    job = snapshot_of(main(threads=[thread(MAIN, state="R"), reader, nameless]))

    assert [edge.tid for edge in wait_graph(Index(job)).edges] == [101]


RAW, READY = DATA, DATA + 1


def stage(number: int, reads: int, *, line: int) -> Process:
    """A forked stage that reads one of two pipes and has the writing ends of both."""
    wait = WaitedOn("pipe-read", "read", (f"pipe:[{reads}]",), wanted_bytes=4)
    stack = ("multiprocessing/connection.py:_recv", f"data.py:run:{line}")
    ends = [pipe(5, reads, False), pipe(6, RAW, True), pipe(7, READY, True)]
    return process(
        number,
        "spawned",
        label=f"stage {number}",
        start_method="fork",
        segments=(),
        fds=fds(9, links=ends),
        threads=[thread(number, *stack, waits=wait)],
    )


def chain_of_stages(*, fit_may_send: bool, decode_had: int = RAW) -> Snapshot:
    """Main joins `augment`, which reads what `decode` wrote; `fit` reads what `augment` writes."""
    joins = main(
        fds=fds(9, links=[]),
        segments=(),
        threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 301",)))],
    )
    decode = process(
        302,
        "spawned",
        label="decode",
        ended=exited(302, at_s=NOW_S - 50, exit_code=0),
        fds=fds(9, links=[pipe(5, decode_had, True)]),
    )
    source = tuple(
        SourceLine(
            "/home/me/data.py",
            line,
            "run",
            Statement(line, "self.source.recv()"),
            may_send=may_send,
        )
        for line, may_send in ((39, True), (58, fit_may_send))
    )
    stages = stage(300, READY, line=58), stage(301, RAW, line=39)
    return replace(snapshot_of(joins, *stages, decode), source=source)


def test_copies_of_a_writing_end_that_nothing_uses_keep_the_end_of_file_away() -> None:
    job = chain_of_stages(fit_may_send=False)

    (finding,) = rule_found(standing_still.check, job)

    assert {each.verdict for each in wait_graph(Index(job)).chains} == {"dead-end"}
    assert finding.process == pid(301)
    assert "decode (302), which had its writing end, has ended" in finding.cause
    assert "still open in stage 300 and stage 301" in finding.cause.replace(" (300)", "").replace(
        " (301)", ""
    )
    assert "end of file" in finding.summary
    assert "by spawn" in finding.advice


@pytest.mark.parametrize(
    ("fit_may_send", "had", "verdict"), [(True, RAW, "cycle"), (False, 7, "unknown")]
)
def test_an_end_that_may_be_written_to_is_no_mere_copy(
    fit_may_send: bool, had: int, verdict: str
) -> None:
    """One that may answer on it is waited for; what no ended process had may be written later."""
    job = chain_of_stages(fit_may_send=fit_may_send, decode_had=had)

    assert {each.verdict for each in wait_graph(Index(job)).chains} == {verdict}
