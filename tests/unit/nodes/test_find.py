"""Which processes of a machine belong to a job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mpwatch.nodes.find import Selection, find_roots, torch_version

WAIT = "input()"
MARK = f"of-{os.getpid()}"
"""Other test processes start such ranks at the same time."""


START = """
import os, subprocess, sys
for number in range(3):
    name = "RANK" if number < 2 else "LOCAL_RANK"
    environment = {**os.environ, name: str(number), "WORLD_SIZE": "3", "MPWATCH_T": sys.argv[1]}
    rank = subprocess.Popen(
        [sys.executable, "-c", sys.argv[2]],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    print(rank.pid)
"""


@pytest.fixture
def ranks() -> Iterator[list[int]]:
    """Three processes with the environment of ranks, one as of Lightning; none loads torch.

    Their parent has ended: the process of the tests may itself be a torch job with children.
    """
    hold, until = os.pipe()
    started = subprocess.run(
        [sys.executable, "-c", START, MARK, WAIT],
        stdin=hold,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    os.close(hold)
    yield [int(line) for line in started.stdout.split()]
    os.close(until)  # each reads the end of its input


def test_processes_are_named_by_pid(ranks: list[int]) -> None:
    found = find_roots(Selection(pids=(ranks[1], 2**22 + 1)))

    assert [each.pid for each in found] == [ranks[1]]


def test_ranks_that_have_not_loaded_torch_are_not_children_of_the_searcher(
    ranks: list[int],
) -> None:
    # This process has started them: only what another process has started is found.
    code = (
        "from mpwatch.nodes.find import Selection, find_roots; "
        f"print([p.pid for p in find_roots(Selection(environment={{'MPWATCH_T': {MARK!r}}}))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == str(ranks)


def test_the_roots_are_divided_into_parts() -> None:
    assert [n for n in range(7) if Selection(part=(1, 3)).is_in_part(n)] == [1, 4]


def test_a_process_without_torch_has_no_version(ranks: list[int]) -> None:
    assert torch_version(ranks[0]) is None
