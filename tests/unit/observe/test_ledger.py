from __future__ import annotations

from mpwatch.hook import wire
from mpwatch.observe.ledger import HookLedger

from .worlds import MAIN, WORKER_0, event, part


def waited(at_s: float, seconds: float) -> HookLedger:
    ledger = HookLedger(MAIN)
    happened = event(wire.LOADER_NEXT, at_s, duration_ns=int(seconds * 1e9))
    ledger.add_slice(part(MAIN, at_s, happened))
    return ledger


def test_a_main_that_only_waits_has_a_wait_share_of_one() -> None:
    assert waited(10.0, 5.0).wait_share(int(10e9)) == 1.0


def test_the_wait_share_falls_while_main_works() -> None:
    assert waited(10.0, 5.0).wait_share(int(15e9)) == 0.5


def test_waits_older_than_a_minute_do_not_count() -> None:
    assert waited(10.0, 5.0).wait_share(int(100e9)) == 0.0


def test_the_wait_share_is_unknown_before_the_first_batch() -> None:
    assert HookLedger(MAIN).wait_share(int(1e9)) is None


def test_fetch_times_become_quantiles_and_a_recent_line() -> None:
    ledger = HookLedger(WORKER_0)
    for number in range(100):
        happened = event(
            wire.LOADER_FETCH, 1.0 + number, key2=3, aux=number, duration_ns=(number + 1) * 10**6
        )
        ledger.add_slice(part(WORKER_0, 1.0, happened))

    load = ledger.worker_load(int(200e9))

    assert load is not None
    assert load.worker_id == 3
    assert load.fetched == 100
    assert load.fetch_p50_s == 0.051
    assert load.fetch_p99_s == 0.1
    assert load.recent_s[-1] == 0.1
    assert load.task is None


def test_the_cache_is_known_from_events_until_gauges_say_more() -> None:
    ledger = HookLedger(MAIN)
    ledger.add_slice(part(MAIN, 1.0, event(wire.CACHE_SET, 1.0, aux=42)))

    cache = ledger.shared_cache()

    assert cache is not None
    assert (cache.entries, cache.limit) == (42, None)


def test_a_change_of_strategy_is_followed() -> None:
    ledger = HookLedger(MAIN)
    ledger.add_slice(part(MAIN, 1.0, event(wire.STRATEGY, 1.0, aux=2)))

    assert ledger.strategy == "file_system"
