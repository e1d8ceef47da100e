"""A spawned child cannot import a function or class of the main program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import ended_words
from mpwatch.diagnose.analysis.process_queries import called, children_started_by
from mpwatch.diagnose.known_errors import reported
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "main-not-importable"
NOTEBOOK = "a notebook"
CHILDREN = 2
"""One child may fail for another reason; if all fail as they start, the cause is common."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for reports of the error, else for programs without a file."""
    reports = list(
        reported(
            index.snapshot,
            RULE,
            summary="cannot find a function or class of the main program in a spawned process",
            cause=_CAUSE_REPORTED,
            advice=_ADVICE,
        )
    )
    yield from reports or _without_file(index)


def _without_file(index: Index) -> Iterator[Finding]:
    """Findings for programs that have no file, and whose spawned children all fail.

    Without the hook the error of the children is unknown, so this is only a warning.
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
                    f"all processes that {called(process)} spawns fail: its program was read from "
                    f"{source}, which they cannot import"
                ),
                evidence=(
                    f"the program has no file: {source}",
                    f"{len(failed)} spawned children ended, each with an exit code other than 0",
                    *ended_words(failed, 2),
                ),
                cause=_CAUSE + _pool_words(children),
                advice=_advice(process)
                + " Start it with mpwatch run to see the children's errors.",
            )


def _source(process: Process) -> str | None:
    """Where a program without a file was read from; `None` if it has one, as far as is visible."""
    words = [word for word in process.sample.cmdline[1:] if word]
    if any("ipykernel" in word for word in words):
        return NOTEBOOK
    while words and words[0].startswith("-") and words[0] not in ("-", "-c", "-m"):
        words = words[2:] if words[0] in ("-X", "-W") else words[1:]
    if not process.sample.is_python:
        return None
    if not words or words[0] == "-":
        return "standard input"
    return "the option -c" if words[0] == "-c" else None


def _pool_words(children: Sequence[Process]) -> str:
    """What a Pool does in this case, if there is one."""
    has_pool = any(child.role == "pool-worker" for child in children)
    return " The Pool keeps starting workers that fail, and waits for ever." if has_pool else ""


def _advice(process: Process) -> str:
    """The fix, with the other one that a notebook has."""
    return _ADVICE + (_ADVICE_NOTEBOOK if _source(process) == NOTEBOOK else "")


_CAUSE_REPORTED = (
    "Spawn and forkserver import the main program again in the child, and look functions and "
    "classes up there by name. This name was not found: it is defined below the main guard, inside "
    "a function, or in a program without a file (a notebook, standard input, the option -c)."
)
_CAUSE = (
    "Spawn and forkserver import the main program again in the child, and this program has no file "
    "to import."
)
_ADVICE = "Move the functions and classes that the processes need into a module, and import it."
_ADVICE_NOTEBOOK = (
    " Or use fork; locks that other threads hold at the fork stay locked in the child."
)
