"""Which processes hold which end of a pipe or socket."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdLink, inode_of


@dataclass(frozen=True, slots=True)
class PipeEnds:
    """The ends of pipes and sockets of a job, by inode.

    A pipe's end of unknown direction counts as both. The processes that hold the other end of a
    socket are both its readers and its writers.
    """

    readers: dict[int, tuple[ProcessId, ...]] = field(default_factory=dict)
    writers: dict[int, tuple[ProcessId, ...]] = field(default_factory=dict)
    is_complete: bool = True
    """Whether the descriptors of every living process could be read."""
    addresses: dict[int, str] = field(default_factory=dict)
    """Of sockets, where known."""
    outward: frozenset[int] = frozenset()
    """Sockets whose other end is not known to be in this job."""
    peers: dict[int, int] = field(default_factory=dict)
    """The other end of each socket, where known."""

    def words(self, inode: int) -> str:
        """What to call one: `pipe 18174`, `socket 77`, `tcp 10.0.0.1:4000 > 10.0.0.2:29500`."""
        address = self.addresses.get(inode)
        if address is None:
            return f"pipe {inode}"
        return f"socket {inode}" if address == "unix" else address


@derived
def pipe_ends(index: Index) -> PipeEnds:
    """The ends of the pipes and sockets that some thread waits for, held by living processes.

    Forked workers hold the ends of everything that was open before the fork, thousands together; of
    most of them nothing is asked.
    """
    living = index.snapshot.living()
    awaited = {
        inode
        for process in living
        for thread in process.threads
        if thread.waits_on is not None
        for inode in channels_among(thread.waits_on.targets)
    }
    held = all_links(index)
    is_complete = all(each.process in held or each.sample.state == "Z" for each in living)
    return ends_among(held, awaited, is_complete=is_complete)


def all_links(index: Index) -> Mapping[ProcessId, tuple[FdLink, ...]]:
    """The descriptors of each living process of which they could be read."""
    return {
        process.process: process.sample.fds.links
        for process in index.snapshot.living()
        if process.sample.fds is not None and process.sample.fds.links is not None
    }


def ends_among(
    held: Mapping[ProcessId, Sequence[FdLink]], awaited: Collection[int], *, is_complete: bool
) -> PipeEnds:
    """The holders of the ends of some pipes and sockets, in the order of the processes.

    Args:
        held: The descriptors of each process.
        awaited: The inodes of interest.
        is_complete: Whether these are the descriptors of all living processes.
    """
    readers: dict[int, dict[ProcessId, None]] = {}
    writers: dict[int, dict[ProcessId, None]] = {}
    sockets: dict[int, FdLink] = {}
    for process, links in held.items():
        for link in links:
            inode = link.inode
            if inode not in awaited or inode is None:
                continue
            if link.kind == "socket":
                sockets[inode] = link
            elif link.kind == "pipe":
                if link.is_writable is not True:
                    readers.setdefault(inode, {})[process] = None
                if link.is_writable is not False:
                    writers.setdefault(inode, {})[process] = None
    peers = _holders(held, {link.peer for link in sockets.values() if link.peer is not None})
    for inode, link in sockets.items():
        if link.peer in peers:
            readers[inode] = writers[inode] = peers[link.peer]
    return PipeEnds(
        {inode: tuple(processes) for inode, processes in readers.items()},
        {inode: tuple(processes) for inode, processes in writers.items()},
        is_complete,
        {inode: link.address or "unix" for inode, link in sockets.items()},
        frozenset(inode for inode, link in sockets.items() if link.peer not in peers),
        {inode: link.peer for inode, link in sockets.items() if link.peer is not None},
    )


def _holders(
    held: Mapping[ProcessId, Sequence[FdLink]], inodes: Collection[int]
) -> dict[int, dict[ProcessId, None]]:
    """The processes that hold each of some sockets."""
    holders: dict[int, dict[ProcessId, None]] = {}
    if inodes:
        for process, links in held.items():
            for link in links:
                if link.inode in inodes and link.inode is not None and link.kind == "socket":
                    holders.setdefault(link.inode, {})[process] = None
    return holders


def pipes_among(targets: Iterable[str]) -> tuple[int, ...]:
    """Inodes of the pipes among the targets of a wait."""
    return channels_among(target for target in targets if target.startswith("pipe:"))


def channels_among(targets: Iterable[str]) -> tuple[int, ...]:
    """Inodes of the pipes and sockets among the targets of a wait."""
    return tuple(inode for target in targets if (inode := inode_of(target)) is not None)
