"""The helper of the file_system strategy cannot be started."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "shm-manager-failure"
_SAID = (
    said("error executing torch_shm_manager"),
    said("no response from torch_shm_manager"),
    said("could not generate a random directory for manager socket"),
    said("Shared memory manager connection has timed out"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="cannot start torch_shm_manager and so cannot share tensors",
        cause=(
            "The first tensor shared under the strategy file_system starts the program "
            "torch_shm_manager from inside the torch package. It lacks execute "
            "permission, lies on a file system mounted noexec, misses a library, or "
            "TMPDIR is full or not writable."
        ),
        advice=(
            "Make the binary executable and TMPDIR writable (mpwatch doctor says "
            "which), or use the strategy file_descriptor, which needs no helper but one "
            "descriptor per tensor."
        ),
    )
