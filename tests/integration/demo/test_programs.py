"""Every demonstration by itself: it reaches its state, shows its signal, and leaves nothing."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import time

import pytest

from mpwatch.demo.catalogue import Scenario, command, obstacle, scenarios
from tests.conftest import Program, Start
from tests.integration.demo import procfs
from tests.integration.demo.signals import SIGNALS

pytestmark = pytest.mark.slow

RUNNABLE = [scenario for scenario in scenarios() if not obstacle(scenario)]
SECONDS = {
    "producer-exits-before-get": 2.0,
    "hogwild-not-shared": 4.0,
    "orphaned-workers": 1.0,
    "resource-tracker-leaks": 1.0,
}
ENDS_WITHIN_S = 5.0


def test_every_scenario_that_runs_here_has_its_raw_signal() -> None:
    assert {scenario.name for scenario in RUNNABLE} <= set(SIGNALS)


@pytest.mark.parametrize("scenario", RUNNABLE, ids=lambda scenario: scenario.name)
def test_a_program_shows_its_failure_and_leaves_nothing_behind(
    start: Start, scenario: Scenario
) -> None:
    program = start(command(scenario, seconds=SECONDS.get(scenario.name, 60.0)))
    program.wait_for("ready")
    guardian, folder = guardian_of(program)

    assert SIGNALS[scenario.name](program)

    family = [program.pid, *procfs.descendants(program.pid)]
    began_s = time.monotonic()
    program.process.send_signal(signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError):
        if program.process.poll() is not None:
            os.kill(guardian, signal.SIGTERM)  # its main process is gone, the guardian is not
    program.process.wait(ENDS_WITHIN_S)
    assert procfs.eventually(lambda: not procfs.is_alive(guardian), ENDS_WITHIN_S)
    assert time.monotonic() - began_s < ENDS_WITHIN_S
    assert not [pid for pid in family if procfs.is_alive(pid)]
    assert not [path for pid in family for path in glob.glob(f"/dev/shm/torch_{pid}_*")]
    assert not os.path.exists(folder)


def guardian_of(program: Program) -> tuple[int, str]:
    """Pid of the process that watches over a demonstration, and the folder it will remove."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        words = procfs.text(int(name), "cmdline").split("\0")
        if "guardian.py" in "".join(words) and str(program.pid) in words:
            return int(name), next(word for word in words if "/mpwatch-demo-" in word)
    pytest.fail("nobody watches over it")
