"""Processes train copies of a model instead of one."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "hogwild-not-shared"
_SAID = (said(kind="parameters-not-shared"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary=(
            "trains parameters that are not in shared memory: other processes do not "
            "see the updates"
        ),
        cause=(
            "share_memory() was not called before the processes were started, or "
            "sharing was undone in the child by rebinding .data, a change of type or "
            "device, or load_state_dict(assign=True). Optimizer state is made in each "
            "process unless it is shared explicitly."
        ),
        advice=(
            "Call model.share_memory() before starting the processes and update in "
            "place only. Gradients may stay local; share the optimizer's state if it is "
            "meant to be common."
        ),
    )
