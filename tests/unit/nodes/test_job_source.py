"""The head's end of an opened job: decodes, asks for the next, refuses what is too much or old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.head.head import OpenedJob, Receive
from mpwatch.nodes.job_source import PARTS_LIMIT, NodeSource
from mpwatch.nodes.wire.messages import (
    SNAPSHOTS_ON_THE_WAY,
    Close,
    Do,
    Next,
    Open,
    Refusal,
    SnapshotPart,
)
from mpwatch.nodes.wire.view_codec import PART_BYTES, VERSION, SnapshotEncoder
from mpwatch.observe.sources.source import (
    Command,
    Focus,
    Follow,
    InjectHook,
    Pause,
    ReadAllocators,
    Seek,
    SetRefresh,
    StartRecording,
    TakeStacks,
)
from tests.unit.nodes.jobs import rank, snapshot

RANK = ProcessId(1000, 50)
LIMIT_S = 30.0


class Head:
    """Keeps what a source says, and gives it what a test says."""

    def __init__(self) -> None:
        self.told: list[Next | Do | Close] = []
        self.opened: list[tuple[int, str, int]] = []
        self.delivered: list[Snapshot] = []
        self.receive: Receive = lambda message: None
        self.source = NodeSource(3, "node-1", RANK.pid, lambda function: function(self))

    def open(self, view: int, name: str, pid: int, receive: Receive) -> None:
        self.opened.append((view, name, pid))
        self.receive = receive

    def tell(self, message: Next | Do | Close) -> None:
        self.told.append(message)


@pytest.fixture
def head() -> Iterator[Head]:
    made = Head()
    made.source.start(made.delivered.append)
    yield made
    made.source.stop()


def until(is_done: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not is_done():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def parts(data: bytes, *, is_whole: bool = True, size: int = 100) -> list[SnapshotPart]:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    last = len(pieces) - 1
    return [SnapshotPart(3, n, n == last, is_whole, each) for n, each in enumerate(pieces)]


def test_each_snapshot_is_delivered_and_then_the_next_one_is_asked_for(head: Head) -> None:
    encoder = SnapshotEncoder()
    for number in range(3):
        job = snapshot([rank(0)], at_s=100.0 + number)
        for part in parts(encoder.change(job), is_whole=number == 0):
            assert len(head.delivered) == number
            head.receive(part)
        until(lambda: len(head.told) == number + 1)  # noqa: B023 - used at once

    assert head.opened == [(3, "node-1", RANK.pid)]
    assert [each.at_s for each in head.delivered] == [100.0, 101.0, 102.0]
    assert head.told == [Next(3)] * 3
    assert head.source.problem == ""


def test_a_new_agent_begins_again_in_the_middle_of_a_snapshot(head: Head) -> None:
    job = snapshot([rank(0)])
    data = SnapshotEncoder().change(job)
    for part in [*parts(data)[:2], *parts(data)]:
        head.receive(part)
    until(lambda: bool(head.delivered))

    assert head.source.problem == ""


@pytest.mark.parametrize(
    "wrong",
    [
        parts(b"no snapshot"),
        parts(SnapshotEncoder().change(snapshot([rank(0)])))[::2],
        [SnapshotPart(3, 0, True, True, b"x" * (PART_BYTES + 1))],
    ],
    ids=("nonsense", "a part is missing", "a part is too long"),
)
def test_what_is_not_understood_closes_the_job_with_a_sentence(
    head: Head, wrong: list[SnapshotPart]
) -> None:
    for part in wrong:
        head.receive(part)
    until(lambda: bool(head.told))

    assert head.told[0] == Close(3)
    assert head.source.problem.startswith("node-1 sent a snapshot that is not understood: ")
    for part in parts(SnapshotEncoder().change(snapshot([rank(0)]))):
        head.receive(part)
    until(lambda: head.source.problem == "")  # another agent may do better
    assert len(head.delivered) == 1


def test_a_node_that_sends_without_being_asked_fills_no_memory(head: Head) -> None:
    data = SnapshotEncoder().change(snapshot([rank(0)]))
    is_stuck, go_on = threading.Event(), threading.Event()

    def stuck(_snapshot: Snapshot) -> None:
        is_stuck.set()
        go_on.wait(LIMIT_S)

    other = Head()
    other.source.start(stuck)
    for part in parts(data):
        other.receive(part)
    is_stuck.wait(LIMIT_S)
    kept = [
        SnapshotPart(3, number, False, True, b"x" * PART_BYTES) for number in range(PARTS_LIMIT * 3)
    ]
    for part in kept:
        other.receive(part)
    waiting = other.source._received.qsize()
    go_on.set()
    until(lambda: other.source._received.qsize() == 0)
    other.source.stop()

    assert waiting == PARTS_LIMIT


def test_a_refusal_is_the_problem_or_is_reported(head: Head) -> None:
    told: list[str] = []
    head.source.refused = told.append
    head.receive(Refusal(3, "No hook answers."))
    head.receive(Refusal(3, "It has ended.", is_over=True))
    until(lambda: bool(head.source.problem))

    assert told == ["No hook answers."]
    assert head.source.problem == "It has ended."


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (TakeStacks(), Do(3, "stacks")),
        (TakeStacks(RANK, locals=True), Do(3, "stacks", (RANK,), locals=True)),
        (Follow(RANK), Do(3, "follow", (RANK,))),
        (Follow(None), Do(3, "follow")),
        (Focus(RANK), Do(3, "focus", (RANK,))),
        (ReadAllocators((RANK,)), Do(3, "allocators", (RANK,))),
    ],
)
def test_looks_are_asked_for(head: Head, command: Command, message: Do) -> None:
    assert head.source.ask(command) is None
    assert head.told == [message]


@pytest.mark.parametrize("command", [InjectHook(), StartRecording("x"), SetRefresh(9.0), Seek(1.0)])
def test_what_a_node_does_not_do_is_refused_in_a_sentence(head: Head, command: Command) -> None:
    assert str(head.source.ask(command)).endswith((".", "there."))
    assert head.told == []
    assert head.source.ask(Pause(True)) is None


# --- on the thread of the head -------------------------------------------------------------------


class Agent:
    """An agent that takes messages, or does not."""

    def __init__(self, view_version: int = VERSION) -> None:
        self.greetings = 1
        self.view_version = view_version
        self.version = "0.0.9"
        self.takes = True
        self.received: list[Open | Next | Do | Close] = []

    def send(self, message: Open | Next | Do | Close) -> bool:
        if self.takes:
            self.received.append(message)
        return self.takes


def test_a_job_is_opened_again_whenever_a_new_agent_greets() -> None:
    agent, received = Agent(), list[SnapshotPart | Refusal]()
    opened = OpenedJob(3, "node-1", 7, received.append)
    opened.tell(Do(3, "follow", (RANK,)))
    assert not opened.go_on(None)
    assert opened.go_on(agent)
    opened.tell(Next(3))
    assert opened.go_on(agent)
    first, agent.received = agent.received, []
    agent.greetings += 1
    assert opened.go_on(agent)

    follow = Do(3, "follow", (RANK,))
    more = [Next(3)] * (SNAPSHOTS_ON_THE_WAY - 1)
    assert first == [Open(3, 7), *more, follow, Next(3)]
    assert agent.received == [Open(3, 7), *more, follow]
    assert received == []


def test_what_a_node_does_not_take_is_sent_later_and_bounded() -> None:
    agent = Agent()
    opened = OpenedJob(3, "node-1", 7, lambda message: None)
    agent.takes = False
    assert not opened.go_on(agent)
    for _ in range(1000):
        opened.tell(Next(3))
    agent.takes = True
    assert opened.go_on(agent)

    assert len(agent.received) < 100
    assert agent.received[-1] == Next(3)


@pytest.mark.parametrize("view_version", [0, VERSION + 1])
def test_an_agent_of_another_version_is_refused_in_one_sentence(view_version: int) -> None:
    agent, received = Agent(view_version), list[SnapshotPart | Refusal]()
    opened = OpenedJob(3, "node-1", 7, received.append)
    opened.go_on(agent)
    opened.go_on(agent)

    assert received == [
        Refusal(
            3,
            "The mpwatch 0.0.9 of node-1 cannot show its dashboard to this one: use the same "
            "version on both.",
            is_over=True,
        )
    ]
    assert agent.received == []
