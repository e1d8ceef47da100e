"""A relay with launchers of this machine."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from mpwatch import __version__
from mpwatch.nodes.agent.relay import Relay
from mpwatch.nodes.launchers.launch import Launch
from mpwatch.nodes.wire.channels import Event, Happened, Kind, Multiplexer

LIMIT_S = 60.0
ECHO = Launch("echo", ("cat",))
FAILS = Launch("fails", ("sh", "-c", "echo no route >&2; exit 3"))
ABSENT = Launch("absent", ("/no/such/program",))
DEAF = Launch("deaf", ("sleep", "600"))
"""Does not end with its input."""


class Head:
    """The other side of a relay."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        there, self.sink = os.pipe()
        self.source, back = os.pipe()
        relay = Relay(there, back, launches)
        self.way = Multiplexer(self.source, self.sink, waits=True)
        self.thread = threading.Thread(target=self._run, args=(relay, there, back), daemon=True)
        self.thread.start()

    def _run(self, relay: Relay, *descriptors: int) -> None:
        relay.run()
        for descriptor in descriptors:
            os.close(descriptor)

    def open(self, channel: int, place: int) -> tuple[int, int, int]:
        """Ask for the node at a place; what the test writes to, and reads from."""
        (given, gives), (shown, output), (told, errors) = os.pipe(), os.pipe(), os.pipe()
        self.way.add(channel, {given: Kind.DATA}, {Kind.DATA: output, Kind.ERROR: errors})
        self.way.send(Kind.OPEN, channel, b"%d" % place)
        return gives, shown, told

    def until(self, kind: Kind) -> Event:
        """The next event of a kind."""
        end_s = time.monotonic() + LIMIT_S
        while time.monotonic() < end_s:
            for each in self.way.step(0.1):
                if isinstance(each, Event) and each.kind is kind:
                    return each
                if isinstance(each, Happened) and each.what == "ended":
                    self.way.send(Kind.END, each.number)
        pytest.fail(f"no {kind.name}")

    def read(self, descriptor: int, count: int) -> bytes:
        """So many bytes of a channel."""
        data, end_s = b"", time.monotonic() + LIMIT_S
        while len(data) < count and time.monotonic() < end_s:
            list(self.way.step(0.1))
            if select.select([descriptor], [], [], 0)[0]:
                data += os.read(descriptor, count - len(data))
        return data

    def close(self) -> None:
        os.close(self.sink)
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()
        self.way.close()
        os.close(self.source)


@pytest.fixture
def head() -> Iterator[Head]:
    made = Head([ECHO, FAILS, ABSENT, DEAF])
    yield made
    made.close()


def test_a_relay_says_that_it_is_there_and_again(head: Head) -> None:
    assert head.until(Kind.HELLO).data == __version__.encode()
    assert head.until(Kind.HELLO).data == __version__.encode()


def test_an_agent_is_started_written_to_read_and_ended(head: Head) -> None:
    gives, shown, _ = head.open(1, 0)
    os.write(gives, b"\x00\xffask")
    answer = head.read(shown, 5)
    os.close(gives)

    assert answer == b"\x00\xffask"
    assert head.until(Kind.END) == Event(Kind.END, 1, b"0")


def test_why_a_node_cannot_be_reached_is_told_with_the_exit_code(head: Head) -> None:
    _, _, told = head.open(1, 1)
    assert head.until(Kind.END) == Event(Kind.END, 1, b"3")
    assert head.read(told, 8) == b"no route"

    _, _, told = head.open(2, 2)
    assert head.until(Kind.END) == Event(Kind.END, 2, b"127")
    assert b"/no/such/program cannot be started: No such file" in head.read(told, 60)


@pytest.mark.parametrize("place", [b"4", b"-1", b"", b"0 ; true", b"9" * 40, b"\xc2\xb2"])
def test_nothing_but_the_nodes_of_its_command_line_can_be_asked_for(
    head: Head, place: bytes
) -> None:
    head.way.send(Kind.OPEN, 1, place)
    _, shown, _ = head.open(2, 0)
    head.way.send(Kind.DATA, 2, b"still there")

    assert head.read(shown, 11) == b"still there"


def test_an_agent_that_does_not_end_with_its_input_is_killed(head: Head) -> None:
    gives, _, _ = head.open(1, 3)
    os.close(gives)

    assert head.until(Kind.END) == Event(Kind.END, 1, b"-9")


def test_a_relay_ends_with_its_input_and_leaves_no_launcher() -> None:
    before = _children()
    head = Head([ECHO, DEAF])
    head.open(1, 0)
    head.open(2, 1)
    while len(_children() - before) < 2:
        list(head.way.step(0.1))
    head.close()

    assert _children() == before


def _children() -> set[str]:
    folder = f"/proc/{os.getpid()}/task"
    found: set[str] = set()
    for thread in os.listdir(folder):
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),  # a thread that has ended
            open(f"{folder}/{thread}/children", encoding="ascii") as file,
        ):
            found.update(file.read().split())
    return found
