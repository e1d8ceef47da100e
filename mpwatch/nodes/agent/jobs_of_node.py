"""The jobs of one node, each observed by a live source as on a single machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.agent.current_environment import LateRanks
from mpwatch.nodes.agent.find import gpu_driver, is_there, torch_version
from mpwatch.nodes.agent.rights import hidden_words
from mpwatch.observe.sources.live import LiveOptions, LiveSource
from mpwatch.observe.sources.source import Command, Source

FIRST_S = 3.0
"""Interval at which jobs are looked for while there is none."""
FIND_S = 20.0
"""Interval after that: the mappings of every Python process of the machine are read each time, and
that takes the kernel about a millisecond for each."""
VERSION_TRIES = 5
"""How often the version of torch is looked for in a job that has not loaded it."""
ROOTS_LIMIT = 64
"""Most jobs observed at the same time: a node with that many has no launcher above its ranks."""
ENDED_KEPT = 64
"""So many jobs that have ended keep their last state."""


@dataclass(slots=True)
class _Observed:
    """One job."""

    source: Source
    newest: Snapshot | None = None
    count: int = 0
    """Snapshots so far."""
    torch: str | None = None
    tries_left: int = VERSION_TRIES
    late_ranks: LateRanks = field(default_factory=LateRanks)

    def deliver(self, snapshot: Snapshot) -> None:
        """Keep the newest snapshot; called on the thread of the source."""
        self.newest = self.late_ranks.added_to(snapshot)
        self.count += 1


@dataclass(slots=True)
class JobsOfNode:
    """Finds the jobs of this node and keeps their newest snapshots."""

    find: Callable[[], Sequence[ProcessId]]
    """Finds the roots."""
    exists: Callable[[ProcessId], bool] = is_there
    """Whether a process has not ended."""
    new_source: Callable[[ProcessId, LiveOptions], Source] = LiveSource
    """Makes what observes the job of a root."""
    values: bool = True
    """Whether values of names may be read in processes of this node."""
    hidden: Callable[[], str] = hidden_words
    """Says which processes may not be inspected; asked while no job is found."""
    driver: str | None = field(default_factory=gpu_driver)
    """The GPU driver of this machine; another one cannot be loaded while a job uses it."""
    problem: str = ""
    """Why jobs were not found at the last attempt, in one sentence; empty if they were."""
    has_searched: bool = False
    """Whether jobs have been searched for."""
    _observed: dict[ProcessId, _Observed] = field(default_factory=dict)
    _ended: dict[ProcessId, Snapshot] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Look for jobs now and at intervals, on a thread of its own."""
        threading.Thread(target=self._run, name="mpwatch-jobs", daemon=True).start()

    def refresh(self) -> None:
        """Look for jobs once: observe new ones, stop observing those that have ended."""
        try:
            roots = self.find()
            self.problem = "" if roots or self._observed else self.hidden()
        except OSError as error:
            roots, self.problem = (), f"Processes cannot be listed: {error.strerror}."
        with self._lock:
            self._put_ended_aside()
            new = [each for each in roots if each not in self._observed | self._ended]
            room = max(0, ROOTS_LIMIT - len(self._observed))
            if len(new) > room:
                self.problem = f"Only {ROOTS_LIMIT} of {len(roots)} jobs are observed."
            options = LiveOptions(samples_ranks=True, values=self.values)
            started = {root: _Observed(self.new_source(root, options)) for root in new[:room]}
            self._observed |= started
        for each in started.values():
            if not self._stopping.is_set():
                each.source.start(each.deliver)
        self.has_searched = True

    def snapshots(self) -> list[Snapshot]:
        """The newest snapshot of each job, also of those that have ended."""
        with self._lock:
            newest = [each.newest for each in self._observed.values()]
            ended = list(self._ended.values())
        return [*ended, *(each for each in newest if each is not None)]

    def root_of(self, pid: int) -> ProcessId | None:
        """The root of the job that a process belongs to."""
        for snapshot in reversed(self.snapshots()):
            if any(each.process.pid == pid for each in snapshot.processes):
                return snapshot.root
        return None

    def newest(self, root: ProcessId) -> tuple[Snapshot | None, int]:
        """The newest snapshot of a job, and how many there were before."""
        with self._lock:
            observed = self._observed.get(root)
            return (observed.newest, observed.count) if observed else (self._ended.get(root), 0)

    def ask(self, root: ProcessId, command: Command) -> str | None:
        """Ask the source of a job; one sentence if that does not do it."""
        with self._lock:
            observed = self._observed.get(root)
        return observed.source.ask(command) if observed else "The job has ended."

    @property
    def is_reading(self) -> bool:
        """Whether a job has been found that has no snapshot yet."""
        with self._lock:
            return any(each.newest is None for each in self._observed.values())

    def facts(self) -> dict[str, str]:
        """What snapshots do not have: the GPU driver, and the version of torch if jobs agree."""
        with self._lock:
            observed = list(self._observed.values())
        for each in observed:
            if each.torch is None and each.tries_left and each.newest is not None:
                each.tries_left -= 1
                versions = (torch_version(p.pid) for p in each.newest.living() if p.role != "other")
                each.torch = next((version for version in versions if version), None)
        found = {each.torch for each in observed if each.torch is not None}
        facts = {"driver": self.driver} if self.driver is not None else {}
        return {**facts, "torch": found.pop()} if len(found) == 1 else facts

    def stop(self, limit_s: float) -> None:
        """Stop all sources; returns after at most this many seconds."""
        self._stopping.set()
        with self._lock:
            sources = [each.source for each in self._observed.values()]
        threads = [threading.Thread(target=each.stop, daemon=True) for each in sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(limit_s / len(threads))

    def _put_ended_aside(self) -> None:
        """Keep the last snapshot of each job that has ended, if there was one; stop its source."""
        for root, each in list(self._observed.items()):
            newest = each.newest
            if newest.mode == "ended" if newest is not None else not self.exists(root):
                del self._observed[root]
                if newest is not None:
                    self._ended[root] = newest
                threading.Thread(target=each.source.stop, daemon=True).start()
        for root in list(self._ended)[:-ENDED_KEPT]:
            del self._ended[root]

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.refresh()
            self._stopping.wait(FIND_S if self.snapshots() else FIRST_S)
