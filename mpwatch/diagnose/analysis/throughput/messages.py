"""The messages that processes send each other through pipes: how large they are, and which way.

What the kernel counts of a process are system calls that have returned, in files and pipes alike: a
large message counts only once all of it is written, and for the one that reads it not as written.
"""

from __future__ import annotations

import re

from msgspec import Struct

from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import line_at
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread
from mpwatch.diagnose.analysis.throughput.shares import OVER_S, can_end_alone, is_work, shares
from mpwatch.model.account import COPYING, PICKLING, UNPICKLING
from mpwatch.model.history import Series, first_at, rise
from mpwatch.model.snapshot import Process, Thread

LARGE_BYTES = 1 << 20
LATEST_S = 8.0
"""A count of bytes that is older does not show what a process transfers now."""
RECEIVES_SHARE = 0.15
"""Of the time of a process, in copying and unpickling."""
_RECEIVING = re.compile(r"\b(?:recv\w*|torch\.load|pickle\.loads?)\(")
"""A statement that receives a message, or loads what was received."""
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
    """The largest message that a process is to read; `None` where none is seen.

    Not one that another process may read as well, see `can_end_alone`.
    """
    writers = {
        edge.tid
        for edge in index.snapshot.waits.edges
        if edge.kind == "pipe-write" and can_end_alone(index, receiver, edge.providers)
    }
    found = (
        each
        for each in _under_way(index)
        if (each.thread.tid in writers if each.is_written else each.process is receiver)
    )
    return max(found, key=lambda each: each.n_bytes, default=None)


@derived
def _under_way(index: Index) -> tuple[Message, ...]:
    found = []
    for process in index.snapshot.living():
        for thread in process.threads:
            wait = thread.waits_on
            if wait is None or wait.wanted_bytes is None or wait.kind not in _PIPES:
                continue
            # A read that a stack shows to be of no message may ask for more than there is.
            is_written = wait.kind == "pipe-write"
            if is_written or not thread.stack or calls(thread.stack, _RECEIVES[0]):
                found.append(Message(wait.wanted_bytes, thread, process, is_written))
    return tuple(found)


_PIPES = ("pipe-read", "pipe-write")


def is_receiving(index: Index, process: Process) -> bool:
    """Whether a process spends its time on what it receives, and not only on what it does next."""
    found = shares(index, process)
    pickled, unpickled, copied = (
        sum(each.share for each in found if each.activity.what == what)
        for what in (PICKLING, UNPICKLING, COPYING)
    )
    # What is copied may be what it sends.
    is_sender = pickled > unpickled or sends(main_thread(process))
    if unpickled + (0.0 if is_sender else copied) >= RECEIVES_SHARE:
        return True
    message = on_its_way_to(index, process)
    is_large = message is not None and message.n_bytes >= LARGE_BYTES
    if not is_large or receives(main_thread(process)):
        return is_large
    # A stack of a hook does not show whether bytes are copied or waited for; its lines do.
    known = lines_at = 0.0
    for each in found:
        if each.activity.place and is_work(each.activity):
            known += each.share
            line = line_at(index, each.activity.place)
            if line is not None and _RECEIVING.search(line.statement.text):
                lines_at += each.share
    return lines_at > 0 and lines_at >= known / 2


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
