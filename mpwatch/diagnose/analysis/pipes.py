"""Pipes and sockets between processes, by the ends that each process holds.

A full pipe whose reader waits for something else from the writer is a deadlock of the two. Of all
processes that have the writing end of a queue's pipe, the source shows which write to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from mpwatch.describe.frames import is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.source.lines import marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, user_frame
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Channel, FdLink, Frame, channel_of
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.units import bytes_text
from mpwatch.model.waits import WaitChain, WaitEdge, WaitGraph


class PipeEnds(Struct, frozen=True):
    """The ends of pipes and sockets of a job.

    A pipe's end of unknown direction counts as both. The processes that hold the other end of a
    socket are both its readers and its writers.
    """

    readers: dict[Channel, tuple[ProcessId, ...]] = field(default_factory=dict)
    writers: dict[Channel, tuple[ProcessId, ...]] = field(default_factory=dict)
    is_complete: bool = True
    """Whether the descriptors of every living process could be read."""
    addresses: dict[Channel, str] = field(default_factory=dict)
    """Of sockets, where known."""
    outward: frozenset[Channel] = frozenset()
    """Sockets whose other end is not known to be in this job."""
    peers: dict[Channel, Channel] = field(default_factory=dict)
    """The other end of each socket, where known."""
    unaccepted: frozenset[Channel] = frozenset()
    """Sockets of connections that no process has accepted yet: the other end listens."""

    def words(self, channel: Channel) -> str:
        """What to call one: `pipe 18174`, `socket 77`, `tcp 10.0.0.1:4000 > 10.0.0.2:29500`."""
        address = self.addresses.get(channel, "unix")
        return f"{channel.kind} {channel.inode}" if address == "unix" else address


@derived
def pipe_ends(index: Index) -> PipeEnds:
    """The ends of the pipes and sockets that some thread waits for, held by living processes.

    Forked workers hold the ends of everything that was open before the fork, thousands together; of
    most of them nothing is asked.
    """
    living = index.snapshot.living()
    awaited = {
        channel
        for process in living
        for thread in process.threads
        if thread.waits_on is not None
        for channel in channels_among(thread.waits_on.targets)
    }
    held = all_links(index)
    is_complete = index.snapshot.part_of is None and all(
        each.process in held or each.sample.state == "Z" for each in living
    )
    return ends_among(held, awaited, is_complete=is_complete)


def all_links(index: Index) -> Mapping[ProcessId, tuple[FdLink, ...]]:
    """The descriptors of each living process of which they could be read."""
    return {
        process.process: process.sample.fds.links
        for process in index.snapshot.living()
        if process.sample.fds is not None and process.sample.fds.links is not None
    }


def ends_among(
    held: Mapping[ProcessId, Sequence[FdLink]], awaited: Collection[Channel], *, is_complete: bool
) -> PipeEnds:
    """The holders of the ends of some pipes and sockets, in the order of the processes.

    Args:
        held: The descriptors of each process.
        awaited: Those of interest.
        is_complete: Whether these are the descriptors of all living processes.
    """
    readers: dict[Channel, dict[ProcessId, None]] = {}
    writers: dict[Channel, dict[ProcessId, None]] = {}
    sockets: dict[Channel, FdLink] = {}
    for process, channel, link in _links_to(held, awaited):
        if channel.kind == "socket":
            sockets[channel] = link
            continue
        if link.is_writable is not True:
            readers.setdefault(channel, {})[process] = None
        if link.is_writable is not False:
            writers.setdefault(channel, {})[process] = None
    ends = {each: link.other_end for each, link in sockets.items()}
    known = {channel: end for channel, end in ends.items() if end is not None}
    peers: dict[Channel, dict[ProcessId, None]] = {}
    listening: set[Channel] = set()
    for process, channel, link in _links_to(held, frozenset(known.values())):
        peers.setdefault(channel, {})[process] = None
        if LISTENS in (link.address or ""):
            listening.add(channel)
    for channel, end in known.items():
        if end in peers:
            readers[channel] = writers[channel] = peers[end]
    return PipeEnds(
        {channel: tuple(processes) for channel, processes in readers.items()},
        {channel: tuple(processes) for channel, processes in writers.items()},
        is_complete,
        {channel: link.address or "unix" for channel, link in sockets.items()},
        frozenset(channel for channel in sockets if known.get(channel) not in peers),
        known,
        frozenset(channel for channel, end in known.items() if end in listening),
    )


def _links_to(
    held: Mapping[ProcessId, Sequence[FdLink]], channels: Collection[Channel]
) -> Iterator[tuple[ProcessId, Channel, FdLink]]:
    """The descriptors that are one of some pipes and sockets."""
    inodes = {each.inode for each in channels}
    for process, links in held.items() if inodes else ():
        # Of thousands few are asked for: a comprehension finds them in half the time.
        for link in [each for each in links if each.inode in inodes]:
            channel = link.channel
            if channel is not None and channel in channels:
                yield process, channel, link


def pipes_among(targets: Iterable[str]) -> tuple[Channel, ...]:
    """The pipes among the targets of a wait."""
    return tuple(each for each in channels_among(targets) if each.kind == "pipe")


def channels_among(targets: Iterable[str]) -> tuple[Channel, ...]:
    """The pipes and sockets among the targets of a wait."""
    return tuple(channel for target in targets if (channel := channel_of(target)) is not None)


_GENERATIONS_LIMIT = 16
_WAITS_FOR_DATA = frozenset(("pipe-read", "poll"))
_STREAMS: Mapping[int, str] = {1: "standard output", 2: "standard error"}
READ_BOTH = (
    "Read both outputs of the program at once (communicate(), or a thread for the second), send "
    "the one that is not needed to a file or to subprocess.DEVNULL, or make the program print less "
    "(ffmpeg: -loglevel error)."
)


class UnreadPipe(Struct, frozen=True):
    """A reader and a writer that wait for each other, and the full pipe between them."""

    reader: Process
    writer: Process
    stream: str
    """`its standard error, pipe 18174`, or the pipe alone."""
    queued_bytes: int | None

    @property
    def evidence(self) -> str:
        """What the writer does."""
        held = "" if self.queued_bytes is None else f", where {bytes_text(self.queued_bytes)} lie"
        return f"{called(self.writer)} is blocked writing to {self.stream}{held}"

    @property
    def cause(self) -> str:
        """Why neither makes progress."""
        return (
            f"{called(self.reader)} waits for something else from {called(self.writer)}, and does "
            "not read that pipe meanwhile. It is full, so the writer waits for ever, and so does "
            "the reader."
        )


def unread_pipe(snapshot: Snapshot, waits: WaitGraph, chain: WaitChain) -> UnreadPipe | None:
    """The full pipe at the end of a cycle; `None` if the cycle has another reason."""
    if chain.verdict != "cycle" or len(chain.links) < 2:
        return None
    ends = {(link.process, link.tid) for link in chain.links[-2:]}
    last = [edge for edge in waits.edges if (edge.waiter, edge.tid) in ends]
    pairs = ((reads, writes) for reads in last for writes in last)
    found = next((pair for pair in pairs if _is_between(*pair)), None)
    return None if found is None else _unread(snapshot, *found)


def unread_by(snapshot: Snapshot, waits: WaitGraph, process: ProcessId) -> UnreadPipe | None:
    """The full pipe that a process does not read; `None` without one."""
    found = (unread_pipe(snapshot, waits, chain) for chain in waits.chains)
    return next((each for each in found if each and each.reader.process == process), None)


def _is_between(reads: WaitEdge, writes: WaitEdge) -> bool:
    """Whether one waits for what the other writes, and that one for the first as a reader."""
    return (
        reads.kind in _WAITS_FOR_DATA
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
    words = f"{pipes[0].kind} {pipes[0].inode}"
    stream = output_of(writer, pipes[0])
    return UnreadPipe(
        reader, writer, f"its {stream}, {words}" if stream else words, wait.queued_bytes
    )


def output_of(process: Process, channel: Channel) -> str:
    """Which standard output of a process a pipe is; empty where it is none, or a socket."""
    return next((_STREAMS[fd] for fd in _fds_of(process, channel) if fd in _STREAMS), "")


def _waited_on(process: Process, tid: int) -> tuple[Channel, ...]:
    """The pipes and sockets that one of its threads waits for."""
    thread = next((thread for thread in process.threads if thread.tid == tid), None)
    wait = thread.waits_on if thread is not None else None
    return channels_among(wait.targets) if wait is not None else ()


def _fds_of(process: Process, channel: Channel) -> Iterator[int]:
    """The descriptors that are a pipe, as numbers."""
    for link in process.sample.links:
        if link.kind == "pipe" and link.channel == channel:
            yield link.fd


class KeptOutput(Struct, frozen=True):
    """A process that reads the output of a command to its end, which others keep open."""

    reader: Process
    child: Process | None
    """The command, a child of the reader that has ended; `None` if it is not known which it was."""
    keepers: tuple[Process, ...]
    """Those that have the writing ends: what the command has started and left behind."""
    pipes: tuple[Channel, ...]


@derived
def kept_outputs(index: Index) -> tuple[KeptOutput, ...]:
    """The processes that wait for the end of an output which only orphans can still write to."""
    by_pid = {each.pid: each for each in index.snapshot.living() if each.sample.state != "Z"}
    ends = pipe_ends(index)
    found: list[KeptOutput] = []
    for reader in by_pid.values():
        channels = _read_to_the_end(reader)
        writers = [set(ends.writers.get(each, ())) - {reader.process} for each in channels]
        if not writers or not all(writers) or not ends.is_complete:
            continue
        keepers = [each for each in by_pid.values() if any(each.process in w for w in writers)]
        if keepers and all(_is_orphan(each, by_pid, index.snapshot.root) for each in keepers):
            child = _starter(index.snapshot, reader, keepers)
            if child is None and not _communicates(reader):
                continue  # it may read messages of a process that has detached itself
            found.append(KeptOutput(reader, child, tuple(keepers), channels))
    return tuple(found)


def _communicates(process: Process) -> bool:
    thread = main_thread(process)
    return thread is not None and calls(own_frames(thread.stack), "subprocess.py:_communicate")


def _read_to_the_end(process: Process) -> tuple[Channel, ...]:
    """The pipes that a main thread reads as files, as communicate() does, but standard input."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    if thread is None or wait is None or wait.kind not in _WAITS_FOR_DATA or wait.fds == (0,):
        return ()
    own = own_frames(thread.stack)
    is_file = wait.kind == "pipe-read" and bool(own) and not is_library(own[0])
    if not is_file and not calls(own, "subprocess.py:"):
        return ()
    channels = pipes_among(wait.targets)
    return channels if len(channels) == len(wait.targets) else ()


