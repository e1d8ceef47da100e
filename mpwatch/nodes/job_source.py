"""A job on several machines as a stream of states, for the dashboard."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mpwatch.model.findings import JobFinding
from mpwatch.model.snapshot import Playback
from mpwatch.nodes.across.judge import JobJudge
from mpwatch.nodes.head.head import STEP_S, Head
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.head.view_source import NodeSource
from mpwatch.nodes.launchers.launch import ChangingNodes, Launch
from mpwatch.nodes.recording import JobPlayer, JobRecording, problems_of
from mpwatch.observe.sources.source import DeliveringThread, Pause, Seek, SetSpeed

DELIVER_S = 0.5
"""Interval of states; nodes send one a second, each at another time."""
PATIENCE = 4
"""A state that took t seconds of cpu is followed by the next one after this many times t: 1,000
nodes of 64 ranks take 0.1 s while they work, and 0.35 s once one is named."""


@dataclass(frozen=True, slots=True)
class JobState:
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


SLOWEST, FASTEST = 0.1, 1000.0
"""Limits of the speed of a replay."""


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
                self._player.at_s, self._player.length_s, self._speed, self._is_paused
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
