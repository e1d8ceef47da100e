"""The launcher waits for a rank that cannot be killed."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.processes import STATE_D
from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head, of_role
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Thread

RULE = "elastic-agent-wedged"
WEDGED_S = 30.0


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each launcher that is stalled after a failure, with a rank in state D.

    A job that ends leaves its ranks one by one, and most reads of a disk are a moment in state D.
    """
    for launcher in of_role(index.snapshot, "launcher", "main"):
        ranks = [
            p
            for p in index.snapshot.processes
            if p.role == "rank" and family_head(index, p) is launcher
        ]
        has_failure = any(
            rank.ended is not None and death_of(rank.ended) in ("failed", "crash", "killed")
            for rank in ranks
        )
        wedged = [rank for rank in ranks if not rank.is_gone and _stuck_threads(rank)]
        quiet = quiet_s(launcher, index)
        if has_failure and wedged and quiet is not None and quiet >= WEDGED_S:
            yield _finding(launcher, wedged, index.lasting(quiet))


def _stuck_threads(rank: Process) -> list[Thread]:
    """Its threads that have been in one and the same wait in state D for long."""
    return [
        thread
        for thread in rank.threads
        if thread.state == "D" and (blocked_for_s(thread) or 0.0) >= WEDGED_S
    ]


def _finding(launcher: Process, wedged: list[Process], lasted: str) -> Finding:
    """The finding."""
    channels = sorted({t.wchan for p in wedged for t in _stuck_threads(p) if t.wchan})
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=launcher.process,
        summary=(
            f"{called(launcher)} waits for {all_called(wedged)} to exit: uninterruptible wait"
        ),
        evidence=(
            f"{all_called(wedged)} in uninterruptible wait (state D)",
            f"kernel wait channels: {', '.join(channels) or 'hidden'}",
            f"{called(launcher)} has been blocked for {lasted} after a rank failed",
        ),
        cause=(
            "A process that a driver or file system holds in state D (GPU, RDMA, storage) exits "
            f"when that call returns. {STATE_D} The launcher waits for its exit without a timeout."
        ),
        advice=(
            "Check the host's GPU and storage (dmesg). If SIGKILL does not end the rank, only "
            "the return of the call, a GPU reset or a reboot does. Newer versions of torch wait "
            "with a timeout."
        ),
    )
