"""Connections that several processes have since a fork, and read from.

A fork copies descriptors, not connections: parent and children then read one stream of bytes, and
what the server sends goes to whichever of them reads first. A copy that is not used does no harm,
so what counts is who waits to read. Sockets that listen or were accepted are left out, as servers
share those on purpose, and so are the pairs that processes of the job make for each other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from mpwatch.describe.frames import program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import LISTENS, all_links, listening_at
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, is_sibling
from mpwatch.diagnose.analysis.source.lines import marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import own_threads
from mpwatch.diagnose.analysis.waits.connections import read_by
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Channel, FdLink
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark
from mpwatch.model.waits import SETTLED_S

ALONE_S = 20.0
"""A wait of one reader for so long is told: another process may have read its answer."""
_STANDARD = 2
"""Standard input, output and error are inherited by all, and may be a socket."""


class Reader(Struct, frozen=True):
    """A thread that waits to read from such a connection."""

    process: Process
    thread: Thread
    waited_s: float


class SharedConnection(Struct, frozen=True):
    """A connection of which several processes have the same descriptor."""

    link: FdLink
    """In each of them."""
    readers: tuple[Reader, ...]
    """At least one; of several each in another process."""
    others: tuple[Process, ...]
    """Those that have it as well."""
    opened: Mark | None
    """The statement that most likely opens it."""

    @property
    def words(self) -> str:
        """What to call it: its addresses, or its number where it has none."""
        address = self.link.address or ""
        return address if address.startswith("tcp ") else f"socket {self.link.inode}"


@derived
def shared_connections(index: Index) -> tuple[SharedConnection, ...]:
    """The connections that two processes wait to read, or one that may have lost its answer.

    Of a single reader only where it is a forked child that has inherited the connection, as its
    siblings have, none of which reads from another socket: those may have one each.
    """
    waiting: defaultdict[Channel, dict[ProcessId, Reader]] = defaultdict(dict)
    for process in index.snapshot.living():
        # Few wait for a socket alone; whose thread it is takes longer to tell.
        reading = [(each, read) for each in process.threads if (read := _reads_alone(each))]
        own = own_threads(index, process) if reading else ()
        for thread, read in reading:
            if any(each is thread for each in own):
                reader = Reader(process, thread, blocked_for_s(thread) or 0.0)
                waiting[read].setdefault(process.process, reader)
    if not waiting:
        return ()
    held = _holders(index, waiting)
    found = []
    for channel, readers in waiting.items():
        if channel not in held:
            continue
        link, holders = held[channel]
        if len(holders) < 2 or not _is_client(index, link):
            continue
        settled = [each for each in readers.values() if each.waited_s >= SETTLED_S]
        kept = tuple(each for each in settled if any(p is each.process for p in holders))
        others = tuple(p for p in holders if all(p is not each.process for each in kept))
        if len(kept) > 1 or (kept and _may_have_lost(index, kept[0], others, waiting)):
            opened = _opened_by(index, [each.thread for each in kept])
            found.append(SharedConnection(link, kept, others, opened))
    return tuple(found)


def _reads_alone(thread: Thread) -> Channel | None:
    """The socket that a thread waits for, and for nothing else."""
    wait = thread.waits_on
    return read_by(thread) if wait is not None and len(wait.targets) == 1 else None


def _holders(
    index: Index, channels: Mapping[Channel, object]
) -> dict[Channel, tuple[FdLink, tuple[Process, ...]]]:
    """The living processes that have each of some sockets under one number, and that descriptor.

    A socket that was handed over by a message has another number in each process.
    """
    by_number: defaultdict[tuple[Channel, int], list[Process]] = defaultdict(list)
    known: dict[tuple[Channel, int], FdLink] = {}
    links, inodes = all_links(index), {each.inode for each in channels if each.kind == "socket"}
    for process in index.snapshot.living():
        if process.role in SERVICE_ROLES or process.sample.state == "Z":
            continue
        # Of thousands few are asked for.
        for link in [each for each in links.get(process.process, ()) if each.inode in inodes]:
            channel = link.channel
            if channel is not None and channel in channels and link.fd > _STANDARD:
                known[channel, link.fd] = link
                by_number[channel, link.fd].append(process)
    found: dict[Channel, tuple[FdLink, tuple[Process, ...]]] = {}
    for key, processes in by_number.items():
        if key[0] not in found or len(processes) > len(found[key[0]][1]):
            found[key[0]] = known[key], tuple(processes)
    return found


def _is_client(index: Index, link: FdLink) -> bool:
    """Whether a socket is the end of a connection that asks a server.

    A stream of TCP in any case; of the unix sockets, which may carry whole messages to one of
    several readers by design, those whose other end no process of the job has.
    """
    address = link.address or ""
    if address.startswith("tcp ") and LISTENS not in address:
        port = address.removeprefix("tcp ").partition(" > ")[0].rpartition(":")[2]
        return all(port not in listening_at(each) for each in index.snapshot.living())
    end = link.other_end
    if address != "unix" or end is None or index.snapshot.part_of is not None:
        return False
    return all(
        each.inode != end.inode or each.channel != end
        for links in all_links(index).values()
        for each in links
    )


def _may_have_lost(
    index: Index,
    reader: Reader,
    others: Sequence[Process],
    waiting: Mapping[Channel, Mapping[ProcessId, Reader]],
) -> bool:
    """Whether a sibling of the only reader may have read what that one waits for."""
    siblings = [each for each in others if is_sibling(index, reader.process, each)]
    is_inherited = reader.process.sample.start_method == "fork"
    reads = {process for readers in waiting.values() for process in readers}
    return (
        is_inherited
        and reader.waited_s >= ALONE_S
        and bool(siblings)
        and all(each.process not in reads for each in siblings)
    )


def is_told(index: Index, process: Process) -> bool:
    """Whether a process reads a connection that another one reads as well: that is why it waits."""
    return any(
        len(each.readers) > 1 and any(reader.process is process for reader in each.readers)
        for each in shared_connections(index)
    )


def _opened_by(index: Index, threads: Sequence[Thread]) -> Mark | None:
    """The statement that most likely opens what some threads read from.

    The one whose variable their lines name, in whole or by its last part, else the only one of the
    program.
    """
    opening = marks(index, "opens-connection")
    lines = [
        line
        for thread in threads
        for frame in program_frames(thread.stack)
        if (line := source_of(index, frame)) is not None
    ]
    names = {name for line in lines for name in re.findall(r"\w+", line.statement.text)}
    dotted = {name for line in lines for name in _prefixes(line.statement.text)}
    whole = [each for each in opening if each.about.partition(", ")[0] in dotted]
    named = [each for each in opening if _variable(each) in names]
    found = whole or named or opening
    return found[0] if len(found) == 1 else None


def _prefixes(text: str) -> Iterator[str]:
    """`self`, `self.client` and `self.client.recv` of `self.client.recv(1)`."""
    for name in re.findall(r"\w+(?:\.\w+)*", text):
        yield from accumulate(name.split("."), "{}.{}".format)


def _variable(mark: Mark) -> str:
    """The last part of the name of what a statement makes: `db` of `self.db`."""
    return mark.about.partition(", ")[0].rpartition(".")[2]
