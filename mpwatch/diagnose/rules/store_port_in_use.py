"""The port of the rendezvous is taken."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "store-port-in-use"
_SAID = (
    said("failed to listen on any local network address"),
    said("EADDRINUSE"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="cannot listen on its rendezvous port: another process has it",
        cause=(
            "Another job on this host uses the same port (29500 unless told otherwise), "
            "or an orphan of an earlier one still listens."
        ),
        advice=(
            "Start with --standalone or --rdzv-endpoint=localhost:0, which choose a "
            "free port; find and end the orphan (mpwatch ps shows what still runs)."
        ),
    )
