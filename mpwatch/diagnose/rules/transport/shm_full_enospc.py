"""`/dev/shm` is full or will be soon, in bytes or in files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from msgspec import Struct

from mpwatch.diagnose.analysis.growth.forecast import (
    AT_LIMIT,
    NEAR_LIMIT,
    Approach,
    approach,
    slope,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, called_if_known, counted
from mpwatch.diagnose.analysis.resources import segment_bytes, sparse_bytes, used_bytes
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History, Series
from mpwatch.model.host import FileSystemSample
from mpwatch.model.snapshot import LogEntry, Segment, Snapshot
from mpwatch.model.units import bytes_text, count_text, rate_text

RULE = "shm-full-enospc"
WORTH_FORECASTING = 0.3
"""Prefetched batches fill part of it within seconds of a start and then stay."""
CONTAINER_DEFAULT_BYTES = 64 * 2**20
"""Size of /dev/shm in a container of Docker or Kubernetes that sets none."""
GROWS_BY_NEW = 0.5
"""Part of a rise that new segments must account for, where those that are there are not full."""


class _Use(Struct, frozen=True):
    """A resource of the file system that can run out: bytes or files."""

    subject: str
    used: float
    total: float
    series: Series
    text: Callable[[float | None], str]
    unit: str


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding if the file system for shared memory is full, or will be soon."""
    failed = next(tagged(index.snapshot, RULE), None)
    if failed is not None:
        yield _failed(index.snapshot, failed)
    shm = index.snapshot.host.shm
    if shm is None or not index.snapshot.living():
        return
    refused = _refused(index.snapshot, shm)
    for use in _uses(shm, index.history):
        near = approach(use.used, use.total, use.series, worth_forecasting=WORTH_FORECASTING)
        if near is not None and not _ends_by_itself(index, use, near):
            yield _finding(index.snapshot, shm, use, near)
        elif refused and failed is None and use.subject == "bytes":
            yield _too_small(index.snapshot, shm, refused)


def _failed(snapshot: Snapshot, entry: LogEntry) -> Finding:
    """The finding for an error that the job itself reported."""
    process, shm = snapshot.get(entry.process), snapshot.host.shm
    name = called_if_known(process)
    space = () if shm is None else (f"{_free_words(shm)} when last read",)
    lost = _CAUSE_LOST if entry.kind == "lost-item" else ""
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        subject="bytes",
        summary=f"{name} could not share a tensor: /dev/shm had no space for it",
        evidence=(*evidence_of(entry), *space),
        cause=_cause(snapshot) + lost,
        advice=_advice(snapshot),
    )


def _free_words(shm: FileSystemSample) -> str:
    """Its free space: `/dev/shm: 8.0M of 64.0M free`."""
    return f"{shm.path}: {bytes_text(shm.free_bytes)} of {bytes_text(shm.total_bytes)} free"


def _refused(snapshot: Snapshot, shm: FileSystemSample) -> list[Segment]:
    """Segments without memory: the call that fails leaves an empty file of the full size.

    torch allocates all pages of a segment when it makes it, so a segment without any page that
    does not fit now is one whose allocation failed.
    """
    return [
        s
        for s in snapshot.segments
        if s.kind == "torch-named"
        and s.allocated_bytes == 0
        and (s.size_bytes or 0) > shm.free_bytes
    ]


def _too_small(snapshot: Snapshot, shm: FileSystemSample, refused: list[Segment]) -> Finding:
    """The finding for segments that are larger than the free space."""
    cause, advice = _cause_and_advice(snapshot)
    largest = max(refused, key=lambda s: s.size_bytes or 0)
    made = {called(p) for s in refused if (p := snapshot.get(s.creator)) is not None}
    evidence = (
        _free_words(shm),
        f"empty files in it: {len(refused)}, for example {largest.path} of "
        f"{bytes_text(largest.size_bytes)}: allocating their memory failed",
        *((f"made by {', '.join(sorted(made)[:4])}",) if made else ()),
    )
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        subject="bytes",
        summary=(
            f"{shm.path} ({bytes_text(shm.total_bytes)}) has no space for tensors of "
            f"{bytes_text(largest.size_bytes)}: {bytes_text(shm.free_bytes)} are free"
        ),
        evidence=evidence,
        cause=cause,
        advice=advice,
    )


def _uses(shm: FileSystemSample, history: History) -> Iterator[_Use]:
    """Bytes, and inodes where the file system limits them."""
    if shm.total_bytes > 0:
        series = history.of_host("shm_used_bytes")
        used = used_bytes(shm)
        yield _Use("bytes", used, shm.total_bytes, series, bytes_text, "B")
    if shm.total_inodes and shm.free_inodes is not None:
        taken = shm.total_inodes - shm.free_inodes
        series = history.of_host("shm_used_inodes")
        yield _Use("files", taken, shm.total_inodes, series, count_text, "")


def _ends_by_itself(index: Index, use: _Use, near: Approach) -> bool:
    """Whether the rise only fills existing segments, and there is space for all of their pages.

    `multiprocessing.shared_memory` takes its pages when they are first written.
    """
    ahead = near.ahead
    if ahead is None or use.subject != "bytes" or use.used >= NEAR_LIMIT * use.total:
        return False
    missing = sparse_bytes(index.snapshot.segments)
    # torch takes all pages of a segment when it makes it.
    promised = [
        segment
        for segment in index.snapshot.segments
        if segment.kind not in ("torch", "torch-named", "semaphore")
    ]
    risen = ahead.per_s * ahead.span_s
    made_per_s = slope(index.history.of_host("segment_bytes")) or 0.0
    return (
        segment_bytes(promised) >= GROWS_BY_NEW * risen
        and made_per_s < GROWS_BY_NEW * ahead.per_s
        and use.used + missing < AT_LIMIT * use.total
    )


