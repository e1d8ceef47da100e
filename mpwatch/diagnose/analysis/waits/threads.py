"""Waits among the threads of one process, which no other process can end.

A lock, condition or queue of `threading` is a futex of its process alone; so is a pipe of which no
other process has the writing end. If every thread of the process waits for one without a time
limit, none of them is left to wake another. A forked child has one thread only: a lock that another
thread of its parent held at the fork is never released in the child.

At the end of `with ThreadPoolExecutor()`, in its shutdown(), and before Python exits, a main thread
joins the threads of a pool itself. asyncio.run does so by a thread of its own, `_do_shutdown`, and
its main thread waits in the event loop (CPython 3.10 to 3.14).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.describe.frames import at_frame, frame_words, own_frames
from mpwatch.diagnose.analysis.idle_time import CERTAIN_S, STUCK_S, are_stalled, is_stalled, quiet_s
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import channels_among
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    YOUNG_S,
    age_s,
    called,
    children_started_by,
    family_head,
)
from mpwatch.diagnose.analysis.receivers import serves_at_rest
from mpwatch.diagnose.analysis.stack_patterns import (
    HOOK_THREAD,
    calls,
    main_thread,
    own_threads,
    runs_event_loop,
    shape_of,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.edges import (
    ReadContext,
    blocked_for_s,
    is_busy,
    semaphore_users,
    surroundings,
)
from mpwatch.diagnose.analysis.waits.futures import POOL_THREAD
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import ThreadSample
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.waits import PIN_THREAD, SETTLED_S

_WAKING_NO_THREAD = ("tqdm/_monitor.py:run", "asyncio/unix_events.py:_do_waitpid")
"""Threads that wake up now and then, and never end the wait of another thread: asyncio's thread for
the exit of a child calls back through the event loop."""
HANDLED = sum(1 << (number - 1) for number in (1, 10, 12, 14, 15, 26, 27))
"""SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGVTALRM and SIGPROF in a mask of signals: those
whose handlers programs use to set an event. Python itself catches SIGINT in every program."""
FOR_THREAD = "for the end of another thread"
FOR_ITEM = "for an item of a queue"
FOR_ROOM = "for room in a full queue"
FOR_EVENT = "for an event or condition"
FOR_RESULTS = ("for the result of a future", "for the results of futures")
AT_BARRIER = "at a barrier"
FOR_LOCK = "for a lock"
IDLE_IN_POOL = "for work, idle in its pool"
FOR_SEMAPHORE = "for a semaphore"
IN_LOOP = "in its event loop for another thread to wake it up"
_PURPOSES: Sequence[tuple[tuple[str, ...], str]] = (
    (("threading.py:_shutdown",), "for the threads that have to end before the program can"),
    (("threading.py:join",), FOR_THREAD),
    (("queue.py:get",), FOR_ITEM),
    (("queue.py:put",), FOR_ROOM),
    (("multiprocessing/queues.py:get",), FOR_ITEM),
    (("multiprocessing/queues.py:put",), FOR_ROOM),
    (("_base.py:result",), FOR_RESULTS[0]),
    (("_base.py:wait",), FOR_RESULTS[1]),
    (("_base.py:as_completed",), FOR_RESULTS[1]),
    (("threading.py:_wait", "threading.py:wait"), AT_BARRIER),
    (("threading.py:wait", "threading.py:acquire"), FOR_SEMAPHORE),
    (("threading.py:wait",), FOR_EVENT),
)
"""What a thread waits for, by functions of the standard library on its stack (CPython 3.10 to
3.14), the first that is there."""
YOUNG_QUIET_S = 3.0


@derived
def threads_that_wait_for_each_other(index: Index, identity: ProcessId) -> tuple[Thread, ...]:
    """The Python threads of a process in which no thread is left to end the wait of another.

    Args:
        index: The snapshot.
        identity: The process.

    Returns:
        Nothing if a thread runs, has run within two seconds, waits with a time limit, waits for
        what comes from outside of the process (a child, a pipe that another process can write to),
        could not be read, or if a signal's handler may end the wait.
    """
    process = index.snapshot.get(identity)
    if process is None or not _is_complete(process):
        return ()
    around = surroundings(index)
    own = own_threads(index, process)
    if not all(_waits_for_ever(around, process, each) or _wakes_no_thread(each) for each in own):
        return ()
    main = main_thread(process)
    if main is None or not main.stack or _may_be_woken_by_a_signal(process, main, own):
        return ()
    return tuple(each for each in own if each.stack and not _wakes_no_thread(each))


def _is_complete(process: Process) -> bool:
    """Whether all threads of a process were read."""
    count = process.sample.thread_count
    return count is not None and 0 < count <= len(process.threads)


def _wakes_no_thread(thread: Thread) -> bool:
    return any(calls(thread.stack, each) for each in _WAKING_NO_THREAD) or serves_at_rest(thread)


def _waits_for_ever(around: ReadContext, process: Process, thread: Thread) -> bool:
    wait = thread.waits_on
    if wait is None or wait.timeout_s is not None:
        return False
    if wait.kind == "semaphore":
        if not _has_semaphore_alone(around, process, wait.segment):
            return False
    elif wait.kind == "poll":
        if not watches_only_itself(around, process, thread):
            return False
    elif wait.kind != "futex" and not reads_own_end(around, process, thread):
        return False
    return (blocked_for_s(thread) or 0.0) >= SETTLED_S


def _has_semaphore_alone(around: ReadContext, process: Process, segment: SegmentId | None) -> bool:
    """Whether no other living process has a semaphore between processes, nor may still get it."""
    if segment is None or not around.is_complete:
        return False
    users = semaphore_users(around.index).get(segment, ())
    return users == (process.process,) and not may_still_receive(around.index, process)


def reads_own_end(around: ReadContext, process: Process, thread: Thread) -> bool:
    """Whether a thread waits for data on a pipe whose writing end its own process alone has.

    It gets neither data nor an end of file for as long as the process keeps that end open and no
    thread of it writes.
    """
    wait = thread.waits_on
    if wait is None or wait.kind not in ("pipe-read", "socket-read") or not around.is_complete:
        return False
    channels = channels_among(wait.targets)
    if not channels or len(channels) < len(wait.targets):
        return False
    is_own = all(around.pipes.writers.get(each) == (process.process,) for each in channels)
    return is_own and not may_still_receive(around.index, process)


def may_still_receive(index: Index, process: Process) -> bool:
    """Whether a young process may be about to get the other end of something.

    A child of spawn or forkserver has what it was given only once it has imported the program; a
    forked child has it from the start.
    """
    snapshot = index.snapshot
    return any(
        other.process != process.process
        and other.role not in ("resource-tracker", "shm-manager")
        and other.sample.start_method != "fork"
        and other.sample.state != "Z"
        and (age := age_s(snapshot, other)) is not None
        and age < YOUNG_S
        and not is_stalled(other, index, YOUNG_QUIET_S)
        for other in snapshot.living()
    )


def _may_be_woken_by_a_signal(process: Process, main: Thread, own: Sequence[Thread]) -> bool:
    """Whether a handler may set the event that the main thread waits for, or write to a pipe.

    Handlers of Python run in the main thread; a server may wait like this for SIGTERM.
    """
    caught = process.sample.signals_caught
    reads = any(each.waits_on is not None and each.waits_on.kind != "futex" for each in own)
    waits_for_event = purpose(main) == FOR_EVENT
    return (waits_for_event or reads) and (caught is None or bool(caught & HANDLED))


def purpose(thread: Thread) -> str:
    """What a thread that waits for another thread waits for: `for an item of a queue`."""
    frames = own_frames(thread.stack)
    wait = thread.waits_on
    if wait is not None and wait.kind == "poll" and runs_event_loop(thread):
        return IN_LOOP
    if wait is not None and wait.kind not in ("futex", "semaphore") and wait.targets:
        return f"for data on {wait.targets[0]}, whose writing end only this process has"
    if calls(frames[:1], "concurrent/futures/thread.py:_worker"):
        return IDLE_IN_POOL
    return next((words for pattern, words in _PURPOSES if calls(frames, *pattern)), FOR_LOCK)


_HANDLERS = ("_handle_workers", "_handle_tasks", "_handle_results")
"""What the threads of a Pool run (multiprocessing/pool.py, CPython 3.10 to 3.14)."""


@derived
def waits_for_a_callback(index: Index, identity: ProcessId) -> bool:
    """Whether a main thread waits for what only a callback of its Pool could do, and none comes.

    It waits for an event, a condition or a queue of its own process without a limit; all other
    threads are those of a Pool, and each worker of that waits for a task, for some seconds.
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    wait = main.waits_on if main is not None else None
    if process is None or main is None or wait is None or not _is_complete(process):
        return False
    if wait.kind != "futex" or wait.timeout_s is not None:
        return False
    own = own_threads(index, process)
    frames = own_frames(main.stack)
    is_for_pool = any(calls(frames, f"multiprocessing/pool.py:{each}") for each in ("wait", "next"))
    if purpose(main) not in (FOR_EVENT, FOR_ITEM) or is_for_pool:
        return False
    if len(own) < 2 or not all(_handles_a_pool(each) for each in own if each is not main):
        return False
    workers = [
        child
        for child in children_started_by(index, process)
        if child.role not in SERVICE_ROLES and not child.is_gone
    ]
    idle = [shape_of(each.threads[0].stack) == "pool-idle" for each in workers if each.threads]
    is_idle = len(idle) == len(workers) > 0 and all(idle) and are_stalled(workers, index)
    return is_idle and not _may_be_woken_by_a_signal(process, main, [main])


