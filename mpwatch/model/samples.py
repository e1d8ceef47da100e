"""Samples: values that probes read from outside the processes.

`mpwatch.collect` builds them, `mpwatch.observe` folds them into snapshots. `None` means "could not
be read", never zero; the reason is in `problems`. All `at_s` are CLOCK_MONOTONIC seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from mpwatch.model.host import HostSample
from mpwatch.model.ids import ProcessId, Role, SegmentId, SegmentUse

FRAMES_LIMIT = 400
"""Frames kept of a stack, the innermost ones."""

FdKind: TypeAlias = Literal[
    "torch", "shm", "file", "pipe", "socket", "device", "gpu", "epoll", "event", "timer", "other"
]
"""What a descriptor refers to; `torch` is a torch shared-memory segment, `shm` any other."""

WaitKind: TypeAlias = Literal[
    "pipe-read",
    "pipe-write",
    "socket-read",
    "socket-write",
    "accept",
    "semaphore",
    "futex",
    "child",
    "poll",
    "timer",
    "disk",
    "signal",
    "stopped",
    "unknown",
]
READS: frozenset[WaitKind] = frozenset(("pipe-read", "socket-read", "poll"))
"""Kinds of waits for data."""

FILE_LOCK_CALLS = ("flock", "fcntl")
"""System calls that wait for a lock on a file."""
OPENS = "a process that opens "
"""Begins the target of a wait in the open of a FIFO, for the process that opens its other end."""

VFORKED = "the exec or exit of a child that it starts"
"""The target of the wait of a parent in vfork(2), which the kernel shows in state D."""

_NUMBERED = re.compile(r"(?:pipe|socket):\[(\d+)\]")


def inode_of(target: str) -> int | None:
    """The inode in `pipe:[18174]` or `socket:[77]`, or `None` for anything else."""
    match = _NUMBERED.fullmatch(target)
    return int(match[1]) if match is not None else None


class Channel(NamedTuple):
    """A pipe or a socket: inodes of the two come from different file systems, and may be equal."""

    kind: Literal["pipe", "socket"]
    inode: int


def channel_of(target: str) -> Channel | None:
    """The channel that is `pipe:[18174]` or `socket:[77]`, or `None` for anything else."""
    inode = inode_of(target)
    if inode is None:
        return None
    return Channel("pipe" if target.startswith("pipe:") else "socket", inode)


class HeldLock(NamedTuple):
    """A lock on a file that is held through a descriptor, from fdinfo (proc_pid_fdinfo(5)).

    A lock of flock(2) belongs to the open file: every process that has inherited the descriptor
    holds it too, until the last copy is closed or one of them unlocks it.
    """

    path: str
    """Sanitized, as the target of the descriptor."""
    call: Literal["flock", "fcntl"]
    is_exclusive: bool
    pid: int | None
    """The process that took it; it may have closed its own copy since. `None` if not shown."""


class FileId(NamedTuple):
    """What identifies an open file: its path is that of one mount namespace."""

    mount: int
    """The number of the mount, which no two mounts share."""
    device: int | None
    """Of the file system, as far as `/proc/PID/mountinfo` shows it."""
    inode: int | None
    """`None` before Linux 5.14."""


class FdLink(NamedTuple):
    """One descriptor and its target."""

    fd: int
    kind: FdKind
    target: str
    """Text of the link, sanitized: `pipe:[18174]`, `/dev/shm/torch_...`."""
    inode: int | None
    """Of a pipe, a socket or shared memory."""
    is_writable: bool | None
    """Whether it is open for writing, from the flags in fdinfo; `None` if not read."""
    position: int | None = None
    """Offset in a regular file that is open for reading only; `None` if not read."""
    peer: int | None = None
    """Inode of the peer of a socket; `None` if it is on another host or unknown."""
    address: str | None = None
    """Of a socket: `unix listens on /tmp/a`, `tcp 127.0.0.1:4000 > 127.0.0.1:29500`."""
    written: FileId | None = None
    """Of a file that is open for writing: which one it is; `None` if not read."""

    @property
    def channel(self) -> Channel | None:
        """The pipe or socket that it is; `None` for anything else."""
        if self.inode is None or (self.kind != "pipe" and self.kind != "socket"):
            return None
        return Channel(self.kind, self.inode)

    @property
    def other_end(self) -> Channel | None:
        """The peer of a socket; `None` for anything else, and where it is not known."""
        return None if self.peer is None else Channel("socket", self.peer)


class FdSample(Struct, frozen=True):
    """The descriptors of one process."""

    used: int
    soft_limit: int | None
    hard_limit: int | None
    by_kind: Mapping[FdKind, int] | None = None
    links: tuple[FdLink, ...] | None = None
    """All links, or only pipes and sockets if there are very many; `None` if never read."""
    read_at_s: float | None = None
    """When `by_kind` and `links` were read; they are reused while `used` does not change."""
    locks: tuple[HeldLock, ...] = ()
    """On regular files; read with the links. Of one descriptor one, an exclusive one if any is."""


class MapSample(Struct, frozen=True):
    """The memory mappings of one process."""

    used: int
    limit: int | None
    """`vm.max_map_count`."""
    torch_count: int = 0
    """Mappings of torch segments."""
    libraries: tuple[str, ...] = ()
    """Base names of mapped libraries that rules look for: cv2, libgomp, libcuda, ..."""
    read_at_s: float | None = None
    files: tuple[str, ...] = ()
    """Paths of mapped files that are no libraries and no shared memory, at most 32."""


class MemorySample(Struct, frozen=True):
    """Memory of one process in bytes, from `smaps_rollup`; only `rss_bytes` is read each time."""

    rss_bytes: int | None = None
    pss_bytes: int | None = None
    private_clean_bytes: int | None = None
    private_dirty_bytes: int | None = None
    shared_clean_bytes: int | None = None
    shared_dirty_bytes: int | None = None
    shmem_bytes: int | None = None
    """`RssShmem` of `/proc/PID/status`: resident shared memory."""
    anon_bytes: int | None = None
    """`RssAnon` of `/proc/PID/status`: resident memory of no file. Copying on write changes it
    little, because a page shared with a parent is counted as well; shared memory is not in it."""
    swap_bytes: int | None = None
    read_at_s: float | None = None
    """When `smaps_rollup` was read, which is read in rotation."""
    virtual_bytes: int | None = None
    """`VmSize` of `/proc/PID/status`: all that is mapped, resident or not."""

    @property
    def private_bytes(self) -> int | None:
        """Memory that no other process shares; it is freed when the process exits."""
        if self.private_clean_bytes is None or self.private_dirty_bytes is None:
            return None
        return self.private_clean_bytes + self.private_dirty_bytes


class LockHolder(NamedTuple):
    """The process that took a file lock; it may have exited since."""

    pid: int
    name: str
    """Its name as in `/proc/PID/comm`, sanitized; empty if it is gone."""


class WaitedOn(Struct, frozen=True):
    """What a blocked thread waits for, from its system call and its arguments."""

    kind: WaitKind
    call: str
    """Name of the system call, `read`, `futex`, `poll`..."""
    targets: tuple[str, ...] = ()
    """Targets: `pipe:[18174]`, `socket:[77]`, `sem 1a:77`, `pid 41826`, `futex 0x7f..`."""
    fds: tuple[int, ...] = ()
    address: int | None = None
    """Futex address."""
    segment: SegmentId | None = None
    """The mapped file that contains the futex: a semaphore shared between processes."""
    value: int | None = None
    """Value of the semaphore or futex word, if it could be read."""
    queued_bytes: int | None = None
    """Unread bytes in the pipe waited on."""
    timeout_s: float | None = None
    """Timeout of the call; `None` if infinite or unknown."""
    futex_command: int | None = None
    """`FUTEX_CMD_MASK` part of the operation (futex(2)): 9 for glibc's semaphores and conditions,
    thus for Python's locks; 0 for mutexes of native code and the barriers of GNU's OpenMP."""
    wanted_bytes: int | None = None
    """Bytes that a read asked for: distinguishes the header of a message from its body."""
    holder: LockHolder | None = None
    """Of a file lock that flock(2) or fcntl(2) waits for."""


THREADS_OF_A_GROUP = ("gloo_", "pt_nccl_")
"""Prefixes of the names of the threads of a torch process group (torch 2.13)."""


class ThreadSample(Struct, frozen=True):
    """One thread."""

    tid: int
    name: str
    state: str
    """One letter, as in `/proc/PID/stat`: R S D Z T t X I."""
    cpu_ticks: int | None
    wchan: str | None = None
    syscall: int | None = None
    """Number of the system call that it is blocked in; -1 if blocked outside of one."""
    waits_on: WaitedOn | None = None
    start_ticks: int | None = None
    ran_at_s: float | None = None
    """When it last ran, if it has not run since it was first read, as the kernel has noted it;
    `None` also where that is not known."""


class ProcSample(Struct, frozen=True):
    """One sample of one process."""

    process: ProcessId
    at_s: float
    parent_pid: int
    name: str
    cmdline: tuple[str, ...]
    state: str
    role: Role = "other"
    worker_id: int | None = None
    """Number of a DataLoader worker, from the order of starts; the hook knows the exact number."""
    rank: int | None = None
    is_python: bool = False
    python_version: str | None = None
    """`3.11`, from the executable or libpython."""
    torch_loaded: bool | None = None
    cpu_ticks: int | None = None
    system_ticks: int | None = None
    """The part of `cpu_ticks` in the kernel: system calls and page faults."""
    uid: int | None = None
    nice: int | None = None
    exe: str | None = None
    tty: int | None = None
    """Controlling terminal, 0 is none."""
    session: int | None = None
    ns_pid: int | None = None
    """Its pid in its own pid namespace, if that differs."""
    ns_uid: int | None = None
    """Its user ID in its own user namespace, if that differs."""
    born_wall_s: float | None = None
    threads: tuple[ThreadSample, ...] | None = None
    thread_count: int | None = None
    fds: FdSample | None = None
    maps: MapSample | None = None
    memory: MemorySample | None = None
    segments: tuple[SegmentUse, ...] | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    tracer_wakes: int | None = None
    """How often tracers, of this observer and of others, have woken its main thread, as far as its
    other threads show; among `voluntary_switches`."""
    read_bytes: int | None = None
    """By system calls from files, pipes and sockets; as `written_bytes`."""
    written_bytes: int | None = None
    main_read_bytes: int | None = None
    """What its main thread has read by system calls from files and pipes; not of loader workers."""
    cpus_allowed: int | None = None
    """Number of CPUs that it may run on."""
    signals_caught: int | None = None
    """`SigCgt` mask."""
    signals_ignored: int | None = None
    """`SigIgn` mask."""
    cpu_limit_s: int | None = None
    """Hard RLIMIT_CPU, at which the kernel sends SIGKILL; `None` if unlimited or unknown."""
    limits: Mapping[str, int | None] = field(default_factory=dict)
    """Other soft limits by their names in proc_pid_limits(5), such as `locked memory`, in bytes,
    seconds or processes; `None` if unlimited. What could not be read is not in it."""
    oom_score_adj: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Only variables that rules use (RANK, TMPDIR, OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES...)."""
    start_method: str | None = None
    """fork, spawn or forkserver, from its command line and parent."""
    problems: tuple[str, ...] = ()

    @property
    def links(self) -> tuple[FdLink, ...]:
        """Its descriptors, as far as they were read: see `FdSample.links`."""
        return (self.fds.links or ()) if self.fds is not None else ()


