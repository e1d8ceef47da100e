"""Real ranks and children that exited: the first is named, and unjoined children are reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROGRAMS, Start
from tests.integration.observe.commands import open_findings
from tests.integration.on_demand import ON_DEMAND

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TRAINED_S = 15.0
"""Longer than it takes to read all processes and their stacks once."""
READY_S = 200.0


def ending(start: Start, way: str, *, hook: bool) -> list[dict[str, Any]]:
    before = ["-m", "mpwatch", "run", "--headless"] if hook else []
    program = str(PROGRAMS / "ranks_ending.py")
    job = start([sys.executable, *before, program, way, f"{TRAINED_S:g}"])
    job.wait_for("ready", READY_S)
    return open_findings(job.pid, 4 * TRAINED_S)


@ON_DEMAND
def test_the_rank_that_returned_first_is_named_and_not_its_victim(start: Start) -> None:
    """Only with the hook: before a rank ends, its stack and the threads of its group are gone."""
    first, *_ = ending(start, "early", hook=True)

    assert first["rule"] == "worker-exited-unexpectedly"
    assert " left the other ranks" in first["summary"]
    assert "run fewer steps" in first["cause"]
    assert any("Connection closed by peer" in each for each in first["evidence"])


@ON_DEMAND
def test_the_rank_with_an_error_of_its_own_is_named(start: Start) -> None:
    first, *_ = ending(start, "raises", hook=True)

    assert first["rule"] == "worker-exited-unexpectedly"
    assert any("a label out of range" in each for each in first["evidence"]), first["evidence"]


@ON_DEMAND
@pytest.mark.parametrize("hook", [False, True], ids=["outside", "hook"])
def test_a_rank_that_is_aborted_for_the_size_of_a_tensor_is_no_crash(
    start: Start, hook: bool
) -> None:
    first, *_ = ending(start, "shapes", hook=hook)

    assert first["rule"] == "collective-mismatch"
    assert "was aborted (SIGABRT)" in first["summary"]


LAUNCHER = """
import os, subprocess, sys
variables = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}
rank = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"],
    env={**os.environ, **variables}, start_new_session=True,
)
print("ready", rank.pid, flush=True)
rank.wait()
"""
OWN_NAMESPACE = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")


@pytest.mark.skipif(
    os.geteuid() != 0
    or subprocess.run([*OWN_NAMESPACE, "true"], capture_output=True, check=False).returncode != 0,
    reason="needs namespaces of its own",
)
def test_a_rank_whose_launcher_is_process_1_of_a_container_is_no_orphan(start: Start) -> None:
    holder = start([*OWN_NAMESPACE, sys.executable, "-c", LAUNCHER])
    pid = holder.wait_for("ready").split()[1]
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    (launcher,) = children.read_text().split()
    inside = ["nsenter", f"--target={launcher}", "--pid", "--mount"]
    diagnose = [sys.executable, "-m", "mpwatch", "diagnose", pid, "--for=7", "--no-hook", "--json"]

    done = subprocess.run(
        [*inside, *diagnose],
        capture_output=True,
        check=True,
        timeout=120,
    )

    assert not json.loads(done.stdout)["findings"]


CHILD_OF_BEFORE = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
child.send_signal(signal.SIGKILL)
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print("ready", flush=True)
time.sleep(600)
"""


@ON_DEMAND
def test_a_child_that_was_killed_before_mpwatch_started_is_reported(start: Start) -> None:
    job = start([sys.executable, "-c", CHILD_OF_BEFORE])
    job.wait_for("ready")

    first, *_ = open_findings(job.pid, 14.0)

    assert first["rule"] == "zombie-processes"
    assert f"signal {signal.SIGKILL:d} (SIGKILL)" in first["summary"]
    assert f"({job.pid}) has not joined" in first["summary"]
