"""Which rank failed first, when the launcher's summary lists several."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.rank_exits import is_started_again
from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, family_head
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process
from mpwatch.model.units import seconds_text

RULE = "torchrun-root-cause-misread"
RECENT_S = 30.0
"""The agent ends the others within its own monitoring interval and their grace period."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where one rank failed and the others were ended because of it."""
    ended = sorted(
        (
            (p, p.ended)
            for p in index.snapshot.processes
            if p.role == "rank" and p.ended is not None
        ),
        key=lambda pair: pair[1].at_s,
    )
    if len(ended) < 2 or _head_role(index, ended[0][0]) != "launcher":
        return
    first, others = _culprit(ended)
    if first is not None and others:
        finding = _finding(first, others)
        is_past = is_started_again(index, first[0])
        yield replace(finding, severity=Severity.INFO) if is_past else finding


def _head_role(index: Index, process: Process) -> str:
    """The role of the process that started it."""
    head = family_head(index, process)
    return "" if head is None else head.role


def _culprit(
    ended: list[tuple[Process, Ended]],
) -> tuple[tuple[Process, Ended] | None, list[tuple[Process, Ended]]]:
    """The first that ended by itself, and those that were ended afterwards."""
    culprits = [pair for pair in ended if death_of(pair[1]) in ("failed", "crash", "killed")]
    if not culprits:
        return None, []
    first = culprits[0]
    others = [
        pair
        for pair in ended
        if death_of(pair[1]) == "shutdown" and 0 <= pair[1].at_s - first[1].at_s + 2 <= RECENT_S
    ]
    return first, others


def _finding(first: tuple[Process, Ended], others: list[tuple[Process, Ended]]) -> Finding:
    """The finding."""
    process, ended = first
    evidence = [f"{called(process)} ended first: {ended.words}"]
    evidence += [
        f"{called(p)} {seconds_text(max(0.0, e.at_s - ended.at_s))} later: {e.words}"
        for p, e in others[:4]
    ]
    others_ended = "1 other was ended" if len(others) == 1 else f"{len(others)} others were ended"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)} failed first ({ended.words}); {others_ended}",
        evidence=tuple(evidence),
        cause=(
            "After the first failure the launcher ends all other ranks with SIGTERM, and its "
            "summary lists them too, sometimes before the one that failed first. Exit code -9 "
            "there means SIGKILL: the kernel for lack of memory, or the scheduler."
        ),
        advice=_KILLED if death_of(ended) == "killed" else _FAILED,
    )


_FAILED = (
    "Read the error of the process that failed first. Wrap main in @record to get the exception's "
    "text into the launcher's summary."
)
_KILLED = (
    "A process that is killed leaves no error. Look into the kernel log (dmesg, 'Out of memory') "
    "and the scheduler's log for who has killed it; the signals of the others say nothing."
)
