"""A second loader forked its workers while the first one's pin thread was running."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.forked_alone import forked_alone
from mpwatch.diagnose.tree import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import seconds_text

RULE = "fork-vs-pin-thread"


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each forked child that stands, whose parent was pinning memory."""
    for stuck in forked_alone(snapshot, history, "pin-thread"):
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=stuck.process.process,
            tid=stuck.thread.tid,
            summary=(
                f"{called(stuck.process)} has waited {seconds_text(stuck.quiet_s)} for a lock that "
                "a pin-memory thread held when it was forked"
            ),
            evidence=stuck.evidence,
            cause=(
                "The thread that pins the batches of one DataLoader was running while another "
                "DataLoader forked its workers; locks of glibc, CUDA or the allocator that it held "
                "stay locked in the child. Rare, random, at the start of an epoch or validation."
            ),
            advice=(
                "Create all loaders with persistent_workers=True and start them before iterating "
                "over any (costs their memory throughout), or use forkserver or spawn."
            ),
        )
