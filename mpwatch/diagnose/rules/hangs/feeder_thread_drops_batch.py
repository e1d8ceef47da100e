"""A feeder thread dropped a batch, and the main process waits for it for ever."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.idle_time import all_stand
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.waits.loader_waits import (
    LoaderStall,
    has_unsent,
    is_idle,
    loader_stalls,
)
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import LogEntry, Snapshot
from mpwatch.model.units import seconds_text

RULE = "feeder-thread-drops-batch"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each item that a feeder thread reported dropped, and for each lost batch.

    The main process waits for a batch, every worker waits for work, and none makes progress: no
    process holds the batch any more. Such a state is normal for a moment, not for long.
    """
    losses = list(tagged(index.snapshot, RULE))
    for entry in losses:
        yield _dropped(index.snapshot, entry)
    for stall in loader_stalls(index):
        if not all(is_idle(worker) and not has_unsent(worker) for worker in stall.workers):
            continue
        if all_stand(stall.workers, index):
            yield _lost(stall, losses)


def _dropped(snapshot: Snapshot, entry: LogEntry) -> Finding:
    """An item that a feeder thread could not pickle."""
    process = snapshot.get(entry.process)
    who = called(process) if process is not None else "a process of the job"
    is_loader = process is None or process.role == "loader-worker"
    task = entry.details.get("task")
    what = "an item" if task is None or not is_loader else f"batch {task}"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=entry.process,
        summary=f"{who} lost {what}: its feeder thread could not send it",
        evidence=evidence_of(entry),
        cause=_CAUSE if is_loader else _CAUSE_QUEUE,
        advice=_ADVICE if is_loader else _ADVICE_QUEUE,
    )


def _lost(stall: LoaderStall, losses: list[LogEntry]) -> Finding:
    """A main process that waits for a lost batch."""
    count = len(stall.workers)
    evidence = [
        f"{called(stall.owner)} has waited {seconds_text(stall.quiet_s)} for {stall.batch}",
        f"{all_called(stall.workers)} {'wait' if count > 1 else 'waits'} for work and "
        f"{'use' if count > 1 else 'uses'} no cpu",
    ]
    if stall.loader is not None and stall.loader.outstanding is not None:
        evidence.append(f"{stall.loader.outstanding} tasks sent to workers and not returned")
    for entry in losses[:1]:
        evidence += evidence_of(entry)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=stall.owner.process,
        subject="wait",
        summary=f"{called(stall.owner)} waits for {stall.batch}, which was lost",
        evidence=tuple(evidence),
        cause=_CAUSE,
        advice=_ADVICE
        + ("" if losses else " The reason is on the worker's standard error; the hook reports it."),
    )


_CAUSE = (
    "A queue pickles in a background thread. If that fails (no room in /dev/shm, no descriptors, "
    "an object that cannot be pickled), it prints the error, drops the item and continues. The "
    "worker stays alive, so a DataLoader without a timeout waits for that batch for ever. It "
    "happens where tensors are first shared at this point: a custom collate_fn, batch_size=None."
)
_CAUSE_QUEUE = (
    "A queue pickles in a background thread. If that fails (no room in /dev/shm, no descriptors, "
    "an object that cannot be pickled), it prints the error, drops the item and continues. put() "
    "has already returned, and the consumer waits for the item for ever."
)
_ADVICE_QUEUE = (
    "Fix the underlying error. Give get() a timeout, so that the consumer raises instead of "
    "waiting; or pickle the object before put(), so that the producer gets the error."
)
_ADVICE = (
    "Fix the underlying error. Give the DataLoader a timeout, so that it raises instead of waiting "
    "(it has to be longer than the slowest batch). This epoch cannot be saved; restart from the "
    "last checkpoint."
)