def _handles_a_pool(thread: Thread) -> bool:
    frames = own_frames(thread.stack)
    is_handler = any(calls(frames, f"multiprocessing/pool.py:{each}") for each in _HANDLERS)
    return is_handler and user_frame(frames) is None


@derived
def is_idle_loop(index: Index, identity: ProcessId) -> bool:
    """Whether the main thread runs an event loop of asyncio that nothing can wake up.

    It waits without a timer for its own wake-up socket alone, which other threads and handlers of
    signals write to, and there is none that could: each of these threads waits for another one.
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    if process is None or main is None or not _is_complete(process):
        return False
    around = surroundings(index)
    if not watches_only_itself(around, process, main):
        return False
    has_others = any(
        not calls(own_frames(each.stack)[:1], "concurrent/futures/thread.py:_worker")
        and not reads_own_end(around, process, each)
        and not _wakes_no_thread(each)
        and not _waits_for_ever(around, process, each)
        for each in own_threads(index, process)
        if each is not main
    )
    return not has_others and not _may_be_woken_by_a_signal(process, main, [main])


def watches_only_itself(around: ReadContext, process: Process, thread: Thread) -> bool:
    """Whether a thread waits in an event loop of asyncio for the loop's own wake-up socket alone.

    Without a timer: only another thread of its process, or the handler of a signal, wakes it up.
    """
    wait = thread.waits_on
    if wait is None or wait.kind != "poll" or wait.timeout_s is not None:
        return False
    frames = own_frames(thread.stack)
    if not runs_event_loop(thread) or not calls(frames[:1], "selectors.py:select"):
        return False
    channels = channels_among(wait.targets)
    if not around.is_complete or not channels or len(channels) < len(wait.targets):
        return False
    return all(around.pipes.writers.get(each) == (process.process,) for each in channels)


def others_that_wait(index: Index, process: Process, tid: int | None) -> tuple[Thread, ...]:
    """The threads besides main and one other that wait for another thread in code of the program.

    One of them may be the one that was to answer another process.
    """
    return tuple(
        thread
        for thread in own_threads(index, process)
        if thread.tid not in (tid, process.pid)
        and thread.waits_on is not None
        and thread.waits_on.kind == "futex"
        and user_frame(thread.stack) is not None
    )


def is_at_exit(thread: Thread) -> bool:
    """Whether the interpreter has come to its end and joins the threads that still run."""
    return calls(own_frames(thread.stack), "threading.py:_shutdown")


def sentence(process: Process, thread: Thread) -> str:
    """`thread loader_0 waits for an item of a queue at robot.py:20 serve`."""
    name = "the main thread" if thread.tid == process.pid else f"thread {thread.name}"
    frame = user_frame(thread.stack)
    where = at_frame(frame)
    what = purpose(thread)
    return f"{name} waits {what}{where}"


Reason: TypeAlias = Literal["lock", "openmp", "library", "pin-thread"]
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


class ForkedAlone(Struct, frozen=True):
    """A forked child with one thread of its own, which waits for a lock inside its process."""

    process: Process
    thread: Thread
    reason: Reason
    library: str
    lasted: str
    """`quiet_s` in words."""
    quiet_s: float
    parents_threads: tuple[str, ...]
    """Names of threads of the parent that are older than this child."""
    is_native: bool = False
    """Whether none of these threads runs Python code: they hold no lock of Python."""

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
            f"{self.lasted}",
            self._wait,
        ]
        frame = user_frame(self.thread.stack)
        if frame is not None:
            lines.append(f"at {frame_words(frame)}")
        if self.parents_threads:
            shown = ", ".join(self.parents_threads[:6])
            native = ", which run no Python code" if self.is_native else ""
            lines.append(f"its parent had other threads when it was forked: {shown}{native}")
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
    older = tuple(each for each in older if each.name != HOOK_THREAD)
    names = tuple(each.name for each in older)
    is_native = head is not None and bool(older) and _are_native(older, head)
    return ForkedAlone(
        process, thread, reason, library, index.lasting(quiet), quiet, names, is_native
    )


def threads_at_fork(index: Index, process: Process) -> tuple[ThreadSample, ...] | None:
    """The threads of the parent of a forked process that may have held a lock of Python then.

    Returns:
        `None` where the parent, or its threads, are not known.
    """
    head = family_head(index, process)
    if head is None or not head.sample.threads:
        return None
    older = tuple(each for each in older_threads(head, process) if each.name != HOOK_THREAD)
    return () if _are_native(older, head) else older


def _are_native(threads: Sequence[ThreadSample], process: Process) -> bool:
    """Whether the stacks of a process were taken, and show none of these threads.

    Both py-spy and the hook take the stacks of all threads that have Python frames.
    """
    with_stack = {each.tid for each in process.threads if each.stack}
    return bool(with_stack) and not any(each.tid in with_stack for each in threads)


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


# --- thread pools at their end, and their results ------------------------------------------------

JoinedBy: TypeAlias = Literal["asyncio", "shutdown", "exit", "result"]
"""`asyncio`: at the end of asyncio.run, or by loop.shutdown_default_executor(). `shutdown`: by
shutdown() or the end of a with block. `exit`: by the interpreter, at its end. `result`: the result
of one call is waited for."""
_JOIN = "threading.py:join"
_SHUTDOWN = "concurrent/futures/thread.py:shutdown"
_AT_EXIT = "concurrent/futures/thread.py:_python_exit"
_RESULT = "concurrent/futures/_base.py:result"
_OF_PROCESSES = "concurrent/futures/process.py:run"
"""The thread of a ProcessPoolExecutor, whose results come from other processes."""
_OF_LOOP = "asyncio/base_events.py:_do_shutdown"
_DEFAULT_EXECUTOR = "asyncio"
"""Begins the names of the threads of the default executor of an event loop."""


class JoinedExecutor(Struct, frozen=True):
    """A thread pool for whose end, or one of whose results, a main thread waits."""

    by: JoinedBy
    running: tuple[Thread, ...]
    """The threads of it that are in a call, those that compute first."""

    @property
    def computes(self) -> bool:
        """Whether one of them runs."""
        return is_busy(self.running[0])


@derived
def joined_executor(index: Index, identity: ProcessId) -> JoinedExecutor | None:
    """The thread pool for which the main thread of a process waits; `None` if it waits for none.

    Nor where none of the threads of a pool is in a call: then it ends now. For a result it waits
    only where one thread of a pool computes.
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    by = _joined_by(process, main) if process is not None and main is not None else None
    if process is None or by is None:
        return None
    running = sorted(_running(process, by), key=lambda each: not is_busy(each))
    return JoinedExecutor(by, tuple(running)) if running else None


