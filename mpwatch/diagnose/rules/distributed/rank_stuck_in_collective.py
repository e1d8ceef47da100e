"""Ranks wait in a collective for one that has not come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mpwatch.diagnose.analysis.idle_time import STANDING_S, quiet_s, stands
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, counted
from mpwatch.diagnose.analysis.ranks import (
    in_collective,
    is_in_backward,
    joining_for_s,
    joining_groups,
    rank_groups,
)
from mpwatch.diagnose.analysis.stack_merge import merge
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.units import seconds_text

RULE = "rank-stuck-in-collective"
ALL_STAND_S = 20.0
"""Where most of them are elsewhere: so long none of those may have moved either."""
JOINING_S = 30.0
LONG_JOINING_S = 120.0
"""Other machines may take minutes to start: before that it is no more than worth knowing."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each rank that is elsewhere while the others wait in one collective.

    Waiting for the slowest rank for a moment is what collectives do: the others have to stand.
    """
    for ranks in rank_groups(index):
        calls = {rank.process: _collective(rank, index) for rank in ranks}
        inside = [rank for rank in ranks if calls[rank.process] is not None]
        late = [rank for rank in ranks if calls[rank.process] is None and _has_stack(rank)]
        names = {calls[rank.process] for rank in inside}
        if len(names) != 1:
            continue
        if len(inside) < len(late) and not _all_stand(late, index):
            continue
        waits = [quiet for rank in inside if (quiet := quiet_s(rank, index)) is not None]
        if len(waits) < len(inside) or min(waits) < STANDING_S:
            continue
        gone = [p for p in index.snapshot.processes if p.is_gone and p.role == inside[0].role]
        if late or gone:
            yield _finding(inside, late, gone, f"{names.pop()}", min(waits))
    for joining, missing in joining_groups(index):
        since_s = joining_for_s(joining)
        if since_s >= JOINING_S and all(map(_has_stack, missing)):
            severity = Severity.WARNING if since_s >= LONG_JOINING_S else Severity.INFO
            told = (
                _finding(joining, missing, (), "init_process_group", since_s)
                if missing
                else _not_complete(joining, since_s)
            )
            yield replace(told, severity=severity)


def _collective(rank: Process, index: Index) -> str | None:
    """The collective a rank is in; the backward pass, if it has stood in it for long."""
    name = in_collective(rank)
    if name is None and is_in_backward(rank) and (quiet_s(rank, index) or 0.0) >= STANDING_S:
        return "the backward pass"
    return name


def _all_stand(late: Sequence[Process], index: Index) -> bool:
    """Whether those that are elsewhere have not moved for long either."""
    return all(stands(rank, index, ALL_STAND_S) for rank in late)


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


def _not_complete(ranks: Sequence[Process], since_s: float) -> Finding:
    """Put into words that all ranks of this job wait for more of them than there are."""
    first = ranks[0]
    asked = [
        f"{name} is {value}"
        for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        if (value := first.sample.environment.get(name)) is not None
    ]
    evidence = [
        f"{all_called(ranks)} in init_process_group for at least {seconds_text(since_s)}",
        f"{merge(ranks).sentence}",
    ]
    if asked:
        evidence.append(f"in the environment of {called(first)}: {', '.join(asked)}")
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=first.process,
        summary=(
            f"{counted(len(ranks), 'rank')} {'waits' if len(ranks) == 1 else 'wait'} in "
            "init_process_group for others that have not joined"
        ),
        evidence=tuple(evidence),
        cause=(
            "A process group is made when world_size ranks have joined. All that were started here "
            "are there: those of another machine are late or not started, world_size counts more "
            "than there are, or some of them wait at another address, port or file."
        ),
        advice=(
            "Compare world_size with the number of ranks started on all machines, and the rank of "
            "each: all of 0 to world_size - 1 have to be there, each once. MASTER_ADDR and "
            "MASTER_PORT, or init_method, have to be the same for all, and the port open."
        ),
    )
