"""Two real ranks that wait for each other or for one of them: named, with and without the hook."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROGRAMS, Program, Start
from tests.integration.observe.commands import open_findings
from tests.integration.on_demand import ON_DEMAND
from tests.procfs import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WATCHED_S = 20.0
READY_S = 200.0
PROGRAM = str(PROGRAMS / "ranks_apart.py")


def apart(start: Start, way: str, *arguments: str, hook: bool = False) -> Program:
    """A job whose ranks wait for each other."""
    before = ["-m", "mpwatch", "run", "--headless"] if hook else []
    job = start([sys.executable, *before, PROGRAM, way, *arguments])
    job.wait_for("ready", READY_S)
    return job


@ON_DEMAND
@pytest.mark.parametrize("launcher", ["", "--torchrun"], ids=["spawn", "torchrun"])
def test_a_collective_against_a_backward_pass_is_named_from_outside(
    start: Start, launcher: str
) -> None:
    first, *_ = open_findings(apart(start, "backward", *filter(None, (launcher,))).pid, WATCHED_S)

    assert (first["rule"], first["severity"]) == ("collective-mismatch", "critical")
    assert "1 in the backward pass" in first["summary"]
    assert "1 in all_gather" in first["summary"]


@ON_DEMAND
@pytest.mark.parametrize(
    ("way", "words", "record"),
    [
        ("backward", "1 in all_gather", "all_gather of Float [[1]], unfinished"),
        ("operations", "1 in all_reduce", "all_reduce of Float [[7]], unfinished"),
        ("groups", "1 in barrier of group 1", "of group 0 (default_pg): barrier, unfinished"),
    ],
)
def test_the_hook_adds_what_torch_has_recorded(
    start: Start, way: str, words: str, record: str
) -> None:
    first, *_ = open_findings(apart(start, way, hook=True).pid, WATCHED_S)

    assert first["rule"] == "collective-mismatch"
    assert words in first["summary"]
    assert any(each.endswith(record) for each in first["evidence"]), first["evidence"]


@ON_DEMAND
def test_the_rank_that_writes_a_checkpoint_is_the_one_that_is_missing(start: Start) -> None:
    first, *_ = open_findings(apart(start, "checkpoint").pid, WATCHED_S)

    assert first["rule"] == "rank-stuck-in-collective"
    assert re.match(r"rank \d \(\d+\) waits in barrier", first["summary"])
    assert re.search(r"sleeps at ranks_apart\.py:\d+ checkpoint and will wake up", first["cause"])


@ON_DEMAND
@pytest.mark.parametrize("hook", [False, True], ids=["outside", "hook"])
def test_a_rank_that_validates_while_the_other_waits_is_no_warning(
    start: Start, hook: bool
) -> None:
    job = apart(start, "validation", hook=hook)

    assert [each for each in open_findings(job.pid, WATCHED_S) if each["severity"] != "info"] == []


@ON_DEMAND
def test_stalled_ranks_of_two_groups_are_reported_from_outside(start: Start) -> None:
    job = apart(start, "groups", "--torchrun")

    found = open_findings(job.pid, 45.0)

    assert "all 2 ranks are in barrier" in found[0]["summary"]


def test_torchs_recorder_is_read_from_worker_servers_and_from_the_files_it_leaves(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "dumps").mkdir()
    first, *_ = open_findings(apart(start, "operations", f"--recorder={tmp_path}").pid, WATCHED_S)

    assert first["rule"] == "collective-mismatch"
    recorded = [each for each in first["evidence"] if each.startswith("recorded by rank")]
    assert any(each.endswith("all_reduce of Float [[7]], unfinished") for each in recorded)
    assert any(each.endswith("broadcast of Float [[7]], unfinished") for each in recorded)

    (tmp_path / "write").touch()
    names = [f"trace_rank_{rank}" for rank in range(2)]
    assert eventually(lambda: sorted(os.listdir(tmp_path / "dumps")) == names)
    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", "diagnose", str(tmp_path / "dumps"), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["rule"] == "collective-mismatch"
    assert finding["summary"].endswith("rank 0 in all_reduce, rank 1 in broadcast")
    assert any("called at ranks_apart.py" in each for each in finding["evidence"])


@ON_DEMAND
@pytest.mark.parametrize("hook", [False, True], ids=["outside", "hook"])
def test_ranks_that_make_their_groups_in_a_different_order_are_named(
    start: Start, hook: bool
) -> None:
    job = apart(start, "new_groups", "--torchrun", hook=hook)

    first, *_ = open_findings(job.pid, WATCHED_S)

    # Whether the one that has made a group without the other goes on depends on how they connect.
    assert first["rule"] in ("collective-mismatch", "rank-stuck-in-collective")
    assert first["severity"] == "critical"
    assert "in new_group" in first["summary"]
    assert "make their groups in a different order" in first["cause"]
