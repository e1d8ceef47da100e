"""A lock was gone before the slowly starting child could open it."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "spawn-join-false-lost-semaphores"
_SAID = (
    said("__setstate__", "FileNotFoundError", "synchronize.py"),
    said("_rebuild", "FileNotFoundError", "synchronize.py"),
    said("No such file or directory", "SemLock"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="could not open a lock it was started with: the parent had dropped it",
        cause=(
            "A spawned child opens its locks and queues by name when it has started up. "
            "If the parent let go of them meanwhile, or ended, the name is gone."
        ),
        advice=(
            "Keep a reference to the queue or lock in the parent until the child has been joined."
        ),
    )