def _is_orphan(process: Process, by_pid: Mapping[int, Process], root: ProcessId) -> bool:
    """Whether the parent of a process, or of one above it, has ended, up to the root."""
    above: Process | None = process
    for _ in range(_GENERATIONS_LIMIT):
        if above is None or above.process == root:
            return above is None
        above = by_pid.get(above.sample.parent_pid)
    return False


def _starter(snapshot: Snapshot, reader: Process, keepers: Sequence[Process]) -> Process | None:
    """The ended child of a process that has started others, or the only one that has ended."""
    ended = [
        each
        for each in snapshot.processes
        if (each.is_gone or each.sample.state == "Z")
        and reader.process in (each.parent, each.original_parent)
    ]
    starters = {each.original_parent for each in keepers}
    known = [each for each in ended if each.process in starters]
    if known or not starters <= {None}:
        return known[0] if len(known) == 1 else None
    first = min(each.process.start_ticks for each in keepers)
    before = [each for each in ended if each.process.start_ticks <= first]
    return before[0] if len(before) == 1 else None


LISTENS = " listens on "
"""In the address of a socket, see `FdLink.address`."""


def listening_at(process: Process) -> Mapping[str, str]:
    """The addresses at which a process listens by TCP: `{"4000": "127.0.0.1:4000"}`."""
    return {
        address.rpartition(":")[2]: address
        for link in process.sample.links
        if (address := (link.address or "").partition(f"tcp{LISTENS}")[2])
    }


