"""A callback that waits in the thread which receives the results of its pool."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.describe.account import others_words
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.rules.hangs import no_progress, pool_hang_after_worker_death, standing_still
from mpwatch.model.findings import Severity
from mpwatch.model.history import History
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Ending, SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    accounted,
    found,
    history,
    line,
    main,
    only,
    process,
    snapshot_of,
    thread,
    ticked,
)

LOCK = WaitedOn("futex", "futex")
DATA = WaitedOn("pipe-read", "read")
POOL, BASE = "multiprocessing/pool.py", "concurrent/futures/_base.py"
APPLY = ("threading.py:wait", f"{POOL}:wait", f"{POOL}:get", f"{POOL}:apply")
ON_RESULT = "train.py:on_result:49"
RECEIVES = (f"{POOL}:_set", f"{POOL}:_handle_results", "threading.py:run")
MANAGES = (f"{BASE}:_invoke_callbacks", f"{BASE}:set_result", "concurrent/futures/process.py:run")
SLOTS = ("threading.py:wait", "threading.py:acquire", "train.py:optimize:69")


def receiver(*inside: str, of: tuple[str, ...] = RECEIVES, waits: WaitedOn = LOCK) -> Thread:
    return thread(MAIN + 3, *inside, *of, name="Thread-3", waits=waits)


def watcher(state: str = "R", cpu_percent: float = 70.0) -> Thread:
    stack = ("multiprocessing/connection.py:wait", f"{POOL}:_handle_workers")
    return thread(
        MAIN + 1, *stack, name="Thread-1", state=state, cpu_percent=cpu_percent, still_s=0.0
    )


SENDER = thread(MAIN + 2, f"{POOL}:_handle_tasks", name="Thread-2", waits=LOCK)
AT_REST = thread(
    MAIN + 8, "multiprocessing/connection.py:recv", f"{POOL}:_handle_results", waits=DATA
)


def job(*threads: Thread, first: Thread | None = None, idle: bool = True, **more: Any) -> Snapshot:
    own = first if first is not None else thread(MAIN, *SLOTS, waits=LOCK)
    inner = ("multiprocessing/queues.py:get",) if idle else ("data.py:work:3",)
    workers = [
        process(n, "spawned", threads=[thread(n, *inner, f"{POOL}:worker", waits=DATA)])
        for n in (300, 301)
    ]
    everything = [own, *threads]
    first_of_all = main(threads=everything, thread_count=len(everything), signals_caught=0)
    return snapshot_of(first_of_all, *workers, **more)


BUSY = history(
    {
        (MAIN, "cpu_percent"): line(70.0),
        **{(number, "cpu_percent"): line(0.0, seconds=60) for number in (300, 301)},
    }
)
"""The cpu time of main is that of the thread that looks for unread results."""
WAITS_FOR_POOL = receiver(*APPLY, ON_RESULT)


def test_a_callback_that_waits_for_its_own_pool_is_certain_at_once() -> None:
    finding = only(standing_still.check, job(watcher(), SENDER, WAITS_FOR_POOL), BUSY)

    assert finding.severity is Severity.CRITICAL
    assert finding.tid == WAITS_FOR_POOL.tid
    assert "on_result() of a Pool waits at train.py:49 on_result" in finding.summary
    assert "for a result of the same pool" in finding.summary
    said = " ".join(finding.evidence)
    assert "thread Thread-1 (_handle_workers) uses 70% of a core" in said
    assert "all workers that main (100) has started wait for a task" in said
    assert "the main thread waits for a semaphore at train.py:69 optimize" in said
    assert "only the thread that waits for it could receive it" in finding.cause
    assert "queue.Queue" in finding.advice
    assert "second callback" in finding.advice


def test_what_the_main_thread_does_meanwhile_makes_no_difference() -> None:
    works = thread(MAIN, "train.py:step:5", state="R", cpu_percent=90.0, still_s=0.0)
    joins = receiver("threading.py:join", f"{POOL}:join", ON_RESULT)

    busy = job(watcher("S", 0.0), SENDER, WAITS_FOR_POOL, first=works)
    joining = job(watcher(), SENDER, joins)

    assert "same pool" in only(standing_still.check, busy).summary
    assert "same pool" in only(standing_still.check, joining, BUSY).summary


def test_the_source_tells_that_the_callback_would_end_the_wait_of_the_main_thread() -> None:
    file = "/home/me/train.py"
    releases = Ending(file, "on_result", Statement(54, "self.slots.release()"))
    acquires = SourceLine(file, 69, "optimize", Statement(69, "s.acquire()"), ended_by=(releases,))

    finding = only(
        standing_still.check, job(watcher(), SENDER, WAITS_FOR_POOL, source=(acquires,)), BUSY
    )

    assert any("as far as names tell on_result() ends" in each for each in finding.evidence)


@pytest.mark.parametrize("file", ["concurrent/futures/_base.py", "loky/_base.py"])
def test_a_callback_of_an_executor_that_waits_for_a_future(file: str) -> None:
    run = "loky/process_executor.py:run" if "loky" in file else MANAGES[-1]
    waits = receiver(
        "threading.py:wait", f"{BASE}:result", ON_RESULT, of=(f"{file}:_invoke_callbacks", run)
    )
    main_waits = thread(MAIN, "threading.py:wait", f"{BASE}:result", "train.py:f:3", waits=LOCK)

    finding = only(standing_still.check, job(waits, first=main_waits))

    assert "on_result() of a process pool executor waits" in finding.summary
    assert "for a result of the same pool" in finding.summary


def test_a_future_that_another_thread_may_set_is_not_called_one_of_the_pool() -> None:
    waits = receiver("threading.py:wait", f"{BASE}:result", ON_RESULT, of=MANAGES)
    other = thread(MAIN + 7, "data.py:serve:3", state="R", cpu_percent=90.0, still_s=0.0)

    assert found(standing_still.check, job(waits, other)) == []


@pytest.mark.parametrize(
    "changed",
    [
        receiver(*APPLY, ON_RESULT, waits=WaitedOn("futex", "futex", timeout_s=5.0)),
        replace(receiver(*APPLY, ON_RESULT), still_s=1.0),
        receiver(ON_RESULT, waits=WaitedOn("timer", "clock_nanosleep", timeout_s=9.0)),
        AT_REST,
    ],
)
def test_a_callback_that_goes_on_is_no_fault(changed: Thread) -> None:
    assert found(standing_still.check, job(watcher("S", 0.0), SENDER, changed)) == []


def test_of_two_pools_the_other_one_has_to_be_idle() -> None:
    threads = (watcher(), SENDER, WAITS_FOR_POOL, AT_REST)

    assert "same pool" in only(standing_still.check, job(*threads), BUSY).summary
    assert found(standing_still.check, job(*threads, idle=False), BUSY) == []


def test_a_thread_pool_that_computes_may_give_the_result() -> None:
    inner = ("threading.py:wait", f"{POOL}:wait", f"{POOL}:get", f"{POOL}:map")
    waits = receiver(*inner, ON_RESULT)
    downloads = thread(MAIN + 7, "data.py:download:3", f"{POOL}:worker", waits=DATA)

    assert (
        found(standing_still.check, job(watcher(), SENDER, waits, AT_REST, downloads), BUSY) == []
    )


def test_a_watcher_that_is_not_woken_up_is_not_said_to_be() -> None:
    finding = only(standing_still.check, job(watcher("S", 0.0), SENDER, WAITS_FOR_POOL), BUSY)

    assert "_handle_workers" not in " ".join(finding.evidence)


def test_a_callback_that_waits_for_a_lock_holds_up_all_who_wait_for_the_pool() -> None:
    locked = receiver("train.py:on_result:49")
    waits = thread(MAIN, "threading.py:wait", f"{POOL}:wait", "train.py:f:3", waits=LOCK)

    finding = only(standing_still.check, job(watcher(), SENDER, locked, first=waits), BUSY)

    assert "waits at train.py:49 on_result for a lock" in finding.summary
    assert "receives the results of the Pool" in finding.summary
    assert "Let a callback only note what has come" in finding.advice


def test_a_thread_that_spins_is_no_progress() -> None:
    def quiet(*threads: Thread, past: History = BUSY) -> float | None:
        snapshot = job(*threads)
        return quiet_s(snapshot.processes[0], Index(snapshot, past))

    assert (quiet(watcher(), SENDER, WAITS_FOR_POOL) or 0.0) >= 30.0
    assert quiet(watcher(), SENDER, AT_REST) == 0.0
    computes = thread(MAIN + 7, "train.py:f:3", still_s=0.0, cpu_percent=30.0)
    assert quiet(watcher(), SENDER, WAITS_FOR_POOL, computes) == 0.0


def test_the_account_calls_spinning_no_computation() -> None:
    def taken(at_s: float, ticks: int) -> Snapshot:
        own = job(watcher(), SENDER, WAITS_FOR_POOL, at_s=at_s)
        first: Process = ticked(own.processes[0], {MAIN + 1: ticks})
        return replace(own, processes=(first, *own.processes[1:]))

    spent = accounted(*(taken(1000.0 + n, 60 * n) for n in range(20))).account

    words = others_words(spent.processes[main().process])
    assert words == "another thread polled without pause for 60% of a core"


def test_results_that_lie_unread_are_not_called_lost() -> None:
    gauge = {"kind": "Pool", "outstanding": 7, "queued": 0, "pids": [300, 301]}
    waits = thread(MAIN, "threading.py:wait", f"{POOL}:wait", "train.py:f:3", waits=LOCK)
    seen = job(watcher(), SENDER, WAITS_FOR_POOL, first=waits)
    first = replace(seen.processes[0], gauges={"pools": [gauge]})
    seen = replace(seen, processes=(first, *seen.processes[1:]))

    assert found(pool_hang_after_worker_death.check, seen, BUSY) == []
    assert "same pool" in only(standing_still.check, seen, BUSY).summary


def test_a_job_at_rest_is_told_with_the_callback_that_may_be_the_reason() -> None:
    """Of two Pools both have a callback that waits: for which of them is not known."""
    second = replace(WAITS_FOR_POOL, tid=MAIN + 9, name="Thread-9")
    seen = job(watcher(), SENDER, WAITS_FOR_POOL, second)
    loop = thread(MAIN + 5, "multiprocessing/connection.py:recv", "data.py:serve:3", waits=DATA)
    seen = replace(
        seen,
        processes=(
            replace(seen.processes[0], threads=(*seen.processes[0].threads, loop)),
            *seen.processes[1:],
        ),
    )

    finding = only(no_progress.check, seen, BUSY)

    assert "If that result is one of the same pool" in finding.cause
