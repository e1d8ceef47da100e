from __future__ import annotations

from dataclasses import replace

import pytest

from mpwatch.diagnose.rules.throughput.lock_contention import check
from mpwatch.model.account import Activity
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Snapshot
from tests.builders.accounts import COMPUTES, SLEEPS, WAITS_IN_QUEUE, waits_for_lock, with_shares
from tests.builders.snapshots import found, main, only, pid, process, snapshot_of, thread

LOCK = waits_for_lock(77)
FILE_LOCK = Activity("waiting", "the lock on /data/cache.db", "lock", (), "cache.py:12 put")


def job(works: float, lock: Activity = LOCK, count: int = 4, **more: Activity) -> Snapshot:
    """Main that sleeps and workers that work or wait for a lock."""
    numbers = range(200, 200 + count)
    shares = {
        f"p{n}": {COMPUTES: works, lock: 1 - works, **dict.fromkeys(more.values(), 0.3)}
        for n in numbers
    }
    processes = [process(n, "spawned") for n in numbers]
    return with_shares(snapshot_of(main(), *processes), p100={SLEEPS: 1.0}, **shares)


def test_processes_that_work_one_at_a_time_under_one_lock_are_named() -> None:
    finding = only(check, job(works=0.25))

    assert finding.severity is Severity.WARNING
    assert finding.process == pid(200)
    assert finding.others == (pid(201), pid(202), pid(203))
    assert finding.summary == (
        "4 processes wait 75% of the time for one lock (semaphore 1b:77): one of them works at a "
        "time, at train.py:30 step"
    )
    assert finding.evidence[0] == (
        "spawned 200 (200): 75% waiting for it at train.py:34 run, 25% at work"
    )
    assert finding.evidence[-2].startswith("together they work as much as 1.0 processes would")
    assert "at most 4.0 times as fast" in finding.evidence[-1]
    assert "after train.py:34 run" in finding.advice


def test_a_lock_on_a_file_is_called_one() -> None:
    finding = only(check, job(works=0.5, lock=FILE_LOCK, count=2))

    assert "2 processes wait 50% of the time for the lock on /data/cache.db" in finding.summary


def test_a_lock_that_one_process_keeps_is_left_to_the_rules_for_hangs() -> None:
    def stuck(still_s: float) -> Snapshot:
        taken = job(works=0.25)
        stopped = [
            replace(each, threads=(thread(each.pid, "train.py:step", still_s=still_s),))
            for each in taken.processes
        ]
        return replace(taken, processes=tuple(stopped))

    assert len(found(check, stuck(4.0))) == 1
    assert found(check, stuck(12.0)) == []


def test_a_lock_that_always_the_same_other_process_had_is_no_contention() -> None:
    held_by_main = FILE_LOCK._replace(providers=(pid(100),))
    held_in_turn = FILE_LOCK._replace(providers=(pid(200), pid(201)))

    assert found(check, job(works=0.5, lock=held_by_main, count=2)) == []
    assert len(found(check, job(works=0.5, lock=held_in_turn, count=2))) == 1


def test_a_lock_that_costs_less_than_half_of_the_time_is_information() -> None:
    assert only(check, job(works=0.62, count=2)).severity is Severity.INFO


def at_database(asleep: float, tries: float = 0.25, elsewhere: float = 0.0) -> Snapshot:
    """Two processes that wait for a database, and sleep between attempts and at another line."""
    again, pauses = (Activity("sleeping", place=each) for each in ("cache.py:12 put", "a.py:9 f"))
    works = 1 - asleep - tries - elsewhere
    seen = {COMPUTES: works, FILE_LOCK: tries, again: asleep, pauses: elsewhere}
    taken = (process(n, "spawned") for n in (200, 201))
    return with_shares(snapshot_of(main(), *taken), p100={SLEEPS: 1.0}, p200=seen, p201=seen)


def test_sleep_between_attempts_is_part_of_the_wait_for_a_lock_on_a_file() -> None:
    finding = only(check, at_database(asleep=0.35))

    assert finding.severity is Severity.WARNING
    assert "2 processes wait 60% of the time for the lock on /data/cache.db" in finding.summary
    assert "locks the whole file until its commit is on the disk" in finding.cause
    assert "Commit once for many rows" in finding.advice
    assert found(check, at_database(asleep=0.74)) == []  # none of them gets a turn


def test_processes_that_sleep_under_a_lock_in_turn_are_information() -> None:
    assert only(check, at_database(0.35, elsewhere=0.3)).severity is Severity.INFO


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param(job(works=0.8), id="the lock is held for short times"),
        pytest.param(job(works=0.6), id="several work at a time: a semaphore with a count"),
        pytest.param(job(works=0.25, lock=waits_for_lock(77, "")), id="no stack shows a lock"),
        pytest.param(
            job(works=0.1, lock=waits_for_lock(77, ""), queue=WAITS_IN_QUEUE),
            id="the lock of a queue's readers",
        ),
        pytest.param(job(works=0.0), id="nobody works: a deadlock has other rules"),
        pytest.param(job(works=0.25, count=1), id="one process"),
    ],
)
def test_other_waits_for_semaphores_are_not_contention(healthy: Snapshot) -> None:
    assert found(check, healthy) == []
