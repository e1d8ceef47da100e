"""Bounded series of numbers for each process and metric, for forecasts and trends."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias, overload

from msgspec import Struct, field

from mpwatch.model.host import FilesKey
from mpwatch.model.ids import ProcessId

ProcessMetric: TypeAlias = Literal[
    "cpu_percent",
    "rss_bytes",
    "anon_bytes",
    "virtual_bytes",  # all that is mapped; a point each time it has changed
    "private_bytes",
    "private_dirty_bytes",
    "shared_dirty_bytes",
    "fds",
    "torch_fds",
    "maps",
    "shm_bytes",
    "children",
    "threads",
    "few_threads",  # a point each time their number has changed, while they are few
    "minor_faults",
    "major_faults",
    "system_ticks",  # cpu time in the kernel
    "involuntary_switches",
    "voluntary_switches",
    "tracer_wakes",  # those of `voluntary_switches` that tracers have caused, also of others
    "loader_wait",  # 1 while the main thread waits in a DataLoader for a batch or for work, else 0
    # By system calls, pipes included: a point after each MiB or more, of resource trackers always.
    "read_bytes",
    "written_bytes",  # by system calls, pipes included; a point each time it has written more
    "main_read_bytes",  # of the main thread; a point each time it has read more, see `ProcSample`
    "queue_backlog",  # items in its queues without a bound, counted by the hook
    "answer_wait",  # 1 while the main thread reads from a socket, else 0; from the first 1 on
    "gpu_bytes",  # of all GPUs, as the driver counts it; of processes on a GPU only
    "cuda_unreleased",  # CUDA tensors that receivers have not released, counted by the hook
    # What a sleep of the main thread had left, in seconds, at readings that found it in another one
    # than before, or knew more of it: it lasts at least so long.
    "sleep_left_s",
    "stack_stops",  # a point for each time py-spy stopped and woke the process for its stacks
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
    "zombies",
]


class Point(NamedTuple):
    """One value at one time."""

    at_s: float
    value: float


Series: TypeAlias = Sequence[Point]
"""Oldest first; empty if nothing was read."""

NO_POINTS: Series = ()
_AT_S = attrgetter("at_s")


class Track(Sequence[Point]):
    """A series in two arrays, as far as they reached when it was made.

    It is immutable as long as the owner of the arrays only appends to them. A job has a quarter of
    a million points after some minutes: as objects they took eight times the memory, and the
    garbage collector visited all of them again and again. To copy the arrays of 65 processes for a
    snapshot would take 6 ms, to make their tracks takes 1 ms.
    """

    __slots__ = ("_count", "_moments", "_values")

    def __init__(self, moments: array[float], values: array[float]) -> None:
        self._moments = moments
        self._values = values
        self._count = len(moments)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> Track: ...
    def __getitem__(self, index: int | slice) -> Point | Track:
        if isinstance(index, slice):
            places = slice(*index.indices(self._count))
            return Track(self._moments[places], self._values[places])
        place = index + self._count if index < 0 else index
        if not 0 <= place < self._count:
            raise IndexError(index)
        return Point(self._moments[place], self._values[place])

    def __iter__(self) -> Iterator[Point]:
        return map(Point, self.moments, self.values)

    @property
    def moments(self) -> Sequence[float]:
        """A copy of the times of the points."""
        return self._moments[: self._count]

    @property
    def values(self) -> Sequence[float]:
        """A copy of the values of the points."""
        return self._values[: self._count]

    def rise(self, part: float = 1.0, within_s: float = math.inf) -> float:
        """See `rise`."""
        last = self._count - 1
        if last < 0:
            return 0.0
        if part == 1.0 and within_s == math.inf:
            return self._values[last] - self._values[0]
        moments = self._moments
        end_s = moments[last]
        from_s = end_s - part * min(within_s, end_s - moments[0])
        return self._values[last] - self._values[bisect_left(moments, from_s, 0, last)]

    def first_at(self, at_s: float) -> int:
        """The index of the first point at or after a time."""
        return bisect_left(self._moments, at_s, 0, self._count)


def columns(series: Series) -> tuple[Sequence[float], Sequence[float]]:
    """The times and the values of a series, without creating points."""
    if isinstance(series, Track):
        return series.moments, series.values
    return [point.at_s for point in series], [point.value for point in series]


def values_of(series: Series) -> Sequence[float]:
    """The values of a series."""
    return series.values if isinstance(series, Track) else [point.value for point in series]


def first_at(series: Series, at_s: float) -> int:
    """The index of the first point at or after a time; takes logarithmic time."""
    if isinstance(series, Track):
        return series.first_at(at_s)
    return bisect_left(series, at_s, key=_AT_S)


def since(series: Series, at_s: float) -> Series:
    """The points of a series at or after a time."""
    first = first_at(series, at_s)
    return series[first:] if first else series


def rise(series: Series, part: float = 1.0, within_s: float = math.inf) -> float:
    """The last value minus an earlier one, without creating points: 0.3 to 1 us.

    Args:
        series: Values over time, oldest first; 0 if there are none.
        part: The last part of the time to which the earlier value is the first.
        within_s: Points older than this do not count.
    """
    if isinstance(series, Track):
        return series.rise(part, within_s)
    if not series:
        return 0.0
    span_s = min(within_s, series[-1].at_s - series[0].at_s)
    first = bisect_left(series, series[-1].at_s - part * span_s, 0, len(series) - 1, key=_AT_S)
    return series[-1].value - series[first].value


class History(Struct, frozen=True):
    """All series up to one time; rules read it, `mpwatch.observe.state.history` makes it."""

    processes: Mapping[tuple[ProcessId, ProcessMetric], Series] = field(default_factory=dict)
    host: Mapping[HostMetric, Series] = field(default_factory=dict)
    started_at_s: float | None = None
    """When observation began."""
    files: Mapping[FilesKey, Series] = field(default_factory=dict)
    """The number of new files of each kind that the last reading has."""

    def of(self, process: ProcessId, metric: ProcessMetric) -> Series:
        """The series of one process, oldest first; empty if never read."""
        return self.processes.get((process, metric), NO_POINTS)

    def of_host(self, metric: HostMetric) -> Series:
        """A series of the host, oldest first; empty if never read."""
        return self.host.get(metric, NO_POINTS)
