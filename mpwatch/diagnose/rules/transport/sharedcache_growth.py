"""The table of shared storages keeps entries of tensors that are gone."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity

RULE = "sharedcache-growth"
WORTH_TELLING = 1000
EXPIRED_SHARE = 0.8


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose table is large and mostly dead."""
    for process in index.snapshot.living():
        cache = process.shared_cache
        if cache is None or cache.expired is None or cache.entries < WORTH_TELLING:
            continue
        if cache.expired < EXPIRED_SHARE * cache.entries:
            continue
        yield Finding(
            rule=RULE,
            severity=Severity.INFO,
            process=process.process,
            summary=(
                f"{called(process)} once held about {cache.entries} shared tensors at the same time"
            ),
            evidence=(
                f"SharedCache has {cache.entries} entries, {cache.expired} of them dead",
                f"it is swept when it exceeds {cache.limit} entries",
            ),
            cause=(
                "torch sweeps this table only when it exceeds twice what was alive at the last "
                "sweep. Descriptors and mappings of dead entries are released; what remains is "
                "small and bounded, and is a high-water mark: the process held that many at once."
            ),
            advice=(
                "Nothing has to be done. If descriptors or mappings ran short, this is how many "
                "were needed; reductions.shared_cache.free_dead_references() empties it."
            ),
        )
