"""The start method is set a second time."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "context-already-set"
_SAID = (said("context has already been set"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="sets the start method a second time",
        cause=(
            "The default start method can be chosen once for each process; a library, "
            "or code without a main guard, has chosen already."
        ),
        advice=(
            'Use mp.get_context("spawn") and take Process, Queue and Lock from it; it '
            "can be done as often as needed. force=True works too and surprises whoever "
            "chose before."
        ),
        severity=Severity.WARNING,
    )
