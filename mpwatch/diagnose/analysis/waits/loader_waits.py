"""Processes that have waited for a batch for too long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mpwatch.diagnose.analysis.idle_time import STALLED_S, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import pipe_ends, pipes_among
from mpwatch.diagnose.analysis.process_queries import loader_owners
from mpwatch.diagnose.analysis.stack_patterns import main_shape, main_thread
from mpwatch.model.ids import ProcessId
from mpwatch.model.loader_polls import is_loader_poll
from mpwatch.model.snapshot import Loader, Process, Snapshot


@dataclass(frozen=True, slots=True)
class LoaderStall:
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


def loader_stalls(index: Index, at_least_s: float = STALLED_S) -> Iterator[LoaderStall]:
    """All loaders whose main process is stalled waiting for a batch."""
    writers: Mapping[int, tuple[ProcessId, ...]] | None = None
    for owner, workers in loader_owners(index):
        if owner.sample.state in ("T", "t"):
            continue  # stopped by a signal or a debugger
        loader = _waiting_loader(index.snapshot, owner)
        waited_s = _waited_s(owner, loader, index)
        if waited_s is None or waited_s < at_least_s:
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
    owner: Process, workers: set[ProcessId], writers: Mapping[int, tuple[ProcessId, ...]]
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
