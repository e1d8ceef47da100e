"""A job that starts new workers again and again: what is kept of them stays bounded."""

from __future__ import annotations

import gc
from functools import partial

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.engine import Engine
from mpwatch.hook import wire
from mpwatch.model.events import HookHello, HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, TreeSample
from mpwatch.observe.state.fold import ENDED_KEPT, Fold
from tests.builders.samples import MAIN, event, hook_slice, rebuilt, sample, shared, tree
from tests.builders.short_lived import peak_bytes, short_lived

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


FEW, MANY = 300, 1200
"""Short-lived processes; with the fewer ones all limits are reached."""
KEPT_OF_EACH_BYTES = 40
"""Less than anything that is kept of each takes: its identity alone takes more."""


def fold_to_the_end(count: int) -> None:
    fold, engine = Fold(), Engine(rules=())
    for each in short_lived(count):
        fold.apply(each)
        if isinstance(each, TreeSample):
            engine.diagnosed(fold.snapshot(), fold.history())
            gc.collect()


@pytest.mark.slow
def test_folding_four_times_the_short_lived_processes_takes_no_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mpwatch.observe.state.fold.ENDED_KEPT", 32)
    monkeypatch.setattr("mpwatch.observe.state.event_log.KEPT", 256)
    fold_to_the_end(FEW)  # what is made once
    few, many = (peak_bytes(partial(fold_to_the_end, count)) for count in (FEW, MANY))

    assert many - few < KEPT_OF_EACH_BYTES * (MANY - FEW)


def test_processes_that_are_no_longer_kept_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpwatch.observe.state.fold.ENDED_KEPT", 3)
    fold, counts = Fold(), []
    for number in range(10):
        at_s = 1.0 + number
        worker = ProcessId(1_000 + number, 5_000 + number)
        fold.apply(tree(at_s, sample(MAIN, at_s, role="main"), sample(worker, at_s, parent=100)))
        fold.apply(HookStatus(worker, at_s, "ready"))
        fold.apply(replace(hook_slice(worker, at_s, shared(at_s, 1)), lost=2))
        snapshot = fold.snapshot()
        ended = [each for each in snapshot.processes if each.is_gone]
        lost = sum(each.hook.lost for each in snapshot.processes)
        counts.append((len(ended) + snapshot.ended_before, lost + snapshot.lost_before))

    assert counts == [(number, 2 * (number + 1)) for number in range(10)]


def test_children_that_nobody_reaps_are_kept_while_they_are_in_the_job() -> None:
    fold = Fold()
    zombies = [ProcessId(1_000 + n, 1_000 + n) for n in range(ENDED_KEPT + 10)]
    for at_s in (1.0, 2.0, 3.0):
        state = "S" if at_s == 1.0 else "Z"
        children = (sample(each, at_s, parent=100, state=state) for each in zombies)
        fold.apply(tree(at_s, sample(MAIN, at_s, role="main"), *children))
        if at_s == 1.0:
            for each in zombies:
                fold.apply(Ended(each, 1.5, 0))

    snapshot = fold.snapshot()
    assert len(snapshot.processes) == len(zombies) + 1
    assert not [entry for entry in snapshot.log if entry.kind == "started"]