def writers_by_name(
    index: Index, reader: Thread, candidates: Iterable[ProcessId]
) -> list[ProcessId]:
    """Those that are in a function with a put() to a queue of the name that the reader uses.

    Forked processes inherit the ends of all pipes, and use few of them. `self._outbox` and `outbox`
    are one name; a function that puts may be defined inside of one that is on the stack.

    Returns:
        The candidates of which the source shows it; empty if it shows it of none.
    """
    frame = user_frame(reader.stack)
    line = source_of(index, frame) if frame is not None else None
    if frame is None or line is None:
        return []
    names = {
        _name_of_queue(each.about)
        for each in marks(index, "takes")
        if each.file == frame.file and each.statement.line == line.statement.line
    }
    puts = [each for each in marks(index, "put") if _name_of_queue(each.about) in names]
    return [
        process
        for process in candidates
        if any(
            _is_in_function(index, put.file, put.function, put.statement.line, each)
            for each in _frames_of(index, process)
            for put in puts
        )
    ]


def _name_of_queue(queue: str) -> str:
    """The name of a queue without the object that has it."""
    return queue.rpartition(".")[2].strip("_")


def _frames_of(index: Index, identity: ProcessId) -> list[Frame]:
    process = index.snapshot.get(identity)
    thread = main_thread(process) if process is not None else None
    return list(program_frames(thread.stack)) if thread is not None else []


def _is_in_function(index: Index, file: str, function: str, at: int, frame: Frame) -> bool:
    """Whether a line belongs to the function of a frame, or to one defined in it."""
    if file != frame.file:
        return False
    line = source_of(index, frame)
    begins = line.defined if line is not None else 0
    return function == frame.function or 0 < begins <= at <= frame.line
