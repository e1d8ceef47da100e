"""Keeps how numbers moved, bounded: dense for the last minutes, thinned before that."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from mpwatch.diagnose.loader_wait import loader_wait
from mpwatch.model.history import History, HostMetric, Point, ProcessMetric, Series
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample, TreeSample
from mpwatch.model.snapshot import Segment, Trends
from mpwatch.observe.people import RATE_S
from mpwatch.observe.segments import MappedBytes

POINTS_KEPT = 240
SPACING_S = RATE_S
"""Readings that follow each other faster, around births and ends, add no points of their own."""
TREND_POINTS = 60

_TRENDS: tuple[ProcessMetric, ...] = ("cpu_percent", "private_bytes", "fds", "maps", "shm_bytes")


class _Line:
    """One series: when it is full, every second point of its older half is dropped.

    So it spans ever more time in bounded memory and is dense where forecasts look first.
    """

    __slots__ = ("points", "recent")

    def __init__(self, *, is_drawn: bool = False) -> None:
        self.points: list[Point] = []
        self.recent: deque[float | None] | None = None
        """The last values, of what is drawn in a row."""
        if is_drawn:
            self.recent = deque(maxlen=TREND_POINTS)

    def add(self, at_s: float, value: float) -> None:
        points = self.points
        if points and 0 <= at_s - points[-1][0] < SPACING_S:
            return
        points.append(Point(at_s, value))
        if self.recent is not None:
            self.recent.append(value)
        if len(points) > POINTS_KEPT:
            # In place: whoever holds the list sees the series go on.
            del points[1 : len(points) // 2 : 2]


class HistoryKeeper:
    """Adds one tree sample after another and hands out the series."""

    def __init__(self) -> None:
        self._lines: dict[ProcessId, dict[ProcessMetric, _Line]] = {}
        self._series: dict[tuple[ProcessId, ProcessMetric], Series] = {}
        """The points of all lines, as rules ask for them."""
        self._host: dict[HostMetric, _Line] = {}
        self._mapped = MappedBytes()
        self._started_at_s: float | None = None

    def add(
        self,
        tree: TreeSample,
        segments: tuple[Segment, ...],
        cpu_percent: Mapping[ProcessId, float | None],
    ) -> None:
        """Remember one reading of the whole job."""
        at_s = tree.at_s
        if self._started_at_s is None:
            self._started_at_s = at_s
        children: dict[int, int] = {}
        for sample in tree.processes:
            children[sample.parent_pid] = children.get(sample.parent_pid, 0) + 1
        for sample in tree.processes:
            values = _process_values(sample, at_s)
            values["shm_bytes"] = self._mapped.of(sample)
            values["cpu_percent"] = cpu_percent.get(sample.process)
            values["children"] = children.get(sample.process.pid, 0)
            lines = self._lines.setdefault(sample.process, {})
            for metric, value in values.items():
                if value is not None:
                    line = lines.get(metric) or self._begin(lines, sample.process, metric)
                    line.add(at_s, value)
        for name, value in _host_values(tree, segments).items():
            if value is not None:
                self._host.setdefault(name, _Line()).add(at_s, value)

    def add_point(
        self, process: ProcessId, metric: ProcessMetric, at_s: float, value: float
    ) -> None:
        """Remember a number that does not come with the samples of the job."""
        lines = self._lines.setdefault(process, {})
        (lines.get(metric) or self._begin(lines, process, metric)).add(at_s, value)

    def forget(self, process: ProcessId) -> None:
        """Drop everything about a process that nobody shows any more."""
        for metric in self._lines.pop(process, {}):
            del self._series[process, metric]
        self._mapped.forget(process)

    def trends(self, process: ProcessId) -> Trends:
        """The last values of what is drawn in a row."""
        lines = self._lines.get(process, {})
        cpu, private, fds, maps, shm = (_recent(lines.get(metric)) for metric in _TRENDS)
        return Trends(cpu_percent=cpu, private_bytes=private, fds=fds, maps=maps, shm_bytes=shm)

    def history(self) -> History:
        """A view for rules; valid until the next `add`."""
        host: dict[HostMetric, Series] = {key: line.points for key, line in self._host.items()}
        return History(MappingProxyType(self._series), MappingProxyType(host), self._started_at_s)

    def _begin(
        self, lines: dict[ProcessMetric, _Line], process: ProcessId, metric: ProcessMetric
    ) -> _Line:
        line = lines[metric] = _Line(is_drawn=metric in _TRENDS)
        self._series[process, metric] = line.points
        return line


def _recent(line: _Line | None) -> tuple[float | None, ...]:
    return tuple(line.recent or ()) if line is not None else ()


def _process_values(sample: ProcSample, at_s: float) -> dict[ProcessMetric, float | None]:
    """The numbers of one process worth remembering; a carried-over reading is not a new point."""
    values: dict[ProcessMetric, float | None] = {
        "threads": sample.thread_count,
        "minor_faults": sample.minor_faults,
        "involuntary_switches": sample.involuntary_switches,
        "voluntary_switches": sample.voluntary_switches,
        "loader_wait": loader_wait(sample),
        "read_bytes": sample.read_bytes,
    }
    # One that is ending has none left: that tells nothing of what it closed while it ran.
    if sample.fds is not None and sample.fds.used:
        values["fds"] = sample.fds.used
        if sample.fds.by_kind is not None:
            values["torch_fds"] = sample.fds.by_kind.get("torch", 0)
    if sample.maps is not None and sample.maps.read_at_s is not None:
        values["maps"] = sample.maps.used
        values["torch_maps"] = sample.maps.torch_count
    memory = sample.memory
    if memory is not None:
        values["rss_bytes"] = memory.rss_bytes
        if memory.read_at_s is not None and memory.read_at_s >= at_s - 0.5:
            values["private_bytes"] = memory.private_bytes
            values["private_dirty_bytes"] = memory.private_dirty_bytes
            values["shared_dirty_bytes"] = memory.shared_dirty_bytes
    return values


def _host_values(tree: TreeSample, segments: tuple[Segment, ...]) -> dict[HostMetric, float | None]:
    host = tree.host
    values: dict[HostMetric, float | None] = {
        "runnable": host.runnable,
        "segments": len(segments),
        "segment_bytes": sum(s.size_bytes or 0 for s in segments if s.kind != "semaphore"),
        "zombies": sum(sample.state == "Z" for sample in tree.processes),
    }
    if host.shm is not None:
        values["shm_used_bytes"] = host.shm.total_bytes - host.shm.free_bytes
        if host.shm.total_inodes is not None and host.shm.free_inodes is not None:
            values["shm_used_inodes"] = host.shm.total_inodes - host.shm.free_inodes
    if host.cgroup is not None:
        values["cgroup_memory_bytes"] = host.cgroup.memory_bytes
        values["cgroup_pids"] = host.cgroup.pids_current
        values["cgroup_oom_kills"] = host.cgroup.oom_kills
        values["cgroup_limit_hits"] = host.cgroup.limit_hits
        values["cgroup_throttled_periods"] = host.cgroup.throttled_periods
    return values
