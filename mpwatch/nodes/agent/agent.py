"""The agent on a node: sends its summary each second, answers the head, ends with its input.

It speaks frames over two pipes (`mpwatch.nodes.wire.messages`), opens no port, writes no file, and
injects nothing. At most one unsent message exists: while the head does not read, nothing is
collected for it, and the next summary has the values of the time when it is made.
"""

from __future__ import annotations

import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mpwatch import __version__
from mpwatch.collect.own_threads import OwnThreads
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.agent.documents import node_diagnosis, node_dump, node_metrics
from mpwatch.nodes.agent.rows import Rows
from mpwatch.nodes.agent.view_sender import POLL_S, OpenableJobs, ViewSender
from mpwatch.nodes.wire.messages import (
    CHUNK_BYTES,
    HEAD_LIMIT_BYTES,
    PROTOCOL,
    SILENCE_S,
    Answer,
    Ask,
    Close,
    Do,
    FrameReader,
    FrameTooLong,
    FromNode,
    Hello,
    Next,
    NotAMessage,
    Open,
    Ping,
    Pong,
    Resend,
    message_of_head,
    node_frame,
)
from mpwatch.nodes.wire.summary import SummaryWriter
from mpwatch.nodes.wire.view_codec import VERSION

SUMMARY_S = 1.0
"""Interval of summaries."""
SAMPLE_S = 0.5
"""Mean interval at which the main threads of the ranks are sampled: 0.06 ms for each."""
SAMPLE_PATIENCE = 100
"""Samples of all ranks that took so long is followed by a pause of this many times that."""
STOP_S = 2.0
"""How long the end waits for what observes the jobs."""


class Jobs(OpenableJobs, Protocol):
    """The jobs of this node."""

    problem: str

    def snapshots(self) -> list[Snapshot]:
        """The newest snapshot of each job."""
        ...

    def facts(self) -> dict[str, str]:
        """Values to compare between nodes, by name."""
        ...


ReadAnew = Callable[[Sequence[Snapshot], Ask], list[Snapshot]]
"""Reads the jobs anew for a dump: their newest snapshots, what was asked for."""


