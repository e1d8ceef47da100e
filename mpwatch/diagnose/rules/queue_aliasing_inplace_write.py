"""A tensor is written to after it was put on a queue."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "queue-aliasing-inplace-write"
_SAID = (said(kind="written-after-put"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary=("writes to a tensor that it has put on a queue: the receiver sees the change"),
        cause=(
            "put() keeps a reference; the memory is shared with the receiver from the "
            "moment the feeder thread has sent it. What is written afterwards changes "
            "what the receiver reads, and a write during the transfer is torn."
        ),
        advice=(
            "Put a copy, queue.put(tensor.clone()), which costs that copy; or use a "
            "ring of shared buffers and write only into those that came back."
        ),
        severity=Severity.WARNING,
    )
