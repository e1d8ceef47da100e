"""All workers are confined to one cpu."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.idle_time import mean_cpu_percent
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, loader_owners
from mpwatch.model.findings import Finding, Severity

RULE = "cpu-affinity-collapse"
ONE_CPU = (60.0, 125.0)
"""Percent: what several busy workers get together if they share one."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where all workers may use one cpu of several, and together use just that.

    Workers pinned to a cpu each use more than one together; idle workers are not slowed down.
    """
    cpus = index.snapshot.host.cpu_count
    if not cpus or cpus < 2:
        return
    for owner, workers in loader_owners(index):
        if len(workers) < 2 or any(worker.sample.cpus_allowed != 1 for worker in workers):
            continue
        loads = [mean_cpu_percent(worker, index.history) for worker in workers]
        known = [load for load in loads if load is not None]
        if len(known) < len(loads) or not ONE_CPU[0] <= sum(known) <= ONE_CPU[1]:
            continue
        if sum(load >= 10 for load in known) < 2:
            continue
        allowed = owner.sample.cpus_allowed
        yield Finding(
            rule=RULE,
            severity=Severity.WARNING,
            process=owner.process,
            summary=f"{len(workers)} workers of {called(owner)} share one of {cpus} cpus",
            evidence=(
                f"each worker may run on 1 cpu of {cpus}, main on {allowed or 'an unknown number'}",
                f"together they use {sum(known):.0f}% of a cpu",
            ),
            cause=(
                "The workers' cpu affinity is one cpu. "
                + (
                    f"{called(owner)} has the same affinity, and its children inherit it. "
                    if allowed == 1
                    else ""
                )
                + "An OpenMP runtime (GOMP_CPU_AFFINITY, KMP_AFFINITY, or the order of imports), "
                "some builds of MKL and launchers (taskset, Slurm) set it."
            ),
            advice=(
                f"Find out what sets it (taskset -p {owner.pid} shows main's), and unset the "
                "variables or import torch before numpy. Or undo it in worker_init_fn: "
                "os.sched_setaffinity(0, range(os.cpu_count())), which fails for cpus that the "
                "container does not have."
            ),
        )
