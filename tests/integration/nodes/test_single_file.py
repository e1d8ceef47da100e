"""mpwatch as a single file (MPWATCH_PYZ, built as README says) on a Python without packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.integration.nodes.test_job import mark as mark
from tests.integration.nodes.test_job import sleepers as sleepers

pytestmark = pytest.mark.slow


@pytest.fixture
def bare(tmp_path: Path) -> list[str]:
    """The command of the single file by a Python without packages, and without the user's home."""
    archive = os.environ.get("MPWATCH_PYZ")
    if archive is None:
        pytest.skip("needs MPWATCH_PYZ=PATH of a single file")
    venv.create(tmp_path / "bare", with_pip=False)
    environment = ["env", "-i", f"HOME={tmp_path}", "PATH=/usr/bin:/bin"]
    return [*environment, str(tmp_path / "bare" / "bin" / "python"), archive]


def test_a_single_file_reads_a_job_and_its_agents_are_the_same_file(
    bare: list[str], sleepers: list[int], mark: str
) -> None:
    options = ["--json", "--match", f"MPWATCH_TEST_JOB={mark}"]
    done = subprocess.run(
        [*bare, "dump", "--job", "local:2", *options], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    nodes = json.loads(done.stdout)["nodes"]
    assert sorted(p["pid"] for node in nodes for p in node["processes"]) == sorted(sleepers)
    sources = {
        thread["stack_source"]
        for node in nodes
        for process in node["processes"]
        for thread in process["threads"]
    }
    assert "py-spy" in sources
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in {
        process["python"] for node in nodes for process in node["processes"]
    }
