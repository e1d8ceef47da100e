"""The state of the whole job at one moment, joined from every layer: what screens and reports show.

Built by `mpwatch.observe.state.fold`; frozen, so it crosses threads freely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from mpwatch.model.findings import Finding
from mpwatch.model.host import HostSample
from mpwatch.model.ids import HookState, ProcessId, Role, SegmentId
from mpwatch.model.samples import Ended, Frame, GpuSample, ProcSample, StackSource, WaitedOn
from mpwatch.model.segments import SegmentKind
from mpwatch.model.waits import WaitGraph

SourceMode: TypeAlias = Literal["live", "paused", "replay", "ended"]


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread with what is known of its stack."""

    tid: int
    name: str
    state: str
    wchan: str | None = None
    cpu_percent: float | None = None
    waits_on: WaitedOn | None = None
    stack: tuple[Frame, ...] = ()
    """Innermost first; empty if not taken."""
    stack_source: StackSource | None = None
    stack_at_s: float | None = None
    stack_age_s: float | None = None
    """Seconds between the taking of the stack and the reading of the thread."""
    has_gil: bool | None = None
    still_s: float | None = None
    """How long it has used no cpu, as far as was observed."""
    waits_s: float | None = None
    """How long it has been found waiting for the same; `None` where that is not known."""


@dataclass(frozen=True, slots=True)
class Hook:
    """The hook of one process, as seen from here."""

    state: HookState = "absent"
    reason: str = ""
    events: int = 0
    lost: int = 0
    """Records and notes that were made and never got here."""
    lost_notes: int = 0
    """The notes among them."""
    torch: str | None = None
    python: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    own_cost_ns: int | None = None
    """CPU time of the hook's own thread, where it says so."""
    own_calls_ns: int | None = None
    """CPU time its wrappers took of the program's threads: records by what one was measured at."""


@dataclass(frozen=True, slots=True)
class SharedCache:
    """torch's table of shared storages in one process."""

    entries: int
    limit: int | None = None
    expired: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What a DataLoader worker does."""

    worker_id: int | None
    loader: int | None = None
    """Which of main's loaders, by its key."""
    fetched: int = 0
    fetch_p50_s: float | None = None
    fetch_p99_s: float | None = None
    recent_s: tuple[float, ...] = ()
    """The last fetch times, oldest first."""
    task: int | None = None
    """Batch being fetched, `None` while it waits for work."""
    task_since_s: float | None = None
    """For how long it has been at that batch."""
    index: str | None = None
    """The sample index within the batch, where the hook could tell."""
    queued: int | None = None
    """Batches main has handed it that it has not begun."""
    parked: int | None = None
    """Batches it has finished that main has not taken yet."""


@dataclass(frozen=True, slots=True)
class Loader:
    """A live DataLoader iterator in a main process, as its hook sees it."""

    process: ProcessId
    key: int
    workers: int
    prefetch: int | None = None
    next_task: int | None = None
    """Batch to be delivered next (`_rcvd_idx`)."""
    sent_task: int | None = None
    """Batch to be handed out next (`_send_idx`)."""
    outstanding: int | None = None
    parked: int | None = None
    """Finished out of order, waiting for an earlier one."""
    owner_worker: int | None = None
    """Worker that owns the next batch."""
    wait_share: float | None = None
    """Part of the last minute main spent waiting, 0 to 1."""
    waiting_since_s: float | None = None
    """For how long main has waited for it; `None` while it does not wait."""
    batches: int = 0
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuUse:
    """A process on a GPU."""

    index: int
    memory_bytes: int | None
    allocated_bytes: int | None = None
    """From torch's allocator, by the hook."""
    reserved_bytes: int | None = None
    read_at_s: float | None = None
    """When the allocator's figures were read."""


@dataclass(frozen=True, slots=True)
class Trends:
    """The last values of what is drawn in a row, oldest first; `None` where not read."""

    cpu_percent: Sequence[float | None] = ()
    private_bytes: Sequence[float | None] = ()
    fds: Sequence[float | None] = ()
    maps: Sequence[float | None] = ()
    shm_bytes: Sequence[float | None] = ()


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the job with everything known about it."""

    process: ProcessId
    sample: ProcSample
    """The reading it is based on; the last one if the process has ended."""
    parent: ProcessId | None
    """Within the tree; `None` for the root and for orphans."""
    role: Role
    label: str
    """`main`, `worker 3`, `rank 1`, or its name: how people call it."""
    depth: int = 0
    original_parent: ProcessId | None = None
    """Remembered from before it was orphaned."""
    cpu_percent: float | None = None
    private_bytes: int | None = None
    shm_bytes: int | None = None
    """Shared segments it maps, each counted once."""
    threads: tuple[Thread, ...] = ()
    hook: Hook = field(default_factory=Hook)
    start_method: str | None = None
    sharing_strategy: str | None = None
    shared_cache: SharedCache | None = None
    loader: WorkerLoad | None = None
    gpus: tuple[GpuUse, ...] = ()
    doing: str = ""
    """One line: what it does or waits for, from the best layer there is."""
    stacks_cost_s: float | None = None
    """CPU seconds the last taking of its stacks took, where that was measured."""
    trends: Trends = field(default_factory=Trends)
    ended: Ended | None = None
    gauges: Mapping[str, object] = field(default_factory=dict)
    """The hook's readings that have no field of their own."""
    problems: tuple[str, ...] = ()

    @property
    def pid(self) -> int:
        """Its pid."""
        return self.process.pid

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return self.ended is not None


