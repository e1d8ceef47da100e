"""A worker is gone although nobody asked it to go."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.deaths import (
    ParentFate,
    death_of,
    died_with_parent,
    ended_workers,
    last_seen,
    memory_evidence,
    parent_fate,
)
from mpwatch.diagnose.tree import called, family_head
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process, Snapshot

RULE = "worker-exited-unexpectedly"


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each worker that failed, was killed, or left in the middle of an epoch.

    Exit code 0, a polite signal, and whatever follows the end of the parent are normal. Crashes
    and kills for lack of memory have rules of their own.
    """
    for process, ended in ended_workers(snapshot):
        death = death_of(ended)
        if death in ("crash", "shutdown") or died_with_parent(snapshot, process, ended):
            continue
        fate = parent_fate(snapshot, process, ended)
        if death in ("normal", "unknown") and not _was_missed(snapshot, process, fate):
            continue
        if death == "killed" and memory_evidence(snapshot, history):
            continue
        yield _finding(process, ended, fate)


def _was_missed(snapshot: Snapshot, process: Process, fate: ParentFate) -> bool:
    """Whether a loader worker's quiet end was followed by the failure of its parent.

    Workers of an iterable dataset leave one by one with exit code 0 as their shards run out, so a
    quiet end by itself says nothing; and if a sibling failed, that is why they were told to leave.
    """
    if process.role != "loader-worker" or fate.failed_after_s is None:
        return False
    head = family_head(snapshot, process)
    return not any(
        death_of(end) in ("failed", "crash", "killed") and family_head(snapshot, other) == head
        for other, end in ended_workers(snapshot)
    )


def _finding(process: Process, ended: Ended, fate: ParentFate) -> Finding:
    """Put the death into words."""
    death = death_of(ended)
    is_certain = process.role in ("loader-worker", "rank") or death == "failed"
    evidence = [f"{called(process)} ended: {ended.words}", *fate.words, *last_seen(process)]
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if is_certain else Severity.WARNING,
        process=process.process,
        summary=f"{called(process)} ended unexpectedly: {ended.words}",
        evidence=tuple(evidence),
        cause=_CAUSES.get(death, _QUIET),
        advice=_ADVICE_KILLED if death == "killed" else _ADVICE,
    )


_QUIET = (
    "It left without an error while its parent still counted on it: os._exit or sys.exit in "
    "dataset code, or the whole set of workers was shut down from a forked child. The parent "
    "notices only at its next look, up to 5 s later."
)
_CAUSES = {
    "failed": (
        "An exception outside the fetching of a sample: while unpickling the dataset in a spawned "
        "worker, in worker_init_fn, in an import, or sys.exit and os._exit in the user's code. Its "
        "text is on the worker's standard error, not in what main raises."
    ),
    "killed": (
        "Somebody sent SIGKILL: a person, a scheduler, a parent that lost patience, or the "
        "kernel's out-of-memory killer. The numbers seen here do not speak for a lack of memory. "
        "A lock or queue it held at that moment stays locked for ever."
    ),
}
_ADVICE = (
    "Read the worker's standard error. num_workers=0 shows the whole traceback, slowly; an "
    "instrumented worker reports its last exception here."
)
_ADVICE_KILLED = (
    "Look into the kernel log (dmesg) for 'Out of memory', and into the scheduler's. Stop workers "
    "with SIGTERM, so that they release what they hold."
)
