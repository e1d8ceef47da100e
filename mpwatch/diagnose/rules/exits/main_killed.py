"""The main process was ended by a SIGKILL that memory does not explain."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals

from mpwatch.diagnose.analysis.exits import (
    TOGETHER_S,
    death_of,
    ended_python,
    last_seen,
    memory_evidence,
    oom_kills,
)
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text

RULE = "main-killed"
SHORT = 0.04
"""Part of the machine's memory below which the kernel may have been the one who killed."""


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for a main process that got SIGKILL, unless its memory limit explains it.

    The kernel tells nobody who sent a signal, and a person who stops a job this way knows it: so it
    is a remark, and a warning only where the machine itself had no memory left.
    """
    killed = [
        (process, ended)
        for process, ended in ended_python(snapshot)
        if process.role == "main" and ended.signal == Signals.SIGKILL
    ]
    if killed and not memory_evidence(snapshot, history):
        for process, ended in killed:
            yield _finding(snapshot, history, process, ended)


def _finding(snapshot: Snapshot, history: History, process: Process, ended: Ended) -> Finding:
    """Put the death into words."""
    is_short, room = _machine(snapshot)
    evidence = [
        f"{called(process)} ended by {ended.words}",
        _counted(oom_kills(snapshot, history)),
        *room,
        *_others(snapshot, process, ended),
        *last_seen(process),
    ]
    if process.private_bytes is not None:
        evidence.append(
            f"it held {bytes_text(process.private_bytes)} of private memory when last seen"
        )
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if is_short else Severity.INFO,
        process=process.process,
        summary=f"{called(process)} was ended by SIGKILL; who sent it is unknown",
        evidence=tuple(evidence),
        cause=(
            "A person (kill -9), a scheduler whose time or memory limit has passed, a container "
            "that was stopped, or the kernel for want of memory. The kernel does not say who sends "
            "a signal, and what gets this one has no chance to say anything: exit status 137, no "
            "traceback, nothing cleaned up."
        ),
        advice=(
            "If it was not you: ask the scheduler for the reason of the end (sacct, kubectl "
            "describe pod, docker inspect), and the kernel log for 'Out of memory' (dmesg). To "
            "stop a job, send SIGTERM first, so that it can save its state and end its workers."
        ),
    )


def _counted(kills: float | None) -> str:
    """What the control group says about kills for want of memory."""
    if kills is None:
        return "out-of-memory kills of its control group could not be read"
    return "its control group counted no out-of-memory kill meanwhile"


def _machine(snapshot: Snapshot) -> tuple[bool, tuple[str, ...]]:
    """Whether the machine was short of memory when last looked at, and in words how much it had."""
    free, total = snapshot.host.memory_available_bytes, snapshot.host.memory_total_bytes
    if free is None or not total:
        return False, ()
    words = f"{bytes_text(free)} of the machine's {bytes_text(total)} of memory were available"
    return free < SHORT * total, (words,)


def _others(snapshot: Snapshot, process: Process, ended: Ended) -> Iterator[str]:
    """What became of the rest of the job: one kill of everything, or of main alone."""
    others = [p for p in snapshot.processes if p.process != process.process]
    together = [
        p
        for p in others
        if p.ended is not None
        and death_of(p.ended) == "killed"
        and abs(p.ended.at_s - ended.at_s) <= TOGETHER_S
    ]
    living = [p for p in others if p.ended is None]
    if together:
        yield f"{len(together)} more of its processes were killed at the same time"
    if living:
        yield f"{len(living)} of its processes lived on, the first is {called(living[0])}"
