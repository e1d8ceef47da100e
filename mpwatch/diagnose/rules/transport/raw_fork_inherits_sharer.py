"""A process forked by os.fork sends tensor handles that its parent does not know."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.exits.kinds import death_of, ended_workers
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.known_errors import reported, tagged
from mpwatch.model.findings import Finding

RULE = "raw-fork-inherits-sharer"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that reported the error.

    Its receiver sees only that the sender closed the connection without an answer, which proves
    nothing where the sender had no descriptors left, or where senders were killed.
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
            "Each tensor handle can be received once. A second unpickling of the same message "
            "fails like this. So does a handle from a child of a bare os.fork() (gunicorn, uwsgi): "
            "the child uses the address of its parent's descriptor server, and the parent has no "
            "such handle."
        ),
        advice=(
            "Unpickle every message exactly once. Start processes by multiprocessing.Process, "
            "which resets this state, or fork before the first tensor is sent."
        ),
        tags=("sender-refused",) if is_explained else ("sender-refused", "sender-did-not-answer"),
    )
