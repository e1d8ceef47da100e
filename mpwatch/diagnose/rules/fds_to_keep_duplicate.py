"""A spawned process inherits the same descriptor twice."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "fds-to-keep-duplicate"
_SAID = (said("bad value(s) in fds_to_keep"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary=("cannot spawn: one tensor storage appears twice among the child's arguments"),
        cause=(
            "In old versions of torch two views of one storage listed its descriptor "
            "twice, which the spawning code of CPython refuses."
        ),
        advice=("Upgrade torch, or pass the base tensor once and make the views in the child."),
    )
