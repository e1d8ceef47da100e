"""A process runs out of descriptors because it keeps the tensors it receives."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.growth.forecast import Approach
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, called_if_known
from mpwatch.diagnose.analysis.resources import (
    creators_in_words,
    fd_limit,
    fds_used,
    torch_fds,
    torch_fds_near_limit,
    torch_maps,
)
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import LogEntry, Process, Snapshot
from mpwatch.model.units import rate_text

RULE = "fd-exhaustion-receiver"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose received tensors use up its descriptors.

    A received storage costs one descriptor and one mapping, so both counts move together; a
    tensor in transit has no mapping in its sender. A count that settles is normal.
    """
    failed = {entry.process: entry for entry in tagged(index.snapshot, RULE)}
    for process, held, near in torch_fds_near_limit(index, are_received=True):
        error = evidence_of(failed.pop(process.process)) if process.process in failed else ()
        yield _finding(index.snapshot, process, held, near, error)
    for entry in failed.values():
        yield _failed(index.snapshot, entry)


def _failed(snapshot: Snapshot, entry: LogEntry) -> Finding:
    """The finding for a receiver that had no descriptor left for a tensor."""
    process = snapshot.get(entry.process)
    name = called_if_known(process)
    evidence = list(evidence_of(entry))
    used, limit = (None, None) if process is None else (fds_used(process), fd_limit(process))
    if process is not None and used is not None and limit:
        held = torch_fds(process)
        of_torch = "" if held is None else f", {held} on torch segments"
        evidence.append(f"when last read: {used} of {limit} descriptors in use{of_torch}")
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=entry.process,
        summary=f"{name} could not receive a tensor: its descriptor table was full",
        evidence=tuple(evidence),
        cause=_CAUSE,
        advice=_ADVICE,
    )


def _finding(
    snapshot: Snapshot, process: Process, held: int, near: Approach, error: tuple[str, ...]
) -> Finding:
    used, limit, mapped = int(near.used), int(near.limit), torch_maps(process)
    evidence = [f"{used} of {limit} descriptors in use, {held} on torch segments"]
    if mapped is not None:
        evidence.append(f"{mapped} mappings of torch segments: received and kept, not in transit")
    if (makers := creators_in_words(snapshot, process)) is not None:
        evidence.append(f"segments made: {makers}")
    evidence += (*near.trend_words("torch descriptors"), *error)
    summary = f"{called(process)} has {used} of {limit} descriptors open, most on tensors it keeps"
    if near.ahead is not None:
        summary = (
            f"{called(process)} reaches its limit of {limit} fds in {near.eta_words}: "
            f"{rate_text(near.ahead.per_s)}, one per tensor received and kept"
        )
    return Finding(
        rule=RULE,
        severity=near.severity,
        process=process.process,
        summary=summary,
        evidence=tuple(evidence),
        cause=_CAUSE,
        advice=_ADVICE + _hook_advice(process),
        eta_s=near.eta_s,
    )


def _hook_advice(process: Process) -> str:
    if process.hook.state == "ready":
        return ""
    return " Attach the hook to see which line of code keeps them."


_CAUSE = (
    "Under the strategy file_descriptor each tensor received from another process uses a "
    "descriptor for as long as the program keeps the tensor, for example in a list of batches or "
    "losses. With no descriptor left, receiving fails with 'received 0 items of ancdata' or 'Too "
    "many open files'."
)
_ADVICE = (
    "Do not keep received tensors: store .clone(), .item() or .numpy().copy() instead (one more "
    "copy each), and collate many small tensors into few. Raising the limit of open files "
    "(ulimit -n) only postpones the failure. The strategy file_system needs no descriptors, but "
    "leaks named files when the job is killed."
)
