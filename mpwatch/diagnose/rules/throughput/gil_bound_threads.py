"""Many Python threads of one process take turns on one core."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.idle_time import mean_cpu_percent
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.stack_patterns import user_frame
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot, Thread

RULE = "gil-bound-threads"
ONE_CORE = (25.0, 125.0)
"""Percent of a core: less is idle, more is parallel. On a busy machine one core is shared out."""
FULL_CORE = 75.0
THREADS = 3
SHARE_PERCENT = (5.0, 70.0)
RUNNING = 2
"""One has the interpreter, another may just have been woken up to take it."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose several busy threads use one core together.

    With fewer than two cpus to use sharing a core means nothing; with all of them taken by others
    it does only where stacks show that it is Python that runs.
    """
    cpus = index.snapshot.host.usable_cpus or 1
    if cpus < 2:
        return
    for process in index.snapshot.living():
        threads = [t for t in process.threads if _takes_turns(t)]
        if len(threads) < THREADS:
            continue
        if sum(thread.state == "R" for thread in threads) > RUNNING:
            continue  # several run at once, or would if they got a core: nobody holds them up
        mean = mean_cpu_percent(process, index.history, over_s=10)
        if mean is None or not ONE_CORE[0] <= mean <= ONE_CORE[1]:
            continue
        total = sum(thread.cpu_percent or 0.0 for thread in threads)
        if total > ONE_CORE[1] or total < 0.7 * mean:
            continue
        if _run_python(threads) or not _is_machine_full(index.snapshot, process, mean, cpus):
            yield _finding(process, threads, mean, cpus)


def _takes_turns(thread: Thread) -> bool:
    """Whether a thread gets a part of a core, and would take more: it does not sleep."""
    load = thread.cpu_percent
    if thread.waits_on is not None and thread.waits_on.kind == "timer":
        return False
    return load is not None and SHARE_PERCENT[0] <= load <= SHARE_PERCENT[1]


def _run_python(threads: list[Thread]) -> bool:
    """Whether stacks show that these threads run Python code of the user, not native pools."""
    return sum(user_frame(thread.stack) is not None for thread in threads) >= THREADS


def _is_machine_full(snapshot: Snapshot, process: Process, mean: float, cpus: int) -> bool:
    """Whether other processes use up the remaining cores, so that nothing can run in parallel."""
    others = sum(p.cpu_percent or 0.0 for p in snapshot.living() if p.process != process.process)
    return mean < FULL_CORE or others >= 100.0 * (cpus - 1.2)


def _finding(process: Process, threads: list[Thread], mean: float, cpus: int) -> Finding:
    """Put it into words."""
    evidence = [
        f"{len(threads)} threads with {min(t.cpu_percent or 0 for t in threads):.0f} to "
        f"{max(t.cpu_percent or 0 for t in threads):.0f} % each, together one core of {cpus}",
        f"{called(process)} used {mean:.0f} % cpu over the last 10 s",
    ]
    frames = [frame for t in threads if (frame := user_frame(t.stack)) is not None]
    evidence += [f"at {frame_words(frame)}" for frame in frames[:3]]
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        summary=f"{len(threads)} threads of {called(process)} share one core: they take turns",
        evidence=tuple(evidence),
        cause=(
            "Python runs one thread at a time. Code that is mostly Python (unpickling, pinning "
            "many small objects, preprocessing) does not get faster with threads, and slows down "
            "the thread that feeds the GPU. Large torch operators do run in parallel."
        ),
        advice=(
            "Use processes, collate into few large tensors, or move the loop into native code. "
            "Using fewer threads costs no speed."
        ),
    )
