"""Closing the terminal would end the training."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from signal import Signals

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head, of_role
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process

RULE = "torchrun-sighup"
ENDS_RANKS_S = 35.0
"""A launcher ends by the signal itself when its ranks have ended, for which it gives them 30 s."""
HANGUP_BIT = 1 << (Signals.SIGHUP - 1)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each launcher on a terminal that handles SIGHUP, or died of it."""
    hit: dict[ProcessId, tuple[Process, tuple[str, ...]]] = {}
    for entry in tagged(index.snapshot, RULE):
        process = index.snapshot.get(entry.process)
        if process is not None:
            hit[process.process] = process, evidence_of(entry)
    for process in index.snapshot.processes:
        ended = process.ended
        if process.role not in ("launcher", "rank") or ended is None:
            continue
        if ended.signal == Signals.SIGHUP and not _may_be_passed_on(index, process, ended):
            how = f"{called(process)} ended: {ended.words}"
            hit.setdefault(process.process, (process, (how,)))
    for process, words in hit.values():
        head = family_head(index, process)
        if head is None or head.process not in hit:  # a launcher passes the signal on to its ranks
            yield _finding(process, Severity.CRITICAL, (*words, *_beside(index, process, hit)))
    for process in of_role(index.snapshot, "launcher"):
        caught, tty = process.sample.signals_caught, process.sample.tty
        if caught is None or not caught & HANGUP_BIT or not tty:
            continue
        evidence = (
            f"it handles SIGHUP (mask of caught signals {caught:#x})",
            f"its controlling terminal is {_terminal(tty)}",
        )
        yield _finding(process, Severity.INFO, evidence)


def _terminal(tty: int) -> str:
    """The path of a terminal from field 7 of `/proc/PID/stat`, see proc_pid_stat(5).

    The numbers are those of Documentation/admin-guide/devices.txt of Linux.
    """
    device = tty & 0xFFFFFFFF  # the kernel writes it as a signed number
    major, minor = os.major(device), os.minor(device)
    if 136 <= major <= 143:
        return f"/dev/pts/{(major - 136) * 256 + minor}"
    if major == 4:
        return f"/dev/tty{minor}" if minor < 64 else f"/dev/ttyS{minor - 64}"
    return f"device {major}:{minor}"


def _may_be_passed_on(index: Index, rank: Process, ended: Ended) -> bool:
    """Whether a launcher that lives so far may have got the signal first, and ended the rank."""
    head = family_head(index, rank)
    is_up = head is not None and head.role == "launcher" and not head.is_gone
    return is_up and index.snapshot.at_s - ended.at_s < ENDS_RANKS_S


def _beside(index: Index, process: Process, hit: Collection[ProcessId]) -> Iterator[str]:
    """The ranks that ended with a launcher, and the parent that still runs."""
    ranks = [
        other
        for other in index.snapshot.processes
        if other.process in hit and family_head(index, other) == process
    ]
    if ranks:
        yield f"its ranks ended with it: {all_called(ranks)}"
    head = family_head(index, process)
    if head is not None and not head.is_gone:
        yield f"{called(head)}, which has started it, still runs"


def _finding(process: Process, severity: Severity, evidence: tuple[str, ...]) -> Finding:
    """The finding."""
    has_happened = severity is not Severity.INFO
    if has_happened and process.sample.tty == 0:
        return _sent(process, evidence)
    return Finding(
        rule=RULE,
        severity=severity,
        process=process.process,
        summary=(
            f"{called(process)} was ended by SIGHUP, most likely the hang-up of its terminal"
            if has_happened
            else f"{called(process)} ends when its terminal hangs up, nohup or not"
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


def _sent(process: Process, evidence: tuple[str, ...]) -> Finding:
    """Describe the end by a SIGHUP that no terminal has sent."""
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)} was ended by a SIGHUP that another process sent",
        evidence=(*evidence, "it has no controlling terminal that could have been closed"),
        cause=(
            "torchrun takes SIGHUP for a request to end, and ends its ranks with it. Log rotation, "
            "supervisors and scripts send SIGHUP to make a daemon reopen its files or read its "
            "configuration again; a session leader that ends sends it, too."
        ),
        advice=(
            "Do not send SIGHUP to torchrun, or start it with --signals-to-handle=SIGTERM,SIGINT,"
            "SIGQUIT (torchrun 2.13), and let the program that has started it look at its exit "
            "status."
        ),
    )
