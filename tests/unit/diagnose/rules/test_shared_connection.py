"""Processes that read from one connection which they have since a fork."""

from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.rules.hangs import stuck_worker_io
from mpwatch.diagnose.rules.results import shared_connection
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import FdLink, WaitedOn
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    cpu,
    fds,
    found,
    main,
    process,
    snapshot_of,
    socket,
    thread,
)

INODE, SERVER = 700, 900
TCP = "tcp 10.0.0.1:4000 > 10.0.0.2:5432"
OPENS = Mark(
    "opens-connection",
    "/home/me/data.py",
    "<module>",
    "conn, psycopg2.connect",
    Statement(3, "conn = psycopg2.connect(DSN)"),
)
OTHER = OPENS._replace(about="cache, redis.Redis", statement=Statement(4, "cache = redis.Redis()"))


def reads(inode: int = INODE, timeout_s: float | None = None) -> WaitedOn:
    return WaitedOn("socket-read", "recvfrom", (f"socket:[{inode}]",), timeout_s=timeout_s)


def worker(
    number: int,
    waits: WaitedOn | None = None,
    *links: FdLink,
    address: str = TCP,
    still_s: float = 30.0,
    **more: Any,
) -> Process:
    own = links or (socket(5, INODE, None, address),)
    threads = [
        thread(
            200 + number,
            "data.py:fetch:31",
            waits=waits,
            state="S" if waits else "R",
            still_s=still_s if waits else 0.0,
        )
    ]
    return process(
        200 + number,
        label=f"worker {number}",
        start_method="fork",
        fds=fds(9, links=own),
        threads=threads,
        **more,
    )


def parent(*links: FdLink) -> Process:
    return main(
        fds=fds(9, links=links or [socket(5, INODE, None, TCP)]),
        threads=[thread(MAIN, "train.py:<module>:57", state="R", still_s=0.0)],
    )


def told(*processes: Process, **more: Any) -> list[Finding]:
    return found(shared_connection.check, snapshot_of(*processes, **more))


def test_two_workers_that_read_one_connection() -> None:
    line = SourceLine("/home/me/data.py", 31, "fetch", Statement(31, "with conn.cursor() as cur:"))

    (it,) = told(
        parent(), worker(0, reads()), worker(1, reads()), source=(line,), marks=(OPENS, OTHER)
    )

    assert it.severity is Severity.CRITICAL
    assert it.summary == (
        "worker 0 (200) and worker 1 (201) read from one and the same connection, "
        f"inherited by fork: {TCP}"
    )
    assert it.evidence[:2] == (
        "descriptor 5 is the same socket, 700, in worker 0 (200), worker 1 (201) and main (100)",
        "worker 0 (200) has waited 30 s to read from it at data.py:31 fetch",
    )
    assert "opened by `conn = psycopg2.connect(DSN)` at data.py:3 <module>" in it.cause
    assert "worker_init_fn" in it.advice


def test_the_engine_of_sqlalchemy_is_disposed_of_after_the_fork() -> None:
    mark = OPENS._replace(about="ENGINE, sqlalchemy.create_engine")

    (it,) = told(worker(0, reads()), worker(1, reads()), marks=(mark,))

    assert "engine.dispose(close=False)" in it.advice


def test_two_statements_of_which_no_line_names_one_are_not_chosen_from() -> None:
    (it,) = told(worker(0, reads()), worker(1, reads()), marks=(OPENS, OTHER))

    assert "opened by" not in it.cause


def test_a_variable_is_told_by_its_whole_name_first() -> None:
    own = OPENS._replace(about="self.db, connect", statement=Statement(3, "self.db = connect()"))
    other = OPENS._replace(about="data.db, connect", statement=Statement(9, "data.db = connect()"))
    line = SourceLine("/home/me/data.py", 31, "fetch", Statement(31, "return self.db.recv(8)"))

    (it,) = told(worker(0, reads()), worker(1, reads()), source=(line,), marks=(own, other))

    assert "opened by `self.db = connect()`" in it.cause


def test_a_worker_that_shares_its_connection_is_not_told_to_have_no_answer() -> None:
    """The peer may have answered: another worker has read it."""
    shared = snapshot_of(parent(), worker(0, reads()), worker(1, reads()))
    idle = cpu(w200=0.0, w201=0.0)

    assert found(stuck_worker_io.check, snapshot_of(parent(), worker(0, reads())), idle)
    assert not found(stuck_worker_io.check, shared, idle)


def test_copies_that_only_one_process_reads() -> None:
    """Main asks, and its workers have its connection by their forks alone."""
    waiting = main(
        fds=fds(9, links=[socket(5, INODE, None, TCP)]),
        threads=[thread(MAIN, "train.py:load:20", waits=reads(), still_s=60.0)],
    )

    assert not told(waiting, worker(0), worker(1))


def test_a_single_worker_that_waits_may_have_lost_its_answer() -> None:
    (it,) = told(parent(), worker(0, reads()), worker(1))

    assert it.severity is Severity.INFO
    assert it.cause.startswith("Possible: ")


def test_a_single_worker_whose_sibling_reads_another_connection() -> None:
    """Each may have one of its own, and all have all by their forks."""
    both = socket(5, INODE, None, TCP), socket(6, INODE + 1, None, TCP)

    assert not told(parent(*both), worker(0, reads(), *both), worker(1, reads(INODE + 1), *both))


def test_a_connection_that_takes_turns_is_read_for_a_moment() -> None:
    """A lock keeps the others out: two are seen to read only as they are read one by one."""
    assert not told(worker(0, reads(), still_s=0.1), worker(1, reads(), still_s=0.2))


@pytest.mark.parametrize(
    "link",
    [
        socket(0, INODE, None, TCP),
        socket(5, INODE, None, "tcp listens on *:4000"),
        socket(5, INODE, None, "unix listens on /run/a.sock"),
        socket(5, INODE, None, "unix /run/a.sock"),
    ],
)
def test_sockets_that_processes_share_on_purpose(link: FdLink) -> None:
    assert not told(worker(0, reads(), link), worker(1, reads(), link))


def test_connections_that_a_server_has_accepted() -> None:
    """A handler is forked for each client, and its parent keeps its copy."""
    ends = socket(5, INODE, None, TCP), socket(4, SERVER, None, "tcp listens on *:4000")

    assert not told(parent(*ends), worker(0, reads(), *ends), worker(1, reads(), *ends))


def test_an_end_of_a_pair_whose_other_end_the_job_has() -> None:
    """Workers may take whole messages out of one end."""
    end = socket(5, INODE, INODE + 1)

    assert not told(
        parent(socket(6, INODE + 1, INODE)), worker(0, reads(), end), worker(1, reads(), end)
    )
    assert told(parent(socket(9, 1, None)), worker(0, reads(), end), worker(1, reads(), end))


def test_a_socket_that_was_handed_over_is_no_inherited_one() -> None:
    assert not told(worker(0, reads()), worker(1, reads(), socket(7, INODE, None, TCP)))
