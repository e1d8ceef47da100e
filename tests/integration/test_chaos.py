"""A few rounds of `tests/endurance/chaos.py`, with seeds that failed before or that do much."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endurance.chaos import PIDS_GROUPS, can_run
from tests.integration.on_demand import ON_DEMAND
from tests.procfs import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
FORKSERVER, SPAWN = 9, 17
"""Seeds of other start methods than that of the first one, fork."""


@pytest.mark.skipif(not can_run(), reason="this container may not mount")
@pytest.mark.parametrize(
    "seed", [4, *(pytest.param(seed, marks=ON_DEMAND) for seed in (109, FORKSERVER, SPAWN))]
)
def test_a_job_among_observers_that_are_stopped_and_killed_gives_what_it_gives_alone(
    seed: int,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.endurance.chaos", "--rounds", "1", "--seed", str(seed)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not can_run(), reason="this container may not mount")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_round_leaves_no_process_and_no_control_group(number: int) -> None:
    seed = 10**7 + number
    command = [sys.executable, "-m", "tests.endurance.chaos", "--rounds", "1", "--seed", str(seed)]
    runner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    groups = [parent / f"mpwatch-chaos-{seed}" / "job" for parent in PIDS_GROUPS]
    try:
        # The job of the round is among these; where no group can be made, the round itself.
        eventually(lambda: runner.poll() is not None or any(map(_has_processes, groups)))
        assert runner.poll() is None
        runner.send_signal(number)
        runner.wait(120)
    finally:
        runner.kill()
        runner.wait()

    assert [str(group.parent) for group in groups if group.parent.exists()] == []


def _has_processes(group: Path) -> bool:
    """Whether a control group exists and is not empty."""
    try:
        return bool((group / "cgroup.procs").read_text())
    except OSError:
        return False
