"""Under forkserver, the new default, a program fails in a way that fork would have avoided."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, family_head
from mpwatch.diagnose.known_errors import evidence_of, gives, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import LogEntry, Process

RULE = "python314-forkserver-default"


class _Failure(Struct, frozen=True):
    """One way in which a program that was written for fork fails under forkserver."""

    reason: str | None
    """That the error gives; `None` for the last, which is about pickling."""
    summary: str
    """What happened, to follow the name of the process."""
    cause: str
    advice: str


_FAILURES = (
    _Failure(
        "too-many-descriptors",
        "cannot start a process: its arguments need more descriptors than forkserver accepts",
        "passes each tensor storage among the arguments as a descriptor and accepts at most 251",
        "Pack the tensors into few (one tensor and offsets)",
    ),
    _Failure(
        "starts-while-importing",
        "starts processes again while it imports the main program",
        "imports the main program in each child, whose top-level code then starts processes again",
        'Put the code that starts processes below `if __name__ == "__main__":`',
    ),
    _Failure(
        "name-not-found",
        "cannot find a function or class by its name in a new process",
        "imports functions and classes by name in each child, and this one is not found there",
        "Define it at the top level of a module that the child can import",
    ),
    _Failure(
        None,
        "cannot pickle an object that a new process needs",
        "pickles the arguments of each process, and one of these objects cannot be pickled",
        "Make the object picklable, or create it in the child",
    ),
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where a program fails as programs written for fork do, on Python >= 3.14.

    The default alone is no fault: only such a failure is reported.
    """
    for entry in tagged(index.snapshot, RULE):
        process = index.snapshot.get(entry.process)
        if process is None or not _has_new_default(process):
            continue
        if process.start_method in (None, "forkserver"):
            yield _finding(index, process, entry)


def _finding(index: Index, process: Process, entry: LogEntry) -> Finding:
    failure = next(each for each in _FAILURES if each.reason is None or gives(entry, each.reason))
    version, method = _version(process), process.start_method
    starter = family_head(index, process)
    by = () if starter is None else (f"started by {called(starter)}",)
    chosen = "none chosen, so the default, forkserver" if method is None else method
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=process.process,
        summary=f"{called(process)} {failure.summary}; fork was the default before Python 3.14",
        evidence=(*evidence_of(entry), f"Python {version}, start method: {chosen}", *by),
        cause=(
            f"From Python 3.14 on, the default start method on Linux is forkserver. It "
            f"{failure.cause}. Under fork, the former default, this does not happen."
        ),
        advice=(
            f'{failure.advice}. Or choose fork explicitly, mp.get_context("fork"): locks held by '
            "other threads at the fork then stay locked in the child."
        ),
    )


def _version(process: Process) -> str:
    """The version of its Python, `unknown` if not known."""
    return process.hook.python or process.sample.python_version or "unknown"


def _has_new_default(process: Process) -> bool:
    """Whether its Python is 3.14 or later."""
    parts = _version(process).split(".")
    if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return False
    return (int(parts[0]), int(parts[1])) >= (3, 14)
