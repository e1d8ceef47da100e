"""GPU memory of a process on a real GPU, as the driver counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import Start

pytestmark = pytest.mark.slow

MIB = 1 << 20


def dump(pid: int, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", "dump", str(pid), "--json", *options],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_memory_of_a_process_is_the_drivers_count(start: Start) -> None:
    import pynvml

    program = start("cuda_guest.py", "hold")
    reserved = int(program.wait_for("reserved").split()[1])

    document = dump(program.pid)

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    by_pid = {p.pid: p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    (gpu, *_) = document["gpus"]
    (user,) = [each for each in gpu["processes"] if each["pid"] == program.pid]
    assert user["memory_bytes"] == by_pid[program.pid]
    assert user["memory_bytes"] > reserved >= 512 * MIB
    assert gpu["memory_total_bytes"] > gpu["memory_used_bytes"] >= user["memory_bytes"]
    assert gpu["problems"] == []
    assert gpu["name"].startswith("NVIDIA ")
