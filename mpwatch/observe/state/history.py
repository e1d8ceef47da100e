"""The history of numbers, bounded: dense for the last minutes, thinned before that."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mpwatch.model.history import History, HostMetric, ProcessMetric, Track
from mpwatch.model.host import FilesKey, NewFiles
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import MemorySample, ProcSample, TreeSample
from mpwatch.model.snapshot import Segment, Trends
from mpwatch.model.waits import loader_wait

POINTS_KEPT = 240
RATE_S = 0.4
"""Shortest time for a rate: cpu is counted in ticks of 10 ms, and over less time one tick appears
as work. More frequent readings, around starts and exits, add no points either."""
TREND_POINTS = 60
TRANSFER_BYTES = 1 << 20
"""Reading less than this is no point: most processes of a job do."""
FEW_THREADS = 8
"""So few threads of a process are no point: most workers have no more, and none of a series."""

_TRENDS: tuple[ProcessMetric, ...] = ("cpu_percent", "private_bytes", "fds", "maps", "shm_bytes")


class _Line:
    """One series: when it is full, every second point of its older half is dropped.

    So it spans ever more time in bounded memory and is dense where forecasts look first. Tracks
    that were handed out stay as they are: points are appended behind their end, and a thinned
    series has new arrays.
    """

    __slots__ = ("moments", "values")

    def __init__(self) -> None:
        self.moments = array("d")
        self.values = array("d")

    def add(self, at_s: float, value: float) -> None:
        """Append a point, unless the last one is less than `RATE_S` old."""
        moments = self.moments
        if moments and 0 <= at_s - moments[-1] < RATE_S:
            return
        moments.append(at_s)
        self.values.append(value)
        if len(moments) > POINTS_KEPT:
            self.thin()

    def thin(self) -> None:
        """Drop every second point of the older half."""
        self.moments, self.values = _thinned(self.moments), _thinned(self.values)


class _Regular(Struct, frozen=True):
    """The points that each reading adds of a process as long as its sample is the same.

    Half of the time for a reading of a calm job was spent on finding them again.
    """

    sample_at_s: float
    more: Mapping[ProcessMetric, float | None]
    """The numbers that the sample does not have."""
    points: tuple[tuple[_Line, float], ...]


def _add_again(points: Sequence[tuple[_Line, float]], at_s: float) -> None:
    """Add these points, as `_Line.add` does: written out, as there are a thousand at a reading."""
    for line, number in points:
        moments = line.moments
        if not 0 <= at_s - moments[-1] < RATE_S:
            moments.append(at_s)
            line.values.append(number)
            if len(moments) > POINTS_KEPT:
                line.thin()


def _thinned(numbers: array[float]) -> array[float]:
    """Without every second number of the older half, the first one kept."""
    half = len(numbers) // 2
    return numbers[:half:2] + numbers[half:]


class HistoryKeeper:
    """Adds readings of the job and returns the series up to now."""

    def __init__(self) -> None:
        self._lines: dict[ProcessId, dict[ProcessMetric, _Line]] = {}
        self._series: dict[tuple[ProcessId, ProcessMetric], _Line] = {}
        """The same lines, as rules ask for them."""
        self._host: dict[HostMetric, _Line] = {}
        self._files: dict[FilesKey, _Line] = {}
        self._started_at_s: float | None = None
        self._regular: dict[ProcessId, _Regular] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the job was read at least once."""
        return self._started_at_s is not None

    def add(
        self,
        tree: TreeSample,
        segments: tuple[Segment, ...],
        numbers: Mapping[ProcessId, Mapping[ProcessMetric, float | None]],
    ) -> None:
        """Remember one reading of the whole job.

        Args:
            tree: The reading.
            segments: The segments at that time.
            numbers: Numbers of each process that need more than this reading.
        """
        at_s = tree.at_s
        if self._started_at_s is None:
            self._started_at_s = at_s
        children = Counter(sample.parent_pid for sample in tree.processes)
        on_gpus = _gpu_bytes(tree)
        for sample in tree.processes:
            process = sample.process
            more: dict[ProcessMetric, float | None] = {
                **numbers.get(process, {}),
                "children": children[process.pid],
            }
            if process.pid in on_gpus:
                more["gpu_bytes"] = on_gpus[process.pid]
            known = self._regular.get(process)
            if known is not None and known.sample_at_s == sample.at_s and known.more == more:
                _add_again(known.points, at_s)
            else:
                self._add_sample(sample, at_s, more)
        self._add_files(tree.host.new_files, at_s)
        for name, value in _host_values(tree, segments).items():
            if value is not None:
                self._host.setdefault(name, _Line()).add(at_s, value)

    def _add_sample(
        self, sample: ProcSample, at_s: float, more: dict[ProcessMetric, float | None]
    ) -> None:
        """Add the points of a new sample, or of one with other numbers beside it."""
        process, memory = sample.process, sample.memory
        values = {**_process_values(sample), **more}
        if (is_reading := reads_socket(sample)) or (process, "answer_wait") in self._series:
            values["answer_wait"] = is_reading
        points = self._add_all(process, at_s, values)
        self._regular[process] = _Regular(sample.at_s, more, points)
        lines = self._lines[process]
        rare: dict[ProcessMetric, float | None] = {}
        moved: tuple[tuple[ProcessMetric, float | None], ...] = (
            ("main_read_bytes", sample.main_read_bytes),
            ("written_bytes", sample.written_bytes),
            ("few_threads", _few_threads(sample)),
            ("sleep_left_s", _sleep_left_s(sample)),
            ("virtual_bytes", memory.virtual_bytes if memory is not None else None),
        )
        for metric, value in moved:
            known = lines.get(metric)
            if value is not None and (known is None or known.values[-1] != value):
                rare[metric] = value
        if sample.role != "resource-tracker" and self._has_read_much(sample):
            rare["read_bytes"] = sample.read_bytes
        # A value that was carried over from an earlier reading is not a new point.
        read_at_s = memory.read_at_s if memory is not None else None
        if memory is not None and read_at_s is not None and read_at_s >= at_s - 0.5:
            rare.update(_memory_values(memory))
        self._add_all(process, at_s, rare)

    def _add_files(self, found: Sequence[NewFiles] | None, at_s: float) -> None:
        """Add a point for each kind of new files; those that the reading lacks are dropped."""
        before, self._files = self._files, {}
        for files in found or ():
            line = self._files[files.key] = before.get(files.key) or _Line()
            line.add(at_s, files.total)

    def _has_read_much(self, sample: ProcSample) -> bool:
        """Whether a process has read much more than at the last point."""
        known = self._series.get((sample.process, "read_bytes"))
        if sample.read_bytes is None or known is None:
            return True
        return sample.read_bytes - known.values[-1] >= TRANSFER_BYTES

    def _add_all(
        self, process: ProcessId, at_s: float, values: Mapping[ProcessMetric, float | None]
    ) -> tuple[tuple[_Line, float], ...]:
        """Add a point to each line of which there is a value; returns these lines and values."""
        lines = self._lines.setdefault(process, {})
        points = []
        for metric, value in values.items():
            if value is not None:
                line = lines.get(metric)
                if line is None:
                    line = lines[metric] = self._series[process, metric] = _Line()
                    line.add(at_s, value)
                points.append((line, value))
        _add_again(points, at_s)
        return tuple(points)

    def add_point(
        self, process: ProcessId, metric: ProcessMetric, at_s: float, value: float
    ) -> None:
        """Add a number that is not part of a reading of the job."""
        self._add_all(process, at_s, {metric: value})

    def forget(self, process: ProcessId) -> None:
        """Drop the series of a process that is no longer shown."""
        self._regular.pop(process, None)
        for metric in self._lines.pop(process, {}):
            del self._series[process, metric]

    def trends(self, process: ProcessId) -> Trends:
        """The last values of what is drawn in a row."""
        lines = self._lines.get(process, {})
        # Written out, as `_add_again`: with functions for them, 325 of a reading took 0.2 ms more.
        cpu, private, fds, maps, shm = [
            line.values[-TREND_POINTS:] if (line := lines.get(metric)) is not None else ()
            for metric in _TRENDS
        ]
        return Trends(cpu_percent=cpu, private_bytes=private, fds=fds, maps=maps, shm_bytes=shm)

    def history(self) -> History:
        """All series up to now; stays as it is."""
        return History(
            {key: Track(line.moments, line.values) for key, line in self._series.items()},
            {metric: Track(line.moments, line.values) for metric, line in self._host.items()},
            self._started_at_s,
            {key: Track(line.moments, line.values) for key, line in self._files.items()},
        )


