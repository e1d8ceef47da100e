"""Ranks wait in a collective for one that has not come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.diagnose.ranks import in_collective, is_in_backward, rank_groups
from mpwatch.diagnose.stacks import merge
from mpwatch.diagnose.stillness import STANDING_S, quiet_s
from mpwatch.diagnose.tree import all_called, called, counted
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text

RULE = "rank-stuck-in-collective"


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each rank that is elsewhere while the others wait in one collective.

    Waiting for the slowest rank for a moment is what collectives do: the others have to stand.
    """
    for ranks in rank_groups(snapshot):
        calls = {rank.process: _collective(rank, history) for rank in ranks}
        inside = [rank for rank in ranks if calls[rank.process] is not None]
        late = [rank for rank in ranks if calls[rank.process] is None and _has_stack(rank)]
        names = {calls[rank.process] for rank in inside}
        if len(names) != 1 or len(inside) < len(late):
            continue
        waits = [quiet for rank in inside if (quiet := quiet_s(rank, history)) is not None]
        if len(waits) < len(inside) or min(waits) < STANDING_S:
            continue
        gone = [p for p in snapshot.processes if p.is_gone and p.role == inside[0].role]
        if late or gone:
            yield _finding(inside, late, gone, f"{names.pop()}", min(waits))


def _collective(rank: Process, history: History) -> str | None:
    """The collective a rank is in; the backward pass, if it has stood in it for long."""
    name = in_collective(rank)
    if name is None and is_in_backward(rank) and (quiet_s(rank, history) or 0.0) >= STANDING_S:
        return "the backward pass"
    return name


def _has_stack(rank: Process) -> bool:
    """Whether anything is known of what it does."""
    return any(thread.stack for thread in rank.threads)


def _finding(
    inside: Sequence[Process],
    late: Sequence[Process],
    gone: Sequence[Process],
    collective: str,
    since_s: float,
) -> Finding:
    """Put it into words."""
    culprits = late or gone
    evidence = [f"{all_called(inside)} in {collective} for at least {seconds_text(since_s)}"]
    if late:
        evidence.append(f"not there: {merge(late).sentence} ({all_called(late)})")
        evidence += [f"{called(rank)}: {rank.doing}" for rank in late[:2] if rank.doing]
    evidence += [f"{called(p)} ended: {p.ended.words}" for p in gone[:3] if p.ended is not None]
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if since_s >= 60 or not late else Severity.WARNING,
        process=culprits[0].process,
        summary=(
            f"{counted(len(inside), 'rank')} {'waits' if len(inside) == 1 else 'wait'} in "
            f"{collective} for {all_called(culprits)}"
        ),
        evidence=tuple(evidence),
        cause=(
            "A collective ends when all ranks are in it. One is late or gone: it loads data, "
            "writes a checkpoint, caught an exception, or had one batch less. The rank whose "
            "timeout is reported later is a victim; the one that is elsewhere is the cause."
        ),
        advice=(
            "Look at the stack of the rank that is not there. Give all ranks the same number of "
            "steps (drop_last, or the Join context), let exceptions end the rank, and raise the "
            "timeout only for phases known to be long, as it also delays the report of a hang."
        ),
    )
