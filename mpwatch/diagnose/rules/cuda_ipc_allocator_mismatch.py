"""CUDA tensors are shared from memory that cannot be shared this way."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "cuda-ipc-allocator-mismatch"
_SAID = (
    said("pidfd_getfd"),
    said("invalid device pointer", "_share_cuda_"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="cannot share CUDA memory made by this allocator configuration",
        cause=(
            "Expandable segments are exported as descriptors that the receiver fetches "
            "from the living producer, which needs ptrace rights; other allocators "
            "cannot be shared at all."
        ),
        advice=(
            "Turn expandable_segments off for processes that share CUDA tensors; "
            "fragmentation then costs more memory."
        ),
    )
