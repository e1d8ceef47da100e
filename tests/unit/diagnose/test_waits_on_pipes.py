from __future__ import annotations

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.model.samples import WaitedOn
from tests.builders.snapshots import (
    MAIN,
    fds,
    main,
    pipe,
    process,
    snapshot_of,
    thread,
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
