"""A process ends while others still use its CUDA memory."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "cuda-ipc-producer-exit"
_SAID = (said("Producer process has been terminated before all shared CUDA tensors released"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="ends while other processes still use CUDA tensors it sent",
        cause=(
            "Shared CUDA memory belongs to the process that made it; receivers hold "
            "only a mapping. When the producer goes, they read freed memory or zeros."
        ),
        advice=(
            "Let the producer wait until consumers have said that they are done, "
            "allocate in the consumer and let the producer fill, and drop received "
            "tensors early."
        ),
    )
