"""A forked process shuts down the workers of its parent."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "inherited-iterator-del"
_SAID = (
    said(kind="foreign-shutdown"),
    said("can only test a child process"),
    said("_workers_done_event state does not match shutdown flag"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary=(
            "dropped a DataLoader iterator it inherited by fork, which ends its parent's workers"
        ),
        cause=(
            "A process forked in the middle of an epoch inherits the iterator. When it "
            "lets go of it, the iterator's __del__ runs there and tells the workers, "
            'which are shared, to leave. The message "can only test a child process" is '
            "not harmless."
        ),
        advice=(
            "Do not fork processes in mid-epoch: spawn them, or start them before "
            "iterating. A loader kept alive with persistent_workers avoids the __del__ "
            "in most programs."
        ),
    )
