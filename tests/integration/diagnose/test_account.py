"""The account of time of real torch programs whose time is known.

A machine that is busy with other work keeps them waiting for a core, so the account of a loader is
compared with what the scheduler counted. The other bounds hold on a busy machine as well.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program, Start
from tests.integration.observe.commands import watched
from tests.integration.on_demand import ON_DEMAND

WATCHED_S = 15.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def account(job: Program, *arguments: str) -> list[dict[str, Any]]:
    """The processes of the account of a program, as `diagnose --json` tells them."""
    processes: list[dict[str, Any]] = watched(job.pid, WATCHED_S, *arguments)["account"][
        "processes"
    ]
    for process in processes:
        assert sum(each["share"] for each in process["last_minute"]) == pytest.approx(1.0)
    return processes


def by_target(shares: list[dict[str, Any]]) -> dict[str, float]:
    """The sum of the shares of each target, or of each activity without one."""
    found: dict[str, float] = defaultdict(float)
    for each in shares:
        found[each["target"] or each["activity"]] += each["share"]
    return found


def scheduled(pid: int) -> tuple[float, float, float]:
    """When, the cpu time of the main thread, and its time on a run queue, all in seconds.

    `schedstat`, see sched-stats.rst of Linux.
    """
    run_ns, ready_ns, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return time.monotonic(), int(run_ns) / 1e9, int(ready_ns) / 1e9


@ON_DEMAND
@pytest.mark.parametrize("hook", ["--no-hook", "--hook"])
def test_main_of_a_slow_loader_waits_for_batches(start: Start, hook: str) -> None:
    job = start("account_of_time.py", "loader")
    job.wait_for("ready")
    before = scheduled(job.pid)
    document = watched(job.pid, WATCHED_S, hook)
    main, worker = document["account"]["processes"]
    elapsed_s, run_s, ready_s = (b - a for a, b in zip(before, scheduled(job.pid), strict=True))

    of_main, of_worker = by_target(main["last_minute"]), by_target(worker["last_minute"])

    runs, waits_for_core = run_s / elapsed_s, ready_s / elapsed_s
    assert of_main["computing"] == pytest.approx(runs, abs=0.2)
    assert of_main["core"] <= waits_for_core + 0.2
    assert of_main["batch"] >= 1 - runs - waits_for_core - 0.3
    assert of_main["batch"] <= 1 - runs - waits_for_core + 0.3
    assert of_worker["sleeping"] + of_worker["idle"] + of_worker["core"] > 0.7
    assert of_worker["computing"] < 0.2
    if hook == "--no-hook":
        assert not document["progress"]["is_known"]
    else:
        batches = document["progress"]["totals"][0]
        assert (batches["kind"], batches["pids"]) == ("batches", [job.pid])
        assert batches["now_per_s"] > 0
        assert batches["total"] > 1


@ON_DEMAND
def test_processes_that_take_turns_with_a_lock_wait_for_it(start: Start) -> None:
    job = start("account_of_time.py", "locks")
    job.wait_for("ready")
    _, *holders = account(job, "--no-hook")

    shares = [by_target(each["last_minute"]) for each in holders]

    assert len(shares) == 2
    # One of the two always holds the lock, so their shares of waiting for it add up to one.
    assert sum(each["lock"] for each in shares) == pytest.approx(1.0, abs=0.3)
    assert sum(each["sleeping"] for each in shares) == pytest.approx(1.0, abs=0.3)
    assert all(each["computing"] < 0.1 for each in shares)


@ON_DEMAND
def test_threads_of_pure_python_wait_for_the_gil(start: Start) -> None:
    job = start("account_of_time.py", "threads")
    job.wait_for("ready")
    (main,) = account(job, "--no-hook")

    threads = [by_target(each["last_minute"]) for each in main["threads"]]
    busy = [each for each in threads if each["computing"] > 0.05]

    assert len(busy) == 2
    assert sum(each["computing"] for each in busy) < 1.1
    assert sum(each["gil"] for each in busy) > 0.1
    assert all(each["gil"] == 0 for each in threads if each not in busy)
