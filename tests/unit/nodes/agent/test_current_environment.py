"""Ranks whose number was set after their start."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.nodes.agent.current_environment import LateRanks, current_environment
from mpwatch.nodes.agent.rows import Rows
from tests.interpreters import installed
from tests.unit.nodes.jobs import ALL_REDUCE, SAVE, rank, snapshot

SETS = "import os, sys; os.environ.update(RANK='7', WORLD_SIZE='9'); print('set', flush=True); "
DEBIAN = [path for path in (Path("/usr/bin/python3"),) if path.exists()]
"""Linked to a fixed address, unlike those that pyenv builds."""
MAIN_LOOP = (Frame("main_loop", "/lib/ray/_private/worker.py", 1069),)
RUNS = Frame(
    "_run_target", "/lib/ray/train/v2/_internal/execution/worker_group/thread_runner.py", 37
)


@pytest.mark.parametrize("python", [Path(sys.executable), *DEBIAN, *installed()], ids=str)
def test_variables_are_read_as_they_are_now(python: Path) -> None:
    with subprocess.Popen(
        [python, "-c", SETS + "sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"WORLD_SIZE": "1", "OTHER": "x" * 5000},
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        assert current_environment(program.pid) == {"RANK": "7", "WORLD_SIZE": "9"}


def test_a_process_that_has_ended_has_no_variables() -> None:
    program = subprocess.Popen([sys.executable, "-c", ""])
    program.wait()

    assert current_environment(program.pid) == {}


def ray_worker(number: int, stack: tuple[Frame, ...]) -> Process:
    """A worker of Ray Train: its main thread waits, another one trains."""
    made = rank(number, stack=MAIN_LOOP, still_s=30.0, cpu_percent=0.0)
    main = made.threads[0]
    trains = replace(main, tid=5000 + number, name="TrainingThread", stack=(*stack, RUNS))
    gloo = Thread(6000 + number, "gloo_tcp_loop", "S")
    sample = replace(
        made.sample, environment={}, rank=None, role="ray-worker", cmdline=("ray::RayTrainWorker",)
    )
    return replace(made, sample=sample, role="ray-worker", threads=(main, trains, gloo))


def test_workers_of_ray_train_are_ranks_and_are_where_the_thread_that_trains_is() -> None:
    reads: list[int] = []

    def read(pid: int) -> dict[str, str]:
        reads.append(pid)
        return {"RANK": str(pid - 1000), "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}

    late = LateRanks(read)
    before = snapshot([ray_worker(0, ALL_REDUCE), ray_worker(1, SAVE)])
    late.added_to(before)
    rows = Rows().sections([late.added_to(before)])["ranks"]

    places = {row["rank"]: (row["place"], row["line"].partition(" ")[0]) for row in rows.values()}
    assert places == {0: ("all_reduce", "train.py:48"), 1: (None, "train.py:91")}
    assert {row["world_size"] for row in rows.values()} == {2}
    assert reads == [1000, 1001]


def test_a_worker_whose_memory_may_not_be_read_stays_as_it_is() -> None:
    before = snapshot([ray_worker(0, ALL_REDUCE)])

    assert LateRanks(lambda pid: {}).added_to(before) is before
