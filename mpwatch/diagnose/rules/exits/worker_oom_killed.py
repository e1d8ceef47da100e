"""A process was killed because memory ran out."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals

from mpwatch.diagnose.analysis.exits.kinds import ended_python, memory_evidence, oom_kills
from mpwatch.diagnose.analysis.growth.forecast import Approach, approach, slope
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text

RULE = "worker-oom-killed"
WORTH_FORECASTING = 0.5
OWN_SHARE = 0.5
"""Part of the control group's growth that the job's own processes must account for."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that got SIGKILL while memory was short, or soon will.

    A SIGKILL alone proves nothing: users, schedulers and parents send it too. A control group that
    fills with page cache is harmless: the growth has to be memory of the job's processes.
    """
    killed = [(p, e) for p, e in ended_python(index.snapshot) if e.signal == Signals.SIGKILL]
    reasons = memory_evidence(index) if killed else ()
    if reasons:
        for process, ended in killed:
            yield _finding(index, process, ended, reasons)
    elif (near := _approach(index)) is not None:
        yield _forecast(index.snapshot, near)


def _approach(index: Index) -> Approach | None:
    """The forecast of the control group's memory, if this job's processes make it grow."""
    cgroup = index.snapshot.host.cgroup
    if cgroup is None or not cgroup.memory_limit_bytes or cgroup.memory_bytes is None:
        return None
    near = approach(
        cgroup.memory_bytes,
        cgroup.memory_limit_bytes,
        index.history.of_host("cgroup_memory_bytes"),
        near=1.01,
        at=1.01,
        worth_forecasting=WORTH_FORECASTING,
    )
    if near is None or near.ahead is None:
        return None
    grown = slope(index.history.of_host("segment_bytes")) or 0.0
    grown += sum(
        slope(index.history.of(p.process, "rss_bytes")) or 0.0 for p in index.snapshot.living()
    )
    return near if grown >= OWN_SHARE * near.ahead.per_s else None


def _forecast(snapshot: Snapshot, near: Approach) -> Finding:
    """Describe the predicted shortage."""
    used, limit = bytes_text(near.used), bytes_text(near.limit)
    most = sorted(((p.private_bytes or 0, called(p)) for p in snapshot.living()), reverse=True)[:3]
    return Finding(
        rule=RULE,
        severity=near.severity,
        summary=f"the control group's memory limit ({limit}) is reached in {near.eta_words}",
        evidence=(
            f"{used} of {limit} in use",
            *near.trend_words("memory", "B"),
            "largest: " + ", ".join(f"{name} {bytes_text(held)}" for held, name in most),
        ),
        cause=f"At the limit the kernel's out-of-memory killer ends a process. {_CAUSE}",
        advice=_advice(snapshot),
        eta_s=near.eta_s,
    )


def _finding(index: Index, process: Process, ended: Ended, reasons: tuple[str, ...]) -> Finding:
    """Describe the kill."""
    snapshot, kills = index.snapshot, oom_kills(index)
    was_counted = bool(kills)
    counted_words = "" if was_counted else f"{_NO_COUNT if kills is None else _NONE_COUNTED} "
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
            f"largest process: {called(biggest)}, {bytes_text(biggest.private_bytes)} private"
        )
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=(
            f"{called(process)} was killed{'' if was_counted else ', probably'} because memory "
            "ran out"
        ),
        evidence=tuple(evidence),
        cause=f"{_KILLER if was_counted else _LIKELY} {counted_words}{_CAUSE}",
        advice=_advice(snapshot),
    )


def _advice(snapshot: Snapshot) -> str:
    """How to use less memory, with the DataLoader's parameters where it has workers."""
    has_loader = any(process.role == "loader-worker" for process in snapshot.processes)
    return f"Use less memory: {_LESS_LOADER if has_loader else _LESS}. {_ADVICE}"


_KILLER = "The kernel's out-of-memory killer chose this process."
_LIKELY = (
    "The control group was near its memory limit when this process got SIGKILL, the signal of the "
    "kernel's out-of-memory killer."
)
_NO_COUNT = "The kernel's count of such kills could not be read."
_NONE_COUNTED = "Up to the last reading the kernel had counted no such kill."
_CAUSE = (
    "Processes of similar size have similar scores, so the victim is not necessarily the process "
    "that grew. The memory of a control group includes shared memory in /dev/shm."
)
_LESS = (
    "fewer processes, bounded caches and queues, numpy arrays instead of lists of Python objects"
)
_LESS_LOADER = (
    "fewer workers or a lower prefetch_factor (less read-ahead), bounded caches, numpy arrays "
    "instead of lists of Python objects in the dataset"
)
_ADVICE = (
    "Or raise the container's limit. The kernel log (dmesg) names the victim and its memory. "
    "oom_score_adj only selects another victim; it does not prevent the kill."
)
