"""Forked workers turn shared pages into private ones just by reading Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mpwatch.diagnose.analysis.forecast import growth, memory_room, severity_of_growth
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, counted, loader_owners
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text, rate_text, seconds_text

RULE = "copy-on-write-growth"
WORTH_BYTES = 24 * 2**20
"""Growth of one worker; less is the start of any Python process."""
WORTH_SETTLED_BYTES = 64 * 2**20
"""The same where it slows down: the interpreter and torch alone are some 36 MiB of objects, which
every forked worker touches sooner or later."""
WATCHED_S = 8.0
POINTS = 3


class _Grown(NamedTuple):
    """The memory growth of one worker."""

    worker: Process
    gained: float
    span_s: float
    per_s: float
    """0 if the growth slows down: it stops when all objects read have been copied."""
    shared_lost: float
    rss_gained: float


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each set of workers whose private pages grow as shared ones shrink.

    Resident memory stays the same meanwhile, because shared pages were counted in it already. That
    tells it from a cache that fills.
    """
    for owner, workers in loader_owners(index):
        forked = [w for w in workers if w.sample.start_method == "fork"]
        grown = [found for w in forked if (found := _grown(w, index.history)) is not None]
        if grown and 2 * len(grown) >= len(forked):
            yield _finding(index.snapshot, owner, grown)


def _grown(worker: Process, history: History) -> _Grown | None:
    """The growth of a worker if copy-on-write explains it."""
    private = history.of(worker.process, "private_dirty_bytes")
    shared = history.of(worker.process, "shared_dirty_bytes")
    rss = history.of(worker.process, "rss_bytes")
    if len(private) < POINTS or not shared or not rss:
        return None
    gained, span_s = private[-1].value - private[0].value, private[-1].at_s - private[0].at_s
    if gained < WORTH_BYTES or span_s < WATCHED_S:
        return None
    lost = shared[0].value - shared[-1].value
    more = rss[-1].value - rss[0].value
    if lost < 0.5 * gained or more > 0.4 * gained:
        return None
    steady = growth(private)
    if steady is None and gained < WORTH_SETTLED_BYTES:
        return None
    return _Grown(worker, gained, span_s, 0.0 if steady is None else steady.per_s, lost, more)


def _finding(snapshot: Snapshot, owner: Process, grown: Sequence[_Grown]) -> Finding:
    """Describe the growth."""
    per_s = sum(each.per_s for each in grown)
    total = sum(each.gained for each in grown)
    room = memory_room(snapshot)
    severity, eta_s = severity_of_growth(room, per_s)
    worst = max(grown, key=lambda each: each.gained)
    evidence = [
        f"private memory of {called(worst.worker)} +{bytes_text(worst.gained)} in "
        f"{seconds_text(worst.span_s)}, shared -{bytes_text(worst.shared_lost)}",
        f"its resident memory changed by only {bytes_text(worst.rss_gained)}",
        f"{len(grown)} workers together {rate_text(per_s, 'B')}" if per_s else "it slows down",
    ]
    if room is not None:
        evidence.append(f"{bytes_text(room.free_bytes)} of {room.what} left")
    if eta_s is not None:
        evidence.append(f"used up in {seconds_text(eta_s)} if it does not level off")
    hint = "" if owner.hook.state == "ready" else " Attach the hook to see which attribute."
    return Finding(
        rule=RULE,
        severity=severity,
        process=owner.process,
        summary=(
            f"{counted(len(grown), 'forked worker copies', 'forked workers copy')} memory of "
            f"{called(owner)} by reading it: "
            f"{bytes_text(total)} copied so far"
        ),
        evidence=tuple(evidence),
        cause=(
            "Reading a Python object writes its reference count, and each page written becomes a "
            "private copy of that worker. A dataset of lists, dicts and strings ends up copied "
            "into every worker. The growth stops at the dataset's size times the number of workers."
        ),
        advice=(
            "Store the samples in numpy arrays (fixed width, or bytes and offsets), pyarrow, or "
            "one tensor: few objects, many bytes. Use fewer workers. Spawn does not help: it "
            "copies everything at once." + hint
        ),
        eta_s=eta_s,
    )
