"""Far more threads want to compute than there are cores."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.forecast import median, slope
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import WORK_ROLES, called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.units import rate_text

RULE = "cpu-oversubscription"
BUSY_PERCENT = 4.0
"""A thread that gets this much of a core wants more of it."""
CROWDED_PERCENT = 2.0
"""As much as one of a hundred threads on two cores gets. Where others load the machine, threads
that hardly compute, such as feeders and the hook's, stand in line most of the time as well."""
RUNNABLE_PER_CPU = 1.5
THREADS_PER_CPU = 2.5
POOL = 3
"""Computing threads of one worker; a feeder or a collective's thread beside main makes two."""
SUSTAINED_S = 5.0


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where workers run several computing threads each, more than cores in all.

    One busy thread for each of many workers is just many workers; a machine busy with the work of
    others is not this job's doing.
    """
    cpus = index.snapshot.host.usable_cpus or index.snapshot.host.cpu_count
    runnable = index.history.of_host("runnable")
    if not cpus or len(runnable) < 2 or runnable[-1].at_s - runnable[0].at_s < SUSTAINED_S:
        return
    recent = [point.value for point in runnable if point.at_s >= runnable[-1].at_s - 15]
    if median(recent) < RUNNABLE_PER_CPU * cpus:
        return
    crowded = [
        p for p in index.snapshot.living() if p.role in WORK_ROLES and busy_threads(p) >= POOL
    ]
    threads = sum(busy_threads(p) for p in crowded)
    if len(crowded) < 2 or threads < max(THREADS_PER_CPU * cpus, cpus + 4):
        return
    yield _finding(index, crowded, threads, cpus, median(recent))


def busy_threads(process: Process) -> int:
    """Threads that compute, as far as they get to."""
    return sum(
        (thread.cpu_percent or 0.0) >= (CROWDED_PERCENT if thread.state == "R" else BUSY_PERCENT)
        for thread in process.threads
    )


def _finding(
    index: Index,
    crowded: list[Process],
    threads: int,
    cpus: int,
    runnable: float,
) -> Finding:
    most = max(crowded, key=busy_threads)
    evidence = [
        f"{threads} computing threads in {len(crowded)} workers, {cpus} usable cpus",
        f"{runnable:.0f} threads of the machine want to run at a time",
        f"{called(most)} alone has {busy_threads(most)}",
    ]
    switches = slope(index.history.of(most.process, "involuntary_switches"), window_s=15)
    if switches:
        evidence.append(f"{called(most)} is interrupted {rate_text(switches)}")
    settings = most.sample.environment.get("OMP_NUM_THREADS")
    evidence.append(f"OMP_NUM_THREADS={settings}" if settings else "OMP_NUM_THREADS is not set")
    cgroup = index.snapshot.host.cgroup
    if cgroup is not None and cgroup.cpu_quota_cpus:
        evidence.append(f"the control group's quota is {cgroup.cpu_quota_cpus:g} cpus")
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        summary=f"{threads} computing threads of {len(crowded)} workers compete for {cpus} cpus",
        evidence=tuple(evidence),
        cause=_cause(crowded),
        advice=_advice(crowded, settings),
    )


def _cause(crowded: list[Process]) -> str:
    """What is known to start threads in processes of these roles."""
    libraries = (
        "numpy's BLAS, OpenCV, numexpr and polars start a thread for every core they see, in every "
        "process; they do not see quotas of containers. Threads that wait for each other at "
        "barriers then mostly wait for the scheduler."
    )
    if all(process.role == "loader-worker" for process in crowded):
        return f"The DataLoader limits torch to one thread in each worker, but {libraries}"
    return f"torch, {libraries}"


def _advice(crowded: list[Process], omp_threads: str | None) -> str:
    """What limits the threads, without the setting that is there already."""
    if omp_threads == "1":
        limit = (
            "OMP_NUM_THREADS=1 does not limit these threads: set OPENBLAS_NUM_THREADS=1 and "
            "MKL_NUM_THREADS=1 too"
        )
    else:
        limit = "Set OMP_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1 and MKL_NUM_THREADS=1"
    has_workers = any(process.role == "loader-worker" for process in crowded)
    place = " in worker_init_fn" if has_workers else " in each process"
    return (
        f"{limit} before anything is imported, call cv2.setNumThreads(0), or threadpoolctl{place}; "
        "start no more workers than usable cpus. A single large operation in a worker then takes "
        "longer."
    )
