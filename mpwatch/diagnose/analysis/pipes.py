"""Who holds which end of which pipe or socket."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdLink

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


class _Ends(NamedTuple):
    """The ends that one process holds, each inode once."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    sockets: tuple[FdLink, ...]


@derived
def pipe_ends(index: Index) -> PipeEnds:
    """The ends that all living processes hold."""
    held: dict[ProcessId, _Ends] = {}
    is_complete = True
    for process in index.snapshot.living():
        fds = process.sample.fds
        if fds is None or fds.links is None:
            is_complete = is_complete and process.sample.state == "Z"
        else:
            held[process.process] = _ends(fds.links)
    return _joined(held, is_complete=is_complete)


def _ends(links: tuple[FdLink, ...]) -> _Ends:
    """Sort the descriptors of one process; an end of unknown direction is both."""
    known = [link for link in links if link.inode is not None]
    pipes = [link for link in known if link.kind == "pipe"]
    return _Ends(
        reads=_inodes(link for link in pipes if link.is_writable is not True),
        writes=_inodes(link for link in pipes if link.is_writable is not False),
        sockets=tuple(link for link in known if link.kind == "socket"),
    )


def _inodes(links: Iterable[FdLink]) -> tuple[int, ...]:
    return tuple({link.inode: None for link in links if link.inode is not None})


def _joined(held: Mapping[ProcessId, _Ends], *, is_complete: bool) -> PipeEnds:
    """The holders of each inode, in the order of the processes."""
    readers: defaultdict[int, list[ProcessId]] = defaultdict(list)
    writers: defaultdict[int, list[ProcessId]] = defaultdict(list)
    sockets: dict[int, FdLink] = {}
    holders: defaultdict[int, list[ProcessId]] = defaultdict(list)
    for process, ends in held.items():
        for inode in ends.reads:
            readers[inode].append(process)
        for inode in ends.writes:
            writers[inode].append(process)
        for inode in _inodes(ends.sockets):
            holders[inode].append(process)
        sockets.update((link.inode, link) for link in ends.sockets if link.inode is not None)
    outward = set()
    for inode, link in sockets.items():
        if link.peer is None or link.peer not in holders:
            outward.add(inode)
        else:
            readers[inode] = writers[inode] = holders[link.peer]
    return PipeEnds(
        {inode: tuple(processes) for inode, processes in readers.items()},
        {inode: tuple(processes) for inode, processes in writers.items()},
        is_complete,
        {inode: link.address or "unix" for inode, link in sockets.items()},
        frozenset(outward),
    )


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