class GpuProcessSample(Struct, frozen=True):
    """One process on one GPU."""

    pid: int
    memory_bytes: int | None
    kind: Literal["compute", "graphics"] = "compute"


class GpuSample(Struct, frozen=True):
    """One GPU, from NVML."""

    index: int
    name: str
    uuid: str
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    processes: tuple[GpuProcessSample, ...] = ()
    problems: tuple[str, ...] = ()


NO_GPUS = "GPUs are not shown"
"""How each problem begins that says why there are no GPU samples."""


class Frame(NamedTuple):
    """One frame of a stack."""

    function: str
    """Name without its class, `get` and not `Queue.get`: the same in all Pythons and sources."""
    file: str
    line: int
    locals: tuple[tuple[str, str], ...] = ()
    """Names and shortened reprs, only on request."""
    from_native: bool = False
    """Whether native code called it, as it calls the handler of a signal; `False` where that is not
    known (before Python 3.11, or read by the hook)."""


class MixedFrame(NamedTuple):
    """One frame of a stack that has native frames among those of Python."""

    frame: Frame
    is_native: bool
    """Whether it is of native code, which has no line of the program."""


StackSource: TypeAlias = Literal["py-spy", "hook"]


class StackSample(Struct, frozen=True):
    """The stack of one thread, innermost frame first."""

    process: ProcessId
    tid: int | None
    """Kernel thread id."""
    thread_name: str
    frames: tuple[Frame, ...]
    """Of Python only, so that what asks for the line of a wait never meets a library of C."""
    source: StackSource
    at_s: float
    is_active: bool | None = None
    has_gil: bool | None = None
    target_class: str = ""
    """In a child of multiprocessing, the class whose `run` method is its target; empty where the
    source does not say it. py-spy does so from Python 3.11 on."""
    mixed: tuple[MixedFrame, ...] = ()
    """The same stack with its native frames, where these were asked for; empty otherwise."""


