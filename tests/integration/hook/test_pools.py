from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.integration.hook.client import Client, wait_for_sockets

pytestmark = pytest.mark.slow

Gauges = dict[str, Any]


def gauges(path: Path) -> Gauges:
    with Client(path) as client:
        client.hello()
        return client.ask("gauges")


def gauges_until(path: Path, is_enough: Callable[[Gauges], bool]) -> Gauges:
    """The gauges of one process, once they have the expected values."""
    end_s = time.monotonic() + 30
    while True:
        found = gauges(path)
        if is_enough(found) or time.monotonic() > end_s:
            return found


@pytest.fixture
def hooks(start: Start, runtime: Path) -> dict[int, Path]:
    """The sockets of the program, its own first: a manager, two workers, one more."""
    program = start("hook_pools.py")
    program.wait_for("ready")
    found = wait_for_sockets(runtime, 5)
    return {program.pid: found.pop(program.pid), **found}


def test_the_owner_reports_outstanding_items_of_pools_and_queues(hooks: dict[int, Path]) -> None:
    owner = next(iter(hooks.values()))

    found = gauges_until(owner, lambda told: told["pools"][0]["queued"] == 0)

    pool, executor = found["pools"]
    assert (pool["kind"], pool["outstanding"], len(pool["pids"])) == ("Pool", 1, 2)
    assert (executor["kind"], executor["outstanding"]) == ("ProcessPoolExecutor", 4)
    assert set(pool["pids"] + executor["pids"]) < set(hooks)
    depths = {row["maxsize"]: row["depth"] for row in found["queues"]}
    assert depths[7] == 3


def test_each_worker_of_a_pool_reports_its_task(hooks: dict[int, Path]) -> None:
    owner, *others = hooks.values()
    pool = gauges(owner)["pools"][0]
    workers = [hooks[pid] for pid in pool["pids"]]

    jobs = [
        gauges_until(path, lambda told: told["job"]["job"] is not None)["job"] for path in workers
    ]

    assert {job["function"] for job in jobs} == {"__main__.stay"}
    assert {job["part"] for job in jobs} == {0, 1}
    assert len(others) == 4
