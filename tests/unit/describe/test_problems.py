"""Which reading problems matter to a job."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.collect.host.gpu import GpuCollector
from mpwatch.describe.findings import problems_of
from mpwatch.model.samples import FdSample, MapSample
from mpwatch.model.snapshot import GpuUse, Snapshot
from mpwatch.report.html import report_html
from mpwatch.report.json import snapshot_json
from mpwatch.report.text import dump_text
from tests.builders.report_job import job

UNREADABLE = "cgroup: Permission denied"


def no_driver() -> str:
    """The problem that the probe reports without the library."""

    def load() -> Any:
        raise ImportError

    (problem,) = GpuCollector(load=load).collect().problems
    return problem


def without_gpu(problem: str, gpus: tuple[GpuUse, ...] = (), **sample: object) -> Snapshot:
    """A job whose main process has these values of its sample, and no readable GPU."""
    main, *others = job().processes
    main = replace(main, sample=replace(main.sample, **sample), gpus=gpus)
    return replace(
        job(), processes=(main, *others), gpus=None, problems=(problem, UNREADABLE, UNREADABLE)
    )


def test_a_missing_driver_is_not_a_problem_of_a_job_without_a_gpu() -> None:
    snapshot = without_gpu(no_driver(), maps=MapSample(900, None, libraries=("libtorch_cuda.so",)))

    assert problems_of(snapshot) == (UNREADABLE,)
    assert "GPU" not in dump_text(snapshot)
    assert "GPU" not in report_html(snapshot)
    assert snapshot_json(snapshot, with_stacks=False)["problems"][0] == no_driver()


@pytest.mark.parametrize("devices", ["", "-1"])
def test_a_job_with_no_visible_gpu_uses_none(devices: str) -> None:
    snapshot = without_gpu(no_driver(), environment={"CUDA_VISIBLE_DEVICES": devices})

    assert problems_of(snapshot) == (UNREADABLE,)


@pytest.mark.parametrize(
    "sample",
    [
        {"environment": {"CUDA_VISIBLE_DEVICES": "0,1"}},
        {"fds": FdSample(9, 1024, 4096, {"gpu": 2})},
        {"maps": MapSample(900, None, libraries=("libcuda.so.1",))},
        {"gpus": (GpuUse(0, None, 1 << 20),)},
    ],
)
def test_a_job_that_uses_a_gpu_shows_why_no_gpu_can_be_read(sample: dict[str, Any]) -> None:
    snapshot = without_gpu(no_driver(), **sample)

    assert problems_of(snapshot) == (no_driver(), UNREADABLE)
    assert "GPUs are not shown" in dump_text(snapshot)
