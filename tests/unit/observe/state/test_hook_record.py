from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookGauges, HookHello, HookNote
from mpwatch.model.snapshot import SharedCache
from mpwatch.observe.state.hook_state import HookRecord
from tests.builders.samples import MAIN, WORKER_0, event, hook_slice


def share_after(now_s: float, *waits: HookEvent) -> float | None:
    """The share of the waits of a process for its loader 1."""
    record = HookRecord(MAIN)
    record.add_gauges(HookGauges(MAIN, 1.0, {"loaders": [{"key": 1}]}))
    record.add_slice(hook_slice(MAIN, 10.0, *waits))
    (loader,) = record.loaders(int(now_s * 1e9))
    assert loader.wait_share == loader.process_wait_share
    return loader.wait_share


FIVE_SECONDS = event(wire.LOADER_NEXT, 10.0, key=1, duration_ns=int(5e9))


def test_a_main_that_only_waits_has_a_wait_share_of_one() -> None:
    assert share_after(10.0, FIVE_SECONDS) == 1.0


def test_the_wait_share_falls_while_main_works() -> None:
    assert share_after(15.0, FIVE_SECONDS) == 0.5


def test_waits_older_than_a_minute_do_not_count() -> None:
    assert share_after(100.0, FIVE_SECONDS) == 0.0


def test_the_wait_share_is_unknown_before_the_first_batch() -> None:
    assert share_after(1.0) is None


def test_fetch_times_become_quantiles_and_a_recent_line() -> None:
    ledger = HookRecord(WORKER_0)
    for number in range(100):
        happened = event(
            wire.LOADER_FETCH, 1.0 + number, key2=3, aux=number, duration_ns=(number + 1) * 10**6
        )
        ledger.add_slice(hook_slice(WORKER_0, 1.0, happened))

    load = ledger.worker_load(int(200e9))

    assert load is not None
    assert load.worker_id == 3
    assert load.fetched == 100
    assert load.fetch_p50_s == 0.051
    assert load.fetch_p99_s == 0.1
    assert load.recent_s[-1] == 0.1
    assert load.task is None


def test_lost_are_records_and_notes_of_all_hooks_a_process_had() -> None:
    ledger = HookRecord(MAIN)
    for since_ns in (1, 2):
        ledger.add_hello(HookHello(MAIN, 1.0, 1, "3.11", None, MAIN.pid, since_ns=since_ns))
        ledger.add_slice(replace(hook_slice(MAIN, 1.0, event(wire.SHARE, 1.0)), lost=10))
        for lost in (2, 3):
            ledger.add_note(HookNote(MAIN, 5, "fork", {}, lost, number=lost))

    assert (ledger.hook().lost, ledger.hook().lost_notes) == (26, 6)


def test_the_cache_is_known_from_events_until_gauges_say_more() -> None:
    ledger = HookRecord(MAIN)
    entries = []
    for kind, aux, flags in (
        (wire.SHARE, 42, 0),
        (wire.SHARE, 0, wire.FLAG_EMPTY),
        (wire.CACHE_SWEEP, 7, 0),
    ):
        ledger.add_slice(hook_slice(MAIN, 1.0, event(kind, 1.0, aux=aux, flags=flags)))
        cache = ledger.shared_cache()
        entries.append(cache and (cache.entries, cache.limit))
    ledger.add_gauges(HookGauges(MAIN, 2.0, {"shared_cache": {"entries": 9, "limit": 128}}))

    assert entries == [(42, None), (42, None), (7, None)]
    assert ledger.shared_cache() == SharedCache(9, 128)


def test_a_change_of_strategy_is_followed() -> None:
    ledger = HookRecord(MAIN)
    ledger.add_gauges(HookGauges(MAIN, 1.0, {"strategy": "file_descriptor"}))
    ledger.add_gauges(HookGauges(MAIN, 2.0, {"strategy": "file_system"}))
    ledger.add_gauges(HookGauges(MAIN, 3.0, {"strategy": None}))

    assert ledger.strategy == "file_system"


