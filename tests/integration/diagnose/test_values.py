"""Values of names in real ranks decide between causes, by the hook and from outside."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.conftest import PROGRAMS, Start
from tests.integration.observe.commands import diagnosed, open_findings
from tests.integration.on_demand import ON_DEMAND
from tests.procfs import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = str(PROGRAMS / "ranks_of_two_steps.py")
READY_S = 200.0


def test_a_counter_that_differs_is_the_cause_in_a_recording(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "job.mpw"
    run = ["-m", "mpwatch", "run", "--headless", "--record", str(file)]
    start([sys.executable, *run, PROGRAM, "counter"]).wait_for("ready", READY_S)

    def is_known() -> bool:
        time.sleep(1.0)  # each reading of the file takes a second of cpu
        findings = [each for each in diagnosed(file)["findings"] if not each["resolved_s"]]
        return any("self.state.step is" in each["cause"] for each in findings)

    assert eventually(is_known, 120.0)
    (finding,) = (
        each for each in diagnosed(file)["findings"] if each["rule"] == "collective-mismatch"
    )
    assert "self.state.step is 100 at rank 0" in finding["cause"]
    assert "`if self.state.step % self.every:` at ranks_of_two_steps.py:35" in finding["cause"]
    assert b"of the program" not in file.read_bytes()


def test_a_condition_that_only_one_rank_meets_is_the_cause_from_outside(start: Start) -> None:
    job = start([sys.executable, PROGRAM, "file"])
    job.wait_for("ready", READY_S)

    first, *_ = open_findings(job.pid, 25.0)

    assert first["rule"] == "collective-mismatch"
    assert "saved is a dict" in first["cause"]
    assert "None at" in first["cause"]
    assert "`if saved is not None and len(saved) > 1:`" in first["cause"]


@ON_DEMAND
def test_a_container_that_grows_is_named_and_one_that_does_not_is_not(start: Start) -> None:
    program = str(PROGRAMS / "growing_values.py")
    job = start([sys.executable, "-m", "mpwatch", "run", "--headless", program])
    job.wait_for("ready", READY_S)

    (finding, *_) = (
        each for each in open_findings(job.pid, 60.0) if each["rule"] == "steady-growth"
    )

    assert "`self.tasks` (dict, growing_values.py:15 add) has " in finding["cause"]
    assert "self.slots" not in finding["cause"]
