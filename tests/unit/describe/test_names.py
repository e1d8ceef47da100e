"""Names and states of processes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.describe.processes import (
    full_name_of,
    joined_names,
    process_state,
    role_name,
    state_explanation,
    state_word,
    unique_names,
)
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.waits import WaitEdge
from tests.builders.report_job import MAIN, WORKER, job, main, worker

RANKS = ProcessId(7, 1), ProcessId(8, 1)


@pytest.mark.parametrize(
    ("role", "worker_id", "rank", "name"),
    [
        ("loader-worker", 3, None, "worker 3"),
        ("loader-worker", None, None, "loader-worker"),
        ("rank", 0, 1, "rank 1"),
        ("main", None, None, "main"),
        ("main", None, 0, "rank 0"),
    ],
)
def test_a_role_with_its_number(
    role: Role, worker_id: int | None, rank: int | None, name: str
) -> None:
    assert role_name(role, worker_id, rank) == name


def test_equal_workers_of_two_ranks_are_named_after_their_rank() -> None:
    ranks = [replace(main(), process=each, label=f"rank {n}") for n, each in enumerate(RANKS)]
    workers = [replace(worker(ProcessId(20 + n, 1)), parent=each) for n, each in enumerate(RANKS)]
    orphan = replace(worker(ProcessId(30, 1), 5), parent=None, original_parent=RANKS[1])
    names = unique_names(replace(job(), processes=(*ranks, *workers, orphan)))

    assert sorted(names.values()) == [
        *("rank 0", "rank 1", "worker 0 of rank 0", "worker 0 of rank 1", "worker 5"),
    ]


def test_a_second_process_of_one_name_gets_its_pid() -> None:
    twins = [replace(main(), process=each, label="spawned") for each in RANKS]

    assert set(unique_names(replace(job(), processes=tuple(twins))).values()) == {
        *("spawned 7", "spawned 8"),
    }


def test_many_processes_in_one_phrase() -> None:
    names = unique_names(job())

    assert joined_names([MAIN, WORKER, RANKS[0]], names, 2) == "main, worker 0 and 1 more"
    assert joined_names([RANKS[0]], names) == "7"
    assert full_name_of(WORKER, job()) == "worker 0 (41826)"
    assert full_name_of(RANKS[0], job()) == "pid 7"


def test_a_sleeping_process_is_idle_waiting_busy_or_sleeping() -> None:
    sleeper = replace(main(), cpu_percent=0.0)
    edge = WaitEdge(MAIN, MAIN.pid, "pipe-read", "batch 417")
    helper = replace(edge, tid=1)

    assert process_state(sleeper, [edge]) == "waiting"
    assert process_state(sleeper, [replace(edge, is_ordinary=True)]) == "idle"
    assert process_state(sleeper, [helper]) == "sleeping"
    assert process_state(replace(sleeper, cpu_percent=90.0), []) == "running"


def test_state_letters_in_words() -> None:
    assert [state_word(letter) for letter in "RDTZ"] == ["running", "D sleep", "stopped", "zombie"]
    assert (state_word("?"), state_word("")) == ("?", "unknown")
    assert state_explanation("T") == "stopped by a signal"
    assert state_explanation("R") == "running"
