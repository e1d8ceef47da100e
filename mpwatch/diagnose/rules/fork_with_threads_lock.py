"""A forked child waits for a lock that a thread of its parent held at the fork."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.forked_alone import forked_alone
from mpwatch.diagnose.tree import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import seconds_text

RULE = "fork-with-threads-lock"


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each forked child that stands on a lock nobody can release."""
    for stuck in forked_alone(snapshot, history, "lock"):
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=stuck.process.process,
            tid=stuck.thread.tid,
            summary=(
                f"{called(stuck.process)} has waited {seconds_text(stuck.quiet_s)} for a lock that "
                "was locked when it was forked"
            ),
            evidence=stuck.evidence,
            cause=(
                "A fork copies locks as they are and only the thread that forks. A lock that "
                "another thread held at that moment stays locked in the child for ever: the thread "
                "that would release it does not exist here."
            ),
            advice=(
                "Start the workers before starting threads, or start them with "
                'multiprocessing_context="forkserver" or "spawn" (everything is pickled, start-up '
                "takes seconds), or make the lock in each process. This child can only be killed; "
                "main then raises 'exited unexpectedly'."
            ),
        )
