"""Several pairs of pipes over one, between two ends of real pipes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mpwatch.nodes.wire.channels import (
    STUCK_BYTES,
    UNSENT_BYTES_LIMIT,
    Event,
    Happened,
    Kind,
    Multiplexer,
)
from mpwatch.nodes.wire.messages import encode

PIPE_BYTES = 1 << 16


class Ends:
    """A head and a relay, with one channel of which the test has the other ends."""

    def __init__(self) -> None:
        self.to_relay, self.to_head = os.pipe(), os.pipe()
        self.head = Multiplexer(self.to_head[0], self.to_relay[1], waits=True)
        self.relay = Multiplexer(self.to_relay[0], self.to_head[1], waits=False)
        self.from_head, self.asks = os.pipe()
        self.shown, output = os.pipe()
        self.complaints, errors = os.pipe()
        self.head.add(1, {self.from_head: Kind.DATA}, {Kind.DATA: output, Kind.ERROR: errors})
        produced, self.produces = os.pipe()
        complained, self.complains = os.pipe()
        self.given, given = os.pipe()
        sources = {produced: Kind.DATA, complained: Kind.ERROR}
        self.relay.add(1, sources, {Kind.DATA: given})
        for each in (self.shown, self.complaints, self.given, self.produces, self.asks):
            os.set_blocking(each, False)

    def step(self, times: int = 6) -> list[Event | Happened]:
        found: list[Event | Happened] = []
        for _ in range(times):
            found += self.relay.step(0.0)
            found += self.head.step(0.0)
        return found

    def close(self) -> None:
        self.head.close()
        self.relay.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def test_bytes_are_carried_both_ways_and_errors_apart(ends: Ends) -> None:
    os.write(ends.asks, b"\x00ask\n")
    os.write(ends.produces, b"answer\xff")
    os.write(ends.complains, b"no route")

    assert ends.step() == []
    assert os.read(ends.given, 99) == b"\x00ask\n"
    assert os.read(ends.shown, 99) == b"answer\xff"
    assert os.read(ends.complaints, 99) == b"no route"


def test_what_a_login_shell_prints_is_skipped_and_kept(ends: Ends) -> None:
    os.write(ends.to_head[1], b"Welcome to node-7\n")
    os.write(ends.produces, b"answer")
    ends.step()

    assert os.read(ends.shown, 99) == b"answer"
    assert ends.head.text == "Welcome to node-7"


def test_bytes_that_arrive_with_the_message_that_opens_their_channel(
    ends: Ends,
) -> None:
    ends.head.send(Kind.OPEN, 2, b"0")
    ends.head.send(Kind.DATA, 2, b"ping")
    given, gives = os.pipe()
    for _ in range(4):
        list(ends.head.step(0.0))
        for each in ends.relay.step(0.0):
            assert each == Event(Kind.OPEN, 2, b"0")
            ends.relay.add(2, {}, {Kind.DATA: gives})

    assert os.read(given, 99) == b"ping"


def test_the_ends_of_a_channel_are_noted(ends: Ends) -> None:
    os.close(ends.asks)
    os.close(ends.produces)
    # That standard error is closed does not say that the agent has ended.
    os.close(ends.complains)

    assert sorted(ends.step()) == [Happened("ended", 1), Happened("ended", 1)]


def test_a_channel_that_is_over_hands_on_all_of_its_bytes_first(ends: Ends) -> None:
    sent = b"x" * (2 * PIPE_BYTES)
    ends.relay.send(Kind.DATA, 1, sent[:PIPE_BYTES])
    ends.relay.send(Kind.DATA, 1, sent[PIPE_BYTES:])
    ends.step()
    ends.head.finish(1)
    received = b""
    while data := os.read(ends.shown, PIPE_BYTES):
        received += data
        ends.step()

    assert received == sent


def test_while_the_head_does_not_read_a_node_sends_no_more(ends: Ends) -> None:
    sent = 0
    for _ in range(100):
        try:
            sent += os.write(ends.produces, b"x" * 4096)
        except BlockingIOError:
            break
        ends.step(2)
    else:
        pytest.fail(f"{sent} bytes were taken from a node that nobody listens to")

    assert sent < 6 * PIPE_BYTES + UNSENT_BYTES_LIMIT
    assert ends.step() == []


def test_an_agent_that_does_not_read_holds_up_no_other(ends: Ends) -> None:
    produced, produces = os.pipe()
    given, gives = os.pipe()
    ends.relay.add(2, {produced: Kind.DATA}, {Kind.DATA: gives})
    found: list[Event | Happened] = []
    for _ in range(0, STUCK_BYTES + 3 * PIPE_BYTES, 32_768):
        ends.head.send(Kind.DATA, 1, b"x" * 32_768)
        found += ends.step(2)
    ends.head.send(Kind.DATA, 2, b"ping")
    ends.step()

    assert Happened("stuck", 1) in found
    assert os.read(given, 99) == b"ping"
    os.close(produces)
    os.close(given)


def test_messages_without_a_channel_and_hostile_ones(ends: Ends) -> None:
    found = []
    ends.relay.send(Kind.HELLO, data=b"1.0")
    ends.relay.send(Kind.END, 1, b"255")
    ends.relay.send(Kind.DATA, 99, b"for a channel that is no more")
    found += ends.step()
    os.write(
        ends.to_head[1], b"\xabMPW garbage" + encode(b"\x77\x00\x00\x00\x01", 99) + encode(b"", 99)
    )
    ends.relay.send(Kind.OPEN, 5, b"7")

    assert found + ends.step() == [
        Event(Kind.HELLO, 0, b"1.0"),
        Event(Kind.END, 1, b"255"),
        Event(Kind.OPEN, 5, b"7"),
    ]


def test_the_end_of_the_way_is_noted_once(ends: Ends) -> None:
    os.close(ends.to_head[1])
    ends.to_head = ends.to_head[0], -1

    found = [each for _ in range(3) for each in ends.head.step(0.0)]
    assert found == [Happened("closed")]