def test_a_wait_that_has_ended_since_it_was_read_is_over() -> None:
    ledger = HookRecord(MAIN)
    reading = {"key": 1, "workers": 2, "rcvd": 7, "owner": 1, "waiting_since_ns": int(10e9)}
    ledger.add_gauges(HookGauges(MAIN, 11.0, {"loaders": [reading]}))
    assert ledger.loaders(int(12e9))[0].waiting_since_s == 2.0

    ended = event(wire.LOADER_NEXT, 11.5, key=1, duration_ns=int(1.5e9), aux=7)
    ledger.add_slice(hook_slice(MAIN, 11.6, ended))

    (loader,) = ledger.loaders(int(12e9))
    assert loader.waiting_since_s is None
    assert loader.next_task == 8


def test_an_index_read_for_an_earlier_batch_is_not_shown_for_this_one() -> None:
    ledger = HookRecord(WORKER_0)
    ledger.add_gauges(HookGauges(WORKER_0, 1.0, {"worker": {"task": 5, "index": 77}}))
    for task in (5, 6):
        ledger.add_slice(
            hook_slice(WORKER_0, 1.0, event(wire.LOADER_FETCH_BEGIN, 1.0, key2=0, aux=task))
        )
        load = ledger.worker_load(int(2e9))
        assert load is not None
        assert load.index == ("77" if task == 5 else None)


def test_allocator_figures_that_were_read_once_stay_with_their_time() -> None:
    ledger = HookRecord(MAIN)
    devices = [{"index": 1, "allocated": 5, "reserved": 7, "max_allocated": 6}]
    ledger.add_gauges(HookGauges(MAIN, 10.0, {"cuda": {"devices": devices}, "strategy": "a"}))
    ledger.add_gauges(HookGauges(MAIN, 12.0, {"strategy": "b"}))

    (use,) = ledger.gpu_uses()

    assert (use.index, use.allocated_bytes, use.reserved_bytes, use.read_at_s) == (1, 5, 7, 10.0)
    assert ledger.strategy == "b"


def test_newer_allocator_figures_replace_the_older() -> None:
    ledger = HookRecord(MAIN)
    for at_s, allocated in ((10.0, 5), (20.0, 9)):
        devices = [{"index": 0, "allocated": allocated, "reserved": 16}]
        ledger.add_gauges(HookGauges(MAIN, at_s, {"cuda": {"devices": devices}}))

    assert [(use.allocated_bytes, use.read_at_s) for use in ledger.gpu_uses()] == [(9, 20.0)]


def test_the_backlog_is_what_queues_without_a_bound_hold() -> None:
    record = HookRecord(MAIN)
    assert record.queue_backlog() is None
    queues = [
        {"key": 1, "maxsize": None, "depth": 40},
        {"key": 2, "maxsize": None, "depth": 2},
        {"key": 3, "maxsize": 100, "depth": 100},
        {"key": 4, "maxsize": None, "depth": None},
    ]

    record.add_gauges(HookGauges(MAIN, 1.0, {"queues": queues}))

    assert record.queue_backlog() == 42

    record.add_gauges(HookGauges(MAIN, 2.0, {"queues": queues[2:]}))
    assert record.queue_backlog() is None


def test_the_wait_for_one_loader_does_not_count_for_another_one() -> None:
    record = HookRecord(MAIN)
    happened = [
        event(wire.LOADER_NEXT, at_s, key=key, duration_ns=int(2e9))
        for at_s, key in ((2.0, 1), (10.0, 2), (8.0, 1))
    ]
    record.add_slice(hook_slice(MAIN, 10.0, *happened))
    gauges = {"loaders": [{"key": 1}, {"key": 2}]}
    record.add_gauges(HookGauges(MAIN, 10.0, gauges))

    one, other = record.loaders(int(10e9))

    assert one.wait_share == pytest.approx(0.4)
    assert other.wait_share == pytest.approx(0.2)
    assert one.process_wait_share == other.process_wait_share == pytest.approx(0.6)