@dataclass(frozen=True, slots=True)
class Segment:
    """One shared-memory file with everybody who holds it."""

    segment: SegmentId
    path: str
    kind: SegmentKind
    is_linked: bool
    creator_pid: int | None
    creator: ProcessId | None
    """The creator if it is one of the processes observed."""
    mappers: tuple[ProcessId, ...]
    holders: tuple[ProcessId, ...]
    """Who has a descriptor on it without mapping it."""
    size_bytes: int | None
    allocated_bytes: int | None
    changed_wall_s: float | None
    """When it was made or last changed, seconds since 1970."""
    call_site: str | None = None
    """`train.py:57`, sampled by the hook."""

    def age_s(self, wall_s: float) -> float | None:
        """How old it is at a moment; not a field, so that what stays the same is the same value."""
        return None if self.changed_wall_s is None else max(0.0, wall_s - self.changed_wall_s)


@dataclass(frozen=True, slots=True)
class Flow:
    """Tensors from one process to another, from the hook's records on both sides."""

    sender: ProcessId
    receiver: ProcessId
    tensors: int
    bytes: int
    copied_bytes: int
    """Copied into shared memory anew instead of reusing a shared buffer."""
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    tensors_per_s: float | None = None
    bytes_per_s: float | None = None
    in_flight: int | None = None
    """Sent and not yet received."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of the events view: something that happened, in words."""

    sequence: int
    at_s: float
    wall_s: float
    kind: str
    """`born`, `ended`, `hook`, `exception`, `finding`, `shared`, ..."""
    process: ProcessId | None
    words: str
    details: Mapping[str, object] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    """Known error messages it contains; see `mpwatch.diagnose.known_errors`."""


@dataclass(frozen=True, slots=True)
class OwnCost:
    """What watching costs."""

    cpu_percent: float | None = None
    rss_bytes: int | None = None
    target_ns_per_s: float | None = None
    """Of the hooks' own threads in all processes together, nanoseconds per second."""
    calls_ns_per_s: float | None = None
    """Of their wrappers in the program's threads, an estimate; see `Hook.own_calls_ns`."""


@dataclass(frozen=True, slots=True)
class Playback:
    """Where a replay stands in its recording."""

    at_s: float
    """Seconds since the recording began."""
    length_s: float
    speed: float = 1.0
    """Seconds of recording per second."""
    is_paused: bool = False


class _Index(NamedTuple):
    """What is asked of the processes of one moment again and again, by forty rules at each look."""

    processes: tuple[Process, ...]
    living: tuple[Process, ...]
    by_id: Mapping[ProcessId, Process]


_index = _Index((), (), {})
"""Of the processes asked about last: while it holds them, no others can have their identity."""


def _indexed(processes: tuple[Process, ...]) -> _Index:
    """Threads may ask at once; at worst both look through them."""
    global _index
    known = _index
    if known.processes is not processes:
        living = tuple([process for process in processes if process.ended is None])
        # The first of an identity wins.
        by_id = {process.process: process for process in reversed(processes)}
        known = _index = _Index(processes, living, by_id)
    return known


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole job at one moment."""

    at_s: float
    wall_s: float
    root: ProcessId
    host: HostSample
    processes: tuple[Process, ...]
    """Root first, parents before children; ended ones stay, marked."""
    segments: tuple[Segment, ...] = ()
    gpus: tuple[GpuSample, ...] | None = None
    flows: tuple[Flow, ...] = ()
    loaders: tuple[Loader, ...] = ()
    waits: WaitGraph = field(default_factory=WaitGraph)
    findings: tuple[Finding, ...] = ()
    """Most severe first."""
    log: tuple[LogEntry, ...] = ()
    """Bounded, oldest first."""
    log_dropped: int = 0
    errors: tuple[LogEntry, ...] = ()
    """The entries with tags, oldest first; kept when `log` has dropped them, bounded."""
    events_per_s: float | None = None
    mode: SourceMode = "live"
    playback: Playback | None = None
    """Set by replays only."""
    own: OwnCost = field(default_factory=OwnCost)
    problems: tuple[str, ...] = ()

    def get(self, process: ProcessId | None) -> Process | None:
        """The process with this identity, or `None`."""
        return None if process is None else _indexed(self.processes).by_id.get(process)

    def living(self) -> tuple[Process, ...]:
        """The processes that have not ended."""
        return _indexed(self.processes).living

    def children_of(self, process: ProcessId) -> tuple[Process, ...]:
        """Direct children, ended ones included."""
        return tuple(p for p in self.processes if p.parent == process)
