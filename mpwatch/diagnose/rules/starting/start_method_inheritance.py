"""A spawned process uses its parent's start method for its own workers."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, loader_owners
from mpwatch.model.findings import Finding, Severity

RULE = "start-method-inheritance"


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
            summary=f"the DataLoader workers of {called(owner)} are started by {own}, as it was",
            evidence=(
                f"{called(owner)} was started by {own}",
                f"{len(same)} of its {len(workers)} DataLoader workers were started by {own}",
            ),
            cause=(
                "A spawned process takes over its parent's start method as its own default. The "
                "same DataLoader forks its workers when it is used in the main process. Each "
                "spawned worker imports everything again: seconds, and some 150 MiB with torch."
            ),
            advice=(
                'If that is not wanted, say so: DataLoader(multiprocessing_context="fork") is '
                "quick to start, and unsafe where threads or CUDA are in use already."
            ),
        )
