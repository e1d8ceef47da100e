"""A daemonic worker tries to start children."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "nested-daemonic"
_SAID = (said("daemonic processes are not allowed to have children"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="is daemonic and may not start processes of its own",
        cause=(
            "Workers of a Pool and of a DataLoader are daemonic, and multiprocessing "
            "forbids them children because these would be orphaned."
        ),
        advice=(
            "Use num_workers=0 inside the worker, or a non-daemonic Process or "
            "concurrent.futures.ProcessPoolExecutor outside. Clearing the flag works "
            "and leaves orphans when the worker is killed."
        ),
    )
