"""What the dashboard shows of a job on several machines: its states, and one opened job of a node.

Of an opened job some snapshots are asked for at a time, so that a long way skips none. They are
decoded on a thread of its own, so that the head goes on reading the other nodes, and one more is
asked for only when one is decoded: a slow head has a bounded number of them on their way.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from mpwatch.model.findings import JobFinding
from mpwatch.model.snapshot import Playback, Snapshot
from mpwatch.nodes.across.judge import JobJudge
from mpwatch.nodes.head.head import STEP_S, Head, Receive
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.launchers.launch import ChangingNodes, Launch
from mpwatch.nodes.recording import JobPlayer, JobRecording, problems_of
from mpwatch.nodes.wire.messages import Close, Do, Next, Refusal, SnapshotPart
from mpwatch.nodes.wire.view_codec import PART_BYTES, NotASnapshot, SnapshotDecoder
from mpwatch.observe.sources.replay import FASTEST, SLOWEST
from mpwatch.observe.sources.source import (
    Command,
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
from mpwatch.observe.sources.source import Deliver as DeliverSnapshot

DELIVER_S = 0.5
"""Interval of states; nodes send one a second, each at another time."""
PATIENCE = 4
"""A state that took t seconds of cpu is followed by the next one after this many times t: 1,000
nodes of 64 ranks take 0.1 s while they work, and 0.04 to 0.07 s once one is named."""
PARTS_LIMIT = 256
"""The most parts of one snapshot, and of all that are not decoded yet: 16 MiB deflated."""


class JobState(Struct, frozen=True):
    """A job at one moment."""

    spec: str
    nodes: tuple[NodeView, ...] = ()
    findings: tuple[JobFinding, ...] = ()
    """Of the job as a whole, most urgent first."""
    problem: str = ""
    """Why the nodes cannot be read any more."""
    playback: Playback | None = None
    """The position in a recording; `None` for a running job."""


Deliver = Callable[[JobState], None]


class JobSource(Protocol):
    """What the dashboard of a job shows."""

    def start(self, deliver: Deliver) -> None:
        """Begin; it is called on the source's thread and must return at once."""
        ...

    def open(self, node: str, pid: int) -> NodeSource | str:
        """The job of a process on a node, not started; else one sentence why it has none."""
        ...

    def control(self, command: Seek | Pause | SetSpeed) -> None:
        """Change what is shown of a recording; a running job ignores it."""
        ...

    def stop(self) -> None:
        """End all agents."""
        ...


class LiveJobSource:
    """Reads the agents of a job on a thread of its own."""

    def __init__(self, spec: str, launches: Sequence[Launch] | ChangingNodes) -> None:
        self._spec = spec
        self._launches = launches
        self._submitted: queue.SimpleQueue[Callable[[Head], None]] = queue.SimpleQueue()
        self._views = 0
        self._stopping = threading.Event()
        self._thread = DeliveringThread[JobState](self._run, "mpwatch-head")

    def start(self, deliver: Deliver) -> None:
        """Start the agents."""
        self._thread.start(deliver)

    def open(self, node: str, pid: int) -> NodeSource:
        """The job of a process on a node, not started."""
        self._views += 1
        return NodeSource(self._views, node, pid, self._submitted.put)

    def control(self, command: Seek | Pause | SetSpeed) -> None:
        """Do nothing: a running job cannot be paused or sought."""

    def stop(self) -> None:
        """End all agents; returns once none is left."""
        self._stopping.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        head = Head(self._launches, restarts=True)
        try:
            self._receive(head)
        except Exception as error:  # noqa: BLE001 - the one boundary of this thread
            problem = f"the nodes cannot be read any more: {type(error).__name__}: {error}"
            self._thread.deliver(JobState(self._spec, problem=problem))
        finally:
            head.close()

    def _receive(self, head: Head) -> None:
        judge = JobJudge()
        due_s = 0.0
        while not self._stopping.is_set():
            head.step()
            while not self._submitted.empty():
                self._submitted.get()(head)
            now_s = time.monotonic()
            if now_s >= due_s:
                began_s = time.thread_time()
                views = head.views()
                self._thread.deliver(
                    JobState(self._spec, views, tuple(judge.findings(views, now_s)))
                )
                cost_s = time.thread_time() - began_s
                due_s = now_s + max(DELIVER_S, PATIENCE * cost_s)


class ReplayJobSource:
    """Plays a recording of several nodes on a thread of its own."""

    def __init__(self, path: str) -> None:
        """Open the recording.

        Raises:
            OSError: The file cannot be opened.
            NotARecording: It is none, or it was made by a later mpwatch.
        """
        self._recording = JobRecording(path)
        self._player = JobPlayer(self._recording)
        self._commands: queue.SimpleQueue[Seek | Pause | SetSpeed | None] = queue.SimpleQueue()
        self._speed = 1.0
        self._is_paused = False
        self._followed = 0
        self._thread = DeliveringThread[JobState](self._run, "mpwatch-replay")

    @property
    def spec(self) -> str:
        """The name of the job."""
        return self._recording.header.spec

    def start(self, deliver: Deliver) -> None:
        """Begin to play."""
        self._thread.start(deliver)

    def open(self, node: str, pid: int) -> str:
        """Say that a recording has no details of processes."""
        return "A recording of several nodes has summaries, and no details of processes."

    def control(self, command: Seek | Pause | SetSpeed) -> None:
        """Change the position or the speed."""
        self._commands.put(command)

    def stop(self) -> None:
        """End the replay and close the recording."""
        self._commands.put(None)
        self._thread.join(10.0)
        self._recording.close()

    def _run(self) -> None:
        try:
            self._play()
        except Exception as error:  # noqa: BLE001 - the one boundary of this thread
            problem = f"the recording cannot be read any more: {type(error).__name__}: {error}"
            self._thread.deliver(JobState(self.spec, problem=problem))

    def _play(self) -> None:
        judge = JobJudge()
        at_s = time.monotonic()
        while True:
            views = self._player.views()
            playback = Playback(
                self._player.at_s,
                self._player.length_s,
                self._speed,
                self._is_paused,
                self._followed,
            )
            findings = tuple(judge.findings(views, playback.at_s))
            problem = " ".join(problems_of(self._recording, self._player))
            self._thread.deliver(JobState(self.spec, views, findings, problem, playback))
            if not self._obey(max(STEP_S, DELIVER_S - (time.monotonic() - at_s))):
                return
            now_s = time.monotonic()
            if not self._is_paused:
                self._player.advance(self._player.at_s + (now_s - at_s) * self._speed)
            at_s = now_s

    def _obey(self, seconds: float) -> bool:
        """Do what the user asks for meanwhile, at once; whether to go on."""
        to_s = None
        with contextlib.suppress(queue.Empty):
            command = self._commands.get(timeout=seconds)
            while command is not None:
                self._followed += 1
                if isinstance(command, Pause):
                    self._is_paused = command.paused
                elif isinstance(command, SetSpeed):
                    self._speed = max(SLOWEST, min(FASTEST, command.factor))
                else:
                    to_s = command.at_s
                command = self._commands.get_nowait()
            return False
        if to_s is not None:
            self._player.seek(to_s)
        return True


# --- an opened job of a node ---------------------------------------------------------------------


class OpensJobs(Protocol):
    """A head, as far as a source needs it."""

    def open(self, view: int, name: str, pid: int, receive: Receive) -> None:
        """Open the job of a process on a node."""
        ...

    def tell(self, message: Next | Do | Close) -> None:
        """Send a message about an opened job."""
        ...


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

    def start(self, deliver: DeliverSnapshot) -> None:
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
