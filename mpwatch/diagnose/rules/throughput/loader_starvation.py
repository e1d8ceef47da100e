"""Main waits for data most of the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mpwatch.diagnose.analysis.idle_time import all_stand, mean_cpu_percent, wait_share, waiting_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, counted, loader_owners
from mpwatch.diagnose.analysis.stack_merge import merge
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Loader, Process

RULE = "loader-starvation"
WAIT_SHARE = 0.5
BATCHES = 20
"""The first batches wait for the workers' start."""
BUSY_PERCENT = 10.0
USUAL_S = 15.0
STALL_S, STALLED_S = 3.0, 5.0
"""A wait that has lasted this long may be the beginning of a hang: then only what the workers did
in the last seconds counts, and not how busy they were before."""
IDLE_SHARE = 0.35
"""A worker that waits for work more than this part of the time has time to spare."""
ALL_CPUS = 0.85
"""Part of the usable cpus from which more workers find none free; main needs one as well."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where main waits for batches more than half the time, and workers work.

    With the hook the share is measured; without, it is the share of samples in which main waited
    as a DataLoader does.
    """
    for owner, workers in loader_owners(index):
        measured = [x for x in index.snapshot.loaders if x.process == owner.process]
        share = max((x.wait_share or 0.0 for x in measured if x.batches >= BATCHES), default=None)
        if share is not None:
            waited_s = max(x.waiting_since_s or 0.0 for x in measured)
            if share >= WAIT_SHARE and _are_busy(workers, index.history, waited_s):
                yield _finding(index, owner, workers, share, measured)
        elif not measured and _looks_starved(owner, workers, index):
            yield _finding(index, owner, workers, None, ())


def _are_busy(workers: Sequence[Process], history: History, waited_s: float) -> bool:
    """Whether the workers do something while main has waited so long; a stall has other rules."""
    over_s = USUAL_S if waited_s < STALL_S else STALLED_S
    loads = (mean_cpu_percent(worker, history, over_s) for worker in workers)
    return any(load is None or load >= BUSY_PERCENT for load in loads)


def _looks_starved(owner: Process, workers: Sequence[Process], index: Index) -> bool:
    """Whether main mostly waits for a batch while the workers mostly do not wait for work."""
    main = wait_share(owner, index.history)
    if main is None or main < WAIT_SHARE or all_stand(workers, index):
        return False
    # Workers that wait for a disk use no cpu either: only a long wait asks for more than shares.
    waited_s = waiting_s(owner, index.history)
    if waited_s >= STALL_S and not _are_busy(workers, index.history, waited_s):
        return False
    shares = (wait_share(worker, index.history) for worker in workers)
    return all(share is not None and share <= IDLE_SHARE for share in shares)


def _all_of(workers: Sequence[Process]) -> str:
    """The workers as the subject of a sentence, with its verb."""
    return "its worker is" if len(workers) == 1 else f"all {len(workers)} workers are"


def _finding(
    index: Index,
    owner: Process,
    workers: Sequence[Process],
    share: float | None,
    loaders: Sequence[Loader],
) -> Finding:
    """Describe the wait and the workers meanwhile."""
    history = index.history
    evidence = []
    if share is not None:
        evidence.append(f"main waited {share:.0%} of the last minute in next(loader)")
    else:
        seen = wait_share(owner, history) or 0.0
        evidence.append(f"main was waiting for a batch in {seen:.0%} of the samples")
    loads = [load for w in workers if (load := mean_cpu_percent(w, history)) is not None]
    if loads:
        mean = sum(loads) / len(loads)
        evidence.append(f"{counted(len(workers), 'worker')} at {mean:.0f} % cpu on average")
    waiting = [x for x in loaders if x.outstanding is not None]
    evidence += [f"{x.outstanding} batches outstanding, {x.parked or 0} ready" for x in waiting[:1]]
    top = merge(workers)
    if top.groups:
        evidence.append(f"workers: {top.sentence}")
    limit = _limit(index, owner, workers, loads)
    if limit is not None:
        evidence.append(limit.evidence)
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        summary=(
            f"{called(owner)} waits for data {share:.0%} of the time"
            if share is not None
            else f"{called(owner)} waits for data, and {_all_of(workers)} at work"
        ),
        evidence=tuple(evidence),
        cause=(
            "The workers together produce batches more slowly than the training loop uses them."
            + (f" {limit.cause}" if limit is not None else "")
            + (" The GPU idles meanwhile." if owner.gpus else "")
        ),
        advice=_MORE_WORKERS if limit is None else limit.advice,
    )


class _Limit(NamedTuple):
    """What keeps further workers from making the loader faster."""

    evidence: str
    cause: str
    advice: str


def _limit(
    index: Index, owner: Process, workers: Sequence[Process], loads: Sequence[float]
) -> _Limit | None:
    """The limit that was observed: all cpus in use, or one process or lock all wait for."""
    cpus = index.snapshot.host.usable_cpus
    if cpus and sum(loads) >= ALL_CPUS * 100 * cpus:
        return _Limit(
            f"the workers use {sum(loads) / 100:.1f} of {cpus} usable cpus",
            "They use all cpus, so more workers would not be faster.",
            f"{_LESS_WORK} Or use a machine with more cpus.",
        )
    waits: Counter[tuple[str, tuple[ProcessId, ...]]] = Counter()
    ids = {worker.process for worker in workers}
    for edge in wait_graph(index).edges:
        others = tuple(each for each in edge.providers if each not in ids)
        is_lock = edge.kind == "semaphore"
        is_one = len(others) == 1 and others[0] != owner.process
        if edge.waiter in ids and not edge.is_ordinary and (is_lock or is_one):
            waits[edge.what if is_lock else "", () if is_lock else others] += 1
    (what, others), count = next(iter(waits.most_common(1)), (("", ()), 0))
    if count < 2 or 2 * count <= len(workers):
        return None
    provider = index.snapshot.get(others[0]) if others else None
    name = called(provider) if provider is not None else what
    return _Limit(
        f"{count} of {len(workers)} workers wait for {name}",
        f"Most workers wait for {name}, one after the other: more workers would wait as well.",
        f"Reduce what the workers ask of {name}: keep a copy in each worker, ask for many items at "
        "once, or hold the lock for less time. The workers' stacks show the line.",
    )


_LESS_WORK = (
    "Move work out of __getitem__ (decode and resize once, offline), or read larger blocks. The "
    "workers' stacks show where they spend their time."
)
_MORE_WORKERS = (
    "Use more workers (num_workers), up to the number of cpus; each takes memory of its own. "
    f"{_LESS_WORK}"
)
