"""Jobs and workers that run for less than the time between two readings, recorded headless."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.observe.commands import recorded, rules

pytestmark = pytest.mark.slow

CRASHES = """
import os, signal, time
time.sleep(0.3)
os.kill(os.getpid(), signal.SIGSEGV)
"""
RAISES = """
raise ValueError("at once")
"""
WORKER_DIES_YOUNG = """
import multiprocessing, os, sys, time

def work():
    time.sleep(0.05)
    os._exit(3)

if __name__ == "__main__":
    # One after another: where the machine is busy, the observer is late for one or the other.
    for _ in range(12):
        worker = multiprocessing.Process(target=work)
        worker.start()
        worker.join()
    sys.exit(worker.exitcode)
"""
LOADER_WORKER_IS_KILLED = """
import os, signal, time
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if index == 200:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(8)

if __name__ == "__main__":
    for _ in DataLoader(Samples(), batch_size=4, num_workers=2):
        time.sleep(0.01)
"""
ENDS_AS_AFTER_AN_OOM_KILL = """
import os, signal, time
time.sleep(0.2)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_program_that_crashes_after_a_moment_is_named(tmp_path: Path) -> None:
    code, found = recorded(tmp_path, CRASHES)

    assert code == -signal.SIGSEGV
    (crash,) = [each for each in found["findings"] if each["rule"] == "worker-segfault"]
    assert "signal 11 (SIGSEGV)" in crash["evidence"][0]
    assert crash["first_seen_s"] is not None


def test_a_worker_that_lives_for_fifty_milliseconds_is_seen_and_named(tmp_path: Path) -> None:
    code, found = recorded(tmp_path, WORKER_DIES_YOUNG)

    assert code == 3
    assert "worker-exited-unexpectedly" in rules(found)
    assert any("exit code 3" in line for each in found["findings"] for line in each["evidence"])


def test_a_loader_worker_killed_between_two_readings_is_named_with_its_role(tmp_path: Path) -> None:
    code, found = recorded(tmp_path, LOADER_WORKER_IS_KILLED)

    assert code == 1
    (death,) = [e for e in found["findings"] if e["rule"] == "worker-exited-unexpectedly"]
    assert death["severity"] == "critical"
    assert death["summary"].startswith("worker ")
    assert "signal 9 (SIGKILL)" in death["evidence"][0]


def test_the_exception_of_a_program_that_ends_before_the_first_reading_is_shown(
    tmp_path: Path,
) -> None:
    code, found = recorded(tmp_path, RAISES)

    assert code == 1
    assert [each["words"] for each in found["ended"]] == ["exit code 1"]
    (last,) = found["last_words"]
    assert "ValueError; at once" in last["words"]
    assert last["place"] == "script.py:2 <module>"


def test_the_signal_that_killed_a_program_is_shown(tmp_path: Path) -> None:
    code, found = recorded(tmp_path, ENDS_AS_AFTER_AN_OOM_KILL)

    assert code == -signal.SIGKILL
    assert [each["words"] for each in found["ended"]] == ["signal 9 (SIGKILL)"]
