"""The head's end of an opened job: a source of its snapshots for the ordinary dashboard.

Some snapshots are asked for at a time, so that a long way skips none. They are decoded on a thread
of its own, so that the head goes on reading the other nodes, and one more is asked for only when
one is decoded: a slow head has a bounded number of them on their way.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.wire.messages import (
    SNAPSHOTS_ON_THE_WAY,
    Close,
    Do,
    Next,
    Open,
    Refusal,
    SnapshotPart,
)
from mpwatch.nodes.wire.view_codec import PART_BYTES, VERSION, NotASnapshot, SnapshotDecoder
from mpwatch.observe.sources.source import (
    Command,
    Deliver,
    DeliveringThread,
    Focus,
    Follow,
    InjectHook,
    Pause,
    ReadAllocators,
    Seek,
    SetRefresh,
    SetSpeed,
    StartRecording,
    Step,
    StopInjecting,
    TakeStacks,
)

PARTS_LIMIT = 256
"""The most parts of one snapshot, and of all that are not decoded yet: 16 MiB deflated."""
UNSENT_LIMIT = 64
"""Requests that wait for a node that does not read; older ones are dropped."""

Receive: TypeAlias = Callable[[SnapshotPart | Refusal], None]
"""Called on the thread of the head; returns at once."""


# --- on the thread of the head -------------------------------------------------------------------


class ViewNode(Protocol):
    """A node, as far as an opened job needs it."""

    greetings: int
    """Agents that have greeted so far."""

    @property
    def view_version(self) -> int:
        """Which version of opened jobs its agent has; 0 if none."""
        ...

    @property
    def version(self) -> str:
        """The version of mpwatch of its agent."""
        ...

    def send(self, message: Open | Next | Do | Close) -> bool:
        """Send a message; whether the node is live and takes it."""
        ...


class OpenedJob:
    """A job that is opened on a node, on the thread of the head.

    Attributes:
        node: Name of the node.
    """

    def __init__(self, view: int, node: str, pid: int, receive: Receive) -> None:
        self.node = node
        self.receive = receive
        self._view = view
        self._pid = pid
        self._greetings = 0
        self._unsent: list[Open | Next | Do | Close] = []
        self._watches: dict[str, Do] = {}

    def tell(self, message: Next | Do | Close) -> None:
        """Send a message as soon as the node takes one."""
        if isinstance(message, Do) and message.what in ("follow", "focus"):
            self._watches[message.what] = message
        self._unsent = [*self._unsent, message][-UNSENT_LIMIT:]

    def go_on(self, node: ViewNode | None) -> bool:
        """Send what is to be sent, to a new agent from the beginning; whether nothing is left."""
        if node is None:
            return False
        if node.greetings != self._greetings:
            self._greetings = node.greetings
            more = [Next(self._view)] * (SNAPSHOTS_ON_THE_WAY - 1)
            self._unsent = [Open(self._view, self._pid), *more, *self._watches.values()]
            if node.view_version != VERSION:
                self._unsent = []
                self.receive(Refusal(self._view, _too_old(self.node, node.version), is_over=True))
        while self._unsent and node.send(self._unsent[0]):
            del self._unsent[0]
        return not self._unsent


def _too_old(name: str, version: str) -> str:
    return (
        f"The mpwatch {version} of {name} cannot show its dashboard to this one: use the same "
        "version on both."
    )


class OpensJobs(Protocol):
    """A head, as far as a source needs it."""

    def open(self, view: int, name: str, pid: int, receive: Receive) -> None:
        """Open the job of a process on a node."""
        ...

    def tell(self, message: Next | Do | Close) -> None:
        """Send a message about an opened job."""
        ...


# --- the source ----------------------------------------------------------------------------------


class NodeSource:
    """The snapshots of one job on a node; see `mpwatch.observe.sources.source.Source`.

    Attributes:
        node: Name of the node.
        pid: The process whose job it is.
        problem: Why no snapshots can follow, in one sentence; empty while they can.
        arrived_s: When the last snapshot arrived, or the first one was asked for, monotonic.
        skipped: Snapshots that the node has made and not sent.
        refused: Is called, on the thread of the source, with a sentence why a request failed.
    """

    def __init__(
        self,
        view: int,
        node: str,
        pid: int,
        submit: Callable[[Callable[[OpensJobs], None]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a source that has opened nothing yet.

        Args:
            view: A number that no other source of the head has.
            node: Name of the node.
            pid: A process of the job.
            submit: Has a function called on the thread of the head.
            clock: Monotonic seconds.
        """
        self.node = node
        self.pid = pid
        self.problem = ""
        self.arrived_s = clock()
        self.skipped = 0
        self.refused: Callable[[str], None] = lambda sentence: None
        self._view = view
        self._submit = submit
        self._clock = clock
        self._received: queue.SimpleQueue[SnapshotPart | Refusal | None] = queue.SimpleQueue()
        self._thread = DeliveringThread[Snapshot](self._run, "mpwatch-node")

    @property
    def is_live(self) -> bool:
        """Always: a recording of several nodes has no jobs to open."""
        return True

    def start(self, deliver: Deliver) -> None:
        """Open the job."""
        self.arrived_s = self._clock()
        self._thread.start(deliver)
        view, node, pid, receive = self._view, self.node, self.pid, self._receive
        self._submit(lambda head: head.open(view, node, pid, receive))

    def stop(self) -> None:
        """Close the job."""
        self._tell(Close(self._view))
        self._received.put(None)
        self._thread.join(5.0)

    def ask(self, command: Command) -> str | None:
        """Ask the node for something; see `Source.ask`."""
        view = self._view
        match command:
            case TakeStacks(process=process):
                processes = () if process is None else (process,)
                self._tell(Do(view, "stacks", processes, command.native, command.locals))
            case Follow(process=process):
                self._tell(Do(view, "follow", () if process is None else (process,)))
            case Focus(process=process):
                self._tell(Do(view, "focus", () if process is None else (process,)))
            case ReadAllocators(processes=processes):
                self._tell(Do(view, "allocators", processes))
            case StartRecording():
                return "A node cannot be recorded alone; use mpwatch record --job, or record there."
            case InjectHook():
                return "Nothing is injected into processes of other nodes."
            case SetRefresh():
                return "The node decides how often it reads its processes."
            case Seek() | SetSpeed() | Step():
                return "A running job cannot be sought; record it, then replay the file."
            case Pause() | StopInjecting():
                pass  # the dashboard keeps what it shows; nothing is injected
        return None

    def _tell(self, message: Next | Do | Close) -> None:
        self._submit(lambda head: head.tell(message))

    def _receive(self, message: SnapshotPart | Refusal) -> None:
        """Keep what was received for the other thread; a node that sends too much loses it."""
        if self._received.qsize() < PARTS_LIMIT:
            self._received.put(message)

    # --- the thread of the source ----------------------------------------------------------------

    def _run(self) -> None:
        incoming = _Incoming()
        while (message := self._received.get()) is not None:
            if isinstance(message, Refusal):
                self._refuse(message)
                continue
            try:
                snapshot = incoming.with_part(message)
            except NotASnapshot as error:
                self.problem = f"{self.node} sent a snapshot that is not understood: {error}."
                self._tell(Close(self._view))
                continue
            if snapshot is not None:
                self.problem, self.skipped = "", message.skipped
                self.arrived_s = self._clock()
                self._thread.deliver(snapshot)
                self._tell(Next(self._view))

    def _refuse(self, message: Refusal) -> None:
        if message.is_over:
            self.problem = message.problem
        else:
            self.refused(message.problem)


class _Incoming:
    """Puts snapshots together from their parts; after an error, from the next whole one on."""

    def __init__(self) -> None:
        self._decoder: SnapshotDecoder | None = None
        self._parts: list[bytes] = []

    def with_part(self, part: SnapshotPart) -> Snapshot | None:
        """The snapshot, once its last part is added.

        Raises:
            NotASnapshot: It is none, or longer than accepted.
        """
        if part.number == 0:
            self._parts.clear()
            if part.is_whole:
                self._decoder = SnapshotDecoder()
        decoder = self._decoder
        if decoder is None:
            return None
        try:
            is_next = part.number == len(self._parts) < PARTS_LIMIT
            if not is_next or len(part.data) > PART_BYTES:
                raise NotASnapshot("a part is missing or too long")
            self._parts.append(part.data)
            return decoder.snapshot(b"".join(self._parts)) if part.is_last else None
        except NotASnapshot:
            self._decoder = None
            raise
