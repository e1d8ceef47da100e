"""Threads that receive tensors race for the table of shared storages."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "sharedcache-race"
_SAID = (said("dictionary changed size during iteration", "free_dead_references"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="lost a race inside torch's table of shared storages",
        cause=(
            "In torch before 1.9, and in free-threaded builds, threads that receive "
            "tensors at the same time change SharedCache while another one iterates "
            "over it."
        ),
        advice="Upgrade torch (fixed in 1.9), or receive tensors in one thread only.",
    )
