"""Keeps how numbers moved, bounded: dense for the last minutes, thinned before that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mpwatch.diagnose.analysis.waits.loader_waits import loader_wait
from mpwatch.model.history import History, HostMetric, ProcessMetric, Series, Track
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import MemorySample, ProcSample, TreeSample
from mpwatch.model.snapshot import Segment, Trends
from mpwatch.observe.state.process_builder import RATE_S
from mpwatch.observe.state.segments import MappedBytes

POINTS_KEPT = 240
SPACING_S = RATE_S
"""Readings that follow each other faster, around births and ends, add no points of their own."""
TREND_POINTS = 60

_TRENDS: tuple[ProcessMetric, ...] = ("cpu_percent", "private_bytes", "fds", "maps", "shm_bytes")


class _Line(Track):
    """One series: when it is full, every second point of its older half is dropped.

    So it spans ever more time in bounded memory and is dense where forecasts look first.
    """

    __slots__ = ()

    def add(self, at_s: float, value: float) -> None:
        """Append a point, unless the last one has hardly passed."""
        moments = self.moments
        if moments and 0 <= at_s - moments[-1] < SPACING_S:
            return
        moments.append(at_s)
        self.values.append(value)
        if len(moments) > POINTS_KEPT:
            # In place: whoever holds the series sees it go on.
            del moments[1 : len(moments) // 2 : 2]
            del self.values[1 : len(self.values) // 2 : 2]

    def drawn(self) -> Sequence[float]:
        """The last values."""
        return self.values[-TREND_POINTS:]


class HistoryKeeper:
    """Adds one tree sample after another and hands out the series."""

    def __init__(self) -> None:
        self._lines: dict[ProcessId, dict[ProcessMetric, _Line]] = {}
        self._series: dict[tuple[ProcessId, ProcessMetric], Series] = {}
        """All lines, as rules ask for them."""
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
            process = sample.process
            values = _process_values(sample)
            values["shm_bytes"] = self._mapped.of(sample)
            values["cpu_percent"] = cpu_percent.get(process)
            values["children"] = children.get(process.pid, 0)
            self._add_all(process, at_s, values)
            memory = sample.memory
            # A carried-over reading is not a new point.
            read_at_s = memory.read_at_s if memory is not None else None
            if memory is not None and read_at_s is not None and read_at_s >= at_s - 0.5:
                self._add_all(process, at_s, _memory_values(memory))
        for name, value in _host_values(tree, segments).items():
            if value is not None:
                self._host.setdefault(name, _Line()).add(at_s, value)

    def _add_all(
        self, process: ProcessId, at_s: float, values: Mapping[ProcessMetric, float | None]
    ) -> None:
        """Add a point to each line of which there is a value."""
        lines = self._lines.setdefault(process, {})
        for metric, value in values.items():
            if value is None:
                continue
            line = lines.get(metric)
            if line is None:
                line = lines[metric] = self._series[process, metric] = _Line()
            line.add(at_s, value)

    def add_point(
        self, process: ProcessId, metric: ProcessMetric, at_s: float, value: float
    ) -> None:
        """Remember a number that does not come with the samples of the job."""
        self._add_all(process, at_s, {metric: value})

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
        host: Mapping[HostMetric, Series] = MappingProxyType(self._host)
        series = MappingProxyType(self._series)
        return History(series, host, self._started_at_s)


def _recent(line: _Line | None) -> Sequence[float]:
    return () if line is None else line.drawn()


def _process_values(sample: ProcSample) -> dict[ProcessMetric, float | None]:
    """The numbers of one process worth remembering."""
    values: dict[ProcessMetric, float | None] = {
        "minor_faults": sample.minor_faults,
        "involuntary_switches": sample.involuntary_switches,
        "voluntary_switches": sample.voluntary_switches,
        "loader_wait": loader_wait(sample),
    }
    # One that is ending has none left: that tells nothing of what it closed while it ran.
    if sample.fds is not None and sample.fds.used:
        values["fds"] = sample.fds.used
        if sample.fds.by_kind is not None:
            values["torch_fds"] = sample.fds.by_kind.get("torch", 0)
    if sample.maps is not None and sample.maps.read_at_s is not None:
        values["maps"] = sample.maps.used
    if sample.memory is not None:
        values["rss_bytes"] = sample.memory.rss_bytes
    return values


def _memory_values(memory: MemorySample) -> dict[ProcessMetric, float | None]:
    """What is read of one process at a time."""
    return {
        "private_bytes": memory.private_bytes,
        "private_dirty_bytes": memory.private_dirty_bytes,
        "shared_dirty_bytes": memory.shared_dirty_bytes,
    }


def _host_values(tree: TreeSample, segments: tuple[Segment, ...]) -> dict[HostMetric, float | None]:
    host = tree.host
    values: dict[HostMetric, float | None] = {
        "runnable": host.runnable,
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
