"""The state of a whole job at one moment, from all sources of data.

`mpwatch.observe.state.fold` builds snapshots; rules, reports and screens read them. They are
frozen, so threads can share them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import force_setattr

from mpwatch.model.account import Account
from mpwatch.model.collectives import NcclStatus, RankHabit
from mpwatch.model.events import WrittenError
from mpwatch.model.findings import Finding
from mpwatch.model.host import HostSample
from mpwatch.model.ids import HookState, ProcessId, Role, SegmentId, SegmentKind
from mpwatch.model.progress import ProgressSource
from mpwatch.model.samples import (
    Ended,
    Frame,
    GpuSample,
    MixedFrame,
    PartOfJob,
    ProcSample,
    StackSource,
    ValuesRead,
    WaitedOn,
)
from mpwatch.model.source_code import (
    Again,
    Coroutines,
    DroppedResult,
    Holder,
    Mark,
    Origin,
    SourceLine,
)
from mpwatch.model.waits import WaitGraph

SourceMode: TypeAlias = Literal["live", "paused", "replay", "ended"]


class Thread(Struct, frozen=True):
    """One thread and its stack."""

    tid: int
    name: str
    state: str
    wchan: str | None = None
    cpu_percent: float | None = None
    waits_on: WaitedOn | None = None
    stack: tuple[Frame, ...] = ()
    """Innermost first, of Python only, without the frames that a fork copied; empty if not taken.
    """
    mixed: tuple[MixedFrame, ...] = ()
    """The same stack with its native frames, to be shown and not judged; empty unless asked for."""
    stack_source: StackSource | None = None
    stack_at_s: float | None = None
    stack_age_s: float | None = None
    """Seconds from the stack to the sample of the thread."""
    has_gil: bool | None = None
    is_active: bool | None = None
    """Whether it ran when its stack was taken; `None` of a stack from the hook."""
    still_s: float | None = None
    """How long it has used no cpu, within the time observed."""
    waits_s: float | None = None
    """How long it has waited for the same target, locks of its own process aside; `None` if
    unknown."""
    futex_s: float | None = None
    """How long it has waited for the same lock of its own process, seen by readings of it in that
    wait; `None` if it waits for none, or if that is unknown."""

    @property
    def shown_stack(self) -> tuple[Frame, ...]:
        """The stack as a reader has asked for it: with native frames, if there are any."""
        return tuple([each.frame for each in self.mixed]) or self.stack


class Hook(Struct, frozen=True):
    """The hook of one process, as the observer knows it."""

    state: HookState = "absent"
    reason: str = ""
    events: int = 0
    lost: int = 0
    """Records and notes that were made but did not reach the observer."""
    lost_notes: int = 0
    """The notes among them."""
    torch: str | None = None
    python: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    own_cost_ns: int | None = None
    """CPU time of the hook's own thread, where the hook reports it."""
    own_calls_ns: int | None = None
    """CPU time of its wrappers in the program's threads: records times the cost of one."""


class SharedCache(Struct, frozen=True):
    """torch's table of shared storages in one process."""

    entries: int
    limit: int | None = None
    expired: int | None = None


class WorkerLoad(Struct, frozen=True):
    """The batches of a DataLoader worker."""

    worker_id: int | None
    loader: int | None = None
    """Key of the DataLoader in the main process."""
    fetched: int = 0
    fetch_p50_s: float | None = None
    fetch_p99_s: float | None = None
    recent_s: tuple[float, ...] = ()
    """The last fetch times, oldest first."""
    task: int | None = None
    """Batch being fetched; `None` while it is idle."""
    task_since_s: float | None = None
    """How long it has been fetching that batch."""
    index: str | None = None
    """Index of the sample that it loads, where the hook reports it."""
    queued: int | None = None
    """Batches assigned to it that it has not started."""
    parked: int | None = None
    """Batches it has finished that the main process has not taken yet."""


class Loader(Struct, frozen=True):
    """A live DataLoader iterator in a main process, from its hook."""

    process: ProcessId
    key: int
    workers: int
    prefetch: int | None = None
    next_task: int | None = None
    """Batch to be delivered next (`_rcvd_idx`)."""
    outstanding: int | None = None
    parked: int | None = None
    """Batches finished out of order, held until an earlier one is delivered."""
    owner_worker: int | None = None
    """Worker to which the next batch is assigned."""
    wait_share: float | None = None
    """Share of the last minute that the process waited for batches of this loader, 0 to 1."""
    process_wait_share: float | None = None
    """The same for batches of all loaders of the process."""
    waiting_since_s: float | None = None
    """How long the main process has waited for a batch; `None` while it does not wait."""
    batches: int = 0
    data: Mapping[str, object] = field(default_factory=dict)


