"""Memory of processes: mappings, what `smaps_rollup` adds to the resident size, words of memory.

`join_segments` makes its uses of shared-memory segments of its descriptors and mappings.
"""

from __future__ import annotations

import math
import os
import re
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from mpwatch.collect.own_threads import OwnThreads
from mpwatch.collect.process import procfs
from mpwatch.collect.process.fds import HeldFile
from mpwatch.collect.process.procfs import DELETED
from mpwatch.model.ids import SegmentId, SegmentKind, SegmentUse, torch_creator
from mpwatch.model.samples import MemorySample
from mpwatch.model.sanitize import clean

_ROLLUP = re.compile(
    rb"^(Rss|Pss|Private_Clean|Private_Dirty|Shared_Clean|Shared_Dirty|Swap):\s+(\d+) kB", re.M
)
_FIELDS = {
    b"Pss": "pss_bytes",
    b"Private_Clean": "private_clean_bytes",
    b"Private_Dirty": "private_dirty_bytes",
    b"Shared_Clean": "shared_clean_bytes",
    b"Shared_Dirty": "shared_dirty_bytes",
    b"Swap": "swap_bytes",
}


READERS = 8
STUCK_S = 2.0
"""If no reader has finished a process for so long, no other is waited for."""


def read_rollup(proc: str, pid: int, at_s: float) -> MemorySample:
    """Read `smaps_rollup`: 2 to 6 ms of cpu on a torch process, 37 ms at 60,000 mappings.

    Raises:
        OSError: The process is gone or hidden, or the kernel is older than 4.14.
    """
    data = procfs.read(f"{proc}/{pid}/smaps_rollup")
    found = {name: int(kilobytes) * 1024 for name, kilobytes in _ROLLUP.findall(data)}
    if not found:
        raise ProcessLookupError("smaps_rollup is empty: the process has no memory any more")
    values = {field: found.get(name) for name, field in _FIELDS.items()}
    return MemorySample(rss_bytes=found.get(b"Rss"), read_at_s=at_s, **values)


class Rollups:
    """`smaps_rollup` of many processes, read on several cpus: the kernel does the work.

    The reading begins at once; `get` waits until its process is read, but not for a process whose
    mmap lock is held: reading waits for that, perhaps for ever.
    """

    def __init__(self, proc: str, pids: Sequence[int], at_s: float) -> None:
        self._proc = proc
        self._at_s = at_s
        self._pids = frozenset(pids)
        self._left = deque(pids)
        self._taken: set[int] = set()
        self._found: dict[int, MemorySample | None] = {}
        self._has_more = threading.Condition()
        threads = OwnThreads()
        count = min(READERS, os.cpu_count() or 1, len(pids))
        readers = [threads.start(self._read, "mpwatch-memory") for _ in range(count)]
        self._is_stuck = not any(readers)

    def get(self, pid: int) -> MemorySample | None:
        """The memory of a process; `None` if it is not among them or cannot be read."""
        if pid not in self._pids:
            return None
        with self._has_more:
            while pid not in self._found and not self._is_stuck:
                before = len(self._found)
                self._has_more.wait(STUCK_S)
                self._is_stuck = len(self._found) == before
            return self._found.get(pid)

    def is_under_way(self, pid: int) -> bool:
        """Whether a thread is still reading this process: another reader would wait as well."""
        return pid in self._taken and pid not in self._found

    def _read(self) -> None:
        """Read one process after another until all are taken."""
        while True:
            try:
                pid = self._left.popleft()
            except IndexError:
                return
            self._taken.add(pid)
            found = _read_or_none(self._proc, pid, self._at_s)
            with self._has_more:
                self._found[pid] = found
                self._has_more.notify_all()


def _read_or_none(proc: str, pid: int, at_s: float) -> MemorySample | None:
    try:
        return read_rollup(proc, pid, at_s)
    except OSError:
        return None


LATEST_S = 1 << 36
"""Two thousand years: no program sleeps until then, and addresses are larger numbers."""


