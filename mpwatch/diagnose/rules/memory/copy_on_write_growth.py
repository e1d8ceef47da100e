"""Forked workers turn shared pages into private ones just by reading Python objects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.diagnose.analysis.growth.forecast import growth, memory_headroom, severity_of_growth
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    WORK_ROLES,
    age_s,
    called,
    counted,
    loader_owners,
)
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread
from mpwatch.diagnose.analysis.throughput.shares import imported_until_s
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History, since
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text, rate_text, seconds_text

RULE = "copy-on-write-growth"
WORTH_BYTES = 24 * 2**20
"""Growth of one worker; less is the start of any Python process."""
WORTH_SETTLED_BYTES = 64 * 2**20
"""The same where it slows down: the interpreter and torch alone are some 36 MiB of objects, which
every forked worker touches sooner or later."""
LITTLE = 0.02
"""What can be copied at most, as a part of the memory that is left, if it harms nothing."""
WATCHED_S = 8.0
POINTS = 3
WARM_UP_S = 30.0
"""A process that runs the program's code imports first, and so writes to many pages that it has
inherited once: of its start alone only what comes near a limit is told. For so long it counts as
starting where nothing was seen of its imports."""
MOSTLY = 0.8
"""Of what such a process gains, so much has to be what it shared before: who builds a model makes
memory of its own as well (in starts that were measured, a third of the gain)."""
OF_WORKER = 0.5
"""The same of a worker of a DataLoader, which only reads, and makes batches meanwhile."""


class _Grown(Struct, frozen=True):
    """The memory growth of one worker."""

    worker: Process
    gained: float
    span_s: float
    per_s: float
    """0 if the growth slows down: it stops when all objects read have been copied."""
    shared_lost: float
    shared_left: float
    """What is still shared: no more than this can be copied."""
    rss_gained: float
    is_start: bool
    """Whether that was seen within its start only."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each set of workers whose private pages grow as shared ones shrink.

    Resident memory stays the same meanwhile, because shared pages were counted in it already. That
    distinguishes it from a cache that fills, and from a process that begins.
    """
    for owner, forked in (*loader_owners(index), *_other_owners(index)):
        workers = [w for w in forked if w.sample.start_method == "fork"]
        grown = [found for w in workers if (found := _grown(index, w)) is not None]
        if not grown or 2 * len(grown) < len(workers):
            continue
        finding = _finding(index.snapshot, owner, grown)
        if finding.severity is not Severity.INFO or not all(each.is_start for each in grown):
            yield finding


def _other_owners(index: Index) -> Iterator[tuple[Process, Sequence[Process]]]:
    """Each process with its children that run the program's code and load no data."""
    owned: dict[ProcessId, list[Process]] = {}
    for process in index.snapshot.living():
        if process.role in WORK_ROLES and process.role != "loader-worker" and process.parent:
            owned.setdefault(process.parent, []).append(process)
    for parent, children in owned.items():
        owner = index.snapshot.get(parent)
        if owner is not None and not owner.is_gone:
            yield owner, children


def _grown(index: Index, worker: Process) -> _Grown | None:
    """The growth of a worker if copy-on-write explains it, where possible without its start."""
    if worker.role == "loader-worker":
        return _copied(worker, index.history, OF_WORKER)
    main = main_thread(worker)
    if main is not None and calls(main.stack, ":_find_and_load"):
        return None
    from_s = imported_until_s(index, worker)
    if from_s is None:
        age = age_s(index.snapshot, worker)
        if age is None:
            return _copied(worker, index.history, MOSTLY)
        from_s = index.snapshot.at_s - age + WARM_UP_S
    later = _copied(worker, index.history, MOSTLY, from_s)
    if later is not None:
        return later
    whole = _copied(worker, index.history, MOSTLY)
    return replace(whole, is_start=True) if whole is not None else None


