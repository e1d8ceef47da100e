"""A process forked by os.fork hands out tickets of its parent."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import heard, said, told
from mpwatch.diagnose.deaths import death_of, ended_workers
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "raw-fork-inherits-sharer"
_REFUSED = said("KeyError", "_serve")
_UNANSWERED = said("EOFError", kind="ticket-failed")
_OTHER_REASONS = (said("Too many open files"), said("received 0 items of ancdata"))
"""What else makes a sender hang up on whoever asks."""


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it.

    That a sender hung up without an answer is what its receiver hears; it proves nothing where
    the sender had no descriptors left, or where senders were killed.
    """
    del history
    is_explained = next(heard(snapshot, *_OTHER_REASONS), None) is not None or any(
        death_of(ended) in ("killed", "crash", "failed") for _, ended in ended_workers(snapshot)
    )
    yield from told(
        snapshot,
        RULE,
        (_REFUSED,) if is_explained else (_REFUSED, _UNANSWERED),
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
