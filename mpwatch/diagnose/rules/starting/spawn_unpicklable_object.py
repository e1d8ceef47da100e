"""Something that cannot be pickled is handed to a spawned process."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity

RULE = "spawn-unpicklable-object"
_PATH_NAMES = ("path", "paths", "culprit", "what")


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that could not pickle what it wanted to send.

    The exception names the type of the innermost object only; the hook walks the object and notes
    the way to it.
    """
    for entry in tagged(index.snapshot, RULE):
        process = index.snapshot.get(entry.process)
        who = called(process) if process is not None else "a process of the job"
        ways = [str(entry.details[name]) for name in _PATH_NAMES if entry.details.get(name)]
        where = f": {ways[0]}" if ways else ""
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=entry.process,
            summary=f"{who} cannot pickle an argument of a new process{where}",
            evidence=(*evidence_of(entry), *(f"found at {way}" for way in ways[:3])),
            cause=(
                "Spawn and forkserver (the default from Python 3.14) pickle the dataset, "
                "collate_fn, worker_init_fn and sampler inside Process.start(). Lambdas, local "
                "functions, open files, locks, database handles and generators cannot be pickled."
            ),
            advice=(
                "Use functions and classes of a module; open files and databases in the worker at "
                "first use and leave them out in __getstate__. fork avoids pickling, but then "
                "workers inherit open handles and locks."
            ),
        )