class StacksTaken(Struct, frozen=True):
    """An input: the stacks of one process, or the reason why there are none."""

    process: ProcessId
    at_s: float
    source: StackSource
    stacks: tuple[StackSample, ...] = ()
    cost_s: float | None = None
    problem: str | None = None
    has_stopped: bool = True
    """Whether py-spy stopped and woke the process for them; it always did before version 0.3."""


class WantedFrame(NamedTuple):
    """The names to read in the innermost frame of a function of a thread.

    Of their values numbers, lengths and types are read, and never text of the program.
    """

    tid: int
    """Kernel thread id, as the process sees it."""
    file: str
    function: str
    names: tuple[str, ...]
    """Dotted, as the source has them: `step`, `self.state.step`."""


class NameValue(NamedTuple):
    """What a name refers to."""

    name: str
    type: str
    """Name of its class; `nan`, `inf` or `-inf` for such a float."""
    number: int | float | bool | None = None
    """Of an int of at most 64 bits, a bool or a float."""
    length: int | None = None
    """Of a container of the standard library, a str or bytes."""
    has_graph: bool | None = None
    """Of a tensor, or of the last element of a list or tuple if that is one: whether it carries an
    autograd graph."""


class FrameValues(NamedTuple):
    """The values of names in one frame."""

    tid: int
    file: str
    function: str
    line: int
    """Where it was then."""
    values: tuple[NameValue, ...]

    def get(self, name: str) -> NameValue | None:
        """The value of a name, or `None`."""
        return next((each for each in self.values if each.name == name), None)


