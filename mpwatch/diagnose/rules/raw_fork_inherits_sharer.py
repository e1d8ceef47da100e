"""A process forked by os.fork hands out tickets of its parent."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "raw-fork-inherits-sharer"
_SAID = (said("KeyError", "_serve"), said("EOFError", kind="ticket-failed"))


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary=(
            "has to do with a ticket for a tensor that its sender does not know: it was redeemed "
            "twice, or made after a raw fork"
        ),
        cause=(
            "After os.fork without multiprocessing (gunicorn, uwsgi, a daemon of its "
            "own) the child keeps the address of its parent's descriptor server. What "
            "it sends carries tickets that the parent does not know. The same happens "
            "when one message is unpickled by two processes."
        ),
        advice=(
            "Start such processes before the first tensor is sent, or start them with "
            "multiprocessing.Process, which resets this state; and unpickle every "
            "message exactly once."
        ),
    )
