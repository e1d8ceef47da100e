"""A process forked by os.fork hands out tickets of its parent."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.exits import death_of, ended_workers
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.known_errors import reported, tagged
from mpwatch.model.findings import Finding

RULE = "raw-fork-inherits-sharer"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it.

    That a sender hung up without an answer is what its receiver hears; it proves nothing where
    the sender had no descriptors left, or where senders were killed.
    """
    is_explained = next(
        tagged(index.snapshot, "sender-without-descriptors"), None
    ) is not None or any(
        death_of(ended) in ("killed", "crash", "failed")
        for _, ended in ended_workers(index.snapshot)
    )
    yield from reported(
        index.snapshot,
        RULE,
        summary=(
            "received a tensor handle that its sender does not recognise: it was unpickled twice, "
            "or created after a bare os.fork()"
        ),
        cause=(
            "After os.fork without multiprocessing (gunicorn, uwsgi, a daemon of its "
            "own) the child keeps the address of its parent's descriptor server. The "
            "tensor handles it sends are unknown to the parent. The same happens when "
            "one message is unpickled by two processes."
        ),
        advice=(
            "Start such processes before the first tensor is sent, or start them with "
            "multiprocessing.Process, which resets this state; and unpickle every "
            "message exactly once."
        ),
        tags=("sender-refused",) if is_explained else ("sender-refused", "sender-did-not-answer"),
    )
