"""Two processes of which one writes into a full pipe while its only reader waits for it elsewhere.

The usual case: a program started with its error output piped, of which only the standard output is
read. A pipe holds 64 KiB by default (pipe(7)); the documentation of `subprocess` warns of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mpwatch.diagnose.analysis.pipes import channels_among
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text
from mpwatch.model.waits import WaitChain, WaitEdge, WaitGraph

_READS = frozenset(("pipe-read", "poll"))
_STREAMS = {1: "standard output", 2: "standard error"}
ADVICE = (
    "Read both outputs of the program at once (communicate(), or a thread for the second), send "
    "the one nobody needs to a file or to subprocess.DEVNULL, or make the program say less "
    "(ffmpeg: -loglevel error)."
)


@dataclass(frozen=True, slots=True)
class UnreadPipe:
    """Who stands, who could end it, and in which pipe."""

    reader: Process
    writer: Process
    stream: str
    """`its standard error, pipe 18174`, or the pipe alone."""
    queued_bytes: int | None

    @property
    def evidence(self) -> str:
        """What was seen of the writer."""
        held = "" if self.queued_bytes is None else f", where {bytes_text(self.queued_bytes)} lie"
        return f"{called(self.writer)} is blocked writing to {self.stream}{held}"

    @property
    def cause(self) -> str:
        """Why neither of them moves."""
        return (
            f"{called(self.reader)} waits for something else from {called(self.writer)}, and does "
            "not read that pipe meanwhile. It is full, so the writer waits for ever, and so does "
            "the reader."
        )


def unread_pipe(snapshot: Snapshot, waits: WaitGraph, chain: WaitChain) -> UnreadPipe | None:
    """What stands at the end of a chain that is a circle; `None` if it is something else."""
    if chain.verdict != "cycle" or len(chain.links) < 2:
        return None
    ends = {(link.process, link.tid) for link in chain.links[-2:]}
    last = [edge for edge in waits.edges if (edge.waiter, edge.tid) in ends]
    pairs = ((reads, writes) for reads in last for writes in last)
    found = next((pair for pair in pairs if _is_between(*pair)), None)
    return None if found is None else _unread(snapshot, *found)


def unread_by(snapshot: Snapshot, waits: WaitGraph, process: ProcessId) -> UnreadPipe | None:
    """What a process stands before as the one that does not read."""
    found = (unread_pipe(snapshot, waits, chain) for chain in waits.chains)
    return next((each for each in found if each and each.reader.process == process), None)


def _is_between(reads: WaitEdge, writes: WaitEdge) -> bool:
    """Whether one waits for what the other writes, and that one for the first as a reader."""
    return (
        reads.kind in _READS
        and writes.kind == "pipe-write"
        and reads.waiter != writes.waiter
        and writes.waiter in reads.providers
        and reads.waiter in writes.providers
    )


def _unread(snapshot: Snapshot, reads: WaitEdge, writes: WaitEdge) -> UnreadPipe | None:
    reader, writer = snapshot.get(reads.waiter), snapshot.get(writes.waiter)
    thread = next((t for t in writer.threads if t.tid == writes.tid), None) if writer else None
    wait = thread.waits_on if thread is not None else None
    if reader is None or writer is None or wait is None:
        return None
    pipes = channels_among(wait.targets)
    if not pipes or pipes[0] in _waited_on(reader, reads.tid):
        return None
    streams = [_STREAMS[fd] for fd in _fds_of(writer, pipes[0]) if fd in _STREAMS]
    words = f"pipe {pipes[0]}"
    stream = f"its {streams[0]}, {words}" if streams else words
    return UnreadPipe(reader, writer, stream, wait.queued_bytes)


def _waited_on(process: Process, tid: int) -> tuple[int, ...]:
    """The pipes that one of its threads waits for."""
    thread = next((thread for thread in process.threads if thread.tid == tid), None)
    wait = thread.waits_on if thread is not None else None
    return channels_among(wait.targets) if wait is not None else ()


def _fds_of(process: Process, pipe: int) -> Iterator[int]:
    """The descriptors that are a pipe, as numbers."""
    fds = process.sample.fds
    for link in (fds.links or ()) if fds is not None else ():
        if link.inode == pipe and link.kind == "pipe":
            yield link.fd
