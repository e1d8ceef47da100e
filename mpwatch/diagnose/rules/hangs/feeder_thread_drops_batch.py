"""A queue's feeder thread dropped an item, and a process waits for it for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from mpwatch.diagnose.analysis.idle_time import STALLED_S, are_stalled, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import pipe_ends, pipes_among
from mpwatch.diagnose.analysis.process_queries import (
    all_called,
    called,
    called_if_known,
    loader_owners,
)
from mpwatch.diagnose.analysis.stack_patterns import main_shape, main_thread
from mpwatch.diagnose.known_errors import evidence_of, gives, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Channel
from mpwatch.model.snapshot import Loader, LogEntry, Process, Snapshot
from mpwatch.model.waits import is_loader_poll

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
        if are_stalled(stall.workers, index):
            yield _lost(index, stall, losses)


def _dropped(snapshot: Snapshot, entry: LogEntry) -> Finding:
    """The finding for an item that a feeder thread could not send."""
    process = snapshot.get(entry.process)
    name = called_if_known(process)
    is_loader = process is not None and process.role == "loader-worker"
    task = entry.details.get("task")
    what = "an item" if task is None or not is_loader else f"batch {task}"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=entry.process,
        summary=f"{name} lost {what}: its feeder thread could not send it",
        evidence=evidence_of(entry),
        cause=f"{_reason(entry)} {_CAUSE_LOADER if is_loader else _CAUSE_QUEUE}",
        advice=f"{_fix(entry)} {_ADVICE_LOADER if is_loader else _ADVICE_QUEUE}",
    )


def _reason(entry: LogEntry) -> str:
    """Why the feeder thread failed, as far as its error shows."""
    return next(
        (words for reason, words, _ in _REASONS if gives(entry, reason)),
        "The queue's feeder thread failed with the error above.",
    )


def _fix(entry: LogEntry) -> str:
    """What removes the error of the feeder thread."""
    fixes = (fix for reason, _, fix in _REASONS if gives(entry, reason))
    return next(fixes, "Fix the error above.")


def _lost(index: Index, stall: LoaderStall, losses: list[LogEntry]) -> Finding:
    """The finding for a main process that waits for a lost batch."""
    count = len(stall.workers)
    evidence = [
        f"{called(stall.owner)} has waited {index.lasting(stall.quiet_s)} for {stall.batch}",
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
        advice=f"{_FIND_OUT if loss is None else _fix(loss)} {_ADVICE_LOADER}",
    )


class LoaderStall(Struct, frozen=True):
    """A main process that has waited for a batch for long."""

    owner: Process
    workers: tuple[Process, ...]
    """Its living workers."""
    quiet_s: float
    loader: Loader | None
    """The iterator it waits in, from its hook."""

    @property
    def batch(self) -> str:
        """The batch in words."""
        if self.loader is None or self.loader.next_task is None:
            return "a batch"
        return f"batch {self.loader.next_task}"


def loader_stalls(index: Index) -> Iterator[LoaderStall]:
    """All loaders whose main process is stalled waiting for a batch."""
    writers: Mapping[Channel, tuple[ProcessId, ...]] | None = None
    for owner, workers in loader_owners(index):
        if owner.sample.state in ("T", "t"):
            continue  # stopped by a signal or a debugger
        loader = _waiting_loader(index.snapshot, owner)
        waited_s = _waited_s(owner, loader, index)
        if waited_s is None or waited_s < STALLED_S:
            continue
        if writers is None:
            writers = pipe_ends(index).writers
        ours = {worker.process for worker in workers}
        if loader is not None or _waits_for_batch(owner, ours, writers):
            yield LoaderStall(owner, workers, waited_s, loader)


def _waiting_loader(snapshot: Snapshot, owner: Process) -> Loader | None:
    """The iterator that main is inside of, as its hook sees it."""
    waiting = [
        loader
        for loader in snapshot.loaders
        if loader.process == owner.process and loader.waiting_since_s is not None
    ]
    return max(waiting, key=lambda loader: loader.waiting_since_s or 0.0, default=None)


def _waited_s(owner: Process, loader: Loader | None, index: Index) -> float | None:
    """How long main has waited: the hook knows, else how long it has been quiet."""
    if loader is not None:
        return loader.waiting_since_s
    return quiet_s(owner, index)


def _waits_for_batch(
    owner: Process, workers: set[ProcessId], writers: Mapping[Channel, tuple[ProcessId, ...]]
) -> bool:
    """Whether main is in `_try_get_data`, by its stack or by the way it polls a worker's pipe."""
    thread = main_thread(owner)
    if thread is None or thread.state == "R":
        return False
    if thread.stack:
        return main_shape(owner) == "waits-for-batch"
    wait = thread.waits_on
    if wait is None or not is_loader_poll(wait):
        return False
    return any(not workers.isdisjoint(writers.get(pipe, ())) for pipe in pipes_among(wait.targets))


def is_idle(worker: Process) -> bool:
    """Whether a worker waits for work, by its hook, its stack, or the way it polls."""
    if worker.loader is not None and worker.loader.task is not None:
        return False
    thread = main_thread(worker)
    if thread is None or thread.state != "S":
        return False
    if thread.stack:
        return main_shape(worker) == "worker-idle"
    return is_loader_poll(thread.waits_on)


def has_unsent(worker: Process) -> bool:
    """Whether one of its threads is blocked writing into a pipe: then a batch is on its way."""
    return any(
        thread.waits_on is not None and thread.waits_on.kind == "pipe-write"
        for thread in worker.threads
    )


_REASONS = (
    (
        "no-space-left",
        "/dev/shm had no space for a tensor of the item.",
        "Make /dev/shm larger or keep fewer tensors in it.",
    ),
    (
        "no-descriptor-left",
        "The process had no descriptor left for a tensor of the item.",
        "Raise the limit of open files (ulimit -n), or send fewer tensors at a time.",
    ),
    (
        "socket-path-too-long",
        "TMPDIR is too long for the socket through which tensors are sent.",
        "Set a short TMPDIR, such as /tmp.",
    ),
    (
        "cannot-pickle",
        "The item contains an object that cannot be pickled.",
        "Convert that object before it is sent, for example to a tensor or a plain value.",
    ),
)
"""The reason that the feeder thread's error gives, what it means, and what removes it."""
_UNKNOWN = (
    "The workers have finished all batches they were given, and this one did not arrive: most "
    "likely the feeder thread of a worker's queue failed to send it."
)
_FIND_OUT = (
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
