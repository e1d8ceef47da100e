"""A producer copies every tensor into fresh shared memory instead of reusing buffers."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.growth.forecast import slope
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Flow, Process, Snapshot
from mpwatch.model.units import bytes_text, rate_text

RULE = "unreused-buffers-copied"
YOUNG_S = 5.0
COPIED_BYTES_PER_S = 50 * 2**20
UNDER_WAY_S = 0.01
"""Seconds of page faults that must be in segments, or the new memory has another use."""
FAULTS_PER_S = 20_000
"""Pages used for the first time: at 4 KiB each, 80 MB/s of new memory."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that copies much into new shared memory.

    DataLoader workers are left out: they collate each batch into new memory by design.
    """
    for process in index.snapshot.living():
        if process.role not in ("spawned", "rank", "pool-worker", "main"):
            continue
        sent = [flow for flow in index.snapshot.flows if flow.sender == process.process]
        copied = _copied_per_s(sent)
        faults = slope(index.history.of(process.process, "minor_faults"), window_s=15)
        if copied >= COPIED_BYTES_PER_S:
            words = f"{rate_text(copied, 'B')} copied into new shared segments, by the hook's count"
            yield _finding(process, words, copied)
        elif faults is not None and _are_for_segments(index.snapshot, process, faults):
            words = f"{rate_text(faults)} pages used for the first time"
            yield _finding(process, words, faults * 4096)


def _copied_per_s(flows: list[Flow]) -> float:
    """Bytes a second that were copied rather than sent again from a shared buffer."""
    return sum(
        (flow.bytes_per_s or 0.0) * flow.copied_bytes / flow.bytes for flow in flows if flow.bytes
    )


def _are_for_segments(snapshot: Snapshot, process: Process, faults_per_s: float) -> bool:
    """Whether many new pages belong to segments, where no hook counts the copies.

    Any computation uses new memory all the time, so the number of pages alone says nothing.
    """
    if faults_per_s < FAULTS_PER_S or process.hook.state == "ready":
        return False
    return _young_bytes(snapshot, process) >= UNDER_WAY_S * faults_per_s * 4096


def _young_bytes(snapshot: Snapshot, process: Process) -> int:
    """Bytes of the segments it made and sent; 0 unless all of them are young."""
    own = [s for s in snapshot.segments if s.creator == process.process and s.kind == "torch"]
    ages = [segment.age_s(snapshot.wall_s) for segment in own]
    if not all(age is not None and age < YOUNG_S for age in ages):
        return 0
    return sum(segment.size_bytes or 0 for segment in own)


def _finding(process: Process, rate: str, bytes_per_s: float) -> Finding:
    """Describe the copies."""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        summary=(
            f"{called(process)} copies {bytes_text(bytes_per_s)}/s of tensors into new shared "
            "memory"
        ),
        evidence=(rate,),
        cause=(
            "Each tensor that is not in shared memory yet is copied into a new segment when it is "
            "sent: a file is created, and its pages are allocated and filled. Measured with 32 MiB "
            "tensors, this costs five to eight times the transfer itself."
        ),
        advice=(
            "Keep a few shared tensors as buffers, and a second queue through which consumers "
            "return them; write only into a returned buffer, or the consumer sees the data change. "
            "Keep references to all buffers, or each is mapped again when it returns."
        ),
    )
