"""`mpwatch clean` beside living jobs, here and in another container that shares their folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import wire

pytestmark = pytest.mark.slow
OWN_NAMESPACE = ("unshare", "--fork", "--pid", "--mount-proc")
CLEAN = """
import sys
import mpwatch.collect.host.orphans as leftovers
leftovers.QUIET_S = -1.0
found = leftovers.find_leftovers(shm=sys.argv[1], folders=tuple(sys.argv[2:]))
print(*found.problems)
print(*[leftovers.remove(each) for each in found.files])
"""
"""`mpwatch clean --yes` for files of any age, so that the test need not wait a minute."""
JOB = """
import os, time, mpwatch
assert mpwatch.instrument()
print('ready', flush=True)
time.sleep(600)
"""


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
            [*OWN_NAMESPACE, sys.executable, "-c", CLEAN, "/dev/shm"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert path.exists()
        assert "processes outside this container may use them" in done.stdout
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_of_two_jobs_the_files_of_the_killed_one_are_removed(
    runtime_in_memory: Path, is_elsewhere: bool
) -> None:
    if is_elsewhere and (os.geteuid() != 0 or not can_unshare()):
        pytest.skip("needs namespaces of its own")
    folder = runtime_in_memory / "mpwatch"
    jobs = [subprocess.Popen([sys.executable, "-c", JOB], stdout=subprocess.PIPE) for _ in "ab"]
    try:
        for job in jobs:
            assert job.stdout is not None
            assert job.stdout.readline() == b"ready\n"
        living, dead = (wire.stem(job.pid, stat_of(job.pid).start_ticks) for job in jobs)
        jobs[1].kill()
        jobs[1].wait()
        assert f"{dead}.ring" in os.listdir(folder)
        (folder / f"attach-{dead}").mkdir()
        namespace = OWN_NAMESPACE if is_elsewhere else ()
        done = subprocess.run(
            [*namespace, sys.executable, "-c", CLEAN, str(folder / "no-shm"), str(folder)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        # In a container, only a socket on which nobody listens is proof.
        left = {f"{dead}.ring", f"attach-{dead}"} if is_elsewhere else set()
        assert set(os.listdir(folder)) == {f"{living}.sock", f"{living}.ring", *left}
        assert ("files of hooks" in done.stdout) is is_elsewhere
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
