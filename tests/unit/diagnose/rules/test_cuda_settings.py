from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.gpu import cuda_launch_blocking
from mpwatch.model.snapshot import GpuUse, Process
from tests.builders.snapshots import found, main, only, process, snapshot_of


def on_gpu(value: str, each: Process) -> Process:
    """A process on GPU 0, started with the setting."""
    sample = replace(each.sample, environment={cuda_launch_blocking.VARIABLE: value})
    return replace(each, sample=sample, gpus=(GpuUse(0, 1 << 30),))


def test_a_job_that_was_left_in_debugging_mode_is_named() -> None:
    finding = only(cuda_launch_blocking.check, snapshot_of(on_gpu("1", main()), process(2)))

    assert "CUDA_LAUNCH_BLOCKING=1" in finding.summary
    assert "main" in finding.evidence[0]
    assert finding.evidence[1] == "on gpu0"


@pytest.mark.parametrize("value", ["0", ""])
def test_a_job_with_the_setting_off_is_healthy(value: str) -> None:
    assert found(cuda_launch_blocking.check, snapshot_of(on_gpu(value, main()))) == []


def test_a_job_without_a_gpu_is_healthy_with_any_setting() -> None:
    job = snapshot_of(replace(on_gpu("1", main()), gpus=()))

    assert found(cuda_launch_blocking.check, job) == []
