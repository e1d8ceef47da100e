"""Every worker delivers the whole iterable dataset."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "iterable-duplicates"
_SAID = (said("Length of IterableDataset", "samples have been fetched"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary=(
            "delivers more samples than its iterable dataset has: each worker iterates "
            "over all of it"
        ),
        cause=(
            "A DataLoader gives each worker a full copy of an IterableDataset. Unless "
            "__iter__ asks get_worker_info() and takes its share, every sample comes "
            "once per worker."
        ),
        advice=(
            "Shard by get_worker_info() in __iter__ (and by rank in distributed "
            "training), or use num_workers=1."
        ),
        severity=Severity.WARNING,
    )
