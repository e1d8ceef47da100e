"""Shared-memory segments as one process holds them, by descriptor or by mapping."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from mpwatch.collect.process.fds import HeldFile
from mpwatch.collect.process.maps import MappedFile
from mpwatch.model.ids import SegmentId, SegmentKind, SegmentUse, torch_creator
from mpwatch.model.sanitize import clean

DELETED = " (deleted)"
SEGMENTS_LIMIT = 20_000
"""Limit for one process; a longer list is not useful, and the counts are known without it."""
REFRESH_S = 5.0
SWEEP_S = 30.0
"""How often old entries are dropped: a DataLoader leaves thousands in a minute."""

CreatorOf = Callable[[int], "int | None"]
"""Translates a pid of the target's namespace to the observer's."""


class Extent(NamedTuple):
    """Size and link count of a file."""

    size_bytes: int
    allocated_bytes: int
    changed_wall_s: float
    links: int
    at_s: float


class ExtentCache:
    """Sizes of segments, kept for a while: a hundred processes hold the same ones."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._known: dict[SegmentId, Extent] = {}
        self._swept_before_s = -math.inf

    def learn(self, segment: SegmentId, stat: os.stat_result, at_s: float) -> Extent:
        """Keep what a stat of the file said."""
        extent = Extent(stat.st_size, stat.st_blocks * 512, stat.st_ctime, stat.st_nlink, at_s)
        self._known[segment] = extent
        return extent

    def examine(self, pid: int, file: MappedFile, at_s: float) -> Extent | None:
        """Size of a mapped file that no known descriptor leads to.

        The kernel's `map_files` needs CAP_CHECKPOINT_RESTORE; a file that still has its name can be
        examined under that name, provided that it is still the same file.
        """
        known = self._known.get(file.segment)
        if known is not None and at_s - known.at_s < REFRESH_S:
            return known
        low, high = file.ranges[0]
        for path in (
            f"{self._proc}/{pid}/map_files/{low:x}-{high:x}",
            f"{self._proc}/{pid}/root{file.path}",
        ):
            try:
                stat = os.stat(path)
            except OSError:
                continue
            if (stat.st_dev, stat.st_ino) == file.segment:
                return self.learn(file.segment, stat, at_s)
        return known

    def forget_before(self, at_s: float) -> None:
        """Drop entries that were not seen since a moment, at intervals."""
        if 0 <= at_s - self._swept_before_s < SWEEP_S:
            return
        self._swept_before_s = at_s
        self._known = {key: kept for key, kept in self._known.items() if kept.at_s >= at_s}


def kind_of(path: str, is_linked: bool) -> SegmentKind:
    """What made a segment, by its name."""
    name = path.rsplit("/", 1)[-1]
    if name.startswith("torch_"):
        return "torch-named" if is_linked else "torch"
    if name.startswith("sem."):
        return "semaphore"
    if name.startswith("psm_"):
        return "psm"
    return "nccl" if name.startswith("nccl") else "other"


@lru_cache(maxsize=8192)
def _named(raw: str, is_linked: bool) -> tuple[str, SegmentKind, int | None]:
    """The cleaned path, its kind and the pid in it: a hundred workers hold the same files."""
    path = clean(raw.removesuffix(DELETED))
    return path, kind_of(path, is_linked), torch_creator(path.rpartition("/")[2])


def join(
    pid: int,
    held: Sequence[HeldFile],
    mapped: Sequence[MappedFile],
    cache: ExtentCache,
    creator_of: CreatorOf,
    at_s: float,
) -> tuple[SegmentUse, ...]:
    """Join descriptors and mappings by inode: names differ between processes, inodes do not.

    Args:
        pid: The process.
        held: Files behind its descriptors.
        mapped: Files in its address space.
        cache: Sizes of files.
        creator_of: Translates the pid in a name.
        at_s: The moment of the reading.
    """
    fds: dict[SegmentId, list[int]] = {}
    paths: dict[SegmentId, str] = {}
    extents: dict[SegmentId, Extent] = {}
    for file in held:
        fds.setdefault(file.segment, []).append(file.fd)
        paths.setdefault(file.segment, file.target)
        if file.segment not in extents:
            extents[file.segment] = cache.learn(file.segment, file.stat, at_s)
    ranges: dict[SegmentId, tuple[tuple[int, int], ...]] = {}
    for area in mapped[:SEGMENTS_LIMIT]:
        ranges[area.segment] = area.ranges
        paths.setdefault(area.segment, area.path)
        if area.segment not in extents:
            extent = cache.examine(pid, area, at_s)
            if extent is not None:
                extents[area.segment] = extent
    return tuple(
        [
            _use(
                key,
                path,
                tuple(fds.get(key, ())),
                ranges.get(key, ()),
                extents.get(key),
                creator_of,
            )
            for key, path in list(paths.items())[:SEGMENTS_LIMIT]
        ]
    )


def _use(
    segment: SegmentId,
    path: str,
    fds: tuple[int, ...],
    ranges: tuple[tuple[int, int], ...],
    extent: Extent | None,
    creator_of: CreatorOf,
) -> SegmentUse:
    """One segment as one process holds it."""
    # glibc maps a named semaphore under a temporary name that it removes at once, so the inode's
    # own link count is right where the path says deleted.
    is_linked = extent.links > 0 if extent is not None else not path.endswith(DELETED)
    path, kind, inside = _named(path, is_linked)
    if extent is not None:
        size_bytes: int | None = extent.size_bytes
    else:
        size_bytes = sum(end - start for start, end in ranges) or None
    return SegmentUse(
        segment=segment,
        path=path,
        kind=kind,
        is_linked=is_linked,
        creator_pid=creator_of(inside) if inside is not None else None,
        fds=fds,
        ranges=ranges,
        size_bytes=size_bytes,
        allocated_bytes=extent.allocated_bytes if extent is not None else None,
        changed_wall_s=extent.changed_wall_s if extent is not None else None,
    )