class ValuesRead(Struct, frozen=True):
    """An input: the values of names in some frames of one process."""

    process: ProcessId
    at_s: float
    source: StackSource
    frames: tuple[FrameValues, ...] = ()


class Ended(Struct, frozen=True):
    """An input: a process has ended, with its exit status."""

    process: ProcessId
    at_s: float
    exit_code: int | None = None
    signal: int | None = None
    problem: str | None = None
    """Why exit code and signal are unknown."""
    oom_kills: int | None = None
    """OOM kills in its control group by then; read after SIGKILL only, `None` if unreadable."""

    @property
    def words(self) -> str:
        """Exit status: `exit code 1`, `signal 9 (SIGKILL)` or `unknown: ...`."""
        if self.signal is not None:
            from signal import Signals

            try:
                name = Signals(self.signal).name
            except ValueError:
                name = "unknown signal"
            return f"signal {self.signal} ({name})"
        if self.exit_code is not None:
            return f"exit code {self.exit_code}"
        return f"unknown: {self.problem or 'not observed'}"


class PartOfJob(Struct, frozen=True):
    """The job of which the observed root process is only a part: the rest of it is not read."""

    root: ProcessId
    name: str
    """The program of the job: `train.py`."""
    role: str
    """What the observed root is in it: `rank 2`, `loader-worker`."""


class TreeSample(Struct, frozen=True):
    """An input: one sample of the whole job, root first, parents before children."""

    at_s: float
    wall_s: float
    root: ProcessId
    host: HostSample
    processes: tuple[ProcSample, ...]
    gpus: tuple[GpuSample, ...] | None = None
    """`None` without NVML; the reason is in `problems`."""
    ticks_per_s: int = 100
    cost_s: float | None = None
    """CPU seconds that this sample cost."""
    problems: tuple[str, ...] = ()
    part_of: PartOfJob | None = None
    """Set where the root is itself started by another process of its job."""
