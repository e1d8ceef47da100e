"""Written for fork, run where the fork server is the default."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, family_head
from mpwatch.diagnose.known_errors import tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "python314-forkserver-default"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where a program fails as programs written for fork do, on Python >= 3.14.

    The default by itself is nothing wrong: only together with such a failure is it told.
    """
    for entry in tagged(index.snapshot, RULE):
        process = index.snapshot.get(entry.process)
        if process is None or not _has_new_default(process):
            continue
        if process.start_method not in (None, "forkserver"):
            continue
        yield Finding(
            rule=RULE,
            severity=Severity.WARNING,
            process=process.process,
            summary=(
                f"{called(_head(index, process))} relies on fork, and on Python "
                f"{_version(process)} the fork server is the default"
            ),
            evidence=(
                f"Python {_version(process)}, start method {process.start_method or 'not chosen'}",
                entry.words,
            ),
            cause=(
                "From Python 3.14 on processes are started by forkserver on Linux. The same "
                "program then pickles its dataset, imports the main program again in each worker, "
                "and does not see globals changed at run time."
            ),
            advice=(
                "Make it picklable and guard the main program, which is where Python is going; or "
                'pass multiprocessing_context="fork" explicitly, with fork\'s risks for threads. '
                'set_forkserver_preload(["torch"]) saves start-up time.'
            ),
        )


def _head(index: Index, process: Process) -> Process:
    """The process that started the failing one, if any did."""
    return family_head(index, process) or process


def _version(process: Process) -> str:
    """Its Python's version, as far as is known."""
    return process.hook.python or process.sample.python_version or "unknown"


def _has_new_default(process: Process) -> bool:
    """Whether its Python is 3.14 or later."""
    parts = _version(process).split(".")
    if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return False
    return (int(parts[0]), int(parts[1])) >= (3, 14)
