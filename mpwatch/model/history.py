"""How numbers moved: bounded series per process and metric, for forecasts and trends."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

from mpwatch.model.ids import ProcessId

ProcessMetric: TypeAlias = Literal[
    "cpu_percent",
    "rss_bytes",
    "private_bytes",
    "private_dirty_bytes",
    "shared_dirty_bytes",
    "fds",
    "torch_fds",
    "maps",
    "torch_maps",
    "shm_bytes",
    "threads",
    "children",
    "minor_faults",
    "involuntary_switches",
    "voluntary_switches",
    "loader_wait",  # 1 while the main thread waits as DataLoaders do, for a batch or work, else 0
    "read_bytes",
    "cuda_unreleased",  # CUDA tensors sent and not released by their receivers, by the hook's count
    "looks",  # a point when stacks were taken from outside, which stops and wakes the process
]
HostMetric: TypeAlias = Literal[
    "shm_used_bytes",
    "shm_used_inodes",
    "cgroup_memory_bytes",
    "cgroup_pids",
    "cgroup_oom_kills",
    "cgroup_limit_hits",
    "cgroup_throttled_periods",
    "runnable",
    "segment_bytes",
    "segments",
    "zombies",
]


class Point(NamedTuple):
    """One value at one moment."""

    at_s: float
    value: float


Series: TypeAlias = Sequence[Point]
"""Oldest first. Empty when nothing was read."""

NO_POINTS: Series = ()
_AT_S = attrgetter("at_s")


def since(series: Series, at_s: float) -> Series:
    """The tail of a series from a moment on, found without looking at what lies before."""
    first = bisect_left(series, at_s, key=_AT_S)
    return series[first:] if first else series


@dataclass(frozen=True, slots=True)
class History:
    """Everything remembered; rules read it, `mpwatch.observe.history` fills it."""

    processes: Mapping[tuple[ProcessId, ProcessMetric], Series] = field(default_factory=dict)
    host: Mapping[HostMetric, Series] = field(default_factory=dict)
    started_at_s: float | None = None
    """When observation began."""

    def of(self, process: ProcessId, metric: ProcessMetric) -> Series:
        """The series of one process, oldest first; empty if never read."""
        return self.processes.get((process, metric), NO_POINTS)

    def of_host(self, metric: HostMetric) -> Series:
        """A series of the machine, oldest first; empty if never read."""
        return self.host.get(metric, NO_POINTS)
