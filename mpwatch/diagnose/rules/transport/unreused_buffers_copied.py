"""A producer copies every tensor into fresh shared memory instead of reusing buffers."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.forecast import slope
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Flow, Process, Snapshot
from mpwatch.model.units import bytes_text, rate_text

RULE = "unreused-buffers-copied"
YOUNG_S = 5.0
COPIED_BYTES_PER_S = 50 * 2**20
UNDER_WAY_S = 0.01
"""So much of the new memory must be under way in segments, or it is for something else."""
FAULTS_PER_S = 20_000
"""Pages first touched: at 4 KiB each, 80 MB/s of memory that is new every time."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each sender of much that is new every time.

    DataLoader workers are left out: collating into fresh memory is how they work.
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
            words = f"{rate_text(faults)} pages touched for the first time"
            yield _finding(process, words, faults * 4096)


def _copied_per_s(flows: list[Flow]) -> float:
    """Bytes a second that were copied rather than sent again from a shared buffer."""
    return sum(
        (flow.bytes_per_s or 0.0) * flow.copied_bytes / flow.bytes for flow in flows if flow.bytes
    )


def _are_for_segments(snapshot: Snapshot, process: Process, faults_per_s: float) -> bool:
    """Whether many new pages are those of segments, where no hook counts what is copied.

    Whoever computes touches new memory all the time, so pages alone say nothing.
    """
    if faults_per_s < FAULTS_PER_S or process.hook.state == "ready":
        return False
    return _young_bytes(snapshot, process) >= UNDER_WAY_S * faults_per_s * 4096


def _young_bytes(snapshot: Snapshot, process: Process) -> int:
    """What segments of its own, all young, hold that are in the hands of others."""
    own = [s for s in snapshot.segments if s.creator == process.process and s.kind == "torch"]
    ages = [segment.age_s(snapshot.wall_s) for segment in own]
    if not all(age is not None and age < YOUNG_S for age in ages):
        return 0
    return sum(segment.size_bytes or 0 for segment in own)


def _finding(process: Process, rate: str, bytes_per_s: float) -> Finding:
    """Put it into words."""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        summary=(
            f"{called(process)} spends its time making shared memory: "
            f"{bytes_text(bytes_per_s)}/s of fresh buffers"
        ),
        evidence=(rate,),
        cause=(
            "Each tensor sent for the first time is copied into a segment of its own: a file is "
            "made, its pages are allocated and filled, and its descriptor goes through a socket. "
            "Measured with 32 MiB tensors, this costs five to eight times the transfer itself."
        ),
        advice=(
            "Keep a ring of shared tensors and a queue that gives them back, and write into one "
            "that came back; hold on to all of them, or each is mapped anew when it returns. The "
            "producer must not touch a buffer before that, or the consumer sees it change."
        ),
    )
