"""Sent CUDA memory never comes back to its producer."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "cuda-ipc-limbo"
_SAID = (said("Producer process tried to deallocate over 1000 memory blocks"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="holds more than 1000 freed CUDA blocks that consumers have not released",
        cause=(
            "A block freed by the producer stays reserved until the consumer's counter "
            "is zero. Messages never unpickled, slow or crashed consumers and views "
            "that live on keep it."
        ),
        advice=(
            "Delete received tensors at once, consume each message exactly once, and "
            "call torch.cuda.ipc_collect() now and then; it synchronises."
        ),
        severity=Severity.WARNING,
    )
