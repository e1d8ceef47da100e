"""Main waits for data most of the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.diagnose.stacks import merge
from mpwatch.diagnose.stillness import mean_cpu_percent
from mpwatch.diagnose.tree import called, loader_owners
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Loader, Process, Snapshot

RULE = "loader-starvation"
WAIT_SHARE = 0.5
BATCHES = 20
"""The first batches wait for the workers' start."""
BUSY_PERCENT = 75.0
MAIN_PERCENT = 30.0


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding where main waits for batches more than half the time, and workers work.

    With the hook it is measured; without, it is told by workers that are all busy while main hardly
    is. A trainer that keeps a GPU busy spins, so a main without cpu waits.
    """
    for owner, workers in loader_owners(snapshot):
        measured = [x for x in snapshot.loaders if x.process == owner.process]
        share = max((x.wait_share or 0.0 for x in measured if x.batches >= BATCHES), default=None)
        if share is not None:
            if share >= WAIT_SHARE and _are_busy(workers, history):
                yield _finding(owner, workers, history, share, measured)
        elif not measured and _looks_starved(owner, workers, history):
            yield _finding(owner, workers, history, None, ())


def _are_busy(workers: Sequence[Process], history: History) -> bool:
    """Whether the workers do something; a stall has other rules."""
    loads = [mean_cpu_percent(worker, history) for worker in workers]
    return any(load is None or load >= 10 for load in loads)


def _looks_starved(owner: Process, workers: Sequence[Process], history: History) -> bool:
    """Whether every worker computes and main hardly does."""
    main = mean_cpu_percent(owner, history)
    loads = [mean_cpu_percent(worker, history) for worker in workers]
    if main is None or main > MAIN_PERCENT:
        return False
    return all(load is not None and load >= BUSY_PERCENT for load in loads)


def _finding(
    owner: Process,
    workers: Sequence[Process],
    history: History,
    share: float | None,
    loaders: Sequence[Loader],
) -> Finding:
    """Put it into words."""
    evidence = []
    if share is not None:
        evidence.append(f"main waited {share:.0%} of the last minute in next(loader)")
    else:
        evidence.append(f"main used {mean_cpu_percent(owner, history) or 0:.0f} % cpu")
    loads = [load for w in workers if (load := mean_cpu_percent(w, history)) is not None]
    if loads:
        mean = sum(loads) / len(loads)
        evidence.append(f"{len(workers)} workers at {mean:.0f} % cpu on average")
    waiting = [x for x in loaders if x.outstanding is not None]
    evidence += [f"{x.outstanding} batches outstanding, {x.parked or 0} ready" for x in waiting[:1]]
    top = merge(workers)
    if top.groups:
        evidence.append(f"workers: {top.sentence}")
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        summary=(
            f"{called(owner)} waits for data {share:.0%} of the time"
            if share is not None
            else f"{called(owner)} waits for data: all {len(workers)} workers are busy, it is not"
        ),
        evidence=tuple(evidence),
        cause=(
            "The workers together make fewer batches a second than a training step takes away, so "
            "the accelerator idles. The queue of results is empty whenever main comes."
        ),
        advice=(
            "More workers up to the number of cores; move work out of __getitem__ (decode and "
            "resize once, offline); larger reads; pin_memory with non_blocking copies. The "
            "workers' stacks show where their time goes."
        ),
    )
