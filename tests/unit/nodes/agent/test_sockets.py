"""The ends of connections in the summary of a node, from made-up processes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.samples import FdLink, FdSample, WaitedOn
from mpwatch.model.snapshot import Process
from mpwatch.nodes.across.collectives import waits_across
from mpwatch.nodes.across.ranks import PlacedRank
from mpwatch.nodes.agent.rows import SOCKETS_LIMIT, SOCKETS_OF_PROCESS, Rows, socket_rows
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.summary import SummaryReader, SummaryWriter
from tests.unit.nodes.jobs import rank, snapshot


def link(fd: int, address: str | None, peer: int | None = None) -> FdLink:
    return FdLink(fd, "socket", f"socket:[{700 + fd}]", 700 + fd, True, None, peer, address)


def connected(number: int, *links: FdLink, waits_on: WaitedOn | None = None) -> Process:
    process = rank(number)
    thread = replace(process.threads[0], waits_on=waits_on)
    fds = FdSample(len(links), 1024, 1024, links=links)
    return replace(process, sample=replace(process.sample, fds=fds), threads=(thread,))


def test_the_end_that_the_main_thread_waits_for_comes_first() -> None:
    links = [link(n, f"tcp 10.0.0.1:{4000 + n} > 10.0.0.2:29500") for n in (3, 4)]
    waits = WaitedOn("poll", "poll", ("socket:[704]",))
    second, first = (f"10.0.0.1:{4000 + n}" for n in (3, 4))

    rows = list(socket_rows([snapshot([connected(0, *links, waits_on=waits)])]).values())

    assert [(each.local, each.is_awaited) for each in rows] == [(first, True), (second, False)]
    assert {(each.pid, each.label, each.remote) for each in rows} == {
        (1000, "rank 0", "10.0.0.2:29500")
    }


def test_listeners_unix_sockets_and_connections_within_the_job_are_left_out() -> None:
    one = connected(
        0,
        link(3, "tcp 127.0.0.1:4000 > 127.0.0.1:29500", peer=705),
        link(4, "tcp listens on *:29500"),
        link(6, "unix /run/a.sock"),
        link(7, None),
    )
    other = connected(1, link(5, "tcp 127.0.0.1:29500 > 127.0.0.1:4000", peer=703))

    assert socket_rows([snapshot([one, other])]) == {}
    # In another job of this machine the other end is one to be joined.
    assert len(socket_rows([snapshot([one])])) == 1


def test_a_wait_for_several_sockets_is_a_wait_for_none_of_them() -> None:
    waits = WaitedOn("poll", "poll", ("socket:[703]", "socket:[704]"))
    links = [link(n, f"tcp 10.0.0.1:{4000 + n} > 10.0.0.2:29500") for n in (3, 4)]

    rows = socket_rows([snapshot([connected(0, *links, waits_on=waits)])])

    assert [each.is_awaited for each in rows.values()] == [False, False]


def view(name: str, *processes: Process) -> NodeView:
    """A node as the head has it."""
    reader, writer = SummaryReader(), SummaryWriter()
    reader.apply(writer.next(1.0, Rows().sections([snapshot(processes)])))
    return NodeView(name, "live", host=name, summary=reader.summary())


@pytest.mark.parametrize("clients", [8, 300])
def test_the_server_of_many_clients_is_at_the_other_end_of_each(clients: int) -> None:
    """A TCPStore on rank 0, and main threads on another node that wait for its answers."""
    ends = [f"10.0.0.2:{40_000 + n}" for n in range(clients)]
    accepted = [link(n, f"tcp 10.0.0.1:29500 > {end}") for n, end in enumerate(ends)]
    waiting = [
        connected(
            1 + n,
            link(1000 + n, f"tcp {end} > 10.0.0.1:29500"),
            waits_on=WaitedOn("socket-read", "read", (f"socket:[{1700 + n}]",)),
        )
        for n, end in enumerate(ends[:60])
    ]
    views = [view("a", connected(0, *accepted)), view("b", *waiting)]
    rows = views[1].summary.ranks if views[1].summary is not None else ()

    words = [" ".join(waits_across(PlacedRank(views[1], row), views)) for row in rows]

    assert len(words) == min(clients, 60)
    assert all("at its other end is rank 0 on a" in each for each in words)


def test_all_connections_that_main_threads_wait_for_are_sent() -> None:
    made = [
        connected(
            n,
            *(
                link(10 * n + k, f"tcp 10.0.0.2:{4000 + 10 * n + k} > 10.0.0.1:29500")
                for k in (1, 2)
            ),
            waits_on=WaitedOn("poll", "poll", (f"socket:[{700 + 10 * n + 2}]",)),
        )
        for n in range(2 * SOCKETS_LIMIT)
    ]

    rows = socket_rows([snapshot(made)]).values()

    assert sum(each.is_awaited for each in rows) == 2 * SOCKETS_LIMIT
    assert len(rows) == 3 * SOCKETS_LIMIT


def test_each_process_has_a_row_before_another_one_has_more() -> None:
    made = [
        connected(n, *(link(10 * n + k, f"tcp 10.0.0.2:{n}{k} > 10.0.0.1:80") for k in range(5)))
        for n in range(SOCKETS_LIMIT // 2)
    ]

    rows = socket_rows([snapshot(made)]).values()

    assert {row.pid for row in rows} == {each.pid for each in made}


def test_a_mesh_of_connections_does_not_fill_the_summary() -> None:
    links = [link(n, f"tcp 10.0.0.1:{4000 + n} > 10.0.0.2:29500") for n in range(200)]

    one = socket_rows([snapshot([connected(0, *links)])])
    many = socket_rows([snapshot([connected(n, *links) for n in range(64)])])

    assert (len(one), len(many)) == (SOCKETS_OF_PROCESS, SOCKETS_LIMIT)
