"""A process waits for the rest of a message that no process is writing."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.exits.kinds import violent_deaths_near
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import ended_words
from mpwatch.diagnose.analysis.pipes import pipe_ends, pipes_among
from mpwatch.diagnose.analysis.process_queries import called, children_started_by
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s, is_busy
from mpwatch.diagnose.known_errors import evidence_of
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Channel, WaitedOn
from mpwatch.model.snapshot import LogEntry, Process, Thread
from mpwatch.model.units import bytes_text

RULE = "half-message"
STUCK_S = 5.0
HEAD_BYTES = (4, 8)
"""`Connection._recv_bytes` reads a length of 4 bytes, then 8 for very long messages."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each thread waiting for a message body that nothing writes.

    A reader that waits for a new message asks for its head, 4 bytes; that is normal.
    """
    for process in index.snapshot.living():
        for thread in process.threads:
            wait = thread.waits_on
            if wait is None or not _is_inside_message(thread, wait):
                continue
            quiet = _stuck_s(index, process, thread)
            if quiet is None or quiet < STUCK_S:
                continue
            others = _holders(wait, pipe_ends(index).writers, process)
            if any(_writes(index.snapshot.get(other)) for other in others):
                continue
            dead = violent_deaths_near(index, process)
            if dead or thread.stack:
                hasty = () if dead else _left_at_once(index, process)
                yield _finding(process, thread, wait, index.lasting(quiet), dead, hasty)


def _stuck_s(index: Index, process: Process, thread: Thread) -> float | None:
    """Seconds for which a thread has got no further; `None` if that was not watched.

    A thread beside the main one may receive large messages all the time, and be found inside one at
    each reading: then the process has read much meanwhile.
    """
    quiet = quiet_s(process, index)
    if quiet is None or thread.tid == process.pid:
        return quiet
    read = index.history.of(process.process, "read_bytes")
    read_ago_s = index.snapshot.at_s - read[-1].at_s if len(read) > 1 else quiet
    blocked_s = blocked_for_s(thread)
    return min(quiet, read_ago_s, quiet if blocked_s is None else blocked_s)


def _is_inside_message(thread: Thread, wait: WaitedOn) -> bool:
    """Whether a read asks for more than the head of a message.

    Other readers of pipes ask for whole buffers; where a stack is known, it must contain that of
    `Connection`.
    """
    is_body = (
        wait.kind == "pipe-read"
        and wait.wanted_bytes is not None
        and wait.wanted_bytes not in HEAD_BYTES
        and not wait.queued_bytes
    )
    if not is_body:
        return False
    return not thread.stack or calls(own_frames(thread.stack), "connection.py:_recv")


def _holders(
    wait: WaitedOn, writers: dict[Channel, tuple[ProcessId, ...]], process: Process
) -> list[ProcessId]:
    """Other processes that hold a writing end of the pipe."""
    ends = [holder for pipe in pipes_among(wait.targets) for holder in writers.get(pipe, ())]
    return [holder for holder in ends if holder != process.process]


def _writes(process: Process | None) -> bool:
    """Whether a process is running or blocked writing, and so may send the rest."""
    if process is None:
        return False
    return any(
        is_busy(t) or (t.waits_on is not None and t.waits_on.kind == "pipe-write")
        for t in process.threads
    )


def _left_at_once(index: Index, process: Process) -> tuple[LogEntry, ...]:
    """The notes of children that called `os._exit`, which waits for no thread that still sends."""
    children = {each.process for each in children_started_by(index, process)}
    return tuple(
        entry
        for entry in index.entries("exit")
        if entry.process in children and entry.details.get("how") == "os._exit"
    )


def _finding(
    process: Process,
    thread: Thread,
    wait: WaitedOn,
    lasted: str,
    dead: tuple[Process, ...],
    hasty: tuple[LogEntry, ...],
) -> Finding:
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        tid=thread.tid,
        summary=f"{called(process)} waits for the rest of a message "
        + (
            "whose writer was killed"
            if dead
            else "whose writer has called os._exit"
            if hasty
            else "that no process is writing"
        ),
        evidence=(
            f"it has waited {lasted} for {bytes_text(wait.wanted_bytes)} more from "
            f"{', '.join(wait.targets)}, which is empty",
            *ended_words(dead, 3),
            *(part for entry in hasty[:2] for part in evidence_of(entry)),
        ),
        cause=(
            "A message is sent as its length and then its body. A writer that ends in between "
            "leaves a partial message"
            + (
                ", and os._exit does not wait for the thread that sends the items of a queue. "
                if hasty
                else ". "
            )
            + "The reader gets no EOF while any write end of the pipe is "
            "open, including one that the reader itself inherited."
        ),
        advice=_ADVICE_HASTY if hasty else _ADVICE,
    )


_ADVICE = (
    "Restart the job: the rest of this message will not arrive. Close unused pipe ends in each "
    "process, so that the reader gets EOF when the writer exits, and do not stop writers with "
    "SIGKILL."
)
_ADVICE_HASTY = (
    "Leave a worker by return or sys.exit, which send what is in its queues first, or call close() "
    "and join_thread() of the queue before os._exit. Restart the job: what was not sent is lost."
)
