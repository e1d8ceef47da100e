"""CUDA is used in a forked process whose parent had used it already."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "cuda-in-forked-child"
_SAID = (
    said("Cannot re-initialize CUDA in forked subprocess"),
    said("CUDA error: initialization error"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="uses CUDA after a fork from a process that had initialised it",
        cause=(
            "The driver's state does not survive a fork. The parent may have "
            "initialised CUDA without meaning to: a torch.cuda call, a checkpoint "
            "loaded onto the GPU, a dataset that holds CUDA tensors."
        ),
        advice=(
            "Keep workers on the CPU and move batches in main; or start them with spawn "
            "or forkserver (slower to start, everything is pickled), or before CUDA is "
            "first used. A fork by itself does no harm if the child never touches CUDA."
        ),
    )
