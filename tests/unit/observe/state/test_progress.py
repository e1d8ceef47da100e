from __future__ import annotations

from collections.abc import Iterable

import pytest

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookGauges, HookHello
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import BUCKET_S, RECENT_BUCKETS, ProgressSource, pace
from mpwatch.observe.state.fold import ENDED_KEPT, Fold
from mpwatch.observe.state.progress import UNRECORDED_LIMIT, WHOLE_BUCKETS, ProgressTable
from tests.builders.samples import MAIN, WORKER_0, event, hook_slice, job, rebuilt

QUEUE, OTHER_QUEUE = 7, 8


def table(
    *events: HookEvent, process: ProcessId = MAIN, lost: int = 0, at_s: float = 1e6
) -> ProgressTable:
    found = ProgressTable()
    add(found, events, process, lost, at_s)
    return found


def add(
    to: ProgressTable,
    events: Iterable[HookEvent],
    process: ProcessId = MAIN,
    lost: int = 0,
    at_s: float = 1e6,
) -> None:
    part = hook_slice(process, at_s, *events, lost=lost)
    to.add_events(part, part.events)


def only(found: ProgressTable) -> ProgressSource:
    (source,) = found.sources()
    return source


def batch(at_s: float) -> HookEvent:
    return event(wire.LOADER_NEXT, at_s, key=5)


def put(at_s: float, number: int, queue: int = QUEUE) -> HookEvent:
    return event(wire.QUEUE_PUT, at_s, key=queue, aux=number)


def collectives(at_s: float, completed: int, group: str = "0") -> HookGauges:
    states = [{"id": group, "enqueued": completed + 1, "completed": completed, "unchanged_ns": 0}]
    return HookGauges(MAIN, at_s, {"collectives": {"groups": {}, "states": states}})


def test_batches_are_counted_at_the_time_of_each_event() -> None:
    source = only(table(*(batch(1000 + n / 4) for n in range(400))))

    assert (source.kind, source.process, source.total) == ("batches", MAIN, 400)
    assert (source.since_s, source.last_s, source.is_cut) == (1000.0, 1099.75, False)
    assert list(source.all_recent().counts) == [4 * int(BUCKET_S)] * 20
    assert list(source.all_whole().counts) == [4 * int(BUCKET_S)] * 20


def test_a_process_that_has_done_nothing_is_no_source() -> None:
    found = table(event(wire.LOADER_START, 1.0), event(wire.QUEUE_GET, 2.0, flags=wire.FLAG_RAISED))
    found.add_gauges(HookGauges(MAIN, 3.0, {"loaders": [{"key": 5, "rcvd": 0}]}))
    found.add_gauges(collectives(4.0, 0))

    assert found.sources() == ()


def test_calls_of_a_queue_that_were_not_recorded_are_counted_by_their_numbers() -> None:
    source = only(table(put(1.0, 1), put(1.1, 17), put(1.2, 33)))

    assert (source.kind, source.total) == ("puts", 33)


def test_the_queues_of_one_class_are_counted_once() -> None:
    events = [put(n, 10 * n, QUEUE if n % 2 else OTHER_QUEUE) for n in range(1, 51)]

    assert only(table(*events)).total == 1 + 490  # of the first ten only the last one is known


def test_queues_of_two_classes_are_counted_apart() -> None:
    calls = [put(n, n, QUEUE) for n in range(1, 31)] + [put(n, n, OTHER_QUEUE) for n in range(1, 6)]
    together = [put(40, 31, QUEUE), put(41, 6, OTHER_QUEUE), put(42, 7, OTHER_QUEUE)]

    assert only(table(*calls, *together)).total == 38


def test_a_fork_that_continues_the_numbers_of_its_parent_adds_none_of_those() -> None:
    continued = 4 * UNRECORDED_LIMIT
    calls = [
        put(1, 21),
        put(2, continued, OTHER_QUEUE),
        put(3, 22),
        put(4, continued + 1, OTHER_QUEUE),
    ]

    assert only(table(*calls)).total == 4


def test_a_call_that_another_thread_records_later_is_not_counted_twice() -> None:
    assert only(table(put(1, 1), put(2, 3), put(3, 2), put(4, 4))).total == 4


def test_a_hook_that_was_attached_again_counts_from_one() -> None:
    found = table(*(put(n, n) for n in range(1, 31)))
    for since_ns in (1, 2):
        found.add_hello(HookHello(MAIN, 40.0, 1, "3.11", None, 100, since_ns=since_ns))
    add(found, [put(41, 1), put(42, 2)])

    assert only(found).total == 32


def test_queues_of_a_loader_and_of_its_workers_are_not_counted() -> None:
    birth = {"birth": {"worker_id": 0, "loader": 5}}
    found = ProgressTable()
    found.add_hello(HookHello(WORKER_0, 1.0, 1, "3.11", None, 100, data=birth))
    add(found, [put(2, 1), put(3, 2)], WORKER_0)
    add(found, [put(1, 1), event(wire.LOADER_PUT_INDEX, 1.1), batch(2.0), put(3, 2)])

    assert only(found).kind == "batches"


