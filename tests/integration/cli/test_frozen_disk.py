"""Commands of mpwatch while a disk that they write to is frozen: they end, and say what is undone.

A thread that waits for a frozen disk keeps its process from ending, even by SIGKILL. So a command
that has such a thread does not end before the thaw, which fails the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mpwatch.collect.host import frozen_disk
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import wire
from tests.builders.disk import NEEDS, Disk, mounted_disk
from tests.procfs import eventually, hook_threads

from .terminal import REPOSITORY, Terminal, idle_program

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ptrace_allowed"), *NEEDS]

ENDS_WITHIN_S = 60.0
INSTRUMENT = "import mpwatch\nassert mpwatch.instrument()\n"


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with mounted_disk(tmp_path_factory.mktemp("disk")) as disk:
        yield disk


@pytest.fixture
def variables(disk: Disk, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = {"XDG_RUNTIME_DIR": str(disk.run)}
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        found[name] = str(tmp_path_factory.mktemp("x"))
    return found


@pytest.fixture
def job(
    variables: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[subprocess.Popen[bytes]]:
    popen = idle_program(variables, before=getattr(request, "param", ""))
    yield popen
    popen.kill()
    popen.communicate()


def mpwatch(*arguments: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command; it is not waited for after a while, as it would not even die."""
    environment = {**os.environ, **variables, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "mpwatch", *arguments]
    popen = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = popen.communicate(timeout=ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        popen.kill()
        pytest.fail(f"mpwatch {arguments[0]} waits for the disk")
    return subprocess.CompletedProcess(command, popen.returncode, output, errors)


def test_attach_says_that_it_cannot_write_and_injects_once_the_disk_is_thawed(
    disk: Disk, job: subprocess.Popen[bytes], variables: dict[str, str]
) -> None:
    with disk.frozen():
        terminal = Terminal("attach", str(job.pid), "--hook", variables=variables, width=200)
        try:
            terminal.read_until(str(job.pid))
            terminal.press("\r")
            terminal.read_until("takes no writes now")
            assert hook_threads(job.pid) == 0
            terminal.press("q")
            assert terminal.wait(ENDS_WITHIN_S) == 0
        finally:
            terminal.end()
    done = mpwatch("dump", str(job.pid), "--hook", "--keep", "--no-stacks", variables=variables)

    assert done.returncode == 0
    assert hook_threads(job.pid) == 1
    assert not (disk.run / "mpwatch" / frozen_disk.PROBE).exists()


@pytest.mark.parametrize("job", [INSTRUMENT], indirect=True)
def test_detach_says_which_files_stay_on_the_disk(
    disk: Disk, job: subprocess.Popen[bytes], variables: dict[str, str]
) -> None:
    folder = disk.run / "mpwatch"
    stem = wire.stem(job.pid, stat_of(job.pid).process.start_ticks)
    assert eventually(lambda: (folder / f"{stem}{wire.CHECK_SUFFIX}").is_symlink())
    with disk.frozen():
        done = mpwatch("detach", str(job.pid), variables=variables)

    assert done.stdout.splitlines()[:2] == [
        f"{job.pid}: the hook is detached",
        f"  remains: the files of the hook in {folder}: {frozen_disk.SENTENCE}",
    ]
    assert (done.returncode, hook_threads(job.pid)) == (0, 0)


def test_an_injection_is_not_held_up_by_a_log_on_a_frozen_disk(
    disk: Disk, tmp_path_factory: pytest.TempPathFactory
) -> None:
    runtime = tmp_path_factory.mktemp("run")
    runtime.chmod(0o700)
    variables = {"XDG_STATE_HOME": str(disk.run), "XDG_RUNTIME_DIR": str(runtime)}
    job = idle_program(variables)
    try:
        with disk.frozen():
            done = mpwatch("dump", str(job.pid), "--hook", "--keep", variables=variables)
        assert done.returncode == 0
        assert hook_threads(job.pid) == 1
        assert frozen_disk.SENTENCE in done.stderr
    finally:
        job.kill()
        job.communicate()
    assert not Path(disk.run, "mpwatch", "attach.log").exists()
