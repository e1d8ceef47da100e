"""The node's end of an opened job: on request only, one snapshot at a time, the newest."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.agent.view_sender import UNASKED_S, ViewSender
from mpwatch.nodes.wire.messages import (
    SNAPSHOTS_ON_THE_WAY,
    Close,
    Do,
    Next,
    NotAMessage,
    Open,
    Refusal,
    SnapshotPart,
    head_frame,
    message_of_head,
    node_frame,
)
from mpwatch.nodes.wire.view_codec import PART_BYTES, SnapshotDecoder
from mpwatch.observe.sources.source import Command, Focus, Follow, ReadAllocators, TakeStacks
from tests.unit.nodes.jobs import rank, snapshot

RANK = ProcessId(1000, 50)


class OneJob:
    """A job that is read when a test says so."""

    def __init__(self) -> None:
        self.has_searched = True
        self.is_reading = False
        self.count = 0
        self.last: Snapshot | None = None
        self.asked: list[Command] = []

    def read(self, number: int = 1) -> None:
        for _ in range(number):
            self.count += 1
            self.last = snapshot([rank(0, at_s=100.0 + self.count)], at_s=100.0 + self.count)

    def root_of(self, pid: int) -> ProcessId | None:
        return RANK if self.last is not None and pid == RANK.pid else None

    def newest(self, root: ProcessId) -> tuple[Snapshot | None, int]:
        return self.last, self.count

    def ask(self, root: ProcessId, command: Command) -> str | None:
        self.asked.append(command)
        return "No hook answers." if isinstance(command, ReadAllocators) else None


class Node:
    """A sender, and the head that it sends to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.jobs = OneJob()
        self.sender = ViewSender(self.jobs, lambda: self.now_s)
        self.decoder = SnapshotDecoder()

    def ask(self, *messages: Open | Next | Do | Close) -> None:
        for message in messages:
            self.sender.serve(message)

    def sent(self) -> list[SnapshotPart | Refusal]:
        """All that is sent until nothing more is."""
        found = []
        while (message := self.sender.next()) is not None:
            found.append(message)
            assert len(found) < 1000
        return found

    def received(self) -> float | None:
        """The time of the snapshot that is sent; `None` if nothing is."""
        parts = self.sent()
        if not parts:
            return None
        assert all(isinstance(each, SnapshotPart) for each in parts)
        data = b"".join(each.data for each in parts if isinstance(each, SnapshotPart))
        return self.decoder.snapshot(data).at_s


@pytest.fixture
def node() -> Node:
    made = Node()
    made.jobs.read()
    return made


def test_nothing_is_sent_unless_a_head_asks(node: Node) -> None:
    before = (node.sent(), node.sender.is_waiting)
    node.ask(Open(3, RANK.pid))
    first = node.received()
    node.jobs.read()
    unasked = node.received()
    node.ask(Next(3))
    second = node.received()
    node.ask(Close(3), Next(3))
    node.jobs.read()

    assert before == ([], False)
    assert (first, unasked, second) == (101.0, None, 102.0)
    assert (node.sent(), node.sender.is_waiting) == ([], False)


def test_a_slow_head_gets_the_newest_snapshot_and_the_number_of_skipped_ones(node: Node) -> None:
    node.ask(Open(3, RANK.pid))
    node.received()
    node.jobs.read(40)
    node.ask(Next(3))
    (part,) = node.sent()

    assert isinstance(part, SnapshotPart)
    assert node.decoder.snapshot(part.data).at_s == 141.0
    assert (part.is_whole, part.skipped) == (False, 39)
    node.jobs.read()
    assert node.sent() == []


def test_no_snapshot_is_skipped_on_a_long_way_and_no_more_are_kept_than_asked_for(
    node: Node,
) -> None:
    node.ask(Open(1, RANK.pid), *[Next(1)] * 100)
    sent = []
    for _ in range(SNAPSHOTS_ON_THE_WAY + 2):
        node.jobs.read()
        sent += node.sent()

    assert [part.skipped for part in sent if isinstance(part, SnapshotPart)] == [
        0
    ] * SNAPSHOTS_ON_THE_WAY
    node.ask(Next(1))
    (late,) = node.sent()
    assert isinstance(late, SnapshotPart)
    assert late.skipped == 1


def test_snapshots_asked_for_before_the_job_is_found_are_sent() -> None:
    node = Node()
    node.jobs.has_searched = False
    node.ask(Open(1, RANK.pid), Next(1))
    assert node.sent() == []
    counts = []
    for _ in range(3):
        node.jobs.read()
        counts.append(len(node.sent()))

    assert counts == [1, 1, 0]


