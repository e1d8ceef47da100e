"""The state of each process between two readings, the order of processes, and children never read.

A child that starts and exits between two readings is known from the hook of its parent alone. That
hook notes each start of a child, and the exit code when the parent joins it. A child that lived for
some milliseconds was never read; that it failed is worth showing all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookNote
from mpwatch.model.history import ProcessMetric
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import (
    FILE_LOCK_CALLS,
    Ended,
    ProcSample,
    StackSample,
    ThreadSample,
    TreeSample,
    WaitedOn,
)
from mpwatch.model.snapshot import Process
from mpwatch.observe.state.history import RATE_S
from mpwatch.observe.state.segments import mapped_bytes

PAST_LIMIT = 16
NOTED_AHEAD_S = 1.0
"""A start is noted before the child is read, at most this long before."""
FORGOTTEN_S = 120.0
"""A child that has not been joined by then is not waited for."""
PENDING_LIMIT = 256


class Wait(Struct, frozen=True):
    """The wait of a thread."""

    what: tuple[object, ...]
    since_s: float
    address: int | None = None
    """Of a futex."""


class Counters(Struct, frozen=True):
    """The counters of an earlier sample."""

    at_s: float
    """The last time at which they were confirmed."""
    cpu_ticks: int | None
    threads: tuple[ThreadSample, ...] | None


@dataclass(slots=True)
class ProcessRecord:
    """The state of one process between two readings."""

    sample: ProcSample
    """The last one; of a process that does nothing it may be older than the last reading."""
    parent: ProcessId | None = None
    original_parent: ProcessId | None = None
    confirmed_s: float = field(init=False)
    """The last time at which the sample was confirmed."""
    shm_bytes: int | None = field(init=False)
    """Shared memory that it maps."""
    earlier: Counters | None = None
    """The newest counters that are `RATE_S` older, or else the oldest ones: for rates."""
    between: tuple[Counters, ...] = ()
    """Counters since then."""
    still_since: dict[int, float] = field(default_factory=dict)
    """By thread: since when it has used no cpu, for the first time as the kernel has noted it."""
    waits: dict[int, Wait] = field(init=False)
    """By thread: its last wait, and the beginning of that."""
    futexes: dict[int, Wait] = field(init=False)
    """By thread: the futex that it waits on now, and since when."""
    stacks: Mapping[int, StackSample] = field(default_factory=dict)
    """By kernel thread id; those without one are under negative numbers."""
    stacks_problem: str | None = None
    stacks_cost_s: float | None = None
    ended: Ended | None = None
    changed_s: float = 0.0
    """Time of the last news about it; an exited process is shown as of then."""

    def __post_init__(self) -> None:
        self.original_parent = self.parent
        self.confirmed_s = self.sample.at_s
        self.shm_bytes = _shm_bytes(self.sample)
        self.still_since = {
            thread.tid: thread.ran_at_s
            for thread in self.sample.threads or ()
            if thread.ran_at_s is not None
        }
        self.futexes = _futexes(self.sample, {})
        self.waits = dict(_waits(self.sample, {}, self.futexes))

    def set_parent(self, parent: ProcessId | None) -> None:
        """Note the present parent, and the first one that was known."""
        self.parent = parent
        if self.original_parent is None:
            self.original_parent = parent

    def add(self, sample: ProcSample, at_s: float) -> None:
        """Note the sample of a reading.

        A sample that is older than the reading means that the process has done nothing since.

        Args:
            sample: The sample of this process.
            at_s: The time of the reading.
        """
        if sample.at_s < at_s and sample.at_s == self.sample.at_s:
            self.confirmed_s = at_s
            return
        # The cpu use since `confirmed_s` must not be spread over the time before it.
        last = Counters(self.confirmed_s, self.sample.cpu_ticks, self.sample.threads)
        sample = _with_last_resources(sample, self.sample)
        self._note_threads(sample)
        past = (self.earlier, *self.between, last) if self.earlier else (last,)
        old_enough = sum(each.at_s <= sample.at_s - RATE_S for each in past)
        # Bounded also where a clock went back and none of them is old enough.
        self.earlier, *between = past[max(0, old_enough - 1, len(past) - PAST_LIMIT) :]
        self.between = tuple(between)
        if sample.segments is not self.sample.segments:  # 1.2 ms a reading for 65 processes
            self.shm_bytes = _shm_bytes(sample)
        self.sample, self.confirmed_s = sample, sample.at_s

    def cpu_percent(self, ticks_per_s: int) -> float | None:
        """CPU use over the last `RATE_S` or more; `None` after a single sample."""
        now, earlier = self.sample, self.earlier
        if earlier is None or now.cpu_ticks is None or earlier.cpu_ticks is None:
            return None
        elapsed_s = now.at_s - earlier.at_s
        if elapsed_s <= 0 or ticks_per_s <= 0 or self.ended is not None:
            return None
        return 100 * (now.cpu_ticks - earlier.cpu_ticks) / ticks_per_s / elapsed_s

    def times_s(self, thread: ThreadSample) -> tuple[float | None, float | None, float | None]:
        """For how long a thread has used no cpu, waited for the same, and been in one futex.

        In seconds; `None` if it has used cpu since the sample before, waits for nothing, and is in
        no wait for a futex.
        """
        tid, now_s = thread.tid, self.confirmed_s
        since_s, futex = self.still_since.get(tid), self.futexes.get(tid)
        is_waiting = thread.waits_on is not None and thread.state != "R"
        wait = self.waits.get(tid) if is_waiting else None
        return (
            None if since_s is None else now_s - since_s,
            None if wait is None else now_s - wait.since_s,
            None if futex is None else now_s - futex.since_s,
        )

    def _note_threads(self, sample: ProcSample) -> None:
        """Note since when threads use no cpu and wait for the same."""
        before = {thread.tid: thread for thread in self.sample.threads or ()}
        since: dict[int, float] = {}
        for thread in sample.threads or ():
            old = before.get(thread.tid)
            if thread.ran_at_s is not None:
                since[thread.tid] = thread.ran_at_s
            elif old is not None and old.cpu_ticks == thread.cpu_ticks and thread.state != "R":
                since[thread.tid] = self.still_since.get(thread.tid, self.confirmed_s)
        self.still_since = since
        self.futexes = _futexes(sample, self.futexes)
        self.waits = dict(_waits(sample, self.waits, self.futexes))


def _shm_bytes(sample: ProcSample) -> int | None:
    return None if sample.segments is None else mapped_bytes(sample.segments)


def _futexes(sample: ProcSample, before: Mapping[int, Wait]) -> dict[int, Wait]:
    """The futex of each thread that waits on one, and since when, also where its kind is not known.

    The mappings of a process, which tell a semaphore from a lock of its own, are read later than
    its first system calls.
    """
    found: dict[int, Wait] = {}
    for thread in sample.threads or ():
        wait, last = thread.waits_on, before.get(thread.tid)
        if thread.state == "R" or wait is None or wait.address is None:
            continue
        is_same = last is not None and last.address == wait.address
        found[thread.tid] = (
            last if last and is_same else Wait((), _since_s(sample, thread), wait.address)
        )
    return found


def _waits(
    sample: ProcSample, before: Mapping[int, Wait], futexes: Mapping[int, Wait]
) -> Iterator[tuple[int, Wait]]:
    """The wait of each thread and its beginning; if the sample has none, the one before.

    Futexes of the own process are ignored: a thread waits on them on its way to anything else. A
    file lock counts: a process that takes turns waits for it, then holds it and does other things.
    """
    for thread in sample.threads or ():
        last, wait = before.get(thread.tid), thread.waits_on
        if thread.state == "R" or wait is None or _is_passing(wait):
            if last is not None:
                yield thread.tid, last
            continue
        what = (wait.kind, wait.segment, wait.targets)
        is_same = last is not None and last.what == what
        is_futex = wait.address is not None
        since_s = futexes[thread.tid].since_s if is_futex else _since_s(sample, thread)
        yield thread.tid, last if last and is_same else Wait(what, since_s)


def _since_s(sample: ProcSample, thread: ThreadSample) -> float:
    """Since when a thread is in the wait that this sample is the first to show.

    A thread that has not run since has been in one system call.
    """
    return sample.at_s if thread.ran_at_s is None else thread.ran_at_s


def _is_passing(wait: WaitedOn) -> bool:
    """Whether a wait says nothing about what its thread waits for at large."""
    return wait.kind == "futex" or (wait.kind == "unknown" and wait.call not in FILE_LOCK_CALLS)


def _with_last_resources(sample: ProcSample, earlier: ProcSample) -> ProcSample:
    """A zombie with the resources and threads it had before: the kernel has freed them.

    The threads show where it was last seen.
    """
    if sample.state not in ("Z", "X"):
        return sample
    return replace(
        sample,
        fds=earlier.fds,
        maps=earlier.maps,
        memory=earlier.memory,
        segments=earlier.segments,
        threads=sample.threads or earlier.threads,
    )


_Ordered: TypeAlias = (
    "tuple[ProcessId | None, Mapping[ProcessId, ProcessId | None], Sequence[tuple[ProcessId, int]]]"
)
"""A root, the parents of all processes, and processes and depths in the order that follows."""


class ProcessTable:
    """All processes of the job, running and exited."""

    def __init__(self) -> None:
        self.records: dict[ProcessId, ProcessRecord] = {}
        self.by_pid: dict[int, ProcessId] = {}
        """The last process with each pid; creators of segments are known by their pid only."""
        self._ended: dict[ProcessId, Process] = {}
        """Exited processes as they are shown. Building 256 of them again takes 15 ms."""
        self._ordered: _Ordered = None, {}, ()
        """See `in_families`."""

    def get(self, process: ProcessId) -> ProcessRecord | None:
        """The record of a process."""
        return self.records.get(process)

    def add(self, record: ProcessRecord) -> None:
        """Add the record of a new process."""
        self.records[record.sample.process] = record

    def samples(self) -> dict[ProcessId, ProcSample]:
        """The last sample of each process."""
        return {process: record.sample for process, record in self.records.items()}

    def vanished(self, tree: TreeSample) -> list[ProcessRecord]:
        """Processes that a reading does not have any more and whose exit was not reported."""
        present = {sample.process for sample in tree.processes}
        return [
            record
            for process, record in self.records.items()
            if process not in present and record.ended is None
        ]

    def numbers(self, tree: TreeSample) -> dict[ProcessId, dict[ProcessMetric, float | None]]:
        """Numbers of a reading that follow from more than one sample."""
        return {
            sample.process: {
                "cpu_percent": self.records[sample.process].cpu_percent(tree.ticks_per_s),
                "shm_bytes": self.records[sample.process].shm_bytes,
            }
            for sample in tree.processes
        }

    def oldest_ended(self, tree: TreeSample, kept: int) -> list[ProcessId]:
        """The exited processes beyond the number to keep, oldest first.

        Those that a reading still has are kept: zombies that nobody reaps.
        """
        present = {sample.process for sample in tree.processes}
        ended = [
            (record.ended.at_s, process)
            for process, record in self.records.items()
            if record.ended is not None and process not in present
        ]
        if len(ended) <= kept:
            return []
        return [process for _, process in sorted(ended)[: len(ended) - kept]]

    def forget(self, process: ProcessId) -> None:
        """Drop a process that is no longer shown."""
        self.records.pop(process, None)
        self._ended.pop(process, None)
        if self.by_pid.get(process.pid) == process:
            del self.by_pid[process.pid]

    def changed(self, process: ProcessId, at_s: float) -> None:
        """Note that there is news about a process, also if it has exited."""
        self._ended.pop(process, None)
        if (record := self.records.get(process)) is not None:
            record.changed_s = at_s

    def shown_ended(self, process: ProcessId, depth: int) -> Process | None:
        """An exited process as it was shown at this depth, unless something is new."""
        shown = self._ended.get(process)
        return shown if shown is not None and shown.depth == depth else None

    def keep_ended(self, shown: Process) -> None:
        """Remember how an exited process is shown."""
        self._ended[shown.process] = shown

    def in_families(self, root: ProcessId) -> Sequence[tuple[ProcessId, int]]:
        """Processes and depths: root first, children after parents by start, orphans last.

        While the parents are the same, so is the order: to find it anew took 7 % of a snapshot of
        65 processes.
        """
        parents = {process: record.parent for process, record in self.records.items()}
        if (root, parents) != self._ordered[:2]:
            self._ordered = root, parents, tuple(_in_families(root, parents))
        return self._ordered[2]


def _in_families(
    root: ProcessId, parents: Mapping[ProcessId, ProcessId | None]
) -> Iterator[tuple[ProcessId, int]]:
    """See `ProcessTable.in_families`."""
    children: dict[ProcessId | None, list[ProcessId]] = {}
    for process, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(process)
    for siblings in children.values():
        siblings.sort(key=lambda each: (each != root, each.start_ticks, each.pid), reverse=True)
    pending = [(process, 0) for process in children.get(None, ())]
    while pending:
        process, depth = pending.pop()
        yield process, depth
        pending.extend((child, depth + 1) for child in children.get(process, ()))


class ShortLived:
    """Finds children that were started and joined with an error, and never read."""

    def __init__(self) -> None:
        self._starts: dict[tuple[ProcessId, int], HookNote] = {}
        self._codes: dict[tuple[ProcessId, int], tuple[float, int]] = {}
        self._known: dict[int, ProcessId] = {}
        """Processes that have sent something themselves, by pid; the last ones."""

    @property
    def has_any(self) -> bool:
        """Whether there are children to look for."""
        return bool(self._starts)

    def add_note(self, note: HookNote) -> None:
        """Remember the start of a child, and which process has a pid."""
        if len(self._known) >= PENDING_LIMIT:
            self._known.pop(next(iter(self._known)))
        self._known[note.process.pid] = note.process
        pid = note.data.get("pid")
        if note.kind == "start" and isinstance(pid, int) and len(self._starts) < PENDING_LIMIT:
            self._starts[note.process, pid] = note

    def add_event(self, parent: ProcessId, event: HookEvent) -> None:
        """Remember the exit code of a joined child."""
        if event.kind == wire.PROCESS_JOIN and event.aux and len(self._codes) < PENDING_LIMIT:
            ended_s = (event.at_ns + event.duration_ns) / 1e9
            self._codes[parent, event.key] = ended_s, event.aux - wire.EXIT_BASE

    def missed(
        self,
        at_s: float,
        known: Mapping[int, ProcessId],
        samples: Mapping[ProcessId, ProcSample],
        ticks_per_s: int,
    ) -> Iterator[tuple[ProcSample, Ended]]:
        """The children that failed and were never read, with their exits.

        Args:
            at_s: The time of the last reading of the job.
            known: Every process so far by its pid.
            samples: The last samples of possible parents.
            ticks_per_s: Of the clock of `ProcessId.start_ticks`.
        """
        for key, note in list(self._starts.items()):
            if at_s - note.at_ns / 1e9 < NOTED_AHEAD_S:
                continue
            parent, pid = key
            reading = samples.get(parent)
            is_known = pid in known and known[pid].start_ticks >= parent.start_ticks
            is_elsewhere = reading is None or reading.ns_pid not in (None, parent.pid)
            if is_known or is_elsewhere or at_s - note.at_ns / 1e9 > FORGOTTEN_S:
                del self._starts[key]
            elif reading is not None and key in self._codes:
                ended_s, code = self._codes[key]
                del self._starts[key]
                if code:
                    sample, ended = _ended_child(reading, note, pid, code, ended_s, ticks_per_s)
                    itself = self._known.get(pid)
                    if itself is not None and _is_near(itself, sample.process, ticks_per_s):
                        sample = replace(sample, process=itself)
                        ended = replace(ended, process=itself)
                    yield sample, ended
        self._codes = {key: code for key, code in self._codes.items() if key in self._starts}


def _is_near(one: ProcessId, other: ProcessId, ticks_per_s: int) -> bool:
    """Whether two processes with one pid started within two seconds of each other."""
    return abs(one.start_ticks - other.start_ticks) <= 2 * ticks_per_s


def _ended_child(
    parent: ProcSample, note: HookNote, pid: int, code: int, ended_s: float, ticks_per_s: int
) -> tuple[ProcSample, Ended]:
    """A sample with nothing but its identity, and its exit."""
    born_s = note.at_ns / 1e9
    # The monotonic clock began with the machine, as the ticks did, unless it was suspended.
    process = ProcessId(pid, max(parent.process.start_ticks, int(born_s * ticks_per_s)))
    worker_id, method = note.data.get("worker_id"), note.data.get("method")
    is_worker = isinstance(worker_id, int)
    sample = ProcSample(
        process=process,
        at_s=ended_s,
        parent_pid=parent.process.pid,
        name=parent.name,
        cmdline=parent.cmdline,
        state="X",
        role="loader-worker" if is_worker else "spawned",
        worker_id=worker_id if is_worker else None,
        start_method=method if method in ("fork", "spawn", "forkserver") else None,
        is_python=True,
    )
    signal = -code if code < 0 else None
    return sample, Ended(process, ended_s, None if code < 0 else code, signal)
