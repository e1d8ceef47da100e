"""Ranks that wait for each other in several process groups, joined over all nodes.

torch gives a group the same name on all of its ranks, and each rank numbers its calls of it (torch
2.1 to 2.13, gloo and NCCL). So what the recorders of ranks on several nodes hold can be joined: who
is in which call of which group, and which ranks of that group are elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mpwatch.describe.processes import NAMES_SHOWN, names_text
from mpwatch.diagnose.analysis.distributed.flight_recorder import (
    COMPARE_CALLS,
    DIFFERENT_SHAPES,
    MISMATCH,
    ONE_SHAPE,
    SAME_SHAPES,
    WAIT_FOR_TIMEOUT,
)
from mpwatch.model.findings import JobFinding, Severity
from mpwatch.model.units import numbers_text, seconds_text
from mpwatch.nodes.across.ranks import PlacedRank
from mpwatch.nodes.wire.summary import GROUP_LIMIT, ranks_in_group

MEMBERS_LIMIT = 4 * GROUP_LIMIT
"""Of all groups together: the nodes say who is in them, and need not say the truth."""


class GroupCall(NamedTuple):
    """One call of a process group, as some of its ranks have made it."""

    group: str
    number: int
    members: frozenset[int]
    """The numbers of all ranks of the group."""
    inside: tuple[PlacedRank, ...]
    """Those that are in it."""

    @property
    def called(self) -> str:
        """`all_reduce #4 of group 3 (ranks 0, 2)`."""
        operations = " or ".join(sorted({each.row.operation for each in self.inside}))
        return f"{operations} #{self.number} of group {self.group}{ranks_words(self.inside[0])}"

    @property
    def missing(self) -> frozenset[int]:
        """The ranks of the group that are not in it."""
        return self.members.difference(each.row.rank or 0 for each in self.inside)


def calls_of(ranks: Sequence[PlacedRank]) -> list[GroupCall]:
    """The calls that ranks are in, those of most ranks first; none where one of them is unknown."""
    found: defaultdict[tuple[str, int], list[PlacedRank]] = defaultdict(list)
    for each in ranks:
        row = each.row
        if row.rank is None or not row.is_unfinished or row.number is None:
            return []
        found[row.group, row.number].append(each)
    calls: list[GroupCall] = []
    count = 0
    for (group, number), inside in found.items():
        texts = {each.row.group_ranks for each in inside}
        known = ranks_in_group(texts.pop())
        count += len(known)
        if texts or not known or count > MEMBERS_LIMIT:
            return []
        calls.append(GroupCall(group, number, known, tuple(inside)))
    return sorted(calls, key=lambda call: (-len(call.inside), call.group, call.number))


def awaited_by(ranks: Sequence[PlacedRank]) -> frozenset[int]:
    """The ranks that are missing in the calls of others; empty where that is not known."""
    return frozenset().union(*(call.missing for call in calls_of(ranks)))


def apart_in_groups(ranks: Sequence[PlacedRank], for_s: float) -> JobFinding | None:
    """The finding about ranks that are all in collectives, and for which others each of them waits.

    Args:
        ranks: All ranks of a job, none of which gets on.
        for_s: For how long at least.
    """
    calls = calls_of(ranks)
    by_rank = {each.row.rank or 0: call for call in calls for each in call.inside}
    if not calls or any(not call.missing <= by_rank.keys() for call in calls):
        return None
    unlike = next((call for call in calls if not call.missing and _differs(call.inside)), None)
    if unlike is not None:
        return _unlike(unlike, len(ranks) - len(unlike.inside), for_s)
    path = _cycle(calls, by_rank)
    return _in_cycle(path, calls, for_s) if path else None


def _differs(inside: Sequence[PlacedRank]) -> str:
    """In what ranks differ that are in one call: `operation` or `shape`; empty if in neither."""
    operations = {each.row.operation for each in inside}
    if len(operations) > 1:
        return "operation"
    shapes = {each.row.shape for each in inside}
    return "shape" if len(shapes) > 1 and operations <= ONE_SHAPE else ""


def _cycle(
    calls: Sequence[GroupCall], by_rank: Mapping[int, GroupCall]
) -> list[tuple[GroupCall, int]]:
    """Calls of which each waits for a rank that is in the next one, and the last for the first."""
    path: list[tuple[GroupCall, int]] = []
    call = next((each for each in calls if each.missing), None)
    while call is not None and call.missing:
        known = [each for each, _ in path]
        if call in known:
            return path[known.index(call) :]
        rank = min(call.missing)
        path.append((call, rank))
        call = by_rank[rank]
    return []


def _unlike(call: GroupCall, others: int, for_s: float) -> JobFinding:
    """Ranks of one group are in the same call of it, with another operation or shape."""
    is_operation = _differs(call.inside) == "operation"
    parts: defaultdict[str, list[PlacedRank]] = defaultdict(list)
    for each in call.inside:
        parts[each.row.operation if is_operation else each.row.shape].append(each)
    by_count = sorted(parts.items(), key=lambda item: -len(item[1]))
    odd = by_count[-1][1][0]
    says = "; ".join(f"{what} on {_placed(each)}" for what, each in by_count)
    wait = "rank waits" if others == 1 else "ranks wait"
    more = f" ({others} other {wait} as well)" if others else ""
    of_what = "operations" if is_operation else f"shapes of {call.inside[0].row.operation}"
    return JobFinding(
        rule=MISMATCH,
        severity=Severity.CRITICAL,
        summary=(
            f"the ranks of group {call.group} have called different {of_what} as its collective "
            f"{call.number}: {says}{more}"
        ),
        evidence=tuple(_line(each, call, for_s) for each in call.inside[:NAMES_SHOWN]),
        cause=f"{_OTHER_CALLS if is_operation else DIFFERENT_SHAPES} {WAIT_FOR_TIMEOUT}",
        advice=COMPARE_CALLS if is_operation else SAME_SHAPES,
        node=odd.view.name,
        pid=odd.row.pid,
        rank=odd.row.rank,
    )


_OTHER_CALLS = (
    "All ranks of a group have to make the same calls in the same order. A branch depends on the "
    "rank, its data or its node, or the ranks have made a different number of calls before."
)


def _in_cycle(
    path: Sequence[tuple[GroupCall, int]], calls: Sequence[GroupCall], for_s: float
) -> JobFinding:
    """Ranks of which each waits in one call for a rank that is in the next one."""
    by_rank = {each.row.rank: each for call in calls for each in call.inside}
    # Of each call the rank for which the call before waits.
    waiters = [by_rank[path[place - 1][1]] for place in range(len(path))]
    steps = [
        f"{one.called} waits in {call.called} for {by_rank[rank].called}"
        for one, (call, rank) in zip(waiters, path, strict=True)
    ]
    groups = list(dict.fromkeys(call.group for call, _ in path))
    is_count = len(groups) == 1
    several = f"groups {names_text(groups)}" if not is_count else f"group {groups[0]}"
    # In a cycle of two the one that is missing in the call of fewest ranks is the odd one.
    least = min(range(len(path)), key=lambda place: len(path[place][0].inside))
    odd = by_rank[path[least][1]]
    cause = (
        "The ranks have made a different number of calls of this group: one has left a call out, "
        "or made one more."
        if is_count
        else (
            "Each of them waits in one process group for a rank that waits in another: the ranks "
            "use these groups in a different order, or one of them has left a call out."
        )
    )
    return JobFinding(
        rule=MISMATCH,
        severity=Severity.CRITICAL,
        summary=(
            f"ranks wait for each other in different calls of {several}: "
            f"{'; '.join(steps[:NAMES_SHOWN])}"
        ),
        evidence=tuple(
            _line(one, call, for_s)
            for one, (call, _) in list(zip(waiters, path, strict=True))[:NAMES_SHOWN]
        ),
        cause=f"{cause} {WAIT_FOR_TIMEOUT}",
        advice=(
            "Let all ranks use their groups in one order, and make each call on all ranks of its "
            "group or on none: look for a branch on the rank between the lines above. A longer "
            "timeout changes nothing."
        ),
        node=odd.view.name,
        pid=odd.row.pid,
        rank=odd.row.rank,
    )


def _placed(ranks: Sequence[PlacedRank]) -> str:
    """`rank 2 on node-1`, or `ranks 0, 4 on node-1 and node-2`."""
    if len(ranks) == 1:
        return ranks[0].called
    numbers = numbers_text(each.row.rank or 0 for each in ranks)
    return f"ranks {numbers} on {names_text(dict.fromkeys(each.view.name for each in ranks))}"


def _line(each: PlacedRank, call: GroupCall, for_s: float) -> str:
    """Where a rank is in a call."""
    row = each.row
    shape = f" of {row.shape}" if row.shape else ""
    at = f", called at {row.line}" if row.line else ""
    return (
        f"{each.called} (pid {row.pid}) in {row.operation}{shape} #{call.number} of group "
        f"{call.group}{ranks_words(each)} for at least {seconds_text(for_s)}{at}"
    )


def ranks_words(rank: PlacedRank) -> str:
    """` (ranks 0, 2)`: those of the group of its call; empty where they are not known."""
    members = ranks_in_group(rank.row.group_ranks)
    return f" (ranks {numbers_text(members)})" if members else ""