class GpuUse(Struct, frozen=True):
    """A process on a GPU."""

    index: int
    memory_bytes: int | None
    allocated_bytes: int | None = None
    """From torch's allocator, by the hook."""
    reserved_bytes: int | None = None
    read_at_s: float | None = None
    """When the allocator's figures were read."""


class Trends(Struct, frozen=True):
    """Recent values that screens draw as trends, oldest first; `None` if not read."""

    cpu_percent: Sequence[float | None] = ()
    private_bytes: Sequence[float | None] = ()
    fds: Sequence[float | None] = ()
    maps: Sequence[float | None] = ()
    shm_bytes: Sequence[float | None] = ()


class Process(Struct, frozen=True):
    """One process of the job."""

    process: ProcessId
    sample: ProcSample
    """The newest sample; of an ended process the last one."""
    parent: ProcessId | None
    """Within the tree; `None` for the root and for orphans."""
    role: Role
    label: str
    """`main`, `worker 3`, `rank 1`, or the name of its program."""
    depth: int = 0
    original_parent: ProcessId | None = None
    """The parent before it was orphaned."""
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
    """What it does, what it waits for or how it ended, in one line."""
    stacks_cost_s: float | None = None
    """CPU seconds that taking its last stacks cost, where measured."""
    trends: Trends = field(default_factory=Trends)
    ended: Ended | None = None
    gauges: Mapping[str, object] = field(default_factory=dict)
    """Values from the hook without a field of their own."""
    problems: tuple[str, ...] = ()

    @property
    def pid(self) -> int:
        """Its pid."""
        return self.process.pid

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return self.ended is not None

    @property
    def has_nccl(self) -> bool:
        """Whether it has NCCL's library mapped; the plugins of NCCL have other names."""
        maps = self.sample.maps
        return maps is not None and any(name.startswith("libnccl.so") for name in maps.libraries)


class Segment(Struct, frozen=True):
    """One shared-memory file and the processes that hold it."""

    segment: SegmentId
    path: str
    kind: SegmentKind
    is_linked: bool
    creator_pid: int | None
    creator: ProcessId | None
    """The creator if it is one of the processes observed."""
    mappers: tuple[ProcessId, ...]
    holders: tuple[ProcessId, ...]
    """Processes that have a descriptor of it and do not map it."""
    size_bytes: int | None
    allocated_bytes: int | None
    changed_wall_s: float | None
    """When it was created or last changed, seconds since 1970."""
    call_site: str | None = None
    """`train.py:57`, sampled by the hook."""

    def age_s(self, wall_s: float) -> float | None:
        """Its age at a time; not a field, so that an unchanged segment is an equal value."""
        return None if self.changed_wall_s is None else max(0.0, wall_s - self.changed_wall_s)


class FileLine(NamedTuple):
    """A line of the program that makes files or shared memory, and how often that was seen."""

    process: ProcessId
    place: str
    """`staging.py:24 stage`."""
    times: int
    size_bytes: int | None
    """What it made, where a hook reported it; `None` if a stack showed it."""


class Flow(Struct, frozen=True):
    """Tensors from one process to another, from the hook's records on both sides."""

    sender: ProcessId
    receiver: ProcessId
    tensors: int
    bytes: int
    copied_bytes: int
    """Copied into shared memory again instead of reusing a shared buffer."""
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    tensors_per_s: float | None = None
    bytes_per_s: float | None = None
    in_flight: int | None = None
    """Sent and not yet received."""


class LogEntry(Struct, frozen=True):
    """One line of the events page."""

    sequence: int
    at_s: float
    wall_s: float
    kind: str
    """`started`, `ended`, `hook`, `exception`, `finding`, `shared`, ..."""
    process: ProcessId | None
    words: str
    details: Mapping[str, object] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    """Known error messages it contains; see `mpwatch.describe.error_messages`."""


class OwnCost(Struct, frozen=True):
    """What observing costs."""

    cpu_percent: float | None = None
    rss_bytes: int | None = None
    target_ns_per_s: float | None = None
    """Of the hooks' own threads in all processes together, nanoseconds per second."""
    calls_ns_per_s: float | None = None
    """Of their wrappers in the program's threads, an estimate; see `Hook.own_calls_ns`."""


