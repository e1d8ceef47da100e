from __future__ import annotations

from mpwatch.diagnose.rules.transport import sharedcache_growth, sharedcache_lock_reentry
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import SharedCache
from tests.builders.snapshots import (
    found,
    main,
    only,
    snapshot_of,
    thread,
)


def test_a_large_dead_cache_is_information() -> None:
    job = snapshot_of(main(more={"shared_cache": SharedCache(2000, 4000, 1990)}))

    finding = only(sharedcache_growth.check, job)

    assert "at most about" in finding.summary

    assert finding.severity is Severity.INFO
    assert "about 2000" in finding.summary


def test_a_cache_that_is_small_alive_or_unknown_is_quiet() -> None:
    for cache in (
        None,
        SharedCache(2000),
        SharedCache(200, 400, 200),
        SharedCache(2000, 4000, 100),
    ):
        assert (
            found(sharedcache_growth.check, snapshot_of(main(more={"shared_cache": cache}))) == []
        )


REDUCTIONS = "torch/multiprocessing/reductions.py"


def test_a_finalizer_that_takes_the_lock_it_runs_under_is_named() -> None:
    stuck = thread(
        100,
        f"{REDUCTIONS}:get",
        f"{REDUCTIONS}:storage_from_cache",
        "train.py:__del__:9",
        f"{REDUCTIONS}:__setitem__",
        f"{REDUCTIONS}:rebuild_storage_fd",
        name="MainThread",
    )

    finding = only(sharedcache_lock_reentry.check, snapshot_of(main(threads=[stuck])))

    assert finding.tid == 100
    assert any("train.py:9 __del__" in each for each in finding.evidence)


def test_a_signal_handler_that_takes_the_lock_is_named_too() -> None:
    stuck = thread(100, f"{REDUCTIONS}:get", "train.py:on_alarm", f"{REDUCTIONS}:__setitem__")

    finding = only(sharedcache_lock_reentry.check, snapshot_of(main(threads=[stuck])))

    assert finding.severity is Severity.CRITICAL


def test_the_sweep_inside_an_insertion_is_ordinary() -> None:
    sweeps = thread(100, f"{REDUCTIONS}:free_dead_references", f"{REDUCTIONS}:__setitem__")
    once = thread(100, f"{REDUCTIONS}:get", "train.py:f")

    assert found(sharedcache_lock_reentry.check, snapshot_of(main(threads=[sweeps]))) == []
    assert found(sharedcache_lock_reentry.check, snapshot_of(main(threads=[once]))) == []
