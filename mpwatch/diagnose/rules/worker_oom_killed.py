"""A process was killed because memory ran out."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals

from mpwatch.diagnose.deaths import ended_python, memory_evidence
from mpwatch.diagnose.tree import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text

RULE = "worker-oom-killed"


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process that got SIGKILL while memory was short.

    A SIGKILL alone proves nothing: people, schedulers and parents send it too.
    """
    killed = [(p, e) for p, e in ended_python(snapshot) if e.signal == Signals.SIGKILL]
    reasons = memory_evidence(snapshot, history) if killed else ()
    if reasons:
        for process, ended in killed:
            yield _finding(snapshot, process, ended, reasons)


def _finding(
    snapshot: Snapshot, process: Process, ended: Ended, reasons: tuple[str, ...]
) -> Finding:
    """Put the death into words."""
    evidence = [f"{called(process)} ended by {ended.words}", *reasons]
    if process.private_bytes is not None:
        evidence.append(
            f"it held {bytes_text(process.private_bytes)} of private memory when last seen"
        )
    biggest = max(
        (p for p in snapshot.processes if p.private_bytes is not None),
        key=lambda p: p.private_bytes or 0,
        default=None,
    )
    if biggest is not None and biggest.process != process.process:
        evidence.append(
            f"the most was held by {called(biggest)}: {bytes_text(biggest.private_bytes)}"
        )
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)} was killed because memory ran out",
        evidence=tuple(evidence),
        cause=(
            "The kernel's out-of-memory killer chose it. Main and its workers look nearly alike to "
            "it, so the victim is chance and not necessarily the one that grew. Memory of a "
            "control group includes shared memory in /dev/shm."
        ),
        advice=(
            "Need less: fewer workers or a lower prefetch_factor (less read-ahead), bounded "
            "caches, numpy arrays instead of lists of Python objects in the dataset. Or raise "
            "the limit of the container. The kernel log (dmesg) names the victim and what it held; "
            "oom_score_adj chooses another victim, it does not prevent the kill."
        ),
    )
