"""Counts that several rules read: descriptors, mappings, free space, shared CUDA tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from mpwatch.diagnose.analysis.growth.forecast import Approach, approach
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.known_errors import number_of
from mpwatch.model.history import Point, Series
from mpwatch.model.host import FileSystemSample
from mpwatch.model.ids import ProcessId, SegmentUse
from mpwatch.model.snapshot import Process, Segment, Snapshot

MANY_FILES = 100
"""A process that created fewer files does not show how fast all of them are created."""


def fds_used(process: Process) -> int | None:
    """Open descriptors, or `None` if they could not be counted."""
    return None if process.sample.fds is None else process.sample.fds.used


def fd_limit(process: Process) -> int | None:
    """The soft limit of open descriptors."""
    return None if process.sample.fds is None else process.sample.fds.soft_limit


def torch_fds(process: Process) -> int | None:
    """Descriptors on torch segments; `None` if no link was ever read."""
    fds = process.sample.fds
    if fds is not None and fds.by_kind is not None:
        return fds.by_kind.get("torch", 0)
    uses = process.sample.segments
    if uses is None:
        return None
    return sum(len(use.fds) for use in uses if use.kind in ("torch", "torch-named"))


class TorchFds(NamedTuple):
    """A process that comes near its limit of descriptors, most of them on torch segments."""

    process: Process
    held: int
    """Descriptors on torch segments."""
    near: Approach


def torch_fds_near_limit(index: Index, *, are_received: bool) -> Iterator[TorchFds]:
    """The living processes that tensors bring near their limit of descriptors.

    Args:
        index: The snapshot and its history.
        are_received: Whether of tensors that other processes have made, or of their own.
    """
    for process in index.snapshot.living():
        held, used, limit = torch_fds(process), fds_used(process), fd_limit(process)
        if not held or used is None or not limit or held < 0.5 * used:
            continue
        if _are_received(process, held) is not are_received:
            continue
        series = index.history.of(process.process, "torch_fds")
        near = approach(used, limit, series, series_limit=limit - (used - held))
        if near is not None:
            yield TorchFds(process, held, near)


def _are_received(process: Process, held: int) -> bool:
    """Whether most of these descriptors are of tensors that other processes have made.

    A tensor in transit holds a descriptor and no mapping in its sender.
    """
    if foreign_segments(process) >= 0.5 * held:
        return True  # mappings are read less often than descriptors: new ones may be missing there
    mapped = torch_maps(process)
    if mapped is not None and mapped < 0.7 * held:
        return False
    foreign = foreign_share(process)
    return foreign is None or foreign >= 0.5


def torch_maps(process: Process) -> int | None:
    """Mappings of torch segments; `None` if the mappings were never read."""
    maps = process.sample.maps
    return None if maps is None else maps.torch_count


def maps_over_time(index: Index, process: Process) -> tuple[int, Series] | None:
    """Mappings in use now and before; `None` if they were never counted.

    Counting them means reading all of them, so it is done rarely. Where a process creates most of
    the files in /dev/shm, each of which it maps, the number of files is used in between.
    """
    maps = process.sample.maps
    if maps is None:
        return None
    counted = index.history.of(process.process, "maps")
    files = index.history.of_host("shm_used_inodes")
    if maps.read_at_s is None or len(files) < 2 or not _makes_the_files(index, process):
        return maps.used, counted
    at_count = [point.value for point in files if point.at_s <= maps.read_at_s + 0.5]
    if not at_count or files[-1].value <= at_count[-1]:
        return maps.used, counted
    beyond = maps.used - at_count[-1]
    estimated = [Point(point.at_s, point.value + beyond) for point in files]
    return round(estimated[-1].value), estimated


def _makes_the_files(index: Index, process: Process) -> bool:
    """Whether it created most of the named segments."""
    makers = _makers_of_files(index)
    own = makers[process.process]
    return own >= MANY_FILES and 2 * own > makers.total()


@derived
def _makers_of_files(index: Index) -> Counter[ProcessId | None]:
    """How many named segments each process has created."""
    return Counter(
        s.creator for s in index.snapshot.segments if s.kind == "torch-named" and s.is_linked
    )


def map_limit(snapshot: Snapshot, process: Process) -> int | None:
    """`vm.max_map_count` as it applies to a process."""
    maps = process.sample.maps
    if maps is not None and maps.limit is not None:
        return maps.limit
    return snapshot.host.max_map_count


def foreign_share(process: Process) -> float | None:
    """Part of its torch segments that other processes made, 0 to 1; `None` if unknown."""
    known = sum(
        use.kind in ("torch", "torch-named") and use.creator_pid is not None
        for use in process.sample.segments or ()
    )
    return foreign_segments(process) / known if known else None


def foreign_segments(process: Process) -> int:
    """How many of its torch segments are known to be made by other processes."""
    inside = process.sample.ns_pid
    own = {process.pid} if inside is None else {process.pid, inside}
    return sum(
        use.kind in ("torch", "torch-named")
        and use.creator_pid is not None
        and use.creator_pid not in own
        for use in process.sample.segments or ()
    )


CREATORS_SHOWN = 3


def creators_in_words(snapshot: Snapshot, process: Process) -> str | None:
    """Creators of the torch segments it holds: `412 by worker 0 (41826), 9 by main (41820)`."""
    names = {p.pid: f"{p.label} ({p.pid})" for p in snapshot.processes}
    counts = Counter(
        use.creator_pid
        for use in process.sample.segments or ()
        if use.kind in ("torch", "torch-named") and use.creator_pid is not None
    )
    if not counts:
        return None
    shown = counts.most_common(CREATORS_SHOWN)
    parts = [f"{n} by {names.get(pid, f'pid {pid}')}" for pid, n in shown]
    left = len(counts) - len(shown)
    return ", ".join(parts) + (f" and {left} more processes" if left > 0 else "")


def burden_words(index: Index, process: Process) -> Iterator[str]:
    """The part with most tensors of the object it passed to a new process, found by its hook."""
    for entry in index.entries("many-storages"):
        if entry.process != process.process:
            continue
        path, kind = entry.details.get("path"), entry.details.get("object")
        if path:
            count = entry.details.get("storages")
            yield f"{count} storages are in {path} of the {kind} handed over"
            return


def used_bytes(found: FileSystemSample) -> int:
    """Bytes taken of a file system."""
    return found.total_bytes - found.free_bytes


def segment_bytes(segments: Iterable[Segment | SegmentUse]) -> int:
    """Bytes the segments occupy, each counted once: allocated where that is known.

    A file that allocates nothing holds nothing, whatever size it claims: a failed allocation
    leaves such files.
    """
    return sum(
        s.allocated_bytes if s.allocated_bytes is not None else s.size_bytes or 0 for s in segments
    )


def sparse_bytes(segments: Iterable[Segment]) -> int:
    """Bytes promised by segment files and not yet allocated: what touching them will need."""
    return sum(
        max(0, s.size_bytes - s.allocated_bytes)
        for s in segments
        if s.size_bytes is not None and s.allocated_bytes is not None
    )


class CudaLent(Struct, frozen=True):
    """CUDA tensors sent to other processes so far."""

    sent: float
    unreleased: float
    """Sent and still held by a receiver, or never received."""
    synchronised: float
    """Sends that waited for the GPU, because no event was left or the platform has none."""
    bytes_held: float | None
    oldest_s: float | None
    """Seconds since the oldest unreleased tensor was sent."""


def cuda_lent(process: Process) -> CudaLent | None:
    """The reading; `None` without a hook, or before the first CUDA tensor was sent."""
    reading = process.gauges.get("cuda_lent")
    if not isinstance(reading, Mapping):
        return None
    numbers = [number_of(reading, name) for name in ("sent", "unreleased", "synchronised")]
    sent, unreleased, synchronised = numbers
    if sent is None or unreleased is None or synchronised is None:
        return None
    oldest_ns = number_of(reading, "oldest_ns")
    return CudaLent(
        sent=sent,
        unreleased=unreleased,
        synchronised=synchronised,
        bytes_held=number_of(reading, "bytes"),
        oldest_s=None if oldest_ns is None else oldest_ns / 1e9,
    )


CUDA_IPC = "/dev/shm/cuda.shm."
"""How the names of the driver's files begin that a sender of CUDA memory and those that have it
open map (libcuda 12 and 13); the receiver's mapping ends when it closes the memory."""
COUNTER_FILE_BYTES = 10_000 * 8
"""10,000 counters of 8 bytes in each file (CudaIPCTypes.h, torch 2.13), made by a sender."""


def is_counter_file(segment: Segment) -> bool:
    """Whether a segment has the reference counters of CUDA tensors that its creator has sent."""
    size = segment.size_bytes
    return (
        segment.kind == "torch-named"
        and size is not None
        and COUNTER_FILE_BYTES <= size <= COUNTER_FILE_BYTES + 8192
    )


def cuda_receivers(index: Index, senders: Iterable[Process]) -> list[Process]:
    """The living processes that have CUDA memory open which all of these have sent."""
    found: list[set[ProcessId]] = []
    for sender in senders:
        own = sender.process
        if cuda_lent(sender) is None and not any(
            each.creator == own and is_counter_file(each) for each in index.snapshot.segments
        ):
            return []
        found.append(
            {
                mapper
                for each in index.snapshot.segments
                if each.path.startswith(CUDA_IPC) and own in each.mappers
                for mapper in each.mappers
                if mapper != own
            }
        )
    common = set.intersection(*found) if found else set()
    return [each for each in index.snapshot.living() if each.process in common]
