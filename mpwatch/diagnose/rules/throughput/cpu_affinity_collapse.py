"""All workers are confined to one cpu."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from mpwatch.diagnose.analysis.idle_time import mean_cpu_percent
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, loader_owners
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks
from mpwatch.diagnose.analysis.throughput.shares import core_share
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark

RULE = "cpu-affinity-collapse"
SHOWN = 2
"""Lines that set an affinity, named in one finding."""
ONE_CPU = (60.0, 125.0)
"""Percent: what several busy workers get together if they share one."""
NO_CORE_SHARE = 0.5
"""They get less where others use that cpu as well: then at least two wait for it so much."""


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
        if len(known) < len(loads) or sum(known) > ONE_CPU[1]:
            continue
        waits = [core_share(index, worker) for worker in workers]
        if sum(known) < ONE_CPU[0] and sum(each >= NO_CORE_SHARE for each in waits) < 2:
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
                *(
                    [f"they wait for a free core {mean(waits):.0%} of the time"]
                    if sum(known) < ONE_CPU[0]
                    else []
                ),
            ),
            cause=_cause(index, owner),
            advice=_advice(index, owner),
        )


def _setters(index: Index) -> Sequence[Mark]:
    """The lines of the program that set an affinity: those that name one cpu, if there are any."""
    found = marks(index, "sets-affinity")
    return [each for each in found if each.about == "one"] or found


def _cause(index: Index, owner: Process) -> str:
    """What has given the workers one cpu: a line of the program, or something around it."""
    is_inherited, setters = owner.sample.cpus_allowed == 1, _setters(index)
    same = f"{called(owner)} has the same affinity, and its children inherit it." * is_inherited
    if not setters:
        return " ".join(
            filter(
                None,
                (
                    "The workers' cpu affinity is one cpu.",
                    same,
                    "An OpenMP runtime (GOMP_CPU_AFFINITY, KMP_AFFINITY, or the order of imports), "
                    "some builds of MKL and launchers (taskset, Slurm) set it.",
                ),
            )
        )
    words = " or ".join(map(mark_words, setters[:SHOWN]))
    how = (
        f"before the workers are started: {same}"
        if is_inherited
        else f"in each worker, to the same cpu: {called(owner)} itself may use others."
    )
    return f"The workers' cpu affinity is one cpu. {words} sets it, most likely, {how}"


def _advice(index: Index, owner: Process) -> str:
    """What to change, at the line that sets the affinity where the program has one."""
    setters = _setters(index)
    if not setters:
        return (
            f"Find out what sets it (taskset -p {owner.pid} shows main's), and unset the "
            "variables or import torch before numpy. Or undo it in worker_init_fn: "
            "os.sched_setaffinity(0, range(os.cpu_count())), which fails for cpus that the "
            "container does not have."
        )
    useless = (
        "More workers, a larger prefetch_factor or persistent_workers do not help: all of them "
        "share that cpu."
    )
    if owner.sample.cpus_allowed != 1:
        return (
            f"At {mark_place(setters[0])}, choose the cpu by the number of the worker, out of "
            f"os.sched_getaffinity(0), or leave that line out. {useless}"
        )
    return (
        f"Bind {called(owner)} only after its workers have started (after the first "
        f"iter(loader)). Or save os.sched_getaffinity(0) before {mark_place(setters[0])}, and give "
        "that back in worker_init_fn: os.sched_setaffinity(0, saved). To see whether it is this "
        f"line, leave it out once. {useless}"
    )