def _finding(snapshot: Snapshot, shm: FileSystemSample, use: _Use, near: Approach) -> Finding:
    filled = f"{use.text(use.used)} of {use.text(use.total)}"
    noun = "" if use.subject == "bytes" else " files"
    evidence = [f"{shm.path}: {filled}{noun} in use", *_owners(snapshot, use)]
    evidence += near.trend_words(use.subject, use.unit)
    cause, advice = (_CAUSE_FILES, _ADVICE_FILES) if noun else _cause_and_advice(snapshot)
    fullness = "full" if use.used >= use.total else "nearly full"
    summary = f"{shm.path} is {fullness}: {filled}{noun} in use"
    if near.ahead is not None:
        summary = (
            f"{shm.path} ({use.text(use.total)}{noun}) is full in {near.eta_words} "
            f"at {rate_text(near.ahead.per_s, use.unit)}"
        )
    return Finding(
        rule=RULE,
        severity=near.severity,
        subject=use.subject,
        summary=summary,
        evidence=tuple(evidence),
        cause=cause,
        advice=advice,
        eta_s=near.eta_s,
    )


def _owners(snapshot: Snapshot, use: _Use) -> Iterator[str]:
    """The part that this job holds, and the processes that created most of it."""
    own = [s for s in snapshot.segments if s.kind != "semaphore"]
    if use.subject != "bytes":
        yield counted(len(own), "segment of this job", "segments of this job")
        return
    held = segment_bytes(own)
    yield (
        f"{counted(len(own), 'segment of this job holds', 'segments of this job hold')} "
        f"{bytes_text(held)}"
    )
    if held < 0.5 * use.used:
        yield f"the other {bytes_text(use.used - held)} are not in segments of this job"
    by_maker: defaultdict[str, list[Segment]] = defaultdict(list)
    for segment in own:
        maker = snapshot.get(segment.creator)
        unknown = "an unknown process" if segment.creator_pid is None else f"{segment.creator_pid}"
        by_maker[maker.label if maker is not None else unknown].append(segment)
    most = sorted(by_maker.items(), key=lambda item: -segment_bytes(item[1]))[:3]
    if most:
        yield "made by " + ", ".join(f"{name}: {bytes_text(segment_bytes(s))}" for name, s in most)


def _has_loader(snapshot: Snapshot) -> bool:
    return any(process.role == "loader-worker" for process in snapshot.processes)


def _cause(snapshot: Snapshot) -> str:
    shm = snapshot.host.shm
    is_default = shm is not None and shm.total_bytes == CONTAINER_DEFAULT_BYTES
    default = _CAUSE_DEFAULT if is_default else ""
    return _CAUSE + default + (_CAUSE_LOADER if _has_loader(snapshot) else "")


def _cause_and_advice(snapshot: Snapshot) -> tuple[str, str]:
    """The texts for a running job, by whether its own processes use most of the space."""
    shm = snapshot.host.shm
    own = segment_bytes(s for s in snapshot.segments if s.kind != "semaphore")
    if shm is not None and own < 0.5 * used_bytes(shm):
        return _CAUSE_OTHERS, _ADVICE_OTHERS
    return _cause(snapshot), _advice(snapshot)


def _advice(snapshot: Snapshot) -> str:
    return _ADVICE + (_ADVICE_LOADER if _has_loader(snapshot) else "")


_CAUSE = (
    "Tensors sent between processes occupy /dev/shm until their receivers release them. When it is "
    "full, sharing a tensor fails with 'No space left on device (28)'."
)
_CAUSE_OTHERS = (
    "Most of what /dev/shm holds is not in segments of this job: other programs use it, or jobs "
    "that were killed left their files behind. When it is full, sharing a tensor fails with 'No "
    "space left on device (28)'."
)
_ADVICE_OTHERS = (
    "List the files in /dev/shm: mpwatch clean shows segments that no process maps, and mpwatch "
    "clean --yes removes them. Or make /dev/shm larger (docker --shm-size); what is used counts as "
    "memory of the container."
)
_CAUSE_FILES = (
    "Each shared tensor is one file, and the number of files in /dev/shm is limited. At the limit, "
    "sharing a tensor fails with 'No space left on device (28)' although bytes are free."
)
_CAUSE_DEFAULT = " /dev/shm has 64 MiB here, the default of a container."
_CAUSE_LOST = (
    " Here a queue's feeder thread got the error: the item is lost, and its consumer waits for it "
    "for ever."
)
_CAUSE_LOADER = (
    " DataLoader workers need about num_workers x prefetch_factor x bytes of a batch, plus what "
    "main still holds."
)
_ADVICE = (
    "Make /dev/shm larger: docker run --shm-size=8g or --ipc=host (which shares the host's), in "
    "Kubernetes a memory-backed volume; what is used counts as memory of the job. Or use less: "
    "send smaller types (uint8 images, cast after the transfer), and do not keep received tensors."
)
_ADVICE_LOADER = " Or lower prefetch_factor or num_workers, which reads less ahead."
_ADVICE_FILES = (
    "Collate many small tensors into few, and do not keep received ones. The number of files is a "
    "mount option of the tmpfs (nr_inodes); raising it needs root."
)
