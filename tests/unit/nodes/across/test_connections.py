"""What a rank waits for on another node, from made-up ends of connections."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.nodes.across.judge import job_findings
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.summary import SocketRow
from tests.unit.nodes.across.test_across import elsewhere, node, row

A, B, C = "10.0.0.1:4000", "10.0.0.2:5000", "10.0.0.3:6000"


def with_sockets(view: NodeView, *sockets: SocketRow, host: str = "") -> NodeView:
    assert view.summary is not None
    return replace(view, host=host, summary=replace(view.summary, sockets=sockets))


def connection_words(*views: NodeView) -> list[str]:
    (found,) = job_findings(views)
    return [words for words in found.evidence if "connection" in words]


WAITING = with_sockets(
    node("b", elsewhere(1, world=2)), SocketRow(101, "rank 1", B, C, is_awaited=True), host="b"
)
IN_COLLECTIVE = node("a", row(0, world=2))


def test_the_process_at_the_other_end_is_named_with_its_node() -> None:
    server = with_sockets(node("c"), SocketRow(7, "main", C, B), host="c")

    assert connection_words(IN_COLLECTIVE, WAITING, server) == [
        "rank 1 on b waits to read from the connection 10.0.0.2:5000 > 10.0.0.3:6000; at its other "
        "end is main (7) on c"
    ]


def test_connections_are_followed_from_node_to_node_until_they_close_a_cycle() -> None:
    stopped = row(9, job="other", world=1, place=None, state="stopped", line="")
    server = with_sockets(
        node("c", stopped),
        SocketRow(109, "rank 9", C, B),
        SocketRow(109, "rank 9", "10.0.0.3:6001", A, is_awaited=True),
    )
    again = with_sockets(
        WAITING,
        *(WAITING.summary.sockets if WAITING.summary else ()),
        SocketRow(101, "rank 1", A, "10.0.0.3:6001"),
    )

    first, second = connection_words(IN_COLLECTIVE, again, server)
    assert first.endswith("at its other end is rank 9 on c, which is stopped")
    assert second == (
        "rank 9 on c waits to read from the connection 10.0.0.3:6001 > 10.0.0.1:4000; at its other "
        "end is rank 1 on b again"
    )


def test_an_end_that_no_node_has_is_not_invented() -> None:
    (words,) = connection_words(IN_COLLECTIVE, WAITING, node("c"))

    assert words.endswith("whose other end is not known")


def test_loopback_addresses_of_two_machines_are_two_connections() -> None:
    here, there = "127.0.0.1:4000", "127.0.0.1:5000"
    waiting = with_sockets(WAITING, SocketRow(101, "rank 1", here, there, True), host="b")
    end = SocketRow(7, "main", there, here)

    (elsewhere_words,) = connection_words(
        IN_COLLECTIVE, waiting, with_sockets(node("c"), end, host="c")
    )
    (same,) = connection_words(IN_COLLECTIVE, waiting, with_sockets(node("c"), end, host="b"))
    assert elsewhere_words.endswith("whose other end is not known")
    assert same.endswith("at its other end is main (7) on c")


def test_a_rank_that_waits_for_no_connection_has_no_such_words() -> None:
    idle = with_sockets(node("b", elsewhere(1, world=2)), SocketRow(101, "rank 1", B, C))

    assert connection_words(IN_COLLECTIVE, idle) == []
