"""Ranks are in different collectives at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from mpwatch.diagnose.analysis.idle_time import STANDING_S, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.analysis.ranks import in_collective, rank_groups
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.units import seconds_text

RULE = "collective-mismatch"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where ranks are blocked in different collectives.

    Ranks are in different collectives for a moment between two steps; that is not reported.
    """
    for ranks in rank_groups(index):
        groups: defaultdict[str, list[Process]] = defaultdict(list)
        for rank in ranks:
            name = in_collective(rank)
            quiet = quiet_s(rank, index)
            if name is not None and quiet is not None and quiet >= STANDING_S:
                groups[name].append(rank)
        if len(groups) < 2:
            continue
        members = sorted(groups.items(), key=lambda item: -len(item[1]))
        since = min(quiet_s(rank, index) or 0.0 for group in groups.values() for rank in group)
        odd = members[-1][1][0]
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=odd.process,
            summary="ranks wait for each other in different collectives: "
            + ", ".join(f"{len(group)} in {name}" for name, group in members),
            evidence=tuple(
                f"{all_called(group)} in {name} for at least {seconds_text(since)}"
                for name, group in members
            ),
            cause=(
                "The ranks call different collectives: a branch depends on the rank or on its "
                "data, some ranks do not use all parameters, or ranks run different numbers of "
                "steps. All of them wait until the timeout, 10 to 30 minutes."
            ),
            advice=(
                "Compare the stacks of one rank of each group. TORCH_DISTRIBUTED_DEBUG=DETAIL "
                "checks every collective and names the mismatch, at a cost in speed."
            ),
        )