def test_the_same_snapshot_is_not_sent_twice(node: Node) -> None:
    node.ask(Open(3, RANK.pid))
    node.received()
    node.ask(Next(3))

    assert node.sent() == []
    node.jobs.read()
    assert node.received() == 102.0


def test_stacks_are_taken_for_a_head_only_while_it_asks_for_snapshots(node: Node) -> None:
    node.ask(Open(3, RANK.pid), Do(3, "follow", (RANK,)))
    node.received()
    node.ask(Do(3, "focus", (RANK,)))
    node.now_s = UNASKED_S - 1
    node.sent()
    asking = list(node.jobs.asked)
    node.now_s = UNASKED_S + 1
    node.sent()
    node.ask(Do(3, "follow", ()), Do(3, "follow", (RANK,)))
    away = node.jobs.asked[len(asking) :]
    node.ask(Next(3))
    back = node.jobs.asked[len(asking) + len(away) :]
    node.ask(Close(3))
    closed = node.jobs.asked[len(asking) + len(away) + len(back) :]

    assert asking == [Follow(RANK), Focus(RANK)]
    assert away == [Follow(None), Focus(None)]
    assert back == [Follow(RANK), Focus(RANK)]
    assert closed == [Follow(None), Focus(None)]


def test_a_head_can_ask_for_looks_and_for_nothing_else(node: Node) -> None:
    node.ask(
        Open(3, RANK.pid),
        Do(2, "stacks"),
    )
    node.received()
    node.ask(Do(3, "stacks", (RANK,), native=True), Do(3, "stacks"), Do(3, "allocators", (RANK,)))
    (refusal,) = node.sent()

    assert node.jobs.asked == [
        TakeStacks(RANK, native=True),
        TakeStacks(),
        ReadAllocators((RANK,)),
    ]
    assert refusal == Refusal(3, "No hook answers.")
    for what in ("inject", "record", "kill", ""):
        frame = head_frame(Do(3, what))  # type: ignore[arg-type]
        with pytest.raises(NotAMessage):
            message_of_head(frame[13:])


def test_a_new_agent_opens_the_job_once_it_has_found_it() -> None:
    node = Node()
    node.jobs.has_searched = False
    node.ask(Open(3, RANK.pid), Do(3, "follow", (RANK,)))
    looking = node.sent()
    node.jobs.has_searched, node.jobs.is_reading = True, True
    reading = node.sent()
    node.jobs.is_reading = False
    node.jobs.read()

    assert (looking, reading) == ([], [])
    assert node.received() == 101.0
    assert node.jobs.asked == [Follow(RANK)]


def test_a_process_that_is_no_more_is_said_to_be_none(node: Node) -> None:
    node.ask(Open(3, 77))

    assert node.sent() == [
        Refusal(3, "No job of this node has a process 77 any more.", is_over=True)
    ]
    assert not node.sender.is_waiting


def test_a_job_that_cannot_be_sent_is_closed_with_a_sentence(node: Node) -> None:
    node.ask(Open(3, RANK.pid))
    assert node.jobs.last is not None
    node.jobs.last = replace(node.jobs.last, log_dropped=1 << 70)
    (refusal,) = node.sent()

    assert isinstance(refusal, Refusal)
    assert refusal.is_over
    assert "cannot be sent" in refusal.problem
    assert not node.sender.is_waiting


def test_a_long_snapshot_is_sent_in_parts_that_leave_place_for_summaries(node: Node) -> None:
    generator = random.Random(5)
    names = [generator.randbytes(100).hex() for _ in range(2000)]
    assert node.jobs.last is not None
    node.jobs.last = replace(node.jobs.last, problems=tuple(names))
    node.ask(Open(3, RANK.pid))
    parts = [each for each in node.sent() if isinstance(each, SnapshotPart)]

    assert len(parts) > 2
    assert [each.number for each in parts] == list(range(len(parts)))
    assert [each.is_last for each in parts] == [False] * (len(parts) - 1) + [True]
    assert max(len(each.data) for each in parts) <= PART_BYTES
    assert max(len(node_frame(each)) for each in parts) < PART_BYTES + 200


def test_opening_another_job_closes_the_first(node: Node) -> None:
    node.ask(Open(3, RANK.pid))
    node.received()
    node.ask(Do(3, "follow", (RANK,)), Open(4, RANK.pid), Next(3))
    (part,) = node.sent()

    assert isinstance(part, SnapshotPart)
    assert (part.view, part.is_whole) == (4, True)
    assert node.jobs.asked == [Follow(RANK), Follow(None)]
