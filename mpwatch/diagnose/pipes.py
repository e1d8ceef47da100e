"""Who holds which end of which pipe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mpwatch.diagnose.shared import once_per_reading
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PipeEnds:
    """The ends of all pipes of a job, by inode. An end of unknown direction counts as both."""

    readers: dict[int, tuple[ProcessId, ...]] = field(default_factory=dict)
    writers: dict[int, tuple[ProcessId, ...]] = field(default_factory=dict)
    is_complete: bool = True
    """Whether the descriptors of every living process could be read."""


@once_per_reading
def pipe_ends(snapshot: Snapshot) -> PipeEnds:
    """Index the pipe ends of all living processes."""
    readers: defaultdict[int, list[ProcessId]] = defaultdict(list)
    writers: defaultdict[int, list[ProcessId]] = defaultdict(list)
    is_complete = True
    for process in snapshot.living():
        fds = process.sample.fds
        if fds is None or fds.links is None:
            is_complete = is_complete and process.sample.state == "Z"
            continue
        for link in fds.links:
            if link.kind != "pipe" or link.inode is None:
                continue
            if link.is_writable is not True:
                readers[link.inode].append(process.process)
            if link.is_writable is not False:
                writers[link.inode].append(process.process)
    return PipeEnds(_frozen(readers), _frozen(writers), is_complete)


def _frozen(ends: Mapping[int, list[ProcessId]]) -> dict[int, tuple[ProcessId, ...]]:
    """Each holder once, in the order met."""
    return {inode: tuple(dict.fromkeys(holders)) for inode, holders in ends.items()}


def pipe_inode(target: str) -> int | None:
    """The inode in `pipe:[18174]`, or `None` for anything else."""
    if not (target.startswith("pipe:[") and target.endswith("]")):
        return None
    number = target[6:-1]
    return int(number) if number.isdigit() else None


def pipes_among(targets: Iterable[str]) -> tuple[int, ...]:
    """Inodes of the pipes among the targets of a wait."""
    return tuple(inode for target in targets if (inode := pipe_inode(target)) is not None)
