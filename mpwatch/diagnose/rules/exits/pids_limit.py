"""The limit on processes and threads (pids) is reached or near."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.growth.forecast import Approach, approach
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, called_if_known, counted
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Snapshot

RULE = "pids-limit"
WORTH_FORECASTING = 0.3


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where the pid limit is near, or a thread or process could not be started."""
    cgroup = index.snapshot.host.cgroup
    near = None
    if cgroup is not None and cgroup.pids_limit and cgroup.pids_current is not None:
        series = index.history.of_host("cgroup_pids")
        near = approach(
            cgroup.pids_current, cgroup.pids_limit, series, worth_forecasting=WORTH_FORECASTING
        )
    for entry in tagged(index.snapshot, RULE):
        process = index.snapshot.get(entry.process)
        name = called_if_known(process)
        evidence = (*evidence_of(entry), *_numbers(index.snapshot, near))
        words = f"{name} cannot start a thread or process"
        cause = _CAUSE if near is not None else _CAUSE_UNKNOWN
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=entry.process,
            summary=words,
            evidence=evidence,
            cause=cause,
            advice=_advice(index.snapshot),
        )
        return
    if near is not None:
        yield Finding(
            rule=RULE,
            severity=near.severity,
            summary=f"{near.used:.0f} of {near.limit:.0f} pids of the control group are in use",
            evidence=_numbers(index.snapshot, near),
            cause=_CAUSE,
            advice=_advice(index.snapshot),
            eta_s=near.eta_s,
        )


def _numbers(snapshot: Snapshot, near: Approach | None) -> tuple[str, ...]:
    """The thread counts of the job and of its largest processes."""
    most = sorted(
        ((p.sample.thread_count or 0, called(p)) for p in snapshot.living()), reverse=True
    )[:3]
    lines = []
    if most:
        total = sum(p.sample.thread_count or 0 for p in snapshot.living())
        processes = counted(len(snapshot.living()), "process", "processes")
        lines.append(f"this job has {total} threads in {processes}")
        lines.append("most threads: " + ", ".join(f"{name} {count}" for count, name in most))
    if near is not None:
        lines.append(f"{near.used:.0f} of {near.limit:.0f} pids in use")
        lines += near.trend_words("pids")
    return tuple(lines)


def _advice(snapshot: Snapshot) -> str:
    """How to start fewer threads, without a setting that all processes have already."""
    limit = snapshot.host.cgroup.pids_limit if snapshot.host.cgroup is not None else None
    higher = "" if limit is None else ", or raise the container's limit (docker --pids-limit)"
    cpus = snapshot.host.usable_cpus or snapshot.host.cpu_count or 1
    has_pools = any(
        (process.sample.thread_count or 0) > cpus
        and process.sample.environment.get("OMP_NUM_THREADS") != "1"
        for process in snapshot.living()
    )
    if not has_pools:
        return f"Start fewer processes and threads{higher}."
    return (
        "Numeric libraries start a thread for each core in every process: set OMP_NUM_THREADS=1 "
        "and OPENBLAS_NUM_THREADS=1 before the first import (each process then computes on one "
        f"core). Or start fewer processes{higher}."
    )


_CAUSE = (
    "Every process and every thread uses one pid, and the control group of the job allows only so "
    "many (pids.max)."
)
_CAUSE_UNKNOWN = (
    "The kernel refuses a new thread at the limit of the control group (pids.max), of the user "
    "(ulimit -u, over all jobs), of the host (threads-max), or where no memory is left for its "
    "stack. The control group was not near its limit in the last sample, or has none."
)
