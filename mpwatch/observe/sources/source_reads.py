"""Reads the source of the lines at which a job is, on a thread of its own.

A file of a job that hangs may be on a file system that hangs, so the loop never waits for it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from mpwatch.collect.process.source_code import SourceCode
from mpwatch.describe.frames import is_library
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, StacksTaken
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import LINES_LIMIT, DroppedResult, SourceLine, SourceRead

POLL_S = 0.01


class _Request(NamedTuple):
    process: ProcessId
    frame: Frame
    since_s: float


class SourceReads:
    """Reads each line once."""

    def __init__(self, report: Callable[[SourceRead], None]) -> None:
        """Make it; the thread starts with the first request.

        Args:
            report: Called on the thread with what was read.
        """
        self._report = report
        self._code = SourceCode()
        self._known: set[tuple[str, int, str]] = set()
        self._new: list[tuple[ProcessId, Frame]] = []
        self._requests: queue.SimpleQueue[list[_Request] | None] = queue.SimpleQueue()
        self._files: set[str] = set()
        self._under_way = 0
        self._done = 0
        self._has_started = False

    def received(self, taken: StacksTaken) -> None:
        """Note the lines of new stacks."""
        for stack in taken.stacks:
            for frame in stack.frames:
                key = (frame.file, frame.line, frame.function)
                if key in self._known or len(self._known) >= LINES_LIMIT or is_library(frame):
                    continue
                self._known.add(key)
                self._new.append((taken.process, frame._replace(locals=())))

    def start_due(self, snapshot: Snapshot) -> None:
        """Begin to read the lines that were noted."""
        if not self._new:
            return
        requests = list(_with_start(snapshot, self._new))
        self._new = []
        self._under_way += 1
        self._requests.put(requests)
        if not self._has_started:
            self._has_started = True
            threading.Thread(target=self._run, name="mpwatch-source", daemon=True).start()

    def wait(self, limit_s: float) -> None:
        """Wait until everything requested was reported, at most this long."""
        end_s = time.monotonic() + limit_s
        while self._done < self._under_way and time.monotonic() < end_s:
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End after the lines at hand, without waiting for that."""
        self._requests.put(None)

    def _run(self) -> None:
        while (requests := self._requests.get()) is not None:
            try:
                self._report(self._read(requests))
            finally:
                self._done += 1

    def _read(self, requests: list[_Request]) -> SourceRead:
        lines: list[SourceLine] = []
        dropped: list[DroppedResult] = []
        for process, frame, since_s in requests:
            line = self._code.line(process, frame, since_s)
            if line is not None:
                lines.append(line)
            if frame.file not in self._files:
                self._files.add(frame.file)
                dropped += self._code.dropped(process, frame.file, since_s)
        return SourceRead(time.monotonic(), tuple(lines), tuple(dropped))


def _with_start(snapshot: Snapshot, frames: list[tuple[ProcessId, Frame]]) -> Iterator[_Request]:
    for process, frame in frames:
        known = snapshot.get(process)
        started_s = known.sample.born_wall_s if known is not None else None
        if started_s is not None:
            yield _Request(process, frame, started_s)
