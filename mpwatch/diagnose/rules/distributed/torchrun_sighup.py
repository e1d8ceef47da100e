"""Closing the terminal would end the training."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, of_role
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "torchrun-sighup"
HANGUP_BIT = 1 << (Signals.SIGHUP - 1)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each launcher on a terminal that handles SIGHUP, or died of it."""
    for entry in tagged(index.snapshot, RULE):
        process = index.snapshot.get(entry.process)
        if process is not None:
            yield _finding(process, Severity.CRITICAL, evidence_of(entry))
    for process in index.snapshot.processes:
        ended = process.ended
        if process.role not in ("launcher", "rank") or ended is None:
            continue
        if ended.signal == Signals.SIGHUP:
            words = (f"{called(process)} ended: {ended.words}",)
            yield _finding(process, Severity.CRITICAL, words)
    for process in of_role(index.snapshot, "launcher"):
        caught, tty = process.sample.signals_caught, process.sample.tty
        if caught is None or not caught & HANGUP_BIT or not tty:
            continue
        evidence = (
            f"it handles SIGHUP (mask of caught signals {caught:#x})",
            f"its controlling terminal is device {tty}",
        )
        yield _finding(process, Severity.INFO, evidence)


def _finding(process: Process, severity: Severity, evidence: tuple[str, ...]) -> Finding:
    """Put it into words."""
    has_happened = severity is not Severity.INFO
    return Finding(
        rule=RULE,
        severity=severity,
        process=process.process,
        summary=(
            f"{called(process)} was ended by the hang-up of its terminal"
            if has_happened
            else f"{called(process)} will end when its terminal is closed, nohup or not"
        ),
        evidence=evidence,
        cause=(
            "torchrun installs a handler for SIGHUP, which replaces the 'ignore' that nohup has "
            "set. Closing the terminal or losing the connection then stops the training."
        ),
        advice=(
            "Start it in tmux, by setsid or as a systemd unit. Or under nohup and with "
            "--signals-to-handle=SIGTERM,SIGINT,SIGQUIT, which torchrun 2.13 has; it writes "
            "TORCHELASTIC_SIGNALS_TO_HANDLE itself, so setting that does nothing."
        ),
    )
