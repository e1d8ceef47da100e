"""The memory mappings of a process: how many, which are shared memory, which libraries matter."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from mpwatch.collect.process import procfs
from mpwatch.model.ids import SegmentId
from mpwatch.model.sanitize import clean

MAPS_BYTES_LIMIT = 64 << 20
"""Half a million mappings; vm.max_map_count is 65,530 by default."""

_PLACES = (b" /dev/shm/", b" /run/shm/", b" /memfd:")
# start-end rwxs offset major:minor inode path
_SHARED = re.compile(
    rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ..[x-]s [0-9a-f]+ "
    rb"([0-9a-f]{1,7}):([0-9a-f]{1,7}) (\d{1,20})\s+(/.*)"
)
_LIBRARY = re.compile(
    rb"(?:lib)?(?:cv2|gomp|iomp5|omp|cuda|cudart|nccl|torch|torch_cpu|torch_cuda|c10"
    rb"|mkl_rt|openblas|tbb|jemalloc|tcmalloc|decord|lmdb|hdf5|arrow|turbojpeg)"
    rb"(?:[-.\w]*)?\.so[.\d]*"
)


Span: TypeAlias = tuple[int, int, SegmentId, str]
"""Start, end, file and path of a shared mapping."""


class MappedFile(NamedTuple):
    """A shared-memory file in the address space."""

    segment: SegmentId
    path: str
    """As the kernel shows it, ` (deleted)` and all."""
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Mappings:
    """One reading of `/proc/PID/maps`."""

    used: int
    files: tuple[MappedFile, ...] = ()
    libraries: tuple[str, ...] = ()
    torch_count: int = 0
    """Mappings of torch segments."""
    spans: tuple[Span, ...] = field(default=(), repr=False)
    """Start, end, file and path of every shared mapping, in order of address."""
    has_torch: bool = False
    """Whether torch's own library is loaded."""

    def at(self, address: int) -> tuple[SegmentId, str, int] | None:
        """The shared file an address lies in, with its path and the offset from its mapping."""
        for start, end, segment, path in self.spans:
            if start <= address < end:
                return segment, path, address - start
        return None


def read_mappings(proc: str, pid: int) -> Mappings:
    """Read and parse the mappings of a process.

    Costs 0.4 ms at 350 mappings and 85 ms at 60,000 (Linux 6.18), and holds the process's mmap lock
    meanwhile: callers space it out.

    Raises:
        OSError: The process is gone or hidden.
    """
    return parse_mappings(procfs.read(f"{proc}/{pid}/maps", MAPS_BYTES_LIMIT))


def parse_mappings(data: bytes) -> Mappings:
    """Parse the text of `/proc/PID/maps`."""
    spans: list[Span] = []
    ranges: dict[SegmentId, list[tuple[int, int]]] = {}
    paths: dict[SegmentId, str] = {}
    for line in _shared_lines(data):
        span = parse_span(line)
        if span is not None:
            start, end, segment, path = span
            paths.setdefault(segment, path)
            ranges.setdefault(segment, []).append((start, end))
            spans.append(span)
    libraries = tuple(sorted(_libraries(data)))
    return Mappings(
        used=data.count(b"\n"),
        files=tuple([MappedFile(key, paths[key], tuple(spots)) for key, spots in ranges.items()]),
        libraries=libraries,
        torch_count=sum([_is_torch(path) for *_, path in spans]),
        spans=tuple(spans),
        has_torch=any(name.startswith("libtorch") for name in libraries),
    )


@lru_cache(maxsize=1 << 14)
def parse_span(line: bytes) -> Span | None:
    """Start, end, file and path of a shared mapping; `None` of another one.

    Workers forked from one process show the same lines: each is taken apart once.
    """
    match = _SHARED.match(line)
    if match is None:
        return None
    low, high, major, minor, inode, raw = match.groups()
    segment = SegmentId(os.makedev(int(major, 16), int(minor, 16)), int(inode))
    return int(low, 16), int(high, 16), segment, clean(raw)


@lru_cache(maxsize=1 << 13)
def _is_torch(path: str) -> bool:
    """Whether a shared file is one of torch's segments."""
    return path.rpartition("/")[2].startswith("torch_")


def _shared_lines(data: bytes) -> Iterator[bytes]:
    """The lines that may show shared memory.

    They are few among hundreds, so they are searched for by their path: a tenth of the time that
    matching every line takes.
    """
    for place in _PLACES:
        found = data.find(place)
        while found >= 0:
            begin = data.rfind(b"\n", 0, found) + 1
            end = data.find(b"\n", found)
            yield data[begin : end if end >= 0 else len(data)]
            found = data.find(place, end) if end >= 0 else -1


def _libraries(data: bytes) -> set[str]:
    """Base names of the libraries that matter.

    A file is mapped in several pieces and a job has the same hundred files everywhere: each name is
    looked for once, and matched once.
    """
    # On 32 and 64 bits the inode ends, and the path begins, after this column.
    files = {line[46:] for line in data.split(b"\n")}
    names = {file[place + 1 :] for file in files if (place := file.rfind(b"/")) >= 0}
    return {name for name in map(_library, names) if name}


@lru_cache(maxsize=4096)
def _library(name: bytes) -> str:
    """The name of a library that matters, cleaned; else nothing."""
    return clean(name) if _LIBRARY.fullmatch(name) else ""
