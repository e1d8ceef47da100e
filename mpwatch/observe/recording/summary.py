"""A whole recording: every finding that was ever present, and curves of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from mpwatch.model.findings import Finding
from mpwatch.model.history import Point
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot

DIED_WITH_IT_S = 6.0
"""A finding present this shortly before its process exited counts as present at the end."""
POINTS_LIMIT = 600
"""Points of one curve; when there are more, every second one is dropped."""


@dataclass
class Curve:
    """One number over time, thinned as it grows."""

    points: list[Point] = field(default_factory=list)
    _every: int = 1
    _skipped: int = 0

    def add(self, at_s: float, value: float | None) -> None:
        """Append a value; an unknown one is left out."""
        if value is None:
            return
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.points.append(Point(at_s, value))
        if len(self.points) > POINTS_LIMIT:
            self.points = self.points[::2]
            self._every *= 2


class Course:
    """Adds up the snapshots after each reading, in order."""

    def __init__(self) -> None:
        self.processes: dict[tuple[ProcessId, str], Curve] = {}
        """By process and name of the number: `fds`, `private_bytes`, `shm_bytes`, `maps`."""
        self.host: dict[str, Curve] = {}
        """By name of the number: `/dev/shm bytes`, `cgroup memory bytes`."""
        self._seen: dict[object, tuple[Finding, float]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Add one snapshot."""
        for finding in snapshot.findings:
            if finding.resolved_s is None:
                self._seen[finding.key] = (finding, snapshot.at_s)
        for process in snapshot.living():
            for name, read in _NUMBERS.items():
                key = (process.process, name)
                self.processes.setdefault(key, Curve()).add(snapshot.at_s, read(process))
        shm, cgroup = snapshot.host.shm, snapshot.host.cgroup
        used = shm.total_bytes - shm.free_bytes if shm else None
        self.host.setdefault("/dev/shm bytes", Curve()).add(snapshot.at_s, used)
        memory = cgroup.memory_bytes if cgroup else None
        self.host.setdefault("cgroup memory bytes", Curve()).add(snapshot.at_s, memory)

    def findings(self, end: Snapshot) -> tuple[Finding, ...]:
        """Every finding: present at the end or at the exit of the process first, then resolved."""
        present = [finding for finding in end.findings if finding.resolved_s is None]
        told = {finding.key for finding in present}
        held, passed = [], []
        for key, (finding, last_s) in self._seen.items():
            if key in told:
                continue
            if _died_with_it(finding, last_s, end):
                held.append(replace(finding, eta_s=None))
            else:
                passed.append(replace(finding, resolved_s=last_s, eta_s=None))
        held.sort(key=_urgency)
        passed.sort(key=_urgency)
        return (*sorted((*present, *held), key=_urgency), *passed)


def _died_with_it(finding: Finding, last_s: float, end: Snapshot) -> bool:
    """Whether the process, or the whole job, exited while the finding was present."""
    process = end.get(finding.process)
    concerned: Iterable[Process] = end.processes if process is None else (process,)
    ends = [one.ended.at_s for one in concerned if one.ended is not None]
    all_ended = all(one.ended is not None for one in concerned)
    return all_ended and bool(ends) and max(ends) - last_s <= DIED_WITH_IT_S


def _urgency(finding: Finding) -> int:
    return -finding.severity


_NUMBERS: dict[str, Callable[[Process], float | None]] = {
    "fds": lambda process: process.sample.fds.used if process.sample.fds else None,
    "maps": lambda process: process.sample.maps.used if process.sample.maps else None,
    "private_bytes": lambda process: process.private_bytes,
    "shm_bytes": lambda process: process.shm_bytes,
}
