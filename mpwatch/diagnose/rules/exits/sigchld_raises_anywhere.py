"""A dead worker's error is raised in whatever line main happens to be in."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.stack_patterns import frame_words, threads_calling, user_frame
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process, Snapshot

RULE = "sigchld-raises-anywhere"


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding where torch's handler for dead children raised, or is about to."""
    del history
    seen = set()
    for entry in tagged(snapshot, RULE):
        seen.add(entry.process)
        yield _finding(snapshot.get(entry.process), evidence_of(entry))
    for process, thread in threads_calling(snapshot, "signal_handling.py:handler"):
        if process.process not in seen:
            user = user_frame(thread.stack)
            at = "an unknown line" if user is None else frame_words(user)
            yield _finding(process, (f"the handler runs on top of {at}",))


def _finding(process: Process | None, evidence: tuple[str, ...]) -> Finding:
    """Put it into words."""
    who = called(process) if process is not None else "a process of the job"
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=process.process if process is not None else None,
        summary=f"the traceback of {who} points at innocent code: a worker died",
        evidence=evidence,
        cause=(
            "torch raises the error of a dead worker from the handler of SIGCHLD, so it appears "
            "in whatever line main executes: an optimizer step, a checkpoint being written, a "
            "finally block. The line in the traceback has nothing to do with it."
        ),
        advice=(
            "Look for how the worker ended. Write checkpoints to a temporary file and rename it, "
            "so that this cannot leave half of one, and treat the error as the end of the run."
        ),
    )
