"""The private memory of long-lived workers grows without end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.diagnose.analysis.growth.forecast import (
    Growth,
    growth,
    memory_headroom,
    severity_of_growth,
)
from mpwatch.diagnose.analysis.growth.graphs_and_cycles import kept_by_cycle, uncollected
from mpwatch.diagnose.analysis.growth.holders import kept_in
from mpwatch.diagnose.analysis.growth.newest import own_lines
from mpwatch.diagnose.analysis.growth.registrations import kept_warnings
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import age_s, called, counted, loader_owners
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.throughput.shares import Place, work_place
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark
from mpwatch.model.units import bytes_text, rate_text, seconds_text

RULE = "persistent-workers-leak"
WORTH_BYTES = 32 * 2**20
"""A bounded cache and the heap around it settle within less, in the first half minute."""
WATCHED_S = 20.0
SHOWN = 3
_WHERE = "Look at what {} stores, and at the objects that it is called on. "


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each set of workers whose private memory only ever rises.

    Where shared pages shrink as much, it is copying on write and not a leak. Workers made anew for
    each epoch start small again: a sawtooth.
    """
    for owner, workers in loader_owners(index):
        grown = [(worker, found) for worker in workers if (found := _grown(index, worker))]
        if grown and 3 * len(grown) >= 2 * len(workers):
            yield _finding(index, owner, grown)


def _grown(index: Index, worker: Process) -> Growth | None:
    """The growth of a worker that does not free memory."""
    found = growth(index.history.of(worker.process, "rss_bytes"), at_least=WORTH_BYTES)
    if found is None or found.span_s < WATCHED_S:
        return None
    private = index.history.of(worker.process, "private_bytes")
    # Resident memory is always fresh; that it is the worker's own is seen now and then.
    if len(private) < 2 or private[-1].value - private[0].value < 0.4 * found.gained:
        return None
    age = age_s(index.snapshot, worker)
    if age is not None and age < WATCHED_S + 5:
        return None
    shared = index.history.of(worker.process, "shared_dirty_bytes")
    lost = shared[0].value - shared[-1].value if shared else 0.0
    if (
        lost >= 0.5 * found.gained
        or _shared_gain(worker, index.history, found) >= 0.5 * found.gained
    ):
        return None
    return found


def _shared_gain(worker: Process, history: History, found: Growth) -> float:
    """The growth in bytes, over the same time, of the segments it maps.

    Segments count as resident, and as private until another process maps them: batches in flight
    are not a leak of the worker.
    """
    shared = history.of(worker.process, "shm_bytes")
    within = [point.value for point in shared if point.at_s >= shared[-1].at_s - found.span_s]
    return within[-1] - within[0] if within else 0.0


def _finding(index: Index, owner: Process, grown: Sequence[tuple[Process, Growth]]) -> Finding:
    """Describe the growth."""
    per_s = sum(found.per_s for _, found in grown)
    headroom = memory_headroom(index.snapshot)
    place = work_place(index, [each for each, _ in grown])
    severity, eta_s = severity_of_growth(headroom, per_s, sum(found.gained for _, found in grown))
    worker, most = max(grown, key=lambda each: each[1].gained)
    evidence = [
        f"private memory of {called(worker)} +{bytes_text(most.gained)} in "
        f"{seconds_text(most.span_s)}, {rate_text(most.per_s, 'B')}",
    ]
    if len(grown) > 1:
        evidence.append(f"{len(grown)} workers together {rate_text(per_s, 'B')}")
    if (lines := own_lines(worker)) is not None:
        evidence.append(f"{called(worker)} when last seen: {lines}")
    at = ""
    if place is not None:
        evidence.append(f"{place.part:.0%} of their work whose line is known: {place.words}")
        at = f"; most of their work is at {place.words}" if place.is_main else ""
    if headroom is not None:
        evidence.append(f"{bytes_text(headroom.free_bytes)} of {headroom.what} left")
    caches = marks(index, "cache")
    evidence += [
        f"{mark_words(each)} fills {each.about}, which nothing in that file bounds"
        for each in caches[:SHOWN]
    ]
    kept = uncollected(index, worker) or kept_by_cycle(index) or kept_in(index, worker)
    kept = kept or kept_warnings(index, worker)
    if kept is not None:
        evidence += [kept.evidence] if kept.evidence else []
        at = ""
    return Finding(
        rule=RULE,
        severity=severity,
        process=owner.process,
        summary=(
            f"{counted(len(grown), 'worker')} of {called(owner)} "
            f"{'grows' if len(grown) == 1 else 'grow'} by {rate_text(per_s, 'B')} and "
            f"{'frees' if len(grown) == 1 else 'free'} nothing{at}"
        ),
        evidence=tuple(evidence),
        cause=kept.cause
        if kept is not None
        else (
            "The workers keep what they allocate for earlier samples: in a dict, a list or a cache "
            "without a limit, of which each has its own. A bounded cache that is still filling "
            "looks the same; its growth then levels off."
        ),
        advice=kept.advice
        if kept is not None
        else (
            f"{_where(place, caches)}Bound the caches, or share "
            "one between workers (a shared tensor, a memory map). If the workers are persistent, "
            "persistent_workers=False restarts them every epoch, which takes time."
        ),
        eta_s=eta_s,
    )


def _where(place: Place | None, caches: Sequence[Mark]) -> str:
    """Where to look; empty if nothing is known of it."""
    if len(caches) == 1:
        return f"Look at {mark_words(caches[0])} first. "
    return _WHERE.format(place.words) if place is not None else ""
