"""Batches fetched ahead take a large part of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mpwatch.diagnose.analysis.growth.forecast import growth, memory_headroom
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, counted, loader_owners
from mpwatch.diagnose.analysis.resources import segment_bytes
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Segment, Snapshot
from mpwatch.model.units import bytes_text

RULE = "prefetch-memory-blowup"
OF_MEMORY = 0.2
OF_SHM = 0.5
"""Shares of memory and of /dev/shm from which prefetched batches are worth a word."""
MUCH_OF_SHM = 0.8
LARGE_BYTES = 2**20
DEEP = 10
"""Two batches ahead of a few tensors each are usual."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where the batches in flight hold a large part of what there is.

    A plateau below that is how prefetching works. What still rises is kept, not in flight, and so
    is what the owner maps: it has received that, and keeps it or has it in use. Where it keeps most
    of what the workers made, that may have filled /dev/shm without any batch ahead of it.
    """
    if growth(index.history.of_host("segment_bytes")) is not None:
        return
    for owner, workers in loader_owners(index):
        if owner.sample.maps is None:
            continue
        makers = {worker.process for worker in workers}
        flying = [
            s
            for s in index.snapshot.segments
            if s.creator in makers and s.kind != "semaphore" and owner.process not in s.mappers
        ]
        held = segment_bytes(flying)
        severity, against = _severity(index.snapshot, held)
        if severity is None and _is_deep(flying, len(workers)):
            severity, against = Severity.INFO, "shared memory"
        if severity is not None:
            yield _finding(index.snapshot, owner, workers, flying, against, severity)


def _severity(snapshot: Snapshot, held: int) -> tuple[Severity | None, str]:
    """How much of memory or of /dev/shm that is."""
    headroom, shm = memory_headroom(snapshot), snapshot.host.shm
    if headroom is not None and held >= OF_MEMORY * headroom.total_bytes:
        return Severity.WARNING, f"{bytes_text(headroom.total_bytes)} of {headroom.what}"
    if shm is not None and shm.total_bytes and held >= OF_SHM * shm.total_bytes:
        is_much = held >= MUCH_OF_SHM * shm.total_bytes
        severity = Severity.WARNING if is_much else Severity.INFO
        return severity, f"{bytes_text(shm.total_bytes)} of {shm.path}"
    return None, ""


def _is_deep(flying: list[Segment], workers: int) -> bool:
    """Whether each worker has many large segments of one size out at the same time."""
    sizes = Counter(s.size_bytes for s in flying if (s.size_bytes or 0) >= LARGE_BYTES)
    return bool(sizes) and max(sizes.values()) >= DEEP * workers


def _finding(
    snapshot: Snapshot,
    owner: Process,
    workers: tuple[Process, ...],
    flying: list[Segment],
    against: str,
    severity: Severity,
) -> Finding:
    """Describe the batches in flight."""
    held = segment_bytes(flying)
    evidence = [
        f"{counted(len(flying), 'segment')} of {counted(len(workers), 'worker')}: "
        f"{bytes_text(held)} of {against}",
        f"{bytes_text(held / len(workers))} a worker",
    ]
    loaders = [each for each in snapshot.loaders if each.process == owner.process]
    evidence += [
        f"{counted(loader.workers, 'worker')} with prefetch_factor {loader.prefetch}: up to "
        f"{loader.workers * loader.prefetch} batches in flight"
        for loader in loaders
        if loader.prefetch is not None
    ]
    return Finding(
        rule=RULE,
        severity=severity,
        process=owner.process,
        summary=f"batches fetched ahead for {called(owner)} hold {bytes_text(held)} of {against}",
        evidence=tuple(evidence),
        cause=(
            "Up to num_workers x prefetch_factor batches are in flight, plus batches finished out "
            "of order, pinned copies, and the one main uses"
            f"{_OF_SEVERAL if len(loaders) > 1 else ''}. They are memory, though they are files in "
            "/dev/shm."
        ),
        advice=(
            "Lower prefetch_factor: 1 or 2 is enough where workers keep up (slow samples then "
            "delay main sooner). Or use fewer workers, or send uint8 batches and cast them after "
            "the transfer."
        ),
    )


_OF_SEVERAL = ", for each of its loaders"