class Agent:
    """Connects the jobs of a node with a head."""

    def __init__(
        self,
        input: int,
        output: int,
        jobs: Jobs,
        read_anew: ReadAnew,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an agent.

        Args:
            input: Descriptor from which the head is read.
            output: Descriptor to which the head is written; set to non-blocking.
            jobs: The jobs of this node, already started.
            read_anew: Reads jobs anew.
            clock: Monotonic seconds.
        """
        self._input = input
        self._output = output
        self._jobs = jobs
        self._read_anew = read_anew
        self._clock = clock
        self._reader = FrameReader(HEAD_LIMIT_BYTES)
        self._rows = Rows()
        self._writer = SummaryWriter()
        self._unsent = memoryview(b"")
        self._pong: Pong | None = None
        self._answers = _AnswerThread()
        self._view = ViewSender(jobs, clock)
        self._due_s = clock()
        self._sample_s = clock()
        self._heard_s = clock()
        os.set_blocking(output, False)

    def run(self) -> None:
        """Serve the head until its end of the input or of the output is closed."""
        hello = Hello(__version__, socket.gethostname(), os.getpid(), VERSION)
        self._unsent = memoryview(node_frame(hello))
        try:
            while self._is_head_there() and self._step():
                pass
        except (BrokenPipeError, ConnectionResetError):
            return

    def _is_head_there(self) -> bool:
        return self._clock() - self._heard_s < SILENCE_S

    def _step(self) -> bool:
        """Wait for something to do, and do it; whether the input is still open."""
        if not self._unsent:
            self._prepare()
        timeout_s = 1.0 if self._unsent else max(0.0, self._due_s - self._clock())
        timeout_s = min(timeout_s, self._sample())
        if self._view.is_waiting:
            timeout_s = min(timeout_s, POLL_S)
        readable, writable, _ = select.select(
            [self._input, self._answers.wakes],
            [self._output] if self._unsent else [],
            [],
            timeout_s,
        )
        if self._answers.wakes in readable:
            self._answers.woken()
        if writable:
            self._write()
        return self._input not in readable or self._read()

    def _sample(self) -> float:
        """Sample the ranks if that is due; seconds until it is again."""
        now_s = self._clock()
        if now_s >= self._sample_s:
            self._rows.sample()
            pause_s = max(SAMPLE_S, SAMPLE_PATIENCE * (self._clock() - now_s))
            self._sample_s = now_s + pause_s * random.uniform(0.5, 1.5)
        return max(0.0, self._sample_s - now_s)

    def _prepare(self) -> None:
        """Make the next message to send, if one is due."""
        message: FromNode | None = None
        if self._pong is not None:
            message, self._pong = self._pong, None
        elif (answer := self._answers.collected()) is not None:
            message = answer
        elif self._clock() >= self._due_s:
            now_s = self._clock()
            self._due_s = now_s + SUMMARY_S
            message = self._writer.next(now_s, self._sections())
        else:
            message = self._view.next()
        if message is not None:
            self._unsent = memoryview(_fitting_frame(message))

    def _sections(self) -> dict[str, dict[str, dict[str, Any]]]:
        jobs = self._jobs
        snapshots = jobs.snapshots()
        sections = self._rows.sections(snapshots, jobs.facts(), jobs.problem)
        if not jobs.has_searched or (jobs.is_reading and not snapshots):
            sections["node"][""]["state"] = "starting"
        return sections

    def _write(self) -> None:
        try:
            written = os.write(self._output, self._unsent[:CHUNK_BYTES])
        except BlockingIOError:
            return
        self._unsent = self._unsent[written:]

    def _read(self) -> bool:
        """Read and serve requests; whether the input is still open."""
        data = os.read(self._input, CHUNK_BYTES)
        if not data:
            return False
        self._heard_s = self._clock()
        for frame in self._reader.feed(data):
            if frame.protocol == PROTOCOL:
                self._serve(frame.body)
        return True

    def _serve(self, body: bytes) -> None:
        """Serve one request; what is no request of this protocol is ignored."""
        try:
            message = message_of_head(body)
        except NotAMessage:
            return
        if isinstance(message, Ping):
            self._pong = Pong(message.sent_s, time.time())
        elif isinstance(message, Resend):
            self._writer.restart()
        elif isinstance(message, Open | Next | Do | Close):
            self._view.serve(message)
        else:
            self._answers.begin(message, lambda: self._document(message))

    def _document(self, ask: Ask) -> dict[str, Any]:
        """The document asked for; called on the thread of answers."""
        snapshots = self._jobs.snapshots()
        if ask.what == "dump":
            read = self._read_anew(snapshots, ask)
            return node_dump(read, with_stacks=ask.stacks, unread=self._jobs.problem)
        if ask.what == "diagnose":
            return node_diagnosis(snapshots, unread=self._jobs.problem)
        if ask.what == "metrics":
            return node_metrics(snapshots)
        raise ValueError(f"this agent cannot answer {ask.what!r}")


def _fitting_frame(message: FromNode) -> bytes:
    """The frame of a message; of an answer that is too long, a sentence that says so."""
    try:
        return node_frame(message)
    except FrameTooLong as error:
        if not isinstance(message, Answer):
            raise
        return node_frame(Answer(message.request, problem=f"The answer is too long: {error}."))


class _AnswerThread:
    """Makes one answer at a time on a thread, so that the end of the input is always noticed.

    Attributes:
        wakes: A descriptor that is readable once an answer is ready.
    """

    def __init__(self) -> None:
        self.wakes, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._lock = threading.Lock()
        self._busy = False
        self._threads = OwnThreads()
        self._answers: list[Answer] = []

    def begin(self, ask: Ask, make: Callable[[], dict[str, Any]]) -> None:
        """Make an answer; a request while another one is being served is refused."""
        with self._lock:
            if self._busy or len(self._answers) > 1:
                self._answers = [*self._answers, _refusal(ask)][:4]
                return
            thread = self._threads.start(self._make, "mpwatch-answer", ask, make)
            if thread is None:
                self._answers.append(Answer(ask.request, problem=self._threads.problem or ""))
            else:
                self._busy = True

    def collected(self) -> Answer | None:
        """The next answer, if one is ready."""
        with self._lock:
            return self._answers.pop(0) if self._answers else None

    def woken(self) -> None:
        """Empty the pipe behind `wakes`."""
        os.read(self.wakes, 4096)

    def _make(self, ask: Ask, make: Callable[[], dict[str, Any]]) -> None:
        try:
            answer = Answer(ask.request, make())
        except Exception as error:  # noqa: BLE001 - the one boundary of this thread
            answer = Answer(ask.request, problem=f"{type(error).__name__}: {error}")
        with self._lock:
            self._answers.append(answer)
            self._busy = False
        os.write(self._wake, b".")


def _refusal(ask: Ask) -> Answer:
    return Answer(ask.request, problem="Another request is being answered.")
