"""A forked child waits for OpenMP threads that exist only in its parent."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.waits.threads import FUTEX_WAIT, forked_alone
from mpwatch.model.findings import Finding, Severity

RULE = "fork-openmp"
_ONE_THREAD = "Call torch.set_num_threads(1) in the child before any operator"
_ONE_THREAD_LOADER = (
    "Remove the call that raises the number of threads in the worker: DataLoader workers start "
    "with one"
)
_AS_NATIVE_CODE = (
    "it waits on the futex as native code does (barriers, mutexes), not as Python's locks do"
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each forked child blocked in a parallel operator."""
    for stuck in forked_alone(index, "openmp"):
        is_loader = stuck.process.role == "loader-worker"
        wait = stuck.thread.waits_on
        is_native = wait is not None and wait.futex_command == FUTEX_WAIT
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=stuck.process.process,
            tid=stuck.thread.tid,
            summary=(
                f"{called(stuck.process)} has waited {stuck.lasted} in a parallel "
                "CPU operator for threads that were not forked with it"
            ),
            evidence=(*stuck.evidence, *(_AS_NATIVE_CODE,) * is_native),
            cause=(
                "GNU OpenMP starts its threads in the first large CPU operator (about 32,768 "
                "elements). A forked child inherits the state of this pool without its threads, "
                "and waits for them at a barrier for ever (torch up to 2.13)."
            ),
            advice=(
                f"{_ONE_THREAD_LOADER if is_loader else _ONE_THREAD} (large operators then use "
                "one core). Or start the processes by spawn or forkserver, which takes seconds "
                "each, or use no large CPU operator before the fork. This child can only be killed."
            ),
        )