def _copied(
    worker: Process, history: History, least_lost: float, from_s: float = -math.inf
) -> _Grown | None:
    """What private memory gains as the shared shrinks.

    Args:
        worker: The worker.
        history: Its memory over time.
        least_lost: The part of the gain that was shared before.
        from_s: Older points do not count.
    """
    private = since(history.of(worker.process, "private_dirty_bytes"), from_s)
    shared = since(history.of(worker.process, "shared_dirty_bytes"), from_s)
    rss = since(history.of(worker.process, "rss_bytes"), from_s)
    if len(private) < POINTS or not shared or not rss:
        return None
    gained, span_s = private[-1].value - private[0].value, private[-1].at_s - private[0].at_s
    if gained < WORTH_BYTES or span_s < WATCHED_S:
        return None
    lost = shared[0].value - shared[-1].value
    more = rss[-1].value - rss[0].value
    if lost < least_lost * gained or more > 0.8 * (1 - least_lost) * gained:
        return None
    steady = growth(private)
    if steady is None and gained < WORTH_SETTLED_BYTES:
        return None
    return _Grown(
        worker,
        gained,
        span_s,
        0.0 if steady is None else steady.per_s,
        lost,
        shared[-1].value,
        more,
        is_start=False,
    )


def _finding(snapshot: Snapshot, owner: Process, grown: Sequence[_Grown]) -> Finding:
    """Describe the growth."""
    per_s = sum(each.per_s for each in grown)
    total = sum(each.gained for each in grown)
    headroom = memory_headroom(snapshot)
    severity, eta_s = severity_of_growth(headroom, per_s, total)
    left = sum(each.shared_left for each in grown)
    if headroom is not None and left < headroom.free_bytes:
        severity, eta_s = Severity.INFO, None
    is_little = (
        severity is Severity.INFO
        and headroom is not None
        and total + left <= LITTLE * headroom.free_bytes
    )
    worst = max(grown, key=lambda each: each.gained)
    evidence = [
        f"private memory of {called(worst.worker)} +{bytes_text(worst.gained)} in "
        f"{seconds_text(worst.span_s)}, shared -{bytes_text(worst.shared_lost)}",
        f"its resident memory changed by only {bytes_text(worst.rss_gained)}",
        f"{len(grown)} workers together {rate_text(per_s, 'B')}" if per_s else "it slows down",
    ]
    evidence.append(f"at most {bytes_text(left)} more can be copied: that is shared now")
    if headroom is not None:
        evidence.append(f"{bytes_text(headroom.free_bytes)} of {headroom.what} left")
    if eta_s is not None:
        evidence.append(f"used up in {seconds_text(eta_s)} if it does not level off")
    is_loader = worst.worker.role == "loader-worker"
    noun = "worker" if is_loader else "process"
    return Finding(
        rule=RULE,
        severity=severity,
        process=owner.process,
        others=tuple(each.worker.process for each in grown) if not is_loader else (),
        summary=(
            f"{counted(len(grown), f'forked {noun} copies', _COPY[is_loader])} memory of "
            f"{called(owner)} by reading it: "
            f"{bytes_text(total)} copied so far"
        ),
        evidence=tuple(evidence),
        cause=(
            "Reading a Python object writes its reference count, and each page written becomes a "
            f"private copy of that {noun}. "
            + (
                "A dataset of lists, dicts and strings ends up copied into every worker. The "
                "growth stops at the dataset's size times the number of workers."
                if is_loader
                else "Lists, dicts and strings that were made before the fork end up copied into "
                "every process that reads them. The growth stops when all of them are."
            )
        ),
        advice=(
            "Store the samples in numpy arrays (fixed width, or bytes and offsets), pyarrow, or "
            "one tensor: few objects, many bytes. Use fewer workers. Spawn does not help: it "
            "copies everything at once."
        ),
        eta_s=eta_s,
        is_doubtful=is_little,
    )


_COPY: Mapping[bool, str] = {True: "forked workers copy", False: "forked processes copy"}
