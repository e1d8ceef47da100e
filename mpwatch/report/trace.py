"""A recording as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing.

The format is Chrome's trace event JSON: calls are complete events (`X`) of their thread, numbers
are counters (`C`), exits and notes are instants (`i`), and a flow arrow (`s` to `f`) leads from the
sending of each tensor to its receipt. Times are microseconds since the start of the recording.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO, Any, TypeAlias

from mpwatch.describe.processes import role_name
from mpwatch.hook import wire
from mpwatch.model.events import (
    LOADER_CALLS,
    RECEIPTS,
    SENDS,
    HookEvent,
    HookNote,
    HookSlice,
    Input,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, ProcSample, StacksTaken, TreeSample

TraceEvent: TypeAlias = dict[str, Any]

_TRANSFERS = (*SENDS, *RECEIPTS)
_FAR_US = 1e18
_OPEN_LIMIT = 65_536
"""Sent segments that are remembered; older ones get no arrow."""


def trace_events(inputs: Iterable[Input], began_s: float) -> Iterator[TraceEvent]:
    """Trace events in the order of the inputs; viewers sort them by time.

    Args:
        inputs: The inputs of a recording.
        began_s: CLOCK_MONOTONIC seconds that count as zero.
    """
    tracer = _Tracer(began_s)
    for each in inputs:
        match each:
            case TreeSample():
                yield from tracer.tree(each)
            case HookSlice():
                yield from tracer.calls(each)
            case HookNote():
                yield tracer.note(each)
            case Ended():
                yield tracer.end(each)
            case StacksTaken():
                yield from tracer.thread_names(each)


def write_trace(inputs: Iterable[Input], began_s: float, file: IO[str]) -> int:
    """Write a trace one event at a time, so that a long recording needs no memory.

    Returns:
        How many events were written.

    Raises:
        OSError: The file cannot be written.
    """
    count = 0
    file.write('{"displayTimeUnit":"ms","traceEvents":[')
    for event in trace_events(inputs, began_s):
        file.write(("\n" if count == 0 else ",\n") + json.dumps(event, separators=(",", ":")))
        count += 1
    file.write("\n]}\n")
    return count


class _Tracer:
    """State between inputs: threads that were named, and tensors sent but not yet received."""

    def __init__(self, began_s: float) -> None:
        self._began_us = began_s * 1e6
        self._named: dict[ProcessId, frozenset[int]] = {}
        """The processes of the last reading with those of their threads that were named."""
        self._arrows = 0
        self._sent: dict[tuple[int, int], deque[int]] = {}
        self._received: dict[tuple[int, int], deque[int]] = {}

    def tree(self, tree: TreeSample) -> Iterator[TraceEvent]:
        """Names of new processes and threads, and counters."""
        before, self._named = self._named, {}
        for sample in tree.processes:
            yield from self._names(sample, before.get(sample.process))
            yield from self._counters(sample)
        if tree.host.shm is not None:
            used = tree.host.shm.total_bytes - tree.host.shm.free_bytes
            yield self._counter(tree.root.pid, tree.at_s, "/dev/shm bytes", used)

    def thread_names(self, taken: StacksTaken) -> Iterator[TraceEvent]:
        """The names of Python's threads, which say more than those of the kernel."""
        for stack in taken.stacks:
            if stack.tid is not None and stack.thread_name:
                yield _name("thread_name", taken.process.pid, stack.thread_name, stack.tid)

    def calls(self, part: HookSlice) -> Iterator[TraceEvent]:
        """Hook events of one process."""
        for event in part.events:
            yield self._call(part.process, event)
            if event.kind in _TRANSFERS and not event.flags & wire.FLAG_EMPTY:
                yield self._arrow(part.process, event)

    def note(self, note: HookNote) -> TraceEvent:
        """An event with text."""
        return {
            "ph": "i",
            "s": "p",
            "name": note.kind,
            "cat": "note",
            "pid": note.process.pid,
            "tid": note.process.pid,
            "ts": self._us(note.at_ns),
            "args": {name: value for name, value in note.data.items() if value is not None},
        }

    def end(self, ended: Ended) -> TraceEvent:
        """The exit of a process."""
        return {
            "ph": "i",
            "s": "p",
            "name": f"ended: {ended.words}",
            "cat": "process",
            "pid": ended.process.pid,
            "tid": ended.process.pid,
            "ts": self._us(ended.at_s * 1e9),
        }

    def _names(self, sample: ProcSample, named: frozenset[int] | None) -> Iterator[TraceEvent]:
        """The names of a process and of those of its threads that have none yet.

        Args:
            sample: Of the process.
            named: Its threads that were named; `None` if it is new.
        """
        process = sample.process
        if named is None:
            role = role_name(sample.role, sample.worker_id, sample.rank)
            yield _name("process_name", process.pid, f"{role} {sample.name}")
            named = frozenset()
        for thread in sample.threads or ():
            if thread.tid not in named:
                yield _name("thread_name", process.pid, thread.name, thread.tid)
        threads = sample.threads
        self._named[process] = named if threads is None else frozenset(t.tid for t in threads)

    def _counters(self, sample: ProcSample) -> Iterator[TraceEvent]:
        pid, at_s = sample.process.pid, sample.at_s
        readings = {
            "rss bytes": sample.memory.rss_bytes if sample.memory else None,
            "fds": sample.fds.used if sample.fds else None,
            "maps": sample.maps.used if sample.maps else None,
        }
        for name, value in readings.items():
            if value is not None:
                yield self._counter(pid, at_s, name, value)

    def _counter(self, pid: int, at_s: float, name: str, value: float) -> TraceEvent:
        ts = self._us(at_s * 1e9)
        return {"ph": "C", "name": name, "pid": pid, "ts": ts, "args": {"value": value}}

    def _call(self, process: ProcessId, event: HookEvent) -> TraceEvent:
        args: dict[str, int] = {"sequence": event.sequence}
        if event.bytes:
            args["bytes"] = event.bytes
        if event.kind in LOADER_CALLS:
            args["batch"] = event.aux
        if event.flags & wire.FLAG_COPIED:
            args["copied"] = 1
        return {
            "ph": "X",
            "name": wire.KIND_NAMES.get(event.kind, f"kind {event.kind}"),
            "cat": "hook",
            "pid": process.pid,
            "tid": event.tid,
            "ts": self._us(event.at_ns - event.duration_ns),
            "dur": event.duration_ns / 1e3,
            "args": args,
        }

    def _arrow(self, process: ProcessId, event: HookEvent) -> TraceEvent:
        """One end of an arrow: the n-th sending of a segment belongs to its n-th receipt."""
        is_send = event.kind in SENDS
        key = (event.key, event.key2)
        own, other = (self._sent, self._received) if is_send else (self._received, self._sent)
        waiting = other.get(key)
        if waiting:
            number = waiting.popleft()
            if not waiting:
                del other[key]
        else:
            self._arrows += 1
            number = self._arrows
            own.setdefault(key, deque()).append(number)
            if len(own) > _OPEN_LIMIT:
                del own[next(iter(own))]
        return {
            "ph": "s" if is_send else "f",
            **({} if is_send else {"bp": "e"}),
            "name": "tensor",
            "cat": "flow",
            "id": number,
            "pid": process.pid,
            "tid": event.tid,
            "ts": self._us(event.at_ns),
        }

    def _us(self, at_ns: float) -> float:
        """Microseconds since the start of the recording, limited to `_FAR_US`."""
        return round(max(-_FAR_US, min(at_ns / 1e3 - self._began_us, _FAR_US)), 3)


def _name(what: str, pid: int, name: str, tid: int | None = None) -> TraceEvent:
    event: TraceEvent = {"ph": "M", "name": what, "pid": pid, "args": {"name": name}}
    return event if tid is None else {**event, "tid": tid}
