"""GPUs and the processes on them, from NVIDIA's management library (NVML)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from mpwatch.model.samples import NO_GPUS, GpuProcessSample, GpuSample
from mpwatch.model.sanitize import clean

INTERVAL_S = 1.0
"""Seconds for which an answer is used again."""


class GpuReading(Struct, frozen=True):
    """All GPUs at one moment, or why there are none."""

    gpus: tuple[GpuSample, ...] | None
    problems: tuple[str, ...] = ()


class GpuCollector:
    """Reads NVML; a machine without an NVIDIA driver is one sentence, not an error.

    NVML counts processes by their pids on the host: inside a container with its own pid namespace
    they are not the pids seen there, and many drivers show none at all.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        load: Callable[[], Any] | None = None,
    ) -> None:
        """Prepare; the library is loaded at the first collect.

        Args:
            clock: CLOCK_MONOTONIC.
            load: Returns the NVML binding; tests pass their own.
        """
        self._clock = clock
        self._load = load if load is not None else _load_nvml
        self._nvml: Any = None
        self._last = GpuReading(None)
        self._read_at_s = -math.inf

    def collect(self) -> GpuReading:
        """Read all GPUs; never raises."""
        if self._clock() - self._read_at_s < INTERVAL_S:
            return self._last
        self._read_at_s = self._clock()
        if self._nvml is None:
            try:
                self._nvml = self._start()
            except _Unavailable as reason:
                self._read_at_s = math.inf  # a driver is not installed meanwhile
                self._last = GpuReading(None, (str(reason),))
                return self._last
        self._last = self._read_all()
        return self._last

    def _start(self) -> Any:
        """Load and initialise the library.

        Raises:
            _Unavailable: There is none; the text is the sentence to show.
        """
        try:
            nvml = self._load()
        except ImportError:
            raise _Unavailable(f"{NO_GPUS}: nvidia-ml-py is not installed.") from None
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise _Unavailable(f"{NO_GPUS}: NVML says {clean(str(error))}.") from None
        return nvml

    def _read_all(self) -> GpuReading:
        """All devices."""
        nvml = self._nvml
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            return GpuReading(None, (f"{NO_GPUS}: NVML says {clean(str(error))}.",))
        return GpuReading(tuple(self._read_one(index) for index in range(count)))

    def _read_one(self, index: int) -> GpuSample:
        """One device; what it does not support is `None` with a problem."""
        nvml, problems = self._nvml, list[str]()

        def ask(what: str, question: Callable[[], Any]) -> Any:
            try:
                return question()
            except nvml.NVMLError as error:
                problems.append(f"{what}: {clean(str(error))}")
                return None

        handle = ask("device", lambda: nvml.nvmlDeviceGetHandleByIndex(index))
        if handle is None:
            return GpuSample(index, "unknown", "", problems=tuple(problems))
        memory = ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        use = ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        power = ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        heat = ask("temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, 0))
        return GpuSample(
            index=index,
            name=_text(ask("name", lambda: nvml.nvmlDeviceGetName(handle))),
            uuid=_text(ask("uuid", lambda: nvml.nvmlDeviceGetUUID(handle))),
            memory_used_bytes=memory.used if memory is not None else None,
            memory_total_bytes=memory.total if memory is not None else None,
            utilization_percent=float(use.gpu) if use is not None else None,
            temperature_c=float(heat) if heat is not None else None,
            power_w=power / 1000 if power is not None else None,
            processes=self._processes(handle, ask),
            problems=tuple(problems),
        )

    def _processes(
        self, handle: Any, ask: Callable[[str, Callable[[], Any]], Any]
    ) -> tuple[GpuProcessSample, ...]:
        """The processes on a device."""
        nvml = self._nvml
        compute = ask("processes", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        graphics = ask("graphics", lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle))
        return (
            *(GpuProcessSample(p.pid, p.usedGpuMemory, "compute") for p in compute or ()),
            *(GpuProcessSample(p.pid, p.usedGpuMemory, "graphics") for p in graphics or ()),
        )


LIBRARY = "libnvidia-ml.so.1"


class _Unavailable(Exception):
    """There is no NVML here."""


def _load_nvml() -> Any:
    """The binding, imported only if GPUs are requested and the library exists.

    It takes longer to import than a small job to read, and most machines have no such library.

    Raises:
        ImportError: The binding is not installed.
        _Unavailable: The library is not.
    """
    import ctypes

    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        raise _Unavailable(f"{NO_GPUS}: there is no {LIBRARY}.") from None
    import pynvml

    return pynvml


def _text(raw: str | bytes | None) -> str:
    """Names are text or bytes, depending on the binding's version."""
    return clean(raw) if raw is not None else ""