class ProcessMemory:
    """Words of another process's memory, where ptrace rights allow; `None` where they do not."""

    def __init__(self, proc: str, pid: int) -> None:
        self._path = f"{proc}/{pid}/mem"

    def read(self, address: int, size: int) -> bytes | None:
        """Exactly `size` bytes, or `None`."""
        if not 0 < address < 1 << 63 or size <= 0:
            return None
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = os.pread(fd, size, address)
        except (OSError, OverflowError):
            return None
        finally:
            os.close(fd)
        return data if len(data) == size else None

    def word(self, address: int) -> int | None:
        """A 32-bit word: the value of a futex or a glibc semaphore."""
        data = self.read(address, 4)
        return int.from_bytes(data, "little") if data is not None else None

    def text(self, address: int, limit: int) -> bytes | None:
        """A string of C, without its end; `None` if it is longer than the limit.

        It is read in two parts: what lies behind a short string may not be mapped.
        """
        page = 4096 - address % 4096
        data = self.read(address, min(page, limit)) or b""
        if b"\0" not in data and page < limit:
            data += self.read(address + page, limit - page) or b""
        found, end, _ = data.partition(b"\0")
        return found if end else None

    def timespec_s(self, address: int) -> float | None:
        """Seconds in a `struct timespec` of a 64-bit process; `None` if it holds no time.

        A thread that has woken up since its call was read may have put something else there.
        """
        data = self.read(address, 16)
        if data is None:
            return None
        seconds, nanoseconds = struct.unpack("<qq", data)
        if not (0 <= seconds < LATEST_S and 0 <= nanoseconds < 10**9):
            return None
        return float(seconds + nanoseconds / 1e9)


MAPS_BYTES_LIMIT = 64 << 20
"""Half a million mappings; vm.max_map_count is 65,530 by default."""

_PLACES = (b" /dev/shm/", b" /run/shm/", b" /memfd:")
_NOT_DATA = re.compile(rb"^/(?:usr|lib\w*|dev|run|memfd:|SYSV)|\.so(?:\.|$)|/bin/")
FILES_LIMIT = 32
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
SEGMENTS_LIMIT = 20_000
"""Limit for one process; a longer list is not useful, and the counts are known without it."""
REFRESH_S = 5.0
SWEEP_S = 30.0
"""How often old entries are dropped: a DataLoader leaves thousands in a minute."""

CreatorOf = Callable[[int], "int | None"]
"""Translates a pid of the target's namespace to the observer's."""


class MappedFile(NamedTuple):
    """A shared-memory file in the address space."""

    segment: SegmentId
    path: str
    """As the kernel shows it, ` (deleted)` and all."""
    ranges: tuple[tuple[int, int], ...]


class Mappings(Struct, frozen=True):
    """One reading of `/proc/PID/maps`."""

    used: int
    files: tuple[MappedFile, ...] = ()
    libraries: tuple[str, ...] = ()
    other_files: tuple[str, ...] = ()
    """Paths of files that are no libraries and no shared memory, at most `FILES_LIMIT`."""
    torch_count: int = 0
    """Mappings of torch segments."""
    spans: tuple[Span, ...] = ()
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
    # A file is mapped in several pieces and a job has the same hundred files everywhere: each name
    # is looked for once, and matched once. On 32 and 64 bits the inode ends, and the path begins,
    # after this column.
    mapped = {line[46:] for line in data.split(b"\n")}
    libraries = tuple(sorted(_libraries(mapped)))
    return Mappings(
        used=data.count(b"\n"),
        files=tuple([MappedFile(key, paths[key], tuple(spots)) for key, spots in ranges.items()]),
        libraries=libraries,
        other_files=tuple(sorted(filter(None, map(_other_file, mapped)))[:FILES_LIMIT]),
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


def _libraries(files: Iterable[bytes]) -> set[str]:
    """Base names of the libraries that matter."""
    names = {file[place + 1 :] for file in files if (place := file.rfind(b"/")) >= 0}
    return {name for name in map(_library, names) if name}


@lru_cache(maxsize=4096)
def _other_file(file: bytes) -> str:
    """The path of a mapped file that is neither a library nor shared memory, cleaned."""
    path = file[file.find(b"/") :] if b"/" in file else b""
    return "" if not path or _NOT_DATA.search(path) else clean(path)


@lru_cache(maxsize=4096)
def _library(name: bytes) -> str:
    """The name of a library that matters, cleaned; else nothing."""
    return clean(name) if _LIBRARY.fullmatch(name) else ""


class Extent(Struct, frozen=True):
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


def segment_kind(path: str, is_linked: bool) -> SegmentKind:
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
    return path, segment_kind(path, is_linked), torch_creator(path.rpartition("/")[2])


def join_segments(
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
