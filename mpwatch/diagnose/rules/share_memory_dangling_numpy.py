"""A numpy array looks at memory that sharing has freed."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "share-memory-dangling-numpy"
_SAID = (said(kind="dangling-view"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary=(
            "moved a tensor to shared memory while a numpy array still looked at its old memory"
        ),
        cause=(
            "Sharing gives a tensor a new buffer and frees the old one. Arrays made by "
            ".numpy() or from_numpy before that point to freed memory: garbage, or a "
            "crash much later."
        ),
        advice=(
            "Share first and take numpy views afterwards; keep either the tensor or the "
            "array in a dataset, not both."
        ),
    )