def reads_socket(sample: ProcSample) -> bool:
    """Whether the main thread waits for data on a socket, as for the answer of a server."""
    wait = sample.threads[0].waits_on if sample.threads else None
    return wait is not None and wait.kind == "socket-read"


def _gpu_bytes(tree: TreeSample) -> dict[int, int]:
    """The memory of each process on all GPUs, by pid.

    The driver counts a process that computes and draws twice, with the same number.
    """
    found: Counter[int] = Counter()
    for gpu in tree.gpus or ():
        of_gpu: dict[int, int] = {}
        for each in gpu.processes:
            if each.memory_bytes is not None:
                of_gpu[each.pid] = max(each.memory_bytes, of_gpu.get(each.pid, 0))
        found.update(of_gpu)
    return found


def _few_threads(sample: ProcSample) -> int | None:
    """The number of threads, cut where `threads` has every reading: it shows that some ended."""
    count = sample.thread_count
    return None if count is None else min(count, FEW_THREADS)


def _sleep_left_s(sample: ProcSample) -> float | None:
    """What the sleep of the main thread has left; `None` where it does not sleep."""
    wait = sample.threads[0].waits_on if sample.threads else None
    return wait.timeout_s if wait is not None and wait.kind == "timer" else None


def _process_values(sample: ProcSample) -> dict[ProcessMetric, float | None]:
    """The numbers of one process worth remembering."""
    values: dict[ProcessMetric, float | None] = {
        "minor_faults": sample.minor_faults,
        "major_faults": sample.major_faults,
        "system_ticks": sample.system_ticks,
        "involuntary_switches": sample.involuntary_switches,
        "voluntary_switches": sample.voluntary_switches,
        "tracer_wakes": sample.tracer_wakes,
        "loader_wait": loader_wait(sample),
    }
    if (sample.thread_count or 0) > FEW_THREADS:
        values["threads"] = sample.thread_count
    if sample.role == "resource-tracker":
        values["read_bytes"] = sample.read_bytes
    # One that is ending has none left: that shows nothing about what it closed while it ran.
    if sample.fds is not None and sample.fds.used:
        values["fds"] = sample.fds.used
        if sample.fds.by_kind is not None:
            values["torch_fds"] = sample.fds.by_kind.get("torch", 0)
    if sample.maps is not None and sample.maps.read_at_s is not None:
        values["maps"] = sample.maps.used
    if sample.memory is not None:
        values["rss_bytes"] = sample.memory.rss_bytes
        values["anon_bytes"] = sample.memory.anon_bytes
    return values


def _memory_values(memory: MemorySample) -> dict[ProcessMetric, float | None]:
    """Numbers of one process from `smaps_rollup`."""
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
