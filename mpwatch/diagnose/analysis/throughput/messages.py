"""The messages that processes send each other through pipes: how large they are, and which way.

What the kernel counts of a process are system calls that have returned, in files and pipes alike: a
large message counts only once all of it is written, and for the one that reads it not as written.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.diagnose.analysis.throughput.shares import OVER_S
from mpwatch.model.history import Series, first_at, rise
from mpwatch.model.snapshot import Process, Thread

LARGE_BYTES = 1 << 20
LATEST_S = 8.0
"""A count of bytes that is older does not show what a process transfers now."""
_RECEIVES = (
    "multiprocessing/connection.py:_recv",
    "multiprocessing/connection.py:recv",
    "multiprocessing/connection.py:recv_bytes",
    "multiprocessing/connection.py:recv_bytes_into",
    "multiprocessing/queues.py:get",
)
_SENDS = (
    "multiprocessing/connection.py:_send",
    "multiprocessing/connection.py:send",
    "multiprocessing/connection.py:send_bytes",
    "multiprocessing/queues.py:_feed",
)


class Message(Struct, frozen=True):
    """A message that is partly sent."""

    n_bytes: int
    """What one call still has to write or read, so that it may be larger."""
    thread: Thread
    process: Process
    """That writes or reads it."""
    is_written: bool


def under_way(index: Index) -> Message | None:
    """The largest message that a pipe has no room for, or that is read in part; `None` for none."""
    return max(_under_way(index), key=lambda each: each.n_bytes, default=None)


def on_its_way_to(index: Index, receiver: Process) -> Message | None:
    """The largest message that a process is to read; `None` where none is seen."""
    writers = {
        edge.tid
        for edge in index.snapshot.waits.edges
        if edge.kind == "pipe-write" and receiver.process in edge.providers
    }
    found = (
        each
        for each in _under_way(index)
        if (each.thread.tid in writers if each.is_written else each.process is receiver)
    )
    return max(found, key=lambda each: each.n_bytes, default=None)


def _under_way(index: Index) -> Iterator[Message]:
    for process in index.snapshot.living():
        for thread in process.threads:
            wait = thread.waits_on
            if wait is None or wait.wanted_bytes is None or wait.kind not in _PIPES:
                continue
            # A read that a stack shows to be of no message may ask for more than there is.
            is_written = wait.kind == "pipe-write"
            if is_written or not thread.stack or calls(thread.stack, _RECEIVES[0]):
                yield Message(wait.wanted_bytes, thread, process, is_written)


_PIPES = ("pipe-read", "pipe-write")


def receives(thread: Thread | None) -> bool:
    """Whether a stack is in a call that receives a message."""
    return thread is not None and any(calls(thread.stack, each) for each in _RECEIVES)


def sends(thread: Thread | None) -> bool:
    """Whether a stack is in a call that sends one."""
    return thread is not None and any(calls(thread.stack, each) for each in _SENDS)


def bytes_per_s(index: Index, process: Process, is_written: bool) -> float | None:
    """Bytes that a process writes or reads each second; `None` where it hardly does."""
    series = index.history.of(process.process, "written_bytes" if is_written else "read_bytes")
    if len(series) < 2 or index.snapshot.at_s - series[-1].at_s > LATEST_S:
        return None
    span_s = _span_s(series)
    return rise(series, within_s=OVER_S) / span_s if span_s > 0 else None


def _span_s(series: Series) -> float:
    first = first_at(series, series[-1].at_s - OVER_S)
    return series[-1].at_s - series[min(first, len(series) - 1)].at_s
