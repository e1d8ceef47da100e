"""The launcher waits for a rank that cannot be killed."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head, of_role
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.units import seconds_text

RULE = "elastic-agent-wedged"
WEDGED_S = 30.0


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each launcher that is stalled after a failure, with a rank in state D."""
    for launcher in of_role(index.snapshot, "launcher", "main"):
        ranks = [
            p
            for p in index.snapshot.processes
            if p.role == "rank" and family_head(index, p) is launcher
        ]
        has_failure = any(rank.is_gone for rank in ranks)
        wedged = [rank for rank in ranks if not rank.is_gone and rank.sample.state == "D"]
        quiet = quiet_s(launcher, index)
        if has_failure and wedged and quiet is not None and quiet >= WEDGED_S:
            yield _finding(launcher, wedged, quiet)


def _finding(launcher: Process, wedged: list[Process], quiet: float) -> Finding:
    """The finding."""
    channels = sorted({t.wchan for p in wedged for t in p.threads if t.state == "D" and t.wchan})
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=launcher.process,
        summary=f"{called(launcher)} cannot kill {all_called(wedged)}: uninterruptible wait",
        evidence=(
            f"{all_called(wedged)} in uninterruptible wait (state D)",
            f"kernel wait channels: {', '.join(channels) or 'hidden'}",
            f"{called(launcher)} has been blocked for {seconds_text(quiet)} after a rank failed",
        ),
        cause=(
            "A process blocked in a driver or a network file system (GPU, RDMA, NFS) cannot be "
            "killed until that call returns. The launcher waits for its exit without a timeout."
        ),
        advice=(
            "Check the host's GPU and storage (dmesg). Only the return of the call, a GPU reset or "
            "a reboot ends the rank. Newer versions of torch wait with a timeout."
        ),
    )
