"""NCCL finds no room in /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "nccl-shm-enospc"
_SAID = (said("Error while creating shared memory segment /dev/shm/nccl-"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="cannot make NCCL's buffers: /dev/shm is full",
        cause=(
            "NCCL needs about 10 MB of /dev/shm for each pair of channels, in a "
            "container that may have 64 MiB, and competes with the tensors of "
            "DataLoader workers. Files of dead jobs count as well."
        ),
        advice=(
            "Raise --shm-size; remove nccl-* files of dead jobs. NCCL_SHM_DISABLE=1 "
            "works without and costs speed."
        ),
    )
