"""A process died of a bus error: the memory behind a mapping was not there."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals

from mpwatch.diagnose.analysis.exits import ended_python
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.resources import sparse_bytes
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Segment, Snapshot
from mpwatch.model.units import bytes_text

RULE = "shm-full-sigbus"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each death by SIGBUS, and one where shared memory is over-committed.

    torch reserves its space at creation since late 2025; other users of /dev/shm only promise it,
    so what they have not touched yet may not be there.
    """
    for process, ended in ended_python(index.snapshot):
        if ended.signal == Signals.SIGBUS:
            yield _death(index.snapshot, process)
    yield from _promise(index.snapshot)


def _death(snapshot: Snapshot, process: Process) -> Finding:
    """A bus error that has happened."""
    evidence = [f"{called(process)} ended by signal 7 (SIGBUS)"]
    shm = snapshot.host.shm
    if shm is not None:
        free, total = bytes_text(shm.free_bytes), bytes_text(shm.total_bytes)
        evidence.append(f"{shm.path} has {free} of {total} free")
    sparse = _sparse(snapshot)
    if sparse:
        evidence.append(f"{bytes_text(sparse_bytes(sparse))} are promised and not yet allocated")
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)} died of a bus error",
        evidence=tuple(evidence),
        cause=_CAUSE,
        advice=_ADVICE,
    )


def _promise(snapshot: Snapshot) -> Iterator[Finding]:
    """Files that will not fit once they are touched."""
    shm, sparse = snapshot.host.shm, _sparse(snapshot)
    missing = sparse_bytes(sparse)
    if shm is None or not snapshot.living() or missing <= shm.free_bytes or not missing:
        return
    largest = max(sparse, key=lambda s: (s.size_bytes or 0) - (s.allocated_bytes or 0))
    yield Finding(
        rule=RULE,
        severity=Severity.WARNING,
        subject="promise",
        summary=(
            f"{bytes_text(missing)} of shared memory are promised and {bytes_text(shm.free_bytes)} "
            "are free: touching the rest ends in a bus error"
        ),
        evidence=(
            f"{len(sparse)} files in {shm.path} are larger than what they occupy",
            f"the largest: {largest.path}, {bytes_text(largest.allocated_bytes)} of "
            f"{bytes_text(largest.size_bytes)} allocated",
            f"{bytes_text(shm.free_bytes)} of {bytes_text(shm.total_bytes)} free",
        ),
        cause=_CAUSE,
        advice=_ADVICE,
    )


def _sparse(snapshot: Snapshot) -> list[Segment]:
    """Mapped segments with less memory than their size, by more than a page or two.

    What nobody maps nobody touches: torch leaves the empty file of a share that failed behind.
    """
    return [
        segment
        for segment in snapshot.segments
        if segment.mappers and segment.kind != "semaphore" and sparse_bytes((segment,)) > 16_384
    ]


_CAUSE = (
    "A mapped file had no memory behind the page that was touched: /dev/shm was full when a file "
    "that only promised its size was used for the first time (multiprocessing.shared_memory, NCCL, "
    "numpy memory maps, torch before late 2025), or a mapped data file was truncated, replaced or "
    "lost with its network volume."
)
_ADVICE = (
    "Give /dev/shm more room (docker --shm-size, --ipc=host), or allocate what is promised: fill "
    "multiprocessing.shared_memory once after making it, or posix_fallocate it, so that it fails "
    "early with an exception. Never overwrite mapped data files in place."
)
