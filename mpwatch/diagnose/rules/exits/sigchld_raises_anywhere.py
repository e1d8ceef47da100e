"""The error for a failed worker is raised at an unrelated line of main."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called_if_known
from mpwatch.diagnose.analysis.stack_patterns import threads_calling, user_frame
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "sigchld-raises-anywhere"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where torch's SIGCHLD handler has raised, or is about to.

    It runs for every child that ends, and raises only for a DataLoader worker that has failed.
    """
    seen = set()
    for entry in tagged(index.snapshot, RULE):
        seen.add(entry.process)
        yield _finding(index.snapshot.get(entry.process), evidence_of(entry))
    for process, thread in threads_calling(index, "signal_handling.py:handler"):
        if process.process not in seen and _has_failed_worker(index, process):
            user = user_frame(thread.stack)
            at = "an unknown line" if user is None else frame_words(user)
            yield _finding(process, (f"the SIGCHLD handler interrupted {at}",))


def _has_failed_worker(index: Index, process: Process) -> bool:
    """Whether a DataLoader worker of a process has ended other than by its own will."""
    return any(
        each.role == "loader-worker"
        and each.ended is not None
        and death_of(each.ended) != "normal"
        and process.process in (each.parent, each.original_parent)
        for each in index.snapshot.processes
    )


def _finding(process: Process | None, evidence: tuple[str, ...]) -> Finding:
    """Describe the misleading traceback."""
    name = called_if_known(process)
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=process.process if process is not None else None,
        summary=f"the traceback of {name} points at an unrelated line: a worker failed",
        evidence=evidence,
        cause=(
            "torch raises the error for a failed worker from its SIGCHLD handler, so the traceback "
            "shows the line that main was executing: an optimizer step, writing a checkpoint, a "
            "finally block. That line is not the cause."
        ),
        advice=(
            "Find out how the worker exited. Treat the error as the end of the run. Write "
            "checkpoints to a temporary file and rename it, so that the error cannot leave a "
            "partial checkpoint."
        ),
    )
