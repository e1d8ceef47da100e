"""A sender runs out of file descriptors because nobody fetches what it sent."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.forecast import AT_LIMIT, Approach, approach
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.resources import (
    fd_limit,
    fds_used,
    foreign_share,
    torch_fd_series,
    torch_fds,
    torch_maps,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.units import rate_text

RULE = "fd-exhaustion-producer"
A_PIPE_HOLDS = 190
"""64 KiB of messages of 340 bytes, one tensor each (torch 2.13); tensors sent together need less
room, down to 66 bytes each, so that a pipe may hold a thousand."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose sent, unfetched tensors use up its descriptors.

    A ticket holds a descriptor and no mapping, so tensors in transit are descriptors minus
    mappings. A bounded queue settles; a loader worker holds a few batches at most.
    """
    for process in index.snapshot.living():
        held, used, limit = torch_fds(process), fds_used(process), fd_limit(process)
        if not held or used is None or not limit or not _is_sender(process, held, used):
            continue
        near = approach(
            used, limit, torch_fd_series(process, index.history), series_limit=limit - (used - held)
        )
        if near is not None:
            yield _finding(process, held, near)


def _is_sender(process: Process, held: int, used: int) -> bool:
    """Whether torch's descriptors prevail and are its own: in transit, or kept by their maker."""
    if held < 0.5 * used:
        return False
    mapped = torch_maps(process)
    if mapped is not None and mapped < 0.7 * held:
        return True
    foreign = foreign_share(process)
    return foreign is not None and foreign < 0.5


def _finding(process: Process, held: int, near: Approach) -> Finding:
    """Put the numbers into words."""
    used, limit, mapped = int(near.used), int(near.limit), torch_maps(process)
    is_in_transit = mapped is None or mapped < 0.7 * held
    what = "tensors sent and not yet fetched" if is_in_transit else "tensors it made and keeps"
    evidence = [f"{used} of {limit} descriptors in use, {held} on torch segments"]
    if mapped is not None:
        transit = max(0, held - mapped)
        evidence.append(f"{mapped} mappings of torch segments: about {transit} sent, not fetched")
    evidence += (*near.trend_words("torch descriptors"), *_queued_words(process))
    severity = near.severity
    is_far = used < AT_LIMIT * limit and held + limit - used > A_PIPE_HOLDS
    if is_in_transit and near.ahead is not None and is_far:
        severity = min(severity, Severity.WARNING)
        evidence.append(
            f"a pipe holds about {A_PIPE_HOLDS} messages of one tensor: if each is sent alone, the "
            "rise ends there and memory is what grows"
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
            "(it then runs at their speed), and send fewer and larger tensors. Raising the soft "
            "limit to the hard one is free and buys time only."
            if is_in_transit
            else "Let go of tensors once they were sent, or pack many small ones into few. "
            "Raising the soft limit to the hard one is free and buys time only."
        ),
        eta_s=near.eta_s,
    )


_CAUSE = (
    "Each tensor in a queue keeps a descriptor open in its sender until the receiver fetches it. "
    "The producer is faster than its consumers and nothing slows it down. With the table full its "
    "feeder thread drops items silently and good ones can no longer be fetched: the consumer gets "
    "EOFError or waits for ever."
)
_CAUSE_KEPT = (
    "Every tensor moved to shared memory costs its maker one descriptor for as long as it lives, "
    "and this process keeps the ones it made."
)


def _queued_words(process: Process) -> tuple[str, ...]:
    """Unread bytes of the pipes its threads write to, where that was seen."""
    return tuple(
        f"{thread.waits_on.queued_bytes} unread bytes in the pipe thread {thread.name} writes to"
        for thread in process.threads
        if thread.waits_on is not None
        and thread.waits_on.kind == "pipe-write"
        and thread.waits_on.queued_bytes is not None
    )
