"""DataLoader iterators accumulate, each with its workers, threads and pipes."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator

from mpwatch.diagnose.analysis.growth.forecast import growth
from mpwatch.diagnose.analysis.growth.newest import FEEDER, iterated_at
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, counted, generations, loader_owners
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text

RULE = "loader-iterator-leak"
SETS = 4
"""Persistent training, validation and test loaders account for three."""
MANY_SETS = 8


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process with ever more sets of DataLoader workers."""
    for owner, workers in loader_owners(index):
        sets = _sets(owner, workers)
        rising = growth(index.history.of(owner.process, "children"))
        is_rising = rising is not None and rising.gained >= len(sets[-1])
        if len(sets) < SETS or not (is_rising or len(sets) >= MANY_SETS):
            continue
        yield _finding(
            index.snapshot,
            owner,
            workers,
            len(sets),
            None if rising is None else (rising.gained, rising.span_s),
        )


def _sets(owner: Process, workers: tuple[Process, ...]) -> list[tuple[Process, ...]]:
    """Workers by iterator: started close together, and split where main started feeder threads.

    An iterator starts all its workers before it hands out the first index, and only that starts
    the feeder threads, one for each of them: a worker younger than those is another iterator's.
    """
    threads = sorted(
        (thread.start_ticks, thread.tid)
        for thread in owner.sample.threads or ()
        if thread.start_ticks is not None
    )
    sets: list[list[Process]] = []
    for together in generations(workers):
        before: list[int] = []
        for worker in together:
            # Within one clock tick (10 ms) the ids give the order.
            position = bisect(threads, (worker.process.start_ticks, worker.pid))
            if before and position - before[-1] < len(sets[-1]):
                sets[-1].append(worker)
            else:
                sets.append([worker])
                before.append(position)
    return [tuple(each) for each in sets]


def _finding(
    snapshot: Snapshot,
    owner: Process,
    workers: tuple[Process, ...],
    sets: int,
    rise: tuple[float, float] | None,
) -> Finding:
    """Describe the iterators."""
    at = iterated_at(owner)
    feeders = sum(t.name.startswith(FEEDER) for t in owner.sample.threads or ())
    evidence = [f"{len(workers)} living DataLoader workers, started in {sets} sets"]
    if rise is not None:
        evidence.append(f"{rise[0]:.0f} more children within {seconds_text(rise[1])}")
    if feeders:
        evidence.append(f"{feeders} queue feeder threads in {called(owner)}")
    fds = owner.sample.fds
    if fds is not None:
        evidence.append(f"{fds.used} of {fds.soft_limit} descriptors in use")
    live = [loader for loader in snapshot.loaders if loader.process == owner.process]
    if live:
        evidence.append(f"{counted(len(live), 'live iterator')}, by the hook's count")
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=owner.process,
        summary=(
            f"{called(owner)} keeps {sets} DataLoader iterators and their workers alive"
            f"{f'; it iterates{at}' if at else ''}"
        ),
        evidence=tuple(evidence),
        cause=(
            "Every iter(loader) starts a set of workers with their pipes, semaphores and threads. "
            "A reference keeps the old iterators alive: in a list, a closure, an unfinished "
            "generator, or the traceback of an exception."
        ),
        advice=(
            "Make one iterator and keep it, `del` it before the next, or set "
            "persistent_workers=True, which uses the same workers for every epoch. "
            "next(iter(loader)) starts new workers at every step."
        ),
    )
