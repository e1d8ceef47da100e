"""The agent of a node on pipes, with made-up jobs."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.agent import agent as agent_module
from mpwatch.nodes.agent.agent import Agent
from mpwatch.nodes.wire.messages import (
    NODE_LIMIT_BYTES,
    Answer,
    Ask,
    FrameReader,
    FromHead,
    FromNode,
    Hello,
    Next,
    Open,
    Ping,
    Pong,
    Refusal,
    Resend,
    SnapshotPart,
    Summary,
    encode,
    head_frame,
    message_of_node,
)
from mpwatch.nodes.wire.view_codec import VERSION, SnapshotDecoder
from mpwatch.observe.sources.source import Command
from tests.unit.nodes.jobs import ALL_REDUCE, rank, snapshot

LIMIT_S = 30.0
INTERVAL_S = 0.1


@pytest.fixture(autouse=True)
def _summaries_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "SUMMARY_S", INTERVAL_S)


class MadeUpJobs:
    """Jobs of a node that count how often they are read."""

    problem = ""
    has_searched = True
    is_reading = False

    def __init__(self, snapshots: list[Snapshot]) -> None:
        self._snapshots = snapshots
        self.reads = 0

    def snapshots(self) -> list[Snapshot]:
        self.reads += 1
        return self._snapshots

    def root_of(self, pid: int) -> ProcessId | None:
        found = [each for each in self._snapshots if any(p.pid == pid for p in each.processes)]
        return found[0].root if found else None

    def newest(self, root: ProcessId) -> tuple[Snapshot | None, int]:
        return self._snapshots[0], 1

    def ask(self, root: ProcessId, command: Command) -> str | None:
        return None

    def facts(self) -> dict[str, str]:
        return {"torch": "2.13.0"}


class Head:
    """The other end of an agent."""

    def __init__(self, jobs: MadeUpJobs, look: Callable[..., list[Snapshot]] | None = None) -> None:
        there, self.input = os.pipe()
        self.output, back = os.pipe()
        agent = Agent(there, back, jobs, look or (lambda snapshots, ask: list(snapshots)))
        self._reader = FrameReader(NODE_LIMIT_BYTES)
        self._messages: list[FromNode] = []
        self.thread = threading.Thread(target=self._serve, args=(agent, there, back), daemon=True)
        self.thread.start()

    def _serve(self, agent: Agent, *descriptors: int) -> None:
        agent.run()
        for descriptor in descriptors:
            os.close(descriptor)

    def ask(self, *messages: FromHead) -> None:
        for message in messages:
            os.write(self.input, head_frame(message))

    def next(self, kind: type[FromNode]) -> FromNode:
        """The next message of a kind; others before it are dropped."""
        end_s = time.monotonic() + LIMIT_S
        while True:
            while self._messages:
                message = self._messages.pop(0)
                if isinstance(message, kind):
                    return message
            assert select.select([self.output], [], [], end_s - time.monotonic())[0], kind
            for frame in self._reader.feed(os.read(self.output, 65536)):
                self._messages.append(message_of_node(frame.body))

    def close(self) -> None:
        for descriptor in (self.input, self.output):
            os.close(descriptor)
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()


@contextmanager
def head(jobs: MadeUpJobs, look: Callable[..., list[Snapshot]] | None = None) -> Iterator[Head]:
    made = Head(jobs, look)
    try:
        yield made
    finally:
        made.close()


def job() -> list[Snapshot]:
    return [snapshot([rank(0, stack=ALL_REDUCE, still_s=9.0), rank(1)])]


def test_a_node_sends_a_hello_then_a_full_summary_then_changes() -> None:
    with head(MadeUpJobs(job())) as other:
        assert isinstance(other.next(Hello), Hello)
        first, second = other.next(Summary), other.next(Summary)

    assert isinstance(first, Summary)
    assert isinstance(second, Summary)
    assert (first.is_full, second.is_full) == (True, False)
    assert len(first.changed["ranks"]) == 2
    assert second.changed == {}


def test_requests_are_answered_between_summaries() -> None:
    with head(MadeUpJobs(job())) as other:
        other.ask(Ping(5.0), Ask(1, "dump", stacks=True))
        pong = other.next(Pong)
        dump = other.next(Answer)
        other.ask(Ask(2, "format the disk"))
        unknown = other.next(Answer)

    assert isinstance(pong, Pong)
    assert pong.sent_s == 5.0
    assert pong.wall_s > 1.7e9
    assert isinstance(dump, Answer)
    assert dump.document is not None
    assert [each["pid"] for each in dump.document["processes"]] == [1000, 1001]
    assert isinstance(unknown, Answer)
    assert unknown.document is None
    assert "cannot answer" in unknown.problem


def test_a_request_while_another_is_served_is_refused_and_the_first_is_answered() -> None:
    go_on = threading.Event()

    def slow(snapshots: list[Snapshot], _ask: Ask) -> list[Snapshot]:
        go_on.wait(LIMIT_S)
        return snapshots

    with head(MadeUpJobs(job()), slow) as other:
        other.ask(Ask(1, "dump"), Ask(2, "dump"))
        refused = other.next(Answer)
        go_on.set()
        answered = other.next(Answer)

    assert isinstance(refused, Answer)
    assert isinstance(answered, Answer)
    assert (refused.request, refused.document) == (2, None)
    assert answered.request == 1
    assert answered.document is not None


def test_a_request_that_no_thread_can_serve_is_refused_and_the_next_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin, refused = threading.Thread.start, [True]

    def start(thread: threading.Thread) -> None:
        if thread.name == "mpwatch-answer" and refused and refused.pop():
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with head(MadeUpJobs(job())) as other:
        other.ask(Ask(1, "dump"))
        first = other.next(Answer)
        other.ask(Ask(2, "dump"))
        second = other.next(Answer)

    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert "could not start a thread" in first.problem
    assert (second.request, second.document is None) == (2, False)


def test_the_end_of_the_input_ends_the_agent_also_while_an_answer_is_made() -> None:
    go_on = threading.Event()

    def stuck(snapshots: list[Snapshot], _ask: Ask) -> list[Snapshot]:
        go_on.wait(LIMIT_S)
        return snapshots

    with head(MadeUpJobs(job()), stuck) as other:
        other.ask(Ask(1, "dump"))
        other.next(Summary)
    go_on.set()


def test_the_agent_collects_nothing_while_the_head_does_not_read() -> None:
    many = [rank(number, doing="x" * 150) for number in range(250)]
    jobs = MadeUpJobs([snapshot(many)])
    with head(jobs) as other:
        # The first summary is larger than a pipe, so that it stays unsent.
        end_s = time.monotonic() + LIMIT_S
        while jobs.reads == 0 and time.monotonic() < end_s:
            time.sleep(0.05)
        time.sleep(5 * INTERVAL_S)
        assert jobs.reads == 1
        full = other.next(Summary)
        following = other.next(Summary)

    assert isinstance(full, Summary)
    assert isinstance(following, Summary)
    assert len(full.changed["ranks"]) == 250
    assert (full.sequence, following.sequence) == (0, 1)


def test_a_full_summary_is_sent_again_on_request() -> None:
    with head(MadeUpJobs(job())) as other:
        other.next(Summary)
        other.ask(Resend())
        messages = [other.next(Summary) for _ in range(3)]

    assert any(isinstance(each, Summary) and each.is_full for each in messages)


def test_bytes_that_are_no_request_are_ignored() -> None:
    with head(MadeUpJobs(job())) as other:
        os.write(other.input, b"ls -l /\n\x00\xabMP")
        os.write(other.input, encode(b"\x83\xa4type\xa3ask\xa7request\x01\xa4what\xa1\xff", 100))
        other.ask(Ping(1.0))
        assert isinstance(other.next(Pong), Pong)


def test_a_job_is_opened_between_summaries() -> None:
    with head(MadeUpJobs(job())) as other:
        hello = other.next(Hello)
        other.ask(Open(3, 1001))
        part = other.next(SnapshotPart)
        other.ask(Next(3))
        summary = other.next(Summary)
        other.ask(Open(4, 77))
        refusal = other.next(Refusal)

    assert isinstance(hello, Hello)
    assert hello.view == VERSION
    assert isinstance(part, SnapshotPart)
    assert isinstance(summary, Summary)
    found = SnapshotDecoder().snapshot(part.data)
    assert [each.label for each in found.processes] == ["rank 0", "rank 1"]
    assert isinstance(refusal, Refusal)
    assert (refusal.view, refusal.is_over) == (4, True)
