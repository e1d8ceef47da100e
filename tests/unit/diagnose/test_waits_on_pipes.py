from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import standing_still
from mpwatch.model.ids import SegmentId
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
    segment,
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
    assert "room in a full pipe (pipe 500)" in found.sentence


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


QUEUES = {300: 7, 301: 8, 302: 9}
"""The pipe of the queue that was made for each augmenter; its bound is a semaphore of this inode
plus 70."""


def augmenter(number: int, *, waits_for_room: bool = True, **more: Any) -> Process:
    """One of several forked processes that each put into a queue of their own, and inherit those
    that were made before."""
    ends = [pipe(3, own, True) for at, own in QUEUES.items() if at <= number]
    bound = SegmentId(9, QUEUES[number] + 70)
    room = WaitedOn("semaphore", "futex", ("sem 9",), segment=bound, value=0)
    stack = ("multiprocessing/queues.py:put", "data.py:producer:15")
    busy = thread(number, "data.py:producer:14", waits=WaitedOn("timer", "nanosleep", timeout_s=1))
    return process(
        number,
        "spawned",
        label=f"augmenter {number}",
        start_method="fork",
        fds=fds(9, links=ends),
        threads=[thread(number, *stack, waits=room)] if waits_for_room else [busy],
        **{"segments": (), **more},
    )


def in_turn(*augmenters: Process, others: tuple[Process, ...] = (), bound_in: int = 302) -> Any:
    """Main reads the queue of the second augmenter."""
    get = ("multiprocessing/connection.py:_recv", "multiprocessing/queues.py:get")
    wait = WaitedOn("pipe-read", "read", ("pipe:[8]",), wanted_bytes=4)
    ends = [pipe(5, own, is_writable) for own in QUEUES.values() for is_writable in (False, True)]
    trains = main(
        segments=(),
        fds=fds(9, links=ends),
        threads=[thread(MAIN, *get, "train.py:next:58", waits=wait)],
    )
    bounds = [
        segment(
            own + 70,
            kind="semaphore",
            mappers=(pid(MAIN), *(pid(each) for each in (300, 302, bound_in) if each >= number)),
        )
        for number, own in QUEUES.items()
    ]
    return snapshot_of(trains, *augmenters, *others, segments=tuple(bounds))


FAILED = augmenter(301, waits_for_room=False, ended=exited(301, at_s=NOW_S - 70, exit_code=1))


def test_a_reader_waits_for_the_writer_that_has_ended_and_not_for_one_that_inherited_the_end() -> (
    None
):
    job = in_turn(augmenter(300), FAILED, augmenter(302))

    (finding,) = rule_found(standing_still.check, job)

    assert finding.process == pid(MAIN)
    assert (
        "waits at train.py:58 next for an item of a queue, and augmenter 301 (301), which had "
        in (finding.summary)
    )
    assert "is_alive()" in finding.advice
    assert {each.verdict for each in wait_graph(Index(job)).chains} == {"dead-end"}


FAST = augmenter(302, waits_for_room=False)
READER = process(
    400,
    "spawned",
    segments=(),
    fds=fds(9, links=[]),
    threads=[thread(400, waits=WaitedOn("timer", "nanosleep", timeout_s=9.0))],
)


@pytest.mark.parametrize(
    "job",
    [
        in_turn(augmenter(300), FAILED, FAST),
        in_turn(augmenter(300), augmenter(302)),
        in_turn(augmenter(300), replace(FAILED, ended=exited(301, exit_code=0)), augmenter(302)),
        in_turn(augmenter(300), FAILED, augmenter(302), others=(READER,), bound_in=400),
    ],
)
def test_a_reader_waits_for_the_living_that_may_still_put(job: Snapshot) -> None:
    """One that works, or one that another process may give room; or where none has failed."""
    assert not any(each.verdict == "dead-end" for each in wait_graph(Index(job)).chains)


SORTS, ORDERS, SORTED, ANSWERS = 20, 21, 22, 23
"""The input of a sorter, that of a server, and what each of them answers on."""


def reads_pipe(number: int, inode: int, *stack: str, links: Any, **more: Any) -> Process:
    """A process that reads a pipe as a file, or main."""
    wait = WaitedOn("pipe-read", "read", (f"pipe:[{inode}]",), (9,))
    taken: dict[str, Any] = {
        "fds": fds(9, links=links),
        "segments": (),
        "threads": [thread(number, *stack, waits=wait)],
    }
    if number == MAIN:
        return main(**taken, **more)
    return process(number, "spawned", label=f"filter {number}", **taken, **more)


def filters(
    *, server: int = 301, main_has: bool = False, answers_to: int = ANSWERS, method: str = "fork"
) -> Snapshot:
    """Main has closed the input of a sorter, which a server that was forked meanwhile has open."""
    own = [pipe(3, SORTED, False), pipe(4, ORDERS, True), pipe(5, ANSWERS, False)]
    waits = reads_pipe(
        MAIN,
        SORTED,
        "train.py:finish:53",
        links=[*own, *([pipe(6, SORTS, True)] if main_has else [])],
    )
    sorter = reads_pipe(
        300,
        SORTS,
        "data.py:sort:62",
        links=[pipe(3, SORTS, False), pipe(4, SORTED, True)],
        start_method="fork",
    )
    serves = reads_pipe(
        server,
        ORDERS,
        "data.py:serve:77",
        links=[pipe(3, ORDERS, False), pipe(4, answers_to, True), pipe(5, SORTS, True)],
        start_method=method,
    )
    return snapshot_of(waits, sorter, serves)


def test_a_sibling_that_was_forked_later_keeps_the_end_of_file_away() -> None:
    (finding,) = rule_found(standing_still.check, filters())

    assert finding.process == pid(300)
    assert finding.summary == (
        "filter 300 (300) waits at data.py:62 sort for the end of pipe 20, which never comes: "
        "main (100) has closed it, and filter 301 (301) has inherited a copy of its writing end"
    )
    assert "which was forked while main (100) had it open" in finding.cause
    assert finding.advice.startswith("Let filter 301 (301) close at its start what main (100)")
    assert any("filter 301 (301) was forked 10 ms after" in each for each in finding.evidence)


@pytest.mark.parametrize(
    "job",
    [
        filters(main_has=True),
        filters(server=299),
        filters(answers_to=SORTED),
        filters(answers_to=24),
        filters(method="spawn"),
    ],
    ids=["main-may-write", "forked-before", "answers-by-it", "answers-elsewhere", "was-given-it"],
)
def test_a_sibling_that_may_be_the_one_that_writes_has_not_merely_inherited_the_end(
    job: Snapshot,
) -> None:
    findings = rule_found(standing_still.check, job)

    assert not any("has inherited a copy" in each.summary for each in findings)
