"""`mpwatch clean` in a pid namespace of its own that shares /dev/shm, as with `--ipc=host`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
OWN_NAMESPACE = ("unshare", "--fork", "--pid", "--mount-proc")
CLEAN = """
import mpwatch.collect.host.orphans as leftovers
leftovers.QUIET_S = -1.0
found = leftovers.find_leftovers(folders=())
print(*found.problems)
print(*[leftovers.remove(each) for each in found.files])
"""
"""`mpwatch clean` for segments of any age, so that the test need not wait a minute."""


def can_unshare() -> bool:
    return (
        subprocess.run([*OWN_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(os.geteuid() != 0 or not can_unshare(), reason="needs namespaces of its own")
def test_the_segment_of_a_job_in_another_container_stays() -> None:
    path = Path(f"/dev/shm/torch_{os.getpid() + 4_190_000}_1_0")
    path.write_bytes(b"live")
    try:
        done = subprocess.run(
            [*OWN_NAMESPACE, sys.executable, "-c", CLEAN],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert path.exists()
        assert "processes outside this container may use them" in done.stdout
    finally:
        path.unlink(missing_ok=True)
