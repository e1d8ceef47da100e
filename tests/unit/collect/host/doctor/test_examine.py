"""The doctor on this machine."""

from __future__ import annotations

import os
import resource
import sys

import pytest

from mpwatch.collect.host.doctor import examine, gpu_driver
from mpwatch.collect.host.gpu import GpuReading
from mpwatch.model.samples import GpuSample

NAMES = [
    "open files",
    "memory mappings",
    "/dev/shm",
    "/dev/shm files",
    "cgroup memory",
    "cgroup pids",
    "tracing rights",
    "start method",
    "cores and threads",
    "cpu load",
    "GPU",
    "TMPDIR",
    "hook directory",
    "files of hooks",
]


@pytest.mark.parametrize("pid", [None, pytest.param(os.getpid(), id="this process")])
def test_every_check_has_a_meaning(pid: int | None) -> None:
    checks = examine(pid)

    assert [check.name for check in checks] == NAMES
    assert all(check.value and check.meaning.endswith((".", "ever")) for check in checks)


def test_a_process_is_examined_with_its_own_limits_and_use() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    value = examine(os.getpid())[0].value

    assert value.startswith(f"{soft} soft, {hard} hard, ")
    assert value.endswith(" used")


def test_the_version_is_that_of_the_process() -> None:
    expected = f"Python {sys.version_info[0]}.{sys.version_info[1]}: "

    assert {c.name: c.value for c in examine(os.getpid())}["start method"].startswith(expected)


def test_a_hidden_value_is_unknown_and_not_ok() -> None:
    checks = {check.name: check for check in examine(2**22 + 5)}

    assert list(checks) == NAMES
    for name in ("open files", "TMPDIR", "start method"):
        assert (checks[name].state, checks[name].value) == ("note", "unknown")


def test_a_machine_without_a_driver_is_a_note() -> None:
    check = gpu_driver(GpuReading(None, ("GPUs are not shown: NVML says no.",)))

    assert (check.state, check.value) == ("note", "none")
    assert "NVML says no." in check.meaning


def test_devices_are_counted_and_named() -> None:
    devices = (GpuSample(0, "H100", "a"), GpuSample(1, "H100", "b"))

    assert gpu_driver(GpuReading(devices)).value == "2 x H100"
