"""What several rules derive from the same snapshot, derived once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from mpwatch.model.snapshot import Process, Snapshot

_T = TypeVar("_T")


def once_per_reading(derive: Callable[[Snapshot], _T]) -> Callable[[Snapshot], _T]:
    """Remember what a pure function of a snapshot's processes returned, for the last ones only.

    Snapshots that differ in other fields alone share their tuple of processes, so the identity of
    that tuple is what counts. It is held with the result: while it lives, no other can have its
    identity. Threads may ask at once; at worst both derive.
    """
    last: tuple[tuple[Process, ...], _T] | None = None

    @wraps(derive)
    def derived(snapshot: Snapshot) -> _T:
        nonlocal last
        known = last
        if known is not None and known[0] is snapshot.processes:
            return known[1]
        value = derive(snapshot)
        last = (snapshot.processes, value)
        return value

    return derived
