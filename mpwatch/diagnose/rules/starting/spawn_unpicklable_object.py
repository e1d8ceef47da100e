"""An argument of a new process cannot be pickled."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called_if_known
from mpwatch.diagnose.known_errors import contains, evidence_of, tagged
from mpwatch.model.findings import Finding, Severity

RULE = "spawn-unpicklable-object"
_OF_LOADER = ": for a DataLoader, the dataset, collate_fn and worker_init_fn"
_PATH_NAMES = ("path", "paths", "culprit", "what")


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that failed to pickle an argument.

    The exception names only the type of the innermost object; the hook walks the arguments and
    notes the path to it.
    """
    for entry in tagged(index.snapshot, RULE):
        process = index.snapshot.get(entry.process)
        ways = [str(entry.details[name]) for name in _PATH_NAMES if entry.details.get(name)]
        where = f": {ways[0]}" if ways else ""
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=entry.process,
            summary=f"{called_if_known(process)} cannot pickle an argument of a new process{where}",
            evidence=(*evidence_of(entry), *(f"found at {way}" for way in ways[:3])),
            cause=(
                "Spawn and forkserver pickle the target of a new process and all its arguments"
                + (_OF_LOADER if contains(entry, "dataloader.py") else "")
                + ". Lambdas, local functions, open files, locks, database handles and "
                "generators cannot be pickled."
            ),
            advice=(
                "Replace a lambda or local function by a function of a module. Open files and "
                "databases in the new process at first use, and leave them out in __getstate__. "
                "fork avoids pickling, but the processes then inherit open handles and locks."
            ),
        )
