"""The node's end of an opened job: sends its snapshots as long as the head asks for them.

Nothing is sent, and nothing more is read than for the summary, unless a head has opened a job and
asks. Each request is for one snapshot, and at most `SNAPSHOTS_ON_THE_WAY` are asked for at a time:
those that are made meanwhile are skipped and counted, and the next one that is sent is the newest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from mpwatch.model.ids import ProcessId
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
from mpwatch.nodes.wire.view_codec import PART_BYTES, SnapshotEncoder
from mpwatch.observe.recording.codec import CANNOT_ENCODE
from mpwatch.observe.sources.source import Command, Focus, Follow, ReadAllocators, TakeStacks

POLL_S = 0.1
"""Interval at which a newer snapshot is looked for while one is asked for."""
EARLY_LIMIT = 8 + SNAPSHOTS_ON_THE_WAY
UNASKED_S = 5.0
"""A head that has asked for nothing for so long gets no stacks taken for it until it asks again."""


class OpenableJobs(Protocol):
    """The jobs of this node, as far as a head can open them."""

    has_searched: bool

    @property
    def is_reading(self) -> bool:
        """Whether a job has been found that has no snapshot yet."""
        ...

    def root_of(self, pid: int) -> ProcessId | None:
        """The root of the job that a process belongs to."""
        ...

    def newest(self, root: ProcessId) -> tuple[Snapshot | None, int]:
        """The newest snapshot of a job, and how many there were before."""
        ...

    def ask(self, root: ProcessId, command: Command) -> str | None:
        """Ask the source of a job; one sentence if that does not do it."""
        ...


class ViewSender:
    """Serves the requests about the one job that is opened."""

    def __init__(self, jobs: OpenableJobs, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._clock = clock
        self._wanted: Open | None = None
        self._early: list[Do | Next] = []
        """Requests about a job that is not found yet."""
        self._opened: _Opened | None = None
        self._refusal: Refusal | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a job is opened or to be opened, and `next` has to be called at intervals."""
        return self._opened is not None or self._wanted is not None

    def serve(self, message: Open | Next | Do | Close) -> None:
        """Follow one request; one about a job that is not open any more is ignored."""
        if isinstance(message, Open):
            self._close()
            self._wanted, self._early = message, []
        elif self._wanted is not None and message.view == self._wanted.view:
            if isinstance(message, Close):
                self._wanted = None
            else:
                self._early = [*self._early, message][-EARLY_LIMIT:]
        elif self._opened is None or message.view != self._opened.view:
            return
        elif isinstance(message, Next):
            self._opened.grant(self._clock())
        elif isinstance(message, Do):
            problem = self._opened.ask(message)
            if problem is not None:
                self._refusal = Refusal(message.view, problem)
        else:
            self._close()

    def next(self) -> SnapshotPart | Refusal | None:
        """The next message to send, if there is one."""
        if self._wanted is not None:
            self._open(self._wanted)
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            return refusal
        if self._opened is None:
            return None
        try:
            return self._opened.part(self._clock())
        except CANNOT_ENCODE as error:
            view = self._opened.view
            self._close()
            return Refusal(view, f"The job cannot be sent: {error}.", is_over=True)

    def _open(self, message: Open) -> None:
        """Open the job, unless a new agent has not read the jobs of its node yet."""
        root = self._jobs.root_of(message.pid)
        if root is not None:
            self._opened = _Opened(message.view, root, self._jobs, self._clock())
            self._wanted = None
            for each in self._early:
                self.serve(each)
        elif not self._jobs.has_searched or self._jobs.is_reading:
            return
        else:
            self._wanted = None
            problem = f"No job of this node has a process {message.pid} any more."
            self._refusal = Refusal(message.view, problem, is_over=True)

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.pause_stacks()
            self._opened = None


class _Opened:
    """A job that a head has opened."""

    def __init__(self, view: int, root: ProcessId, jobs: OpenableJobs, now_s: float) -> None:
        self.view = view
        self._root = root
        self._jobs = jobs
        self._encoder = SnapshotEncoder()
        self._granted_s = now_s
        self._wanted = 1
        """Snapshots that are asked for and not sent."""
        self._data = memoryview(b"")
        self._sent: Snapshot | None = None
        self._is_whole = False
        self._number = 0
        self._count = jobs.newest(root)[1]
        self._skipped = 0
        self._watched: dict[type[Follow | Focus], Follow | Focus] = {}
        self._is_away = False

    def grant(self, now_s: float) -> None:
        """Let the next snapshot be sent."""
        self._wanted = min(self._wanted + 1, SNAPSHOTS_ON_THE_WAY)
        self._granted_s = now_s
        if self._is_away:
            self._is_away = False
            for command in self._watched.values():
                self._jobs.ask(self._root, command)

    def ask(self, message: Do) -> str | None:
        """Ask the observer of the job for what a head may ask; one sentence if it does not."""
        process = message.processes[0] if message.processes else None
        command: Command
        if message.what == "stacks":
            command = TakeStacks(process, message.native, message.locals)
        elif message.what == "allocators":
            command = ReadAllocators(message.processes)
        else:
            watch = Follow(process) if message.what == "follow" else Focus(process)
            self._watched[type(watch)] = command = watch
            if self._is_away:
                return None
        return self._jobs.ask(self._root, command)

    def pause_stacks(self) -> None:
        """Take no more stacks for the head."""
        self._is_away = True
        for kind in self._watched:
            self._jobs.ask(self._root, kind(None))

    def part(self, now_s: float) -> SnapshotPart | None:
        """The next part of the snapshot that is asked for, if there is one that is newer."""
        if not self._data and self._wanted:
            self._take()
        if self._data:
            return self._piece()
        if not self._wanted and not self._is_away and now_s - self._granted_s > UNASKED_S:
            self.pause_stacks()
        return None

    def _take(self) -> None:
        snapshot, count = self._jobs.newest(self._root)
        if snapshot is None or snapshot is self._sent:
            return
        self._wanted -= 1
        self._is_whole, self._number = self._sent is None, 0
        self._skipped += max(0, count - self._count - 1)
        self._sent, self._count = snapshot, count
        self._data = memoryview(self._encoder.change(snapshot))

    def _piece(self) -> SnapshotPart:
        piece, self._data = bytes(self._data[:PART_BYTES]), self._data[PART_BYTES:]
        number, self._number = self._number, self._number + 1
        return SnapshotPart(self.view, number, not self._data, self._is_whole, piece, self._skipped)
