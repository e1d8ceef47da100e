"""Which processes of a machine belong to a job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.nodes.agent.find import Selection, find_roots, gpu_driver, torch_version

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
        "from mpwatch.nodes.agent.find import Selection, find_roots; "
        f"print([p.pid for p in find_roots(Selection(environment={{'MPWATCH_T': {MARK!r}}}))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == str(ranks)


def test_the_roots_are_divided_into_parts() -> None:
    assert [n for n in range(7) if Selection(part=(1, 3)).is_in_part(n)] == [1, 4]


@pytest.mark.slow
def test_the_version_of_torch_is_that_of_the_process() -> None:
    program = "import torch; print(torch.__version__, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        version = process.stdout.readline().strip()
        assert version
        assert torch_version(process.pid) == version
    finally:
        process.communicate()


def test_a_process_without_torch_has_no_version(ranks: list[int]) -> None:
    assert torch_version(ranks[0]) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 2021\n"
            "GCC version:  gcc version 10.2.1 20210110 (Debian 10.2.1-6)\n",
            "NVIDIA 470.57.02",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.77  Release Build  (x)\n",
            "NVIDIA 565.77",
        ),
        ("GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1)\n", None),
        ("NVRM version: \x1b[31m\n", None),
        (None, None),
    ],
)
def test_the_gpu_driver_is_read_where_one_is_loaded(
    tmp_path: Path, text: str | None, version: str | None
) -> None:
    if text is not None:
        (tmp_path / "driver/nvidia").mkdir(parents=True)
        (tmp_path / "driver/nvidia/version").write_text(text)

    assert gpu_driver(str(tmp_path)) == version
