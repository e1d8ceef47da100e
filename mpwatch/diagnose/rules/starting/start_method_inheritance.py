"""A spawned process uses its parent's start method for its own workers."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.processes import is_on_gpu
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, counted, loader_owners
from mpwatch.model.findings import Finding, Severity

RULE = "start-method-inheritance"


_USES_CUDA = (
    "this process uses CUDA, so that a forked worker must not touch a CUDA tensor, and may find "
    "a lock held that another thread had at the fork."
)
_MAY_USE_CUDA = "that is unsafe once this process uses threads or CUDA."


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each spawned process whose DataLoader workers were spawned as well."""
    for owner, workers in loader_owners(index):
        own = owner.sample.start_method
        if own not in ("spawn", "forkserver"):
            continue
        same = [worker for worker in workers if worker.sample.start_method == own]
        if not same:
            continue
        yield Finding(
            rule=RULE,
            severity=Severity.INFO,
            process=owner.process,
            summary=f"{called(owner)} was started by {own} and starts its workers the same way",
            evidence=(
                f"{called(owner)} was started by {own}",
                f"of its {counted(len(workers), 'DataLoader worker')}, {own} started {len(same)}",
            ),
            cause=(
                f"A process started by {own} takes over {own} as its default start method, where "
                "the program sets no other. Each worker then imports torch and the program again, "
                "which takes seconds and about 150 MiB."
            ),
            advice=(
                "Keep the workers from epoch to epoch (persistent_workers=True). "
                'DataLoader(multiprocessing_context="fork") starts them quickly; '
                f"{_USES_CUDA if is_on_gpu(owner) else _MAY_USE_CUDA} If the start time does not "
                "matter, nothing is wrong."
            ),
        )
