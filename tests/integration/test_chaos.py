"""A few rounds of `tests/endurance/chaos.py`, with seeds that failed before or that do much."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.endurance.chaos import can_run
from tests.integration.on_demand import ON_DEMAND

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not can_run(), reason="this container may not mount")
@pytest.mark.parametrize("seed", [4, pytest.param(109, marks=ON_DEMAND)])
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
