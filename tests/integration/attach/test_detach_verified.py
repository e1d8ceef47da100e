"""What detach reports is what the kernel shows of the process afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.target import read_target
from mpwatch.collect.hook import discovery
from tests.integration.attach.conftest import Running, Start
from tests.procfs import eventually, hook_threads

pytestmark = pytest.mark.slow


def run_detach(pid: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mpwatch", "detach", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def start_elsewhere(start: Start, way: str, tmp_path: Path) -> Running:
    tmp_path.chmod(0o700)
    running = start("attach_elsewhere", way, str(tmp_path))
    if way != "drops":
        inject(running.process, timeout_s=30)
    assert eventually(lambda: hook_threads(running.pid) == 1, 10)
    return running


WAYS = ["sets", "overwrites"]
if os.geteuid() == 0:
    WAYS.append("drops")


@pytest.mark.parametrize("way", WAYS)
def test_a_hook_is_found_and_detached_where_the_environment_is_out_of_date(
    start: Start, tmp_path: Path, way: str
) -> None:
    running = start_elsewhere(start, way, tmp_path)
    sample = read_target(running.process).sample()
    found = discovery.find(sample)
    assert found.tids
    assert found.ring
    assert found.socket
    assert inject(running.process).method == "already there"
    done = run_detach(running.pid)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{running.pid}: the hook is detached\n")
    assert hook_threads(running.pid) == 0
    assert not discovery.find(sample)
    folder = Path(f"/proc/{running.pid}/root{found.folder}")
    assert list(folder.glob(f"{discovery.stem(sample)}*")) == []


def test_a_process_without_a_hook_is_not_reported_as_detached(start: Start) -> None:
    running = start("attach_plain", "idle")
    done = run_detach(running.pid)
    assert (done.returncode, done.stdout) == (0, f"{running.pid}: there is no hook in it\n")
    assert not detach(running.process).had_hook


def test_a_hook_that_cannot_be_unloaded_is_not_reported_as_detached(start: Start) -> None:
    running = start("attach_plain", "busy")
    assert inject(running.process, timeout_s=30).state == "ready"
    os.kill(running.pid, 19)
    assert eventually(lambda: running.state == "T")
    done = run_detach(running.pid)
    assert done.returncode == 4, done
    assert "detached" not in done.stdout
    assert "The hook is still attached in 1 of 1 processes." in done.stderr
    os.kill(running.pid, 18)
    assert eventually(lambda: detach(running.process).state == "absent")


@pytest.mark.parametrize("answers", ["the hook", "the interpreter"])
def test_a_thread_that_stays_after_a_successful_answer_is_named(start: Start, answers: str) -> None:
    """A program that renames a thread to the hook's name stands for a hook that did not leave."""
    running = start("attach_wrapped", "named")
    if answers == "the hook":
        assert inject(running.process, timeout_s=20).state == "ready"
    outcome = detach(running.process, timeout_s=0.3)
    assert outcome.state == "silent"
    assert f"its thread {running.line()}" in outcome.reason


@pytest.mark.parametrize("has_socket", [True, False])
def test_a_wrapper_under_another_librarys_is_left_as_a_pass_through_and_named(
    start: Start, runtime: Path, has_socket: bool
) -> None:
    running = start("attach_wrapped", "wraps")
    assert inject(running.process, timeout_s=30).state == "ready"
    running.say(b"wrap\n")
    before = running.line()
    if not has_socket:  # it is then detached by its interpreter
        shutil.rmtree(runtime / "mpwatch")
    done = run_detach(running.pid)
    assert done.returncode == 0, done
    assert "remains: multiprocessing.queues.Queue.put: another library" in done.stdout
    assert "only calls the original" in done.stdout
    running.say(b"tell\n")
    # Names used by the code of the wrapper underneath, and what a call through it does.
    assert before == "wrapped"
    assert running.line() == "calls ['original'], put 5, Full raised, get restored True"
