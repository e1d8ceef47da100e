"""A spawned child cannot find what is defined in the main program."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "main-not-importable"
_SAID = (
    said("Can't get attribute", "__main__"),
    said("Can't get attribute", "__mp_main__"),
    said("No such file or directory", "<stdin>"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="cannot find a function or class of the main program in a spawned process",
        cause=(
            "Spawn and forkserver import the main program again in the child. A "
            "notebook, a program read from standard input or given with -c has no file "
            "to import."
        ),
        advice=(
            "Move what workers need into a module of its own and import it; in a "
            "notebook, fork also works, with its risks for threads."
        ),
    )
