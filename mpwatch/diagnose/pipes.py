"""Who holds which end of which pipe or socket."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mpwatch.diagnose.shared import once_per_reading
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot

_NUMBERED = re.compile(r"(?:pipe|socket):\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class PipeEnds:
    """The ends of all pipes and sockets of a job, by inode.

    A pipe's end of unknown direction counts as both. What is read from a socket, and what becomes
    of what is written to it, is up to whoever holds its other end: those are its writers and its
    readers here.
    """

    readers: dict[int, tuple[ProcessId, ...]] = field(default_factory=dict)
    writers: dict[int, tuple[ProcessId, ...]] = field(default_factory=dict)
    is_complete: bool = True
    """Whether the descriptors of every living process could be read."""
    addresses: dict[int, str] = field(default_factory=dict)
    """Of sockets, where known."""
    outward: frozenset[int] = frozenset()
    """Sockets whose other end is not known to be in this job."""

    def words(self, inode: int) -> str:
        """What to call one: `pipe 18174`, `socket 77`, `tcp 10.0.0.1:4000 > 10.0.0.2:29500`."""
        address = self.addresses.get(inode)
        if address is None:
            return f"pipe {inode}"
        return f"socket {inode}" if address == "unix" else address


@once_per_reading
def pipe_ends(snapshot: Snapshot) -> PipeEnds:
    """Index the ends that all living processes hold."""
    readers: defaultdict[int, list[ProcessId]] = defaultdict(list)
    writers: defaultdict[int, list[ProcessId]] = defaultdict(list)
    sockets: defaultdict[int, list[ProcessId]] = defaultdict(list)
    peers: dict[int, int | None] = {}
    addresses: dict[int, str] = {}
    is_complete = True
    for process in snapshot.living():
        fds = process.sample.fds
        if fds is None or fds.links is None:
            is_complete = is_complete and process.sample.state == "Z"
            continue
        for link in fds.links:
            if link.inode is None:
                continue
            if link.kind == "socket":
                sockets[link.inode].append(process.process)
                peers[link.inode] = link.peer
                addresses[link.inode] = link.address or "unix"
            elif link.kind == "pipe":
                if link.is_writable is not True:
                    readers[link.inode].append(process.process)
                if link.is_writable is not False:
                    writers[link.inode].append(process.process)
    outward = set()
    for inode, peer in peers.items():
        holders = sockets.get(peer) if peer is not None else None
        if holders is None:
            outward.add(inode)
        else:
            readers[inode] = writers[inode] = holders
    return PipeEnds(_frozen(readers), _frozen(writers), is_complete, addresses, frozenset(outward))


def _frozen(ends: Mapping[int, list[ProcessId]]) -> dict[int, tuple[ProcessId, ...]]:
    """Each holder once, in the order met."""
    return {inode: tuple(dict.fromkeys(holders)) for inode, holders in ends.items()}


def inode_of(target: str) -> int | None:
    """The inode in `pipe:[18174]` or `socket:[77]`, or `None` for anything else."""
    match = _NUMBERED.fullmatch(target)
    return int(match[1]) if match is not None else None


def pipes_among(targets: Iterable[str]) -> tuple[int, ...]:
    """Inodes of the pipes among the targets of a wait."""
    return channels_among(target for target in targets if target.startswith("pipe:"))


def channels_among(targets: Iterable[str]) -> tuple[int, ...]:
    """Inodes of the pipes and sockets among the targets of a wait."""
    return tuple(inode for target in targets if (inode := inode_of(target)) is not None)
