"""Ranks whose number was set after their start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.model.ids import Role
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


def alone(role: Role = "main", **environment: str) -> Process:
    """A process with a process group and no number."""
    made = rank(0, stack=ALL_REDUCE, still_s=30.0)
    sample = replace(made.sample, environment=environment, rank=None, role=role)
    gloo = Thread(7000, "gloo_tcp_loop", "S")
    return replace(made, sample=sample, role=role, threads=(*made.threads, gloo))


LIGHTNING = {"LOCAL_RANK": "0", "NODE_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}


@pytest.mark.parametrize(
    ("process", "found", "place"),
    [
        (alone(), LIGHTNING, (1, 2)),
        (alone(NODE_RANK="1"), LIGHTNING, (1, 2)),
        (alone(), {**LIGHTNING, "NODE_RANK": "0"}, (0, 2)),
        # More nodes than ranks.
        (alone(), {**LIGHTNING, "NODE_RANK": "2"}, (None, 2)),
        # Somebody else has started this one and perhaps others beside it.
        (alone(LOCAL_RANK="0"), LIGHTNING, (None, 2)),
        (alone("spawned"), LIGHTNING, (None, 2)),
        (alone("spawned"), {"RANK": "5", "WORLD_SIZE": "8"}, (5, 8)),
    ],
)
def test_a_rank_that_has_set_its_own_variables_has_their_number(
    process: Process, found: dict[str, str], place: tuple[int | None, int]
) -> None:
    late = LateRanks(lambda pid: found).added_to(snapshot([process]))

    (row,) = Rows().sections([late])["ranks"].values()
    assert (row["rank"], row["world_size"]) == place


def test_a_program_that_starts_ranks_is_not_alone_on_its_node() -> None:
    first = alone()
    other = replace(rank(3), parent=first.process)
    other = replace(other, sample=replace(other.sample, environment={"LOCAL_RANK": "2"}))

    late = LateRanks(lambda pid: LIGHTNING).added_to(snapshot([first, other]))

    assert late.processes[0].sample.rank is None


def test_a_process_with_the_number_of_a_launcher_is_not_read() -> None:
    job = snapshot([alone(RANK="3", WORLD_SIZE="4")])

    assert LateRanks(lambda pid: LIGHTNING).added_to(job) is job
