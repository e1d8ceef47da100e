"""The main process was killed by SIGKILL for a reason other than lack of memory."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals

from mpwatch.describe.processes import CPU_LIMIT
from mpwatch.diagnose.analysis.exits.kinds import (
    TOGETHER_S,
    cpu_limit_evidence,
    death_of,
    ended_python,
    last_seen,
    memory_evidence,
    oom_kills,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text

RULE = "main-killed"
SHORT = 0.04
"""Share of available host memory below which the kernel may have sent the SIGKILL."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for a main process that got SIGKILL, unless its memory limit explains it.

    The kernel does not record the sender of a signal, and the kill is often deliberate: severity is
    INFO, and WARNING only where the host itself was short of memory.
    """
    killed = [
        (process, ended)
        for process, ended in ended_python(index.snapshot)
        if process.role == "main" and ended.signal == Signals.SIGKILL
    ]
    if killed and not memory_evidence(index):
        for process, ended in killed:
            yield _finding(index, process, ended)


def _finding(index: Index, process: Process, ended: Ended) -> Finding:
    """Describe the exit."""
    is_short, memory = _machine(index.snapshot)
    kills = oom_kills(index)
    may_be_kernel = is_short or kills is None
    evidence = [
        f"{called(process)} ended by {ended.words}",
        _counted(kills),
        *memory,
        *_others(index.snapshot, process, ended),
        *last_seen(process),
    ]
    at_limit = cpu_limit_evidence(index, process)
    if at_limit:
        return _at_cpu_limit(process, (evidence[0], at_limit, *evidence[2 + len(memory) :]))
    if process.private_bytes is not None:
        evidence.append(
            f"it held {bytes_text(process.private_bytes)} of private memory when last seen"
        )
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if is_short else Severity.INFO,
        process=process.process,
        summary=f"{called(process)} was ended by SIGKILL; the sender is unknown",
        evidence=tuple(evidence),
        cause=(
            "Possible senders: a user (kill -9), a scheduler that enforces a limit, or a container "
            "runtime that stops the container"
            + ("; also the kernel's out-of-memory killer. " if may_be_kernel else ". ")
            + "The kernel does not record the sender. SIGKILL cannot be caught: a shell shows exit "
            "status 137, and there is no traceback and no cleanup."
        ),
        advice=(
            "If the kill was not deliberate, ask the scheduler for the reason (sacct, kubectl "
            "describe pod, docker inspect)"
            + (
                " and search the kernel log (dmesg) for 'Out of memory'. "
                if may_be_kernel
                else ". "
            )
            + "To stop a job, send SIGTERM first, so that it can save its state and stop its "
            "workers."
        ),
    )


def _at_cpu_limit(process: Process, evidence: tuple[str, ...]) -> Finding:
    """Describe the exit of a process that had used its limit of cpu time."""
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)} was ended by SIGKILL at its limit of cpu time",
        evidence=evidence,
        cause=CPU_LIMIT.cause,
        advice=CPU_LIMIT.advice,
    )


def _counted(kills: float | None) -> str:
    """The control group's count of out-of-memory kills."""
    if kills is None:
        return "out-of-memory kills of its control group could not be read"
    return "its control group counted no out-of-memory kill meanwhile"


def _machine(snapshot: Snapshot) -> tuple[bool, tuple[str, ...]]:
    """Whether the host was short of memory in the last sample, and its available memory in text."""
    free, total = snapshot.host.memory_available_bytes, snapshot.host.memory_total_bytes
    if free is None or not total:
        return False, ()
    words = f"{bytes_text(free)} of the machine's {bytes_text(total)} of memory were available"
    return free < SHORT * total, (words,)


def _others(snapshot: Snapshot, process: Process, ended: Ended) -> Iterator[str]:
    """The state of the job's other processes: all killed together, or only main."""
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
        were = "was" if len(together) == 1 else "were"
        yield f"{len(together)} more of its processes {were} killed at the same time"
    if living:
        yield f"{len(living)} of its processes kept running; the first is {called(living[0])}"
