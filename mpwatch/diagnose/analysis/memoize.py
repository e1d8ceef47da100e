"""What several rules derive from the same snapshot, derived once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from mpwatch.model.snapshot import Process, Segment, Snapshot

_T = TypeVar("_T")


def once_per_reading(derive: Callable[[Snapshot], _T]) -> Callable[[Snapshot], _T]:
    """Remember what a function of a snapshot's processes and segments returned, for the last ones.

    Snapshots that differ in other fields alone share these two tuples, so their identity is what
    counts. They are held with the result: while they live, no other can have their identity.
    Threads may ask at once; at worst both derive.
    """
    last: tuple[tuple[Process, ...], tuple[Segment, ...], _T] | None = None

    @wraps(derive)
    def derived(snapshot: Snapshot) -> _T:
        nonlocal last
        known = last
        if known is not None and known[0] is snapshot.processes and known[1] is snapshot.segments:
            return known[2]
        value = derive(snapshot)
        last = (snapshot.processes, snapshot.segments, value)
        return value

    return derived
