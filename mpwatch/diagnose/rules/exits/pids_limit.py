"""The limit on processes and threads (pids) is reached or near."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.forecast import Approach, approach
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
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
        who = "a process of the job" if process is None else called(process)
        evidence = (*evidence_of(entry), *_numbers(index.snapshot, near))
        words = f"{who} cannot start a thread or process"
        yield _finding(words, evidence, Severity.CRITICAL, None, entry.process)
        return
    if near is not None:
        words = f"{near.used:.0f} of {near.limit:.0f} pids of the control group are in use"
        yield _finding(words, _numbers(index.snapshot, near), near.severity, near.eta_s, None)


def _numbers(snapshot: Snapshot, near: Approach | None) -> tuple[str, ...]:
    """The thread counts of the job and of its largest processes."""
    most = sorted(
        ((p.sample.thread_count or 0, called(p)) for p in snapshot.living()), reverse=True
    )[:3]
    lines = []
    if most:
        total = sum(p.sample.thread_count or 0 for p in snapshot.living())
        lines.append(f"this job has {total} threads in {len(snapshot.living())} processes")
        lines.append("most threads: " + ", ".join(f"{who} {count}" for count, who in most))
    if near is not None:
        lines.append(f"{near.used:.0f} of {near.limit:.0f} pids in use")
        lines += near.trend_words("pids")
    return tuple(lines)


def _finding(
    summary: str,
    evidence: tuple[str, ...],
    severity: Severity,
    eta_s: float | None,
    process: ProcessId | None,
) -> Finding:
    """Describe the limit."""
    return Finding(
        rule=RULE,
        severity=severity,
        process=process,
        summary=summary,
        evidence=evidence,
        cause=(
            "Every thread uses one pid. Pids are limited per control group (pids.max), per user "
            "(RLIMIT_NPROC, over all jobs) and by the kernel. Numeric libraries start one thread "
            "per core in every worker."
        ),
        advice=(
            "Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 in the workers' environment before "
            "the first import (each worker then computes on one core), start fewer workers, or "
            "raise the container's limit (docker --pids-limit)."
        ),
        eta_s=eta_s,
    )
