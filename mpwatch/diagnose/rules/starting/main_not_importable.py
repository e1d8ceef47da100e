"""A spawned child cannot find what is defined in the main program."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.exits import death_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, children_started_by
from mpwatch.diagnose.known_errors import reported
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "main-not-importable"
CHILDREN = 2
"""One child may fail for a reason of its own; that all do as they start has a common cause."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it, else for programs without a file."""
    heard = list(
        reported(
            index.snapshot,
            RULE,
            summary="cannot find a function or class of the main program in a spawned process",
            cause=_CAUSE,
            advice=_ADVICE,
        )
    )
    yield from heard or _without_file(index)


def _without_file(index: Index) -> Iterator[Finding]:
    """Programs that came from no file, and whose spawned children all fail.

    Without the hook nobody hears what the children say, so this is no more than a warning.
    """
    for process in index.snapshot.processes:
        source = _source(process)
        if process.role != "main" or source is None:
            continue
        children = [
            child
            for child in children_started_by(index, process)
            if child.sample.start_method in ("spawn", "forkserver")
            and child.role in ("spawned", "pool-worker", "loader-worker")
        ]
        failed = [c for c in children if c.ended is not None and death_of(c.ended) == "failed"]
        succeeded = [c for c in children if c.ended is not None and death_of(c.ended) == "normal"]
        if len(failed) >= CHILDREN and not succeeded:
            yield Finding(
                rule=RULE,
                severity=Severity.WARNING,
                process=process.process,
                summary=(
                    f"all that {called(process)} spawns fails: it was read from {source}, which "
                    "they cannot import"
                ),
                evidence=(
                    f"the program has no file: {source}",
                    f"{len(failed)} spawned children ended, each with exit code 1 or another error",
                    *(f"{called(c)} ended: {c.ended.words}" for c in failed[:2] if c.ended),
                ),
                cause=_CAUSE,
                advice=_ADVICE + " Start it with mpwatch run to see the children's errors.",
            )


def _source(process: Process) -> str | None:
    """Where a program without a file came from; `None` if it has one, as far as is visible."""
    words = [word for word in process.sample.cmdline[1:] if word]
    if any("ipykernel" in word for word in words):
        return "a notebook"
    while words and words[0].startswith("-") and words[0] not in ("-", "-c", "-m"):
        words = words[2:] if words[0] in ("-X", "-W") else words[1:]
    if not process.sample.is_python:
        return None
    if not words or words[0] == "-":
        return "standard input"
    return "the option -c" if words[0] == "-c" else None


_CAUSE = (
    "Spawn and forkserver import the main program again in the child. A notebook, a program read "
    "from standard input or given with -c has no file to import. A Pool goes on starting workers "
    "that fail, and waits for ever."
)
_ADVICE = (
    "Move what workers need into a module of its own and import it; in a notebook, fork also "
    "works, with its risks for threads."
)
