"""The table of shared storages keeps entries of tensors that no longer exist."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity

RULE = "sharedcache-growth"
REPORTED_FROM = 1000
EXPIRED_SHARE = 0.8


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose table is large, with mostly expired entries."""
    for process in index.snapshot.living():
        cache = process.shared_cache
        if cache is None or cache.expired is None or cache.entries < REPORTED_FROM:
            continue
        if cache.expired < EXPIRED_SHARE * cache.entries:
            continue
        yield Finding(
            rule=RULE,
            severity=Severity.INFO,
            process=process.process,
            summary=(
                f"{called(process)} once held at most about {cache.entries} shared tensors at the "
                "same time"
            ),
            evidence=(
                f"SharedCache has {cache.entries} entries, {cache.expired} of them expired",
                f"torch removes expired entries when there are more than {cache.limit}",
            ),
            cause=(
                "torch removes expired entries only when the table exceeds twice the number that "
                "was in use at the last removal. Their descriptors and mappings are released "
                "already. The table is small and bounded. It has all tensors since that removal, "
                "so the process has held at most that many at the same time since then."
            ),
            advice=(
                "Nothing has to be done. If descriptors or mappings ran short, at most this many "
                "tensors used them. torch.multiprocessing.reductions.shared_cache."
                "free_dead_references() removes the entries."
            ),
        )
