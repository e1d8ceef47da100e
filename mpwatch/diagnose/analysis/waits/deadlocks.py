"""Deadlocks of two processes: a full pipe, and a lock whose holder was not forked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.idle_time import STUCK_S, quiet_s
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import channels_among
from mpwatch.diagnose.analysis.process_queries import called, family_head
from mpwatch.diagnose.analysis.stack_patterns import (
    HOOK_THREAD,
    main_thread,
    own_threads,
    user_frame,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ThreadSample
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.units import bytes_text, seconds_text
from mpwatch.model.waits import PIN_THREAD, WaitChain, WaitEdge, WaitGraph

Reason: TypeAlias = Literal["lock", "openmp", "library", "pin-thread"]

CERTAIN_S = 3.0
"""Enough where the call shows a wait without timeout that no thread of the process can end, or
where no process can end the wait of the last one of a chain."""
FUTEX_WAIT = 0
"""Mutexes of native code and libgomp's barriers; Python's own locks wait with another command."""
_OPENMP_FILES = ("libgomp", "libiomp")
_LIBRARIES = ("cv2", "opencv", "grpc", "hdfs", "hdf5", "jvm", "lmdb", "openblas", "mkl_")
_THREAD_LOCKS = (
    "/threading.py",
    "/queue.py",
    "/logging/__init__.py",
    "<frozen importlib._bootstrap>",
)
"""Files of the standard library whose locks are for threads of one process only."""


@dataclass(frozen=True, slots=True)
class ForkedAlone:
    """A forked child with one thread of its own, which waits for a lock inside its process."""

    process: Process
    thread: Thread
    reason: Reason
    library: str
    quiet_s: float
    parents_threads: tuple[str, ...]
    """Names of threads of the parent that are older than this child."""

    @property
    def _alone(self) -> str:
        """How many threads it has, in words."""
        helpers = len(self.process.threads) - 1
        return "has one thread" if not helpers else f"has one thread beside {helpers} idle ones"

    @property
    def _wait(self) -> str:
        """What shows that the lock is one of its own process."""
        if self.thread.waits_on is not None:
            return "that thread waits on a futex of its process only: no other process can wake it"
        shown = frame_words(own_frames(self.thread.stack)[0])
        return f"that thread waits in {shown}, for a lock that no other process can release"

    @property
    def evidence(self) -> tuple[str, ...]:
        """The numbers that show it."""
        lines = [
            f"{called(self.process)} was forked, {self._alone}, and has used no cpu for "
            f"{seconds_text(self.quiet_s)}",
            self._wait,
        ]
        frame = user_frame(self.thread.stack)
        if frame is not None:
            lines.append(f"at {frame_words(frame)}")
        if self.parents_threads:
            shown = ", ".join(self.parents_threads[:6])
            lines.append(f"its parent had other threads when it was forked: {shown}")
        return tuple(lines)


def forked_alone(index: Index, reason: Reason) -> Iterator[ForkedAlone]:
    """The children stalled for one of the reasons; each child has exactly one reason."""
    for process, thread in _waiting_alone(index):
        found = _examine(index, process, thread)
        if found is not None and found.reason == reason:
            yield found


@derived
def _waiting_alone(index: Index) -> tuple[tuple[Process, Thread], ...]:
    """Forked children with one thread of their own, which waits inside its process.

    Four rules ask, each for a reason of its own; of a healthy job there is hardly any.
    """
    return tuple(
        (process, threads[0])
        for process in index.snapshot.living()
        if process.sample.start_method == "fork"
        and len(threads := own_threads(index, process)) == 1
        and _waits_inside(threads[0])
    )


def _examine(index: Index, process: Process, thread: Thread) -> ForkedAlone | None:
    """The finding about such a child, if it has been stalled for long enough."""
    quiet = quiet_s(process, index)
    needed = STUCK_S if thread.waits_on is None else CERTAIN_S
    if quiet is None or quiet < needed:
        return None
    head = family_head(index, process)
    older = () if head is None else older_threads(head, process)
    reason, library = _reason(process, thread, older)
    names = tuple(each.name for each in older if each.name != HOOK_THREAD)
    return ForkedAlone(process, thread, reason, library, quiet, names)


def _waits_inside(thread: Thread) -> bool:
    """Whether a thread waits without limit for something inside its own process."""
    wait = thread.waits_on
    if thread.state != "S":
        return False
    if wait is None:
        # Without its call, a lock of this process and one that processes share look alike; and a
        # line of the program that takes a lock does not say of which kind it is.
        innermost = own_frames(thread.stack)[:1]
        return (
            thread.wchan is not None
            and "futex" in thread.wchan
            and any(_is_of_threads(frame.file) for frame in innermost)
        )
    return wait.kind == "futex" and wait.timeout_s is None


def _is_of_threads(file: str) -> bool:
    """Whether code of this file waits only for what threads of its own process do."""
    is_native = ".so" in file
    names = (*_OPENMP_FILES, *_LIBRARIES)
    return file.endswith(_THREAD_LOCKS) or (is_native and any(name in file for name in names))


def _reason(
    process: Process, thread: Thread, parents_threads: tuple[ThreadSample, ...]
) -> tuple[Reason, str]:
    """What kind of lock it is, from native frames, the futex command, the stack and libraries."""
    frames = own_frames(thread.stack)
    native = [frame.file for frame in frames]
    if any(name in file for file in native for name in _OPENMP_FILES):
        return "openmp", ""
    library = next((name for file in native for name in _LIBRARIES if name in file), "")
    if library:
        return "library", library
    wait = thread.waits_on
    if wait is None or wait.futex_command == FUTEX_WAIT:
        innermost = frames[0].file if frames else ""
        mapped = process.sample.maps.libraries if process.sample.maps is not None else ()
        library = next((file for file in mapped for name in _LIBRARIES[:4] if name in file), "")
        if "/torch/" in innermost or (not library and wait is not None):
            return "openmp", ""
        if library:
            return "library", library
    if any(each.name.startswith(PIN_THREAD) for each in parents_threads):
        return "pin-thread", ""
    return "lock", ""


def older_threads(head: Process, child: Process) -> tuple[ThreadSample, ...]:
    """Threads of the parent, besides the main one, that lived when the child was forked."""
    main = main_thread(head)
    return tuple(
        thread
        for thread in head.sample.threads or ()
        if (main is None or thread.tid != main.tid)
        and (thread.start_ticks is None or thread.start_ticks <= child.process.start_ticks)
    )


_READS = frozenset(("pipe-read", "poll"))
_STREAMS: Mapping[int, str] = {1: "standard output", 2: "standard error"}
ADVICE = (
    "Read both outputs of the program at once (communicate(), or a thread for the second), send "
    "the one that is not needed to a file or to subprocess.DEVNULL, or make the program say less "
    "(ffmpeg: -loglevel error)."
)


@dataclass(frozen=True, slots=True)
class UnreadPipe:
    """A reader and a writer that wait for each other, and the full pipe between them."""

    reader: Process
    writer: Process
    stream: str
    """`its standard error, pipe 18174`, or the pipe alone."""
    queued_bytes: int | None

    @property
    def evidence(self) -> str:
        """What the writer does."""
        held = "" if self.queued_bytes is None else f", where {bytes_text(self.queued_bytes)} lie"
        return f"{called(self.writer)} is blocked writing to {self.stream}{held}"

    @property
    def cause(self) -> str:
        """Why neither makes progress."""
        return (
            f"{called(self.reader)} waits for something else from {called(self.writer)}, and does "
            "not read that pipe meanwhile. It is full, so the writer waits for ever, and so does "
            "the reader."
        )


def unread_pipe(snapshot: Snapshot, waits: WaitGraph, chain: WaitChain) -> UnreadPipe | None:
    """The full pipe at the end of a cycle; `None` if the cycle has another reason."""
    if chain.verdict != "cycle" or len(chain.links) < 2:
        return None
    ends = {(link.process, link.tid) for link in chain.links[-2:]}
    last = [edge for edge in waits.edges if (edge.waiter, edge.tid) in ends]
    pairs = ((reads, writes) for reads in last for writes in last)
    found = next((pair for pair in pairs if _is_between(*pair)), None)
    return None if found is None else _unread(snapshot, *found)


def unread_by(snapshot: Snapshot, waits: WaitGraph, process: ProcessId) -> UnreadPipe | None:
    """The full pipe that a process does not read; `None` without one."""
    found = (unread_pipe(snapshot, waits, chain) for chain in waits.chains)
    return next((each for each in found if each and each.reader.process == process), None)


def _is_between(reads: WaitEdge, writes: WaitEdge) -> bool:
    """Whether one waits for what the other writes, and that one for the first as a reader."""
    return (
        reads.kind in _READS
        and writes.kind == "pipe-write"
        and reads.waiter != writes.waiter
        and writes.waiter in reads.providers
        and reads.waiter in writes.providers
    )


def _unread(snapshot: Snapshot, reads: WaitEdge, writes: WaitEdge) -> UnreadPipe | None:
    reader, writer = snapshot.get(reads.waiter), snapshot.get(writes.waiter)
    thread = next((t for t in writer.threads if t.tid == writes.tid), None) if writer else None
    wait = thread.waits_on if thread is not None else None
    if reader is None or writer is None or wait is None:
        return None
    pipes = channels_among(wait.targets)
    if not pipes or pipes[0] in _waited_on(reader, reads.tid):
        return None
    words = f"pipe {pipes[0]}"
    stream = output_of(writer, pipes[0])
    return UnreadPipe(
        reader, writer, f"its {stream}, {words}" if stream else words, wait.queued_bytes
    )


def output_of(process: Process, pipe: int) -> str:
    """Which standard output of a process a pipe is; empty where it is none."""
    return next((_STREAMS[fd] for fd in _fds_of(process, pipe) if fd in _STREAMS), "")


def _waited_on(process: Process, tid: int) -> tuple[int, ...]:
    """The pipes that one of its threads waits for."""
    thread = next((thread for thread in process.threads if thread.tid == tid), None)
    wait = thread.waits_on if thread is not None else None
    return channels_among(wait.targets) if wait is not None else ()


def _fds_of(process: Process, pipe: int) -> Iterator[int]:
    """The descriptors that are a pipe, as numbers."""
    fds = process.sample.fds
    for link in (fds.links or ()) if fds is not None else ():
        if link.inode == pipe and link.kind == "pipe":
            yield link.fd
