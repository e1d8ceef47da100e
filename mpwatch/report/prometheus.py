"""The few numbers that announce a failure, for Prometheus (text exposition format 0.0.4).

What could not be read has no sample, because a zero would be a lie. Series of processes carry the
pid and what the process is for, so that an alert names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mpwatch.model.findings import Severity
from mpwatch.model.host import HostSample
from mpwatch.model.snapshot import Process, Snapshot

Labels: TypeAlias = tuple[tuple[str, str], ...]
Sample: TypeAlias = tuple[Labels, float | None]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with all its series."""

    name: str
    help: str
    samples: tuple[Sample, ...]
    kind: Literal["gauge", "counter"] = "gauge"

    def lines(self) -> Iterator[str]:
        """Its exposition; nothing if no series has a value."""
        known = [
            (labels, value)
            for labels, value in self.samples
            if value is not None and math.isfinite(value)
        ]
        if not known:
            return
        yield f"# HELP {self.name} {_escaped(self.help)}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in known:
            inside = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels)
            yield f"{self.name}{{{inside}}} {value!r}" if inside else f"{self.name} {value!r}"


def exposition(snapshot: Snapshot) -> str:
    """All metrics of one moment."""
    metrics = (*_of_processes(snapshot), *_of_host(snapshot.host), *_of_job(snapshot))
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _of_processes(snapshot: Snapshot) -> Iterator[Metric]:
    living = snapshot.living()

    def each(name: str, help: str, values: Iterable[float | None]) -> Metric:
        series = tuple(zip(map(_labels, living), values, strict=True))
        return Metric(f"mpwatch_process_{name}", help, series)

    fds = [process.sample.fds for process in living]
    maps = [process.sample.maps for process in living]
    yield each("open_fds", "Open file descriptors.", (fd.used if fd else None for fd in fds))
    yield each(
        "max_fds", "Soft limit of open files.", (fd.soft_limit if fd else None for fd in fds)
    )
    yield each("maps", "Memory mappings.", (found.used if found else None for found in maps))
    yield each("max_maps", "vm.max_map_count.", (found.limit if found else None for found in maps))
    yield each(
        "private_bytes",
        "Memory nobody else shares.",
        (process.private_bytes for process in living),
    )
    yield each(
        "shared_memory_bytes",
        "Shared segments it maps, each counted once.",
        (process.shm_bytes for process in living),
    )
    yield each(
        "hook_ready",
        "Whether its hook answers.",
        (int(process.hook.state == "ready") for process in living),
    )


def _of_host(host: HostSample) -> Iterator[Metric]:
    shm, cgroup = host.shm, host.cgroup
    readings: list[tuple[str, str, float | None]] = []
    if shm is not None:
        readings += [
            ("shm_free_bytes", "Room left in /dev/shm.", shm.free_bytes),
            ("shm_size_bytes", "Size of /dev/shm.", shm.total_bytes),
            ("shm_free_files", "Files /dev/shm can still hold.", shm.free_inodes),
        ]
    if cgroup is not None:
        readings += [
            ("cgroup_memory_bytes", "Memory of the control group.", cgroup.memory_bytes),
            ("cgroup_memory_limit_bytes", "Its limit.", cgroup.memory_limit_bytes),
            ("cgroup_pids", "Processes and threads of the control group.", cgroup.pids_current),
            ("cgroup_pids_limit", "Their limit.", cgroup.pids_limit),
            ("cgroup_oom_kills", "Processes killed for want of memory.", cgroup.oom_kills),
        ]
    readings.append(("host_runnable_threads", "Threads that run or want to.", host.runnable))
    for name, meaning, value in readings:
        yield Metric(f"mpwatch_{name}", meaning, (((), value),))


def _of_job(snapshot: Snapshot) -> Iterator[Metric]:
    living = snapshot.living()
    ended = len(snapshot.processes) - len(living)
    yield Metric("mpwatch_processes", "Processes of the job.", (((), len(living)),))
    yield Metric("mpwatch_processes_ended", "Those that have ended.", (((), ended),))
    lost = sum(process.hook.lost for process in snapshot.processes)
    yield Metric("mpwatch_events_lost", "Hook events that were lost.", (((), lost),))
    waits = tuple(
        ((("pid", str(loader.process.pid)), ("loader", str(number))), loader.wait_share)
        for number, loader in enumerate(snapshot.loaders)
    )
    yield Metric("mpwatch_loader_wait_ratio", "Part of a minute main waited for batches.", waits)
    present = [finding for finding in snapshot.findings if finding.resolved_s is None]
    counts = tuple(
        ((("severity", severity.word),), sum(f.severity == severity for f in present))
        for severity in Severity
    )
    yield Metric("mpwatch_findings", "Findings that hold now.", counts)
    forecasts: dict[Labels, float] = {}
    for finding in present:
        if finding.eta_s is not None:
            pid = str(finding.process.pid) if finding.process else ""
            labels = (("rule", finding.rule), ("pid", pid))
            forecasts[labels] = min(finding.eta_s, forecasts.get(labels, finding.eta_s))
    yield Metric(
        "mpwatch_finding_seconds_left",
        "Seconds until the damage, where it can be forecast.",
        tuple(forecasts.items()),
    )


def _labels(process: Process) -> Labels:
    return (("pid", str(process.pid)), ("role", process.role), ("process", process.label))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
