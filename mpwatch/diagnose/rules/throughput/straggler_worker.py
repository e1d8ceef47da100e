"""One slow worker holds back the others, because batches are delivered in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.forecast import median
from mpwatch.diagnose.analysis.idle_time import wait_share
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, counted, loader_owners
from mpwatch.diagnose.analysis.stack_patterns import main_thread, user_frame
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Loader, Process
from mpwatch.model.units import seconds_text

RULE = "straggler-worker"
FACTOR = 3.0
WORTH_S = 0.02
FETCHES = 10
"""The first batches of a worker pay for its start."""
FIRST_TASK_S = 5.0
WAITING = 0.55
WORKING = 0.3
"""Shares of the samples in which a process waits: often, or hardly ever."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each worker much slower than its siblings, while main waits for it.

    With the hook, the times of fetching tell; without, one worker is busy in all samples while its
    siblings and main wait.
    """
    for owner, workers in loader_owners(index):
        if len(workers) < 2:
            continue
        loader = next((x for x in index.snapshot.loaders if x.process == owner.process), None)
        timed = [w for w in workers if _usual_s(w) is not None]
        if len(timed) >= 2:
            yield from _by_times(timed, loader)
        elif not timed:
            yield from _by_samples(owner, workers, index.history)


def _usual_s(worker: Process) -> float | None:
    """Seconds a fetch usually takes, or has taken so far if it is an early and very long one."""
    load = worker.loader
    if load is None or load.fetch_p50_s is None:
        return None
    if load.fetched >= FETCHES:
        return load.fetch_p50_s
    is_telling = load.task_since_s is not None and load.task_since_s >= FIRST_TASK_S
    return load.task_since_s if is_telling else None


def _by_times(workers: Sequence[Process], loader: Loader | None) -> Iterator[Finding]:
    """The worker whose fetches take several times as long, if others wait behind it."""
    slowest = max(workers, key=lambda w: _usual_s(w) or 0.0)
    slow = _usual_s(slowest) or 0.0
    others = median(_usual_s(w) or 0.0 for w in workers if w is not slowest)
    parked = 0 if loader is None or loader.parked is None else loader.parked
    waits = loader is not None and (loader.wait_share or 0.0) >= 0.2
    if slow < max(WORTH_S, FACTOR * others) or not (parked or waits):
        return
    evidence = [
        f"{called(slowest)} takes {seconds_text(slow)} a batch, the others {seconds_text(others)}"
    ]
    if parked:
        evidence.append(f"{parked} finished batches wait behind it")
    if loader is not None and loader.wait_share is not None:
        evidence.append(f"main waited {loader.wait_share:.0%} of the last minute")
    behind = f"; {parked} finished batches wait behind it" if parked else ""
    yield _finding(slowest, f"{evidence[0]}{behind}", evidence)


def _by_samples(owner: Process, workers: Sequence[Process], history: History) -> Iterator[Finding]:
    """The only worker that is busy, while the others and main wait."""
    main = wait_share(owner, history)
    if main is None or main < WAITING:
        return
    busy: list[Process] = []
    idle: list[float] = []
    for worker in workers:
        share = wait_share(worker, history)
        if share is not None and share <= WORKING:
            busy.append(worker)
        elif share is not None and share >= WAITING:
            idle.append(share)
        if share is None or len(busy) > 1 or WORKING < share < WAITING:
            return
    if len(busy) != 1:
        return
    others = counted(len(idle), "other worker")
    words = f"main and {others} wait for {called(busy[0])}, the only busy worker"
    at_work = 1 - (wait_share(busy[0], history) or 0.0)
    evidence = [
        f"{called(busy[0])} was busy in {at_work:.0%} of the samples",
        f"main was waiting for a batch in {main:.0%}, the other workers for work in "
        f"{min(idle):.0%} or more",
    ]
    yield _finding(busy[0], words, evidence)


def _finding(worker: Process, summary: str, evidence: list[str]) -> Finding:
    """Describe the slow worker."""
    thread = main_thread(worker)
    frame = user_frame(thread.stack) if thread is not None else None
    at = () if frame is None else (f"it is at {frame_words(frame)}",)
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=worker.process,
        summary=summary,
        evidence=(*evidence, *at),
        cause=(
            "The DataLoader assigns batches in turn and returns them in order. While one worker is "
            "slow, finished batches of the others stay in shared memory, and then these workers "
            "wait too. More workers do not help."
        ),
        advice=(
            "Make its samples as cheap as those of the others: look at the line above, and split "
            "shards evenly. From torch 2.6 on, DataLoader(in_order=False) returns batches as they "
            "finish; their order is then not reproducible."
        ),
    )
