from __future__ import annotations

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookGauges
from mpwatch.observe.state.fold import Fold
from mpwatch.observe.state.hook_state import FETCHES_REMEMBERED, BatchBook, standing
from tests.builders.samples import MAIN, WORKER_0, WORKER_1, event, hook_slice, job

LOADER = 5


def handed(batch: int, worker: int, at_s: float) -> HookEvent:
    return event(wire.LOADER_PUT_INDEX, at_s, key=LOADER, key2=worker, aux=batch)


def taken(batch: int, at_s: float) -> HookEvent:
    return event(wire.LOADER_NEXT, at_s, key=LOADER, aux=batch)


def begun(batch: int, worker: int, at_s: float) -> HookEvent:
    return event(wire.LOADER_FETCH_BEGIN, at_s, key=LOADER, key2=worker, aux=batch)


def finished(batch: int, worker: int, at_s: float) -> HookEvent:
    return event(wire.LOADER_FETCH, at_s, key=LOADER, key2=worker, aux=batch)


def book(*happened: HookEvent) -> BatchBook:
    found = BatchBook()
    for each in happened:
        found.add(each)
    return found


def test_batches_handed_to_a_worker_wait_before_it_until_it_begins() -> None:
    main = book(handed(0, 1, 1.0), handed(2, 1, 1.0))

    assert standing(main, book(), LOADER, 1) == (2, 0)
    assert standing(main, book(begun(0, 1, 1.1)), LOADER, 1) == (1, 0)


def test_finished_batches_are_parked_until_main_takes_them() -> None:
    main = book(handed(0, 0, 1.0), handed(1, 1, 1.0))
    worker = book(begun(1, 1, 1.1), finished(1, 1, 1.2))

    assert standing(main, worker, LOADER, 1) == (0, 1)

    main.add(taken(0, 2.0))
    main.add(taken(1, 2.1))

    assert standing(main, worker, LOADER, 1) == (0, 0)


def test_the_next_epoch_does_not_take_batches_of_the_last_for_finished() -> None:
    worker = book(finished(0, 0, 1.2))
    main = book(handed(0, 0, 1.0), taken(0, 1.3))
    main.add(event(wire.LOADER_START, 2.0, key=LOADER))
    main.add(handed(0, 0, 2.1))

    assert standing(main, worker, LOADER, 0) == (1, 0)


def test_parked_batches_are_unknown_where_batches_are_returned_out_of_order() -> None:
    main = book(handed(0, 0, 1.0), handed(1, 1, 1.0), taken(0, 2.0), taken(0, 2.1))

    assert standing(main, book(), LOADER, 1) == (1, None)


def test_a_worker_that_outlived_many_batches_remembers_the_last_ones() -> None:
    worker = book(*(finished(n, 0, float(n)) for n in range(10 * FETCHES_REMEMBERED)))
    newest = 10 * FETCHES_REMEMBERED - 1
    main = book(handed(newest, 0, newest - 0.5))

    assert standing(main, worker, LOADER, 0) == (0, 1)


def test_snapshots_have_the_batches_of_each_worker_with_a_hook() -> None:
    fold = Fold()
    fold.apply(job(1.0))
    fold.apply(hook_slice(MAIN, 1.5, handed(0, 0, 1.1), handed(1, 1, 1.1), handed(2, 0, 1.2)))
    fold.apply(hook_slice(WORKER_0, 1.5, begun(0, 0, 1.3)))

    found = {p.process: p.loader for p in fold.snapshot().processes}

    first = found[WORKER_0]
    assert first is not None
    assert (first.queued, first.parked) == (1, 0)
    assert found[WORKER_1] is None


def test_a_worker_with_a_late_hook_is_known_by_the_list_of_its_loader() -> None:
    fold, other = Fold(), LOADER + 1
    fold.apply(job(1.0))
    given = handed(0, 0, 1.1), event(wire.LOADER_PUT_INDEX, 1.1, key=other, key2=0, aux=9)
    fold.apply(hook_slice(MAIN, 1.5, *given))
    fold.apply(hook_slice(WORKER_0, 1.5, begun(0, 0, 1.3), finished(0, 0, 1.4)))
    of_two = [{"key": LOADER, "pids": [7]}, {"key": other, "pids": [WORKER_0.pid]}, "?", {}]

    fold.apply(HookGauges(MAIN, 1.5, {"loaders": of_two}))
    (worker,) = [p.loader for p in fold.snapshot().processes if p.process == WORKER_0]

    assert worker is not None
    assert (worker.loader, worker.queued, worker.parked) == (other, 1, 0)
