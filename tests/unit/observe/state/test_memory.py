"""A job that starts new workers again and again: what is kept of them stays bounded."""

from __future__ import annotations

import gc

import pytest

from mpwatch.hook import wire
from mpwatch.model.events import HookHello, HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.observe.state.fold import ENDED_KEPT, Fold
from tests.builders.samples import MAIN, event, hook_slice, rebuilt, sample, shared, tree

WORKERS = 4
SETTLED_EPOCHS = ENDED_KEPT + 20
EPOCHS = 2 * SETTLED_EPOCHS
SEGMENTS = 50
"""Inodes in use at a time: the kernel reuses them."""


def epoch(fold: Fold, number: int) -> None:
    """New workers, a batch of each to main; those of the epoch before have exited."""
    at_s = 1.0 + number
    workers = [ProcessId(1_000 + number * WORKERS + n, 5_000 + number) for n in range(WORKERS)]
    living = (sample(p, at_s, parent=100, role="loader-worker") for p in workers)
    fold.apply(tree(at_s, sample(MAIN, at_s, role="main"), *living))
    for n, worker in enumerate(workers):
        key = (number * WORKERS + n) % SEGMENTS
        fetched = event(wire.LOADER_FETCH, at_s, key2=n, aux=number)
        fold.apply(HookStatus(worker, at_s, "ready"))
        fold.apply(HookHello(worker, at_s, 1, "3.11.7", "2.13.0", worker.pid))
        fold.apply(hook_slice(worker, at_s, shared(at_s, key), fetched))
        fold.apply(hook_slice(MAIN, at_s, rebuilt(at_s + 0.001, key)))
    stranger = ProcessId(900_000 + number, number)
    fold.apply(HookStatus(stranger, at_s, "ready"))
    fold.snapshot()


def living_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.slow
def test_nothing_is_kept_of_the_workers_of_earlier_epochs() -> None:
    fold = Fold()
    for number in range(SETTLED_EPOCHS):
        epoch(fold, number)
    settled = living_objects()
    for number in range(SETTLED_EPOCHS, EPOCHS):
        epoch(fold, number)

    assert living_objects() < settled + EPOCHS - SETTLED_EPOCHS
    assert len(fold.snapshot().flows) <= ENDED_KEPT + 2 * WORKERS