def _joined_by(process: Process, main: Thread) -> JoinedBy | None:
    frames = own_frames(main.stack)
    if is_busy(main):
        return None
    if calls(frames, _JOIN, _AT_EXIT):
        return "exit"
    if calls(frames, _JOIN, _SHUTDOWN):
        return "shutdown"
    if calls(frames, _RESULT):
        return "result"
    if runs_event_loop(main) and any(
        calls(own_frames(each.stack), _JOIN, _SHUTDOWN, _OF_LOOP) for each in process.threads
    ):
        return "asyncio"
    return None


def _running(process: Process, by: JoinedBy) -> list[Thread]:
    """The threads in calls of the pool that is joined.

    Once a pool is shut down, its threads without a call end: one that has idle threads is another.
    """
    if by == "result":
        return _computing_alone(process)
    pools: defaultdict[str, list[Thread]] = defaultdict(list)
    for thread in process.threads:
        if calls(own_frames(thread.stack), POOL_THREAD):
            pools[thread.name.rpartition("_")[0]].append(thread)
    joined = {name: threads for name, threads in pools.items() if not any(map(_is_idle, threads))}
    own = {name: each for name, each in joined.items() if name.startswith(_DEFAULT_EXECUTOR)}
    if by == "asyncio" and own:
        joined = own
    elif by == "shutdown" and len(joined) > len(own):
        joined = {name: each for name, each in joined.items() if name not in own}
    if by == "shutdown" and len(joined) > 1:
        return []  # which of them is joined does not show
    return [thread for threads in joined.values() for thread in threads]


def _computing_alone(process: Process) -> list[Thread]:
    """The thread of a pool that computes, if only one does; none with a ProcessPoolExecutor."""
    stacks = [(each, own_frames(each.stack)) for each in process.threads]
    if any(calls(frames, _OF_PROCESSES) for _, frames in stacks):
        return []
    busy = [each for each, frames in stacks if calls(frames, POOL_THREAD) and is_busy(each)]
    return busy if len(busy) == 1 else []


def _is_idle(thread: Thread) -> bool:
    """Whether a thread of a pool waits for a call."""
    return calls(own_frames(thread.stack)[:1], POOL_THREAD)