class Playback(Struct, frozen=True):
    """The position of a replay in its recording."""

    at_s: float
    """Seconds since the recording began."""
    length_s: float
    speed: float = 1.0
    """Seconds of recording per second."""
    is_paused: bool = False
    followed: int = 0
    """How many commands of the user it has followed: others were given meanwhile."""


class Snapshot(Struct, frozen=True):
    """A whole job at one moment."""

    at_s: float
    wall_s: float
    root: ProcessId
    host: HostSample
    processes: tuple[Process, ...]
    """Root first, parents before children; also processes that have ended."""
    segments: tuple[Segment, ...] = ()
    file_lines: tuple[FileLine, ...] = ()
    """Lines seen to make files, the most frequent first; bounded."""
    gpus: tuple[GpuSample, ...] | None = None
    flows: tuple[Flow, ...] = ()
    progress: tuple[ProgressSource, ...] = ()
    """Of processes with a hook; what has made no progress yet is not in it."""
    loaders: tuple[Loader, ...] = ()
    waits: WaitGraph = field(default_factory=WaitGraph)
    account: Account = field(default_factory=Account)
    """What processes and threads did with their time, up to this moment."""
    habits: Mapping[ProcessId, RankHabit] = field(default_factory=dict)
    """How the ranks usually wait for each other, up to this moment."""
    findings: tuple[Finding, ...] = ()
    """Most urgent first, effects below their cause, resolved ones last."""
    log: tuple[LogEntry, ...] = ()
    """Bounded, oldest first."""
    log_dropped: int = 0
    ended_before: int = 0
    """Processes that have ended and are no longer among `processes`."""
    lost_before: int = 0
    """Events that their hooks have lost."""
    errors: tuple[LogEntry, ...] = ()
    """The entries with tags, oldest first; kept when `log` has dropped them, bounded."""
    ticks_per_s: int = 100
    """The unit of the cpu counters in samples."""
    nccl: NcclStatus | None = None
    """What NCCL says of its communicators, while ranks are stalled and it answers."""
    source: tuple[SourceLine, ...] = ()
    """The program's own lines at which stacks were taken, as far as their files could be read."""
    dropped: tuple[DroppedResult, ...] = ()
    """Calls in these files that start a task and drop its result."""
    marks: tuple[Mark, ...] = ()
    """Statements in these files, and in those that they import, that can be a reason."""
    holders: tuple[Holder, ...] = ()
    """Containers in these files that are added to in each round of a loop."""
    again: tuple[Again, ...] = ()
    """Statements in these files that do the same again in each round of a loop."""
    origins: tuple[Origin, ...] = ()
    """Where the values come from that decide at these lines."""
    coroutines: Coroutines = Coroutines()
    """What these files show of waits of coroutines."""
    values: tuple[ValuesRead, ...] = ()
    """Values of names that findings have asked for, oldest first; of each process the last few."""
    written: tuple[WrittenError, ...] = ()
    """Uncaught exceptions in files that the job writes to, of which it is not known whose."""
    part_of: PartOfJob | None = None
    """Set where these processes are only a part of a job: absence of others proves nothing."""
    mode: SourceMode = "live"
    playback: Playback | None = None
    """Set by replays only."""
    own: OwnCost = field(default_factory=OwnCost)
    problems: tuple[str, ...] = ()
    _living: tuple[Process, ...] = ()
    _by_id: Mapping[ProcessId, Process] = {}

    def __post_init__(self) -> None:
        """Prepare the lookups, which forty rules repeat."""
        living = tuple([process for process in self.processes if process.ended is None])
        # Of two processes with one identity, the first wins.
        by_id = {process.process: process for process in reversed(self.processes)}
        force_setattr(self, "_living", living)
        force_setattr(self, "_by_id", by_id)

    def __repr__(self) -> str:
        # Without the lookups, which would show each process three times.
        names = [name for name in self.__struct_fields__ if not name.startswith("_")]
        return f"Snapshot({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def get(self, process: ProcessId | None) -> Process | None:
        """The process with this identity, or `None`."""
        return None if process is None else self._by_id.get(process)

    @property
    def lost(self) -> int:
        """Hook events that were lost, also of ended processes that are not kept."""
        return self.lost_before + sum(process.hook.lost for process in self.processes)

    def living(self) -> tuple[Process, ...]:
        """The processes that have not ended."""
        return self._living