def test_received_tensors_are_counted_without_those_sent_by_value() -> None:
    empty = event(wire.REBUILD, 2.0, flags=wire.FLAG_EMPTY)

    source = only(table(rebuilt(1.0, key=1), empty, rebuilt(3.0, key=2)))

    assert (source.kind, source.total, source.last_s) == ("tensors", 2, 3.0)


def test_collectives_finished_before_the_hook_was_loaded_count_as_one() -> None:
    found = ProgressTable()
    for at_s, completed in ((10.0, 500), (11.0, 505), (12.0, 505), (13.0, 509)):
        found.add_gauges(collectives(at_s, completed))

    source = only(found)
    assert (source.kind, source.total, source.since_s, source.last_s) == ("collectives", 10, 10, 13)
    assert pace([source], 13.0).whole_per_s == 3.0


def test_collectives_between_two_readings_are_of_the_time_between() -> None:
    found = ProgressTable()
    for at_s, completed in ((10.0, 1), (13.5, 8), (15.5, 12), (19.0, 19)):
        found.add_gauges(collectives(at_s, completed))

    assert list(only(found).all_recent().counts) == [1 + 7 + 3, 1 + 7]


def test_collectives_of_several_groups_are_added() -> None:
    found = ProgressTable()
    for at_s, completed in ((10.0, 5), (11.0, 7)):
        for group in ("0", "1"):
            found.add_gauges(collectives(at_s, completed, group))

    assert only(found).total == 1 + 5 + 2 + 2


def test_a_loader_that_was_stuck_before_the_hook_was_loaded_has_made_progress_once() -> None:
    found = ProgressTable()
    for at_s in (10.0, 20.0):
        found.add_gauges(HookGauges(MAIN, at_s, {"loaders": [{"key": 5, "rcvd": 17}]}))

    rates = pace(found.sources(), 25.0)

    assert (rates.total, rates.now_per_s, rates.idle_s) == (1, 0.0, 15.0)
    assert rates.before_per_s is None


def test_records_lost_before_the_first_ones_make_a_source_cut() -> None:
    assert only(table(batch(1.0), lost=9)).is_cut


@pytest.mark.parametrize(
    "gauge",
    [None, [], {"states": [None, {"completed": True}, {"id": 1}, {"completed": 10**400}]}],
)
def test_gauges_of_another_form_are_no_progress(gauge: object) -> None:
    found = ProgressTable()
    found.add_gauges(HookGauges(MAIN, 1.0, {"collectives": gauge, "loaders": gauge}))

    assert found.sources() == ()


def test_a_day_takes_no_more_room_than_minutes_and_keeps_every_count() -> None:
    found = ProgressTable()
    for n in range(0, 86_400, 3):
        add(found, [batch(n)])
    add(found, [batch(200_000)])

    source = only(found)
    assert sum(source.all_whole().counts) == 28_801
    assert len(source.all_whole().counts) <= WHOLE_BUCKETS
    assert len(source.all_recent().counts) <= 2 * RECENT_BUCKETS
    assert pace([source], 86_400 * 2).whole_per_s == pytest.approx(28_800 / 172_800, rel=0.2)


def test_any_numbers_of_calls_have_rates() -> None:
    numbers = (1, 2**64 - 1, 3, 2**64 - 1, 0)
    found = table(*(put(10 * n, number) for n, number in enumerate(numbers)))

    rates = pace(found.sources(), 100.0)

    assert rates.whole_per_s is not None
    assert rates.whole_per_s > 2**57


def test_a_time_in_the_future_is_that_of_the_arrival() -> None:
    assert only(table(batch(9e9), at_s=50.0)).last_s == 50.0


def test_what_was_handed_out_stays_as_it_is() -> None:
    found = table(batch(1.0))
    before = only(found)
    again = only(found)
    add(found, [batch(2.0), batch(7.0)])

    assert before is again
    assert (before.total, list(before.all_recent().counts)) == (1, [1])
    assert (only(found).total, list(only(found).all_recent().counts)) == (3, [2, 1])


def test_the_sum_of_processes_that_are_no_longer_shown_is_kept() -> None:
    found = table(*(batch(n) for n in range(100)))
    add(found, [batch(n) for n in range(50, 300)], WORKER_0)

    for process in (WORKER_0, MAIN):
        found.forget(process)

    source = only(found)
    assert (source.process, source.total, source.since_s, source.last_s) == (None, 350, 0.0, 299.0)
    assert sum(source.all_whole().counts) == sum(source.all_recent().counts) == 350


def test_a_snapshot_has_the_progress_and_sums_of_hooks_forgotten_since() -> None:
    fold = Fold()
    fold.apply(job(0.5))
    fold.apply(hook_slice(MAIN, 1.0, batch(0.9)))
    for n in range(ENDED_KEPT + 2):
        fold.apply(hook_slice(ProcessId(1000 + n, 1), 1.0, put(0.9, 1)))
    fold.apply(job(1.5))

    found = fold.snapshot().progress

    assert {(source.kind, source.total) for source in found if source.process == MAIN} == {
        ("batches", 1)
    }
    assert [source.total for source in found if source.process is None] == [2]
    assert len(found) == ENDED_KEPT + 2
