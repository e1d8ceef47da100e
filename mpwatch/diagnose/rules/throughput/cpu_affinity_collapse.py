"""All workers are confined to one cpu."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, loader_owners
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks
from mpwatch.diagnose.analysis.throughput.loading import shared_cpu
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark

RULE = "cpu-affinity-collapse"
SHOWN = 2
"""Lines that set an affinity, named in one finding."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where all workers may use one cpu of several, and together use just that."""
    for owner, workers in loader_owners(index):
        found = shared_cpu(index, workers)
        if found is None:
            continue
        allowed = owner.sample.cpus_allowed
        yield Finding(
            rule=RULE,
            severity=Severity.WARNING,
            process=owner.process,
            summary=f"{len(workers)} workers of {called(owner)} share one of {found.cpus} cpus",
            evidence=(
                f"each worker may run on 1 cpu of {found.cpus}, main on "
                f"{allowed or 'an unknown number'}",
                f"together they use {found.percent:.0f}% of a cpu",
                *(
                    [f"they wait for a free core {found.waits:.0%} of the time"]
                    if found.is_waited_for
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
