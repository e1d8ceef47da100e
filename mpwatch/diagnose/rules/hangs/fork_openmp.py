"""A forked child waits for OpenMP threads that exist only in its parent."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.waits.deadlocks import forked_alone
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.units import seconds_text

RULE = "fork-openmp"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each forked child blocked in a parallel operator."""
    for stuck in forked_alone(index, "openmp"):
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=stuck.process.process,
            tid=stuck.thread.tid,
            summary=(
                f"{called(stuck.process)} has waited {seconds_text(stuck.quiet_s)} inside a "
                "parallel operator for threads that exist only in its parent"
            ),
            evidence=(
                *stuck.evidence,
                "the futex is waited on as native code does (barriers, mutexes), not as Python's "
                "locks do",
            ),
            cause=(
                "GNU OpenMP starts a thread pool at the first large CPU operator (about 32,768 "
                "elements). A forked child inherits the pool's state without its threads and waits "
                "for them at a barrier. Still so in torch 2.13; DataLoader workers are not "
                "affected because they run with one thread, unless worker_init_fn raises that."
            ),
            advice=(
                "Call torch.set_num_threads(1) first thing in the child or before forking (large "
                "operators then use one core), start children by spawn or forkserver, or do CPU "
                "tensor work only after forking."
            ),
        )
