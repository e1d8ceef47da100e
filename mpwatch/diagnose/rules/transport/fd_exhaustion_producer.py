"""A sender runs out of descriptors: its tensors are not received, or it keeps them."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.growth.forecast import AT_LIMIT, Approach
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.resources import torch_fds_near_limit, torch_maps
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.units import rate_text

RULE = "fd-exhaustion-producer"
A_PIPE_HOLDS = 190
"""64 KiB of messages of 340 bytes, one tensor each (torch 2.13). Tensors sent in one message need
down to 66 bytes each, so that a pipe may hold a thousand."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose sent, unreceived tensors use up its descriptors.

    A tensor in transit holds a descriptor and no mapping in its sender, so tensors in transit are
    descriptors minus mappings. With a bounded queue the count settles.
    """
    for process, held, near in torch_fds_near_limit(index, are_received=False):
        yield _finding(process, held, near)


def _finding(process: Process, held: int, near: Approach) -> Finding:
    used, limit, mapped = int(near.used), int(near.limit), torch_maps(process)
    is_in_transit = mapped is None or mapped < 0.7 * held
    what = "tensors sent and not yet received" if is_in_transit else "tensors it made and keeps"
    evidence = [f"{used} of {limit} descriptors in use, {held} on torch segments"]
    if mapped is not None:
        transit = max(0, held - mapped)
        evidence.append(f"{mapped} mappings of torch segments: about {transit} sent, not received")
    evidence += (*near.trend_words("torch descriptors"), *_queued_words(process))
    severity = near.severity
    is_far = used < AT_LIMIT * limit and held + limit - used > A_PIPE_HOLDS
    if is_in_transit and near.ahead is not None and is_far:
        severity = min(severity, Severity.WARNING)
        evidence.append(
            f"a pipe holds about {A_PIPE_HOLDS} messages of one tensor: if each tensor is sent "
            "alone, the number of descriptors stops rising there, and memory grows instead"
        )
    summary = f"{called(process)} has {used} of {limit} descriptors open, most on {what}"
    if near.ahead is not None:
        summary = (
            f"{called(process)} reaches its limit of {limit} fds in {near.eta_words}: "
            f"{rate_text(near.ahead.per_s)}, {what}"
        )
    return Finding(
        rule=RULE,
        severity=severity,
        process=process.process,
        summary=summary,
        evidence=tuple(evidence),
        cause=_CAUSE if is_in_transit else _CAUSE_KEPT,
        advice=(
            "Bound the queue, Queue(maxsize=...), so that the producer waits for its consumers "
            "(it then runs at their speed), and send fewer and larger tensors. Raising the limit "
            "of open files (ulimit -n) only postpones the failure."
            if is_in_transit
            else "Delete tensors after sending them, or pack many small ones into few. Raising the "
            "limit of open files (ulimit -n) only postpones the failure."
        ),
        eta_s=near.eta_s,
    )


_CAUSE = (
    "Each tensor in a queue keeps a descriptor open in its sender until the receiver has received "
    "it. The producer is faster than its consumers, and the queue does not limit it. With no "
    "descriptor left, the queue's feeder thread drops items and tensors already queued cannot be "
    "received: the consumer gets EOFError or waits for ever."
)
_CAUSE_KEPT = (
    "Each tensor in shared memory uses a descriptor of the process that made it, as long as that "
    "process keeps the tensor, and this process keeps the ones it made."
)


def _queued_words(process: Process) -> tuple[str, ...]:
    """Unread bytes in the pipes its threads write to, where known."""
    return tuple(
        f"{thread.waits_on.queued_bytes} unread bytes in the pipe thread {thread.name} writes to"
        for thread in process.threads
        if thread.waits_on is not None
        and thread.waits_on.kind == "pipe-write"
        and thread.waits_on.queued_bytes is not None
    )
