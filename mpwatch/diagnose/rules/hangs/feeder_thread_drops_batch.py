"""A queue's feeder thread dropped an item, and a process waits for it for ever."""

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
from mpwatch.diagnose.known_errors import contains, evidence_of, tagged
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
    """The finding for an item that a feeder thread could not send."""
    process = snapshot.get(entry.process)
    who = called(process) if process is not None else "a process of the job"
    is_loader = process is not None and process.role == "loader-worker"
    task = entry.details.get("task")
    what = "an item" if task is None or not is_loader else f"batch {task}"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=entry.process,
        summary=f"{who} lost {what}: its feeder thread could not send it",
        evidence=evidence_of(entry),
        cause=f"{_reason(entry)} {_CAUSE_LOADER if is_loader else _CAUSE_QUEUE}",
        advice=f"{_fix(entry)} {_ADVICE_LOADER if is_loader else _ADVICE_QUEUE}",
    )


def _reason(entry: LogEntry) -> str:
    """Why the feeder thread failed, as far as its error shows."""
    return next(
        (reason for text, reason, _ in _REASONS if contains(entry, text)),
        "The queue's feeder thread failed with the error above.",
    )


def _fix(entry: LogEntry) -> str:
    """What removes the error of the feeder thread."""
    return next((fix for text, _, fix in _REASONS if contains(entry, text)), "Fix the error above.")


def _lost(stall: LoaderStall, losses: list[LogEntry]) -> Finding:
    """The finding for a main process that waits for a lost batch."""
    count = len(stall.workers)
    evidence = [
        f"{called(stall.owner)} has waited {seconds_text(stall.quiet_s)} for {stall.batch}",
        f"{all_called(stall.workers)} {'wait' if count > 1 else 'waits'} for work and "
        f"{'use' if count > 1 else 'uses'} no cpu",
    ]
    if stall.loader is not None and stall.loader.outstanding is not None:
        evidence.append(f"{stall.loader.outstanding} tasks sent to workers and not returned")
    loss = next(iter(losses), None)
    if loss is not None:
        evidence += evidence_of(loss)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=stall.owner.process,
        subject="wait",
        summary=f"{called(stall.owner)} waits for {stall.batch}, which was lost",
        evidence=tuple(evidence),
        cause=f"{_UNKNOWN if loss is None else _reason(loss)} {_CAUSE_LOADER}",
        advice=f"{_LOOK if loss is None else _fix(loss)} {_ADVICE_LOADER}",
    )


_REASONS = (
    (
        "No space left on device",
        "/dev/shm had no room for a tensor of the item.",
        "Make /dev/shm larger or keep fewer tensors in it.",
    ),
    (
        "Too many open files",
        "The process had no descriptor left for a tensor of the item.",
        "Raise the limit of open files (ulimit -n), or send fewer tensors at a time.",
    ),
    (
        "AF_UNIX path too long",
        "TMPDIR is too long for the socket through which tensors are sent.",
        "Set a short TMPDIR, such as /tmp.",
    ),
    (
        "pickle",
        "The item contains an object that cannot be pickled.",
        "Convert that object before it is sent, for example to a tensor or a plain value.",
    ),
)
"""Part of the feeder thread's error, what it means, and what removes it."""
_UNKNOWN = (
    "The workers have finished all batches they were given, and this one did not arrive: most "
    "likely the feeder thread of a worker's queue failed to send it."
)
_LOOK = (
    "Read the worker's standard error, where the feeder thread printed its error, and fix that "
    "error; the hook also reports it."
)
_CAUSE_QUEUE = (
    "A queue pickles and sends in a background thread, which prints an error, drops the item and "
    "continues. put() had already returned, so the producer does not notice, and a consumer that "
    "waits for the item waits for ever."
)
_CAUSE_LOADER = (
    "A queue pickles and sends in a background thread, which prints an error, drops the batch and "
    "continues. The worker stays alive, so a DataLoader without a timeout waits for the batch for "
    "ever."
)
_ADVICE_QUEUE = (
    "Give get() a timeout, so that the consumer raises instead of waiting; or pickle the object "
    "before put(), so that the producer gets the error (which costs a copy)."
)
_ADVICE_LOADER = (
    "Give the DataLoader a timeout, so that it raises instead of waiting (it has to be longer than "
    "the slowest batch). This epoch cannot continue: restart from the last checkpoint."
)
