from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mpwatch.collect.host.gpu import GpuCollector


class NVMLError(Exception):
    pass


class Nvml:
    """Two GPUs, the second of which supports little."""

    NVMLError = NVMLError

    def __init__(self, has_driver: bool = True) -> None:
        self.has_driver = has_driver
        self.asked = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.has_driver:
            raise NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self.asked += 1
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"H200\x1b[31m"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(used=10, total=100)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=55)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        if handle == 1:
            raise NVMLError("Not Supported")
        return 250_000

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return 40

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=42, usedGpuMemory=None if handle else 7)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return []


def test_every_gpu_is_read_and_what_it_lacks_is_none_with_a_reason() -> None:
    first, second = GpuCollector(lambda: 0.0, Nvml).collect().gpus or ()

    assert (first.name, first.uuid, first.power_w) == ("H200", "GPU-0", 250.0)
    assert (first.memory_used_bytes, first.memory_total_bytes) == (10, 100)
    assert first.processes[0] == (first.processes[0].__class__(42, 7))
    assert second.power_w is None
    assert second.problems == ("power: Not Supported",)
    assert second.processes[0].memory_bytes is None


def test_no_driver_is_one_sentence_and_is_not_asked_again() -> None:
    loads: list[Nvml] = []

    def load() -> Nvml:
        loads.append(Nvml(has_driver=False))
        return loads[-1]

    gpus = GpuCollector(lambda: float(len(loads)) * 100, load)
    readings = [gpus.collect() for _ in range(3)]

    assert {reading.gpus for reading in readings} == {None}
    assert len(readings[2].problems) == 1
    assert "NVML Shared Library Not Found" in readings[2].problems[0]
    assert len(loads) == 1


def test_a_missing_binding_is_one_sentence() -> None:
    def load() -> Any:
        raise ImportError("pynvml")

    (problem,) = GpuCollector(lambda: 0.0, load).collect().problems

    assert "nvidia-ml-py is not installed" in problem


def test_readings_in_quick_succession_return_the_last_one() -> None:
    nvml = Nvml()
    now = [0.0]
    gpus = GpuCollector(lambda: now[0], lambda: nvml)

    gpus.collect()
    gpus.collect()
    now[0] = 2.0
    gpus.collect()

    assert nvml.asked == 2
