"""A lock or queue of one start method is used with processes of another."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "semlock-cross-context"
_SAID = (
    said("A SemLock created in a fork context"),
    said("should only be shared between processes through inheritance"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="passes a lock or queue to a process it cannot work in",
        cause=(
            "A lock made for fork has no name by which a spawned process could open it, "
            "and locks and queues cannot travel through a queue at all: where that "
            "fails in a feeder thread, the item is lost silently."
        ),
        advice=(
            "Take Process, Queue and Lock from one and the same context object, pass "
            "them as arguments of Process, or use a Manager, which costs a round trip "
            "for each call."
        ),
    )
