"""The collectives of a rank, from torch's flight recorder: see `collectives` in `hook.wire`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mpwatch.model.collectives import Recorded
from mpwatch.model.snapshot import Process

STUCK = "rank-stuck-in-collective"
MISMATCH = "collective-mismatch"
"""The rules about ranks that wait for each other, whatever the source of a finding is."""
ONE_SHAPE = frozenset(("all_reduce", "broadcast", "reduce", "barrier", "all_gather"))
"""Operations for which all ranks give tensors of the same shape and type."""

# Sentences of findings, the same for a running job and for the files that a dead one has left.
WAIT_FOR_TIMEOUT = (
    "None of them can continue: they wait until the timeout of the process group expires."
)
DIFFERENT_SHAPES = "The ranks call the same collective with tensors of a different shape or type."
SAME_SHAPES = "Give tensors of one shape and type on all ranks: pad the last batch, or drop it."
COMPARE_CALLS = (
    "Compare the lines above: all ranks have to call the same collectives in the same order. "
    "TORCH_DISTRIBUTED_DEBUG=DETAIL checks each call and names the first difference, at a cost in "
    "speed."
)


def recorded(process: Process) -> tuple[Recorded, ...]:
    """What the flight recorder of a rank holds of each group; empty where it was not read.

    The hook reports it once a process has neither begun nor finished a collective for some seconds;
    without a hook it is read through the worker server of a process that has one.
    """
    gauge = process.gauges.get("collectives")
    if not isinstance(gauge, Mapping):
        return ()
    states, groups = gauge.get("states"), gauge.get("groups")
    facts = groups if isinstance(groups, Mapping) else {}
    return tuple(_parsed(states if isinstance(states, list) else [], facts))


def unfinished(process: Process) -> Recorded | None:
    """The collective that a rank is in; `None` if in none, in several groups, or if unknown."""
    found = [each for each in recorded(process) if each.is_unfinished]
    return found[0] if len(found) == 1 else None


def number_of(process: Process) -> int | None:
    """The number of a rank, by its place in the first process group; `None` if unknown."""
    if process.sample.rank is not None:
        return process.sample.rank
    gauge = process.gauges.get("collectives")
    groups = gauge.get("groups") if isinstance(gauge, Mapping) else None
    first = groups.get("0") if isinstance(groups, Mapping) else None
    rank = first.get("rank") if isinstance(first, Mapping) else None
    return rank if type(rank) is int else None


def _parsed(states: list[object], facts: Mapping[object, object]) -> Iterator[Recorded]:
    """The states that are as `hook.wire` says; any other, of another program, is left out."""
    for state in states:
        if not isinstance(state, Mapping):
            continue
        number, group, operation = (state.get(key) for key in ("number", "group", "operation"))
        if type(number) is not int or type(group) is not str or type(operation) is not str:
            continue
        fact = facts.get(group)
        yield Recorded(
            group=group,
            description=str(state.get("description") or ""),
            operation=operation.rpartition(":")[2],
            number=number,
            sizes=str(state.get("sizes") or ""),
            types=str(state.get("types") or ""),
            is_unfinished=state.get("is_unfinished") is True,
            ranks=_ranks(fact) if isinstance(fact, Mapping) else None,
        )


def _ranks(fact: Mapping[object, object]) -> frozenset[int] | None:
    """The ranks of a group, unless the list was cut."""
    names = str(fact.get("ranks") or "").split(", ")
    if len(names) != fact.get("size") or not all(n.isascii() and n.isdecimal() for n in names):
        return None
    return frozenset(map(int, names))
