"""A file system that stops answering, as an NFS server does: it must not stop mpwatch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="only root may mount FUSE"
    ),
]
LIMIT_S = 60


def test_a_job_whose_files_are_on_a_hung_server_is_read(start: Start, tmp_path: Path) -> None:
    program = start("hung_mount.py", str(tmp_path / "run"))
    job = program.wait_for("job").split()[1]
    program.wait_for("ready")
    os.kill(program.pid, signal.SIGUSR1)
    program.wait_for("stopped")

    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", "dump", job, "--json", "--no-stacks"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    place = tmp_path / "run" / "mount"
    assert any(str(place) in problem for problem in found["problems"])
    assert found["processes"][0]["fds"]["used"] >= 4
