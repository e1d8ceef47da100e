"""The account of time, one reading after another: what each thread does now, added to before.

It uses what the reading has anyway: states, cpu counters, system calls, the wait graph, and stacks
that still hold. `tests/benchmarks/diagnosis_cost.py` measures its cost for a job of 64 workers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.describe.waits import (
    FULL_QUEUE,
    LOCK_OF_THREADS,
    OF_A_CHILD,
    object_words,
    resource_words,
    semaphore_words,
)
from mpwatch.diagnose.analysis.distributed.ranks import (
    BACKWARD,
    ITS_RANKS,
    MACHINES,
    OTHERS,
    STORE,
    has_group,
    waits_in_backward,
)
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, TRACED_S
from mpwatch.diagnose.analysis.receivers import spinning
from mpwatch.diagnose.analysis.stack_patterns import (
    HOOK_THREAD,
    Shape,
    calls,
    collective_of,
    shape_in,
    since_receipt,
    transfer_of,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.edges import SOMETHING_TO_DO, surroundings
from mpwatch.diagnose.analysis.waits.file_locks import LOCK_FILE, LOCK_ON
from mpwatch.diagnose.analysis.waits.gpu import waiting_for_gpu, waits_for_gpu
from mpwatch.diagnose.analysis.waits.providers import RECENT_S
from mpwatch.model.account import (
    ARCHIVE_TABLE,
    CALLERS_S,
    COPYING,
    DECOMPRESSION,
    DESCRIPTORS,
    FUTURE_RESULT,
    IMPORTS,
    JOB_WORKS,
    OWN_CODE,
    PICKLING,
    POOL_RESULTS,
    RECEIVING,
    RUNNING_KINDS,
    SEEKING,
    STARTING,
    SYNC_CALLS,
    TASK_WAITS_LIMIT,
    UNPICKLING,
    Account,
    Activity,
    Callers,
    ProcessAccount,
    Target,
    ThreadAccount,
    WaitKey,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import BUCKET_S
from mpwatch.model.samples import READS, VFORKED, Frame, ThreadSample, WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.waits import WaitEdge, WaitGraph, is_loader_poll, loader_wait

MANY = 16
EVERY_S = 2.25
"""From `MANY` processes on, rules run and time is accounted for at most this often. Each reading is
a sample, and of the cpu counters nothing is lost in between."""
AT_LEAST_S = 0.05
"""Time between two readings that count separately."""
THREADS_LIMIT = 32
"""Threads of a process that are accounted for, from the main thread on."""
PROVIDERS_LIMIT = 2
"""A wait that more processes than this could end is not attributed to any of them."""
SAME_S = 0.02
"""A stack this much older than the sample of its thread was taken together with it."""
MOSTLY_PERCENT = 50.0
SPINS_PERCENT = 80.0
GIL_POLL_S = 0.05
"""A thread that waits for the GIL does so by 5 ms at a time: `take_gil` of CPython's ceval_gil.c,
3.10 to 3.14, and `sys.getswitchinterval`. A reading measures that from its own beginning: 5 to
28 ms on a loaded machine."""
_FUTEX_WAIT_BITSET = 9
RUNS_PERCENT = 20.0
CALLERS_DEPTH = 64
"""Calls that are compared, from the outermost on."""
_INSTALLED = ("site-packages", "dist-packages")
MOSTLY_RUNS = 0.8
"""A thread that so large a part of the readings found running hardly waits."""

_POLLS = (
    "queue.py:empty",
    "queue.py:get_nowait",
    "queues.py:empty",
    "queues.py:get_nowait",
    "connection.py:poll",
    "threading.py:is_set",
    "synchronize.py:is_set",
    "process.py:is_alive",
    "popen_fork.py:poll",
)
"""Functions of the standard library that return at once, whether or not there is anything."""
_WAITS: tuple[tuple[tuple[str, ...], Target, str], ...] = (
    (("threading.py:_wait",), "barrier", "the other parties of a barrier"),
    (("queue.py:get",), "queue", "an item of a queue"),
    (("queue.py:put",), "queue", FULL_QUEUE),
    (("queues.py:get",), "queue", "an item of a queue"),
    (("queues.py:put",), "queue", FULL_QUEUE),
    (("concurrent/futures/_base.py:result",), "thread", FUTURE_RESULT),
    (("concurrent/futures/_base.py:as_completed",), "thread", FUTURE_RESULT),
    (("concurrent/futures/_base.py:wait",), "thread", FUTURE_RESULT),
    (("popen_spawn_posix.py:_launch",), "", STARTING),
    (("popen_forkserver.py:_launch",), "", STARTING),
)
"""Functions that wait, whatever they wait by; files of CPython 3.10 to 3.14."""
_WAITS_BY_SHAPE: Mapping[Shape, tuple[Target, str]] = {
    "event-between-processes": ("event", "an event or condition between processes"),
    "lock-between-processes": ("lock", "a lock between processes"),
    "pool-result": ("queue", POOL_RESULTS),
    "joins-thread": ("thread", "the end of another thread"),
    "joins-process": ("child", OF_A_CHILD),
    "joins-queue": ("thread", "its queue's feeder thread"),
    "lock-file": ("lock", LOCK_FILE),
}
_NAMED_BY_CALL = frozenset((("semaphore", "lock"), ("child", "child")))
_RANK_WAITS = (STORE, MACHINES, ITS_RANKS)
_FAULT_CHANNELS = ("folio_", "__folio_", "wait_on_page", "__lock_page", "do_swap_page")
"""How kernel functions begin in which a thread waits for a page: mm/filemap.c of Linux."""

_MAPPING_CHANNELS = ("__do_sys_brk", "__vm_munmap", "vm_mmap_pgoff", "do_mprotect", "do_madvise")
"""Kernel functions that wait for the lock of the address space (mmap_lock, mm/mmap.c of Linux 6):
other threads of the process fault pages in, or it is being read from outside."""
MAPPINGS_LOCK = "the lock of its own memory mappings"
_GPU_DRIVER_CHANNELS = ("os_acquire_rwlock", "os_acquire_mutex", "os_acquire_semaphore")
"""Functions of the NVIDIA driver (os-interface.c of its open kernel modules, 580) that wait for its
locks, which it holds while it sets up or ends the CUDA contexts of other processes."""
GPU_DRIVER_LOCK = "a lock of the NVIDIA driver"


def advanced(before: Account, index: Index, waits: WaitGraph) -> Account:
    """The account after one more snapshot.

    Args:
        before: The account so far; begun again if the snapshot is of another job, or older.
        index: The snapshot.
        waits: Its wait graph.
    """
    snapshot = index.snapshot
    if snapshot.at_s < before.at_s or snapshot.root != before.root:
        before = Account(snapshot.root)
    elapsed_s = snapshot.at_s - before.at_s
    is_large = len(snapshot.processes) >= MANY
    if elapsed_s < (EVERY_S if is_large else AT_LEAST_S):
        return before
    edges = {(edge.waiter, edge.tid): edge for edge in waits.edges}
    readings = before.readings + 1
    task_waits = _task_waits(before, index)
    processes: dict[ProcessId, ProcessAccount] = {}
    for process in snapshot.processes:
        known = before.processes.get(process.process)
        is_read = bool(process.threads and process.sample.threads)
        if is_read and not (process.is_gone or process.sample.state == "Z"):
            processes[process.process] = _process(
                index, process, known, readings, edges, task_waits
            )
        elif known is not None:
            processes[process.process] = _of_exited(known)
    since_s = before.since_s
    if not before.readings:
        started_at_s = index.history.started_at_s
        since_s = snapshot.at_s if started_at_s is None else started_at_s
    job = _job(before, snapshot, readings, processes, edges)
    return Account(snapshot.root, since_s, snapshot.at_s, readings, processes, job, task_waits)


def _job(
    before: Account,
    snapshot: Snapshot,
    readings: int,
    processes: Mapping[ProcessId, ProcessAccount],
    edges: Mapping[tuple[ProcessId, int], WaitEdge],
) -> ThreadAccount:
    """The account of the job as a whole after one more reading."""
    now = _pause(snapshot, processes, edges)
    last = before.job
    if last is None:
        return ThreadAccount(0, "", now, snapshot.at_s, readings - 1, None)
    if now == last.now:
        return last
    return last.counted(before.at_s, before.readings, None, 1)._replace(now=now)


def _pause(
    snapshot: Snapshot,
    processes: Mapping[ProcessId, ProcessAccount],
    edges: Mapping[tuple[ProcessId, int], WaitEdge],
) -> Activity:
    """The wait with a time limit of one process while all others wait for processes of the job.

    The main process is preferred. `JOB_WORKS` where that is not so; a process that sleeps, or
    waits for something outside of the job, may be at work: not one whose main thread sleeps while
    its other threads wait for answers of the job.
    """
    limited: Activity | None = None
    for process in snapshot.processes:
        account = processes.get(process.process)
        if process.is_gone or account is None or not (account.uncounted and process.threads):
            continue
        if process.role in SERVICE_ROLES:
            continue
        if any(each.now.kind in RUNNING_KINDS for each in account.uncounted):
            return JOB_WORKS
        now, thread = account.uncounted[0].now, process.threads[0]
        if now.kind == "idle" or (now.kind == "sleeping" and _awaits_answers(account, edges)):
            continue
        edge = edges.get((process.process, thread.tid))
        if now.kind != "waiting" or now.target not in _WAITS_WITHIN or edge is None:
            return JOB_WORKS
        if not edge.providers:
            return JOB_WORKS
        wait = thread.waits_on
        if limited is None and wait is not None and wait.timeout_s is not None:
            limited = now._replace(providers=(process.process,))
    return JOB_WORKS if limited is None else limited


def _awaits_answers(
    account: ProcessAccount, edges: Mapping[tuple[ProcessId, int], WaitEdge]
) -> bool:
    """Whether a thread beside the main one waits for the job, and another one for that thread."""
    threads = [each for each in account.uncounted[1:] if each.now.kind == "waiting"]
    inside = [each for each in threads if each.now.target in ("lock", "thread") and each.now.place]
    outside = [edges.get((account.process, each.tid)) for each in threads if each not in inside]
    return bool(inside) and any(edge is not None and edge.providers for edge in outside)


_WAITS_WITHIN = frozenset(("queue", "pipe", "socket", "event", "barrier", "collective"))
"""What a process may wait for while none of its job works, if a process of the job provides it."""


def _of_exited(known: ProcessAccount) -> ProcessAccount:
    """The account of a process that has exited."""
    if len(known.uncounted) == 1:
        return known
    return replace(known, uncounted=known.uncounted[:1], ticks=known.ticks[:1])


def _process(
    index: Index,
    process: Process,
    known: ProcessAccount | None,
    readings: int,
    edges: Mapping[tuple[ProcessId, int], WaitEdge],
    task_waits: frozenset[WaitKey],
) -> ProcessAccount:
    """The account of one process after one more reading."""
    at_s, ticks_per_s = index.snapshot.at_s, index.snapshot.ticks_per_s
    before: dict[int, int] = {}
    if known is not None:
        before = {thread.tid: number for number, thread in enumerate(known.uncounted)}
    identity = process.process
    accounts: list[ThreadAccount] = []
    ticks: list[int | None] = []
    samples = process.sample.threads or ()
    for thread, sample in zip(process.threads[:THREADS_LIMIT], samples, strict=False):
        if thread.name == HOOK_THREAD:
            continue
        tid = thread.tid
        ticks.append(sample.cpu_ticks)
        edge = edges.get((identity, tid))
        number = before.get(tid)
        basis = _basis(thread, edge)
        if known is None or number is None:
            now = activity(index, process, thread, sample, edge, task_waits=task_waits)
            new = ThreadAccount(
                tid, thread.name, now, at_s, readings - 1, sample.cpu_ticks, basis=basis
            )
            accounts.append(_with_callers(new, thread, at_s))
            continue
        last = known.uncounted[number]
        # Quick for a thread that has not run: its wait and its stack are the same objects.
        is_same = thread.waits_on is not None and basis == last.basis
        if is_same or _is_stopped_for_stacks(thread):
            accounts.append(last)
            continue
        # Each is asked for in one state only.
        habits = (
            thread.state == "R" and _hardly_waits(last, at_s),
            thread.state == "D" and _waits_for_disks(last),
        )
        now = activity(index, process, thread, sample, edge, *habits, task_waits)
        if now == last.now:
            accounts.append(_with_callers(last, thread, at_s))
            continue
        past = known.thread(number)._replace(now=now, name=thread.name, basis=basis)
        accounts.append(_with_callers(past, thread, at_s))
    omitted = max(0, len(process.threads) - THREADS_LIMIT)
    return ProcessAccount(
        identity, at_s, readings, tuple(accounts), tuple(ticks), ticks_per_s, omitted
    )


def _with_callers(account: ThreadAccount, thread: Thread, at_s: float) -> ThreadAccount:
    """The account with the stack of its thread, if that shows where it computes."""
    if account.now.kind not in RUNNING_KINDS or not account.now.place:
        return account
    found = advanced_callers(account.callers, thread, at_s)
    return account if found is account.callers else account._replace(callers=found)


def advanced_callers(
    before: tuple[Callers, ...], thread: Thread, at_s: float
) -> tuple[Callers, ...]:
    """The calls that a computing thread does not leave, with one more stack of it.

    Args:
        before: As far as they were known.
        thread: A thread whose stack shows where it computes.
        at_s: The time of the reading, monotonic seconds.

    Returns:
        The same if the stack is not a new one. Two stretches of time are kept, so that there are
        always `CALLERS_S` seconds of stacks while the older ones are forgotten.
    """
    taken_s = at_s - (thread.stack_age_s or 0.0)
    if before and taken_s <= before[-1].taken_s:
        return before
    frames = tuple(reversed(own_frames(thread.stack)[-CALLERS_DEPTH:]))
    if not frames:
        return before
    is_installed = any(part in frames[-1].file for part in _INSTALLED)
    one = Callers(taken_s, taken_s, frames, 1, int(is_installed))
    if not before or taken_s - before[-1].taken_s > CALLERS_S:
        return (one,)
    last = before[-1]
    if taken_s - last.since_s > CALLERS_S:
        return last, one
    return *before[:-1], last.with_later(one)


def _basis(thread: Thread, edge: WaitEdge | None) -> tuple[object, ...]:
    """What the activity of a waiting thread is derived from."""
    return (
        thread.waits_on,
        thread.stack,
        thread.state,
        None if edge is None else (edge.what, edge.providers),
        bool(thread.stack) and is_current(thread),
    )


def _hardly_waits(account: ThreadAccount, at_s: float) -> bool:
    """Whether nearly all recent readings found a thread running or ready to run.

    Those since `counted_s`, which are in no bucket yet, have all found what the last one did.
    """
    seen = account.now.kind in RUNNING_KINDS
    if at_s - account.counted_s >= 2 * BUCKET_S:
        return seen
    for bucket in account.buckets[-2:]:
        found_s = sum(bucket.tally.seen.values())
        running_s = sum(s for each, s in bucket.tally.seen.items() if each.kind in RUNNING_KINDS)
        seen = seen and running_s >= MOSTLY_RUNS * found_s
    return seen


def _waits_for_disks(account: ThreadAccount) -> bool:
    """Whether recent readings found a thread waiting for nothing but disks or file servers."""
    for bucket in account.buckets[-2:]:
        waits = (each for each in bucket.tally.seen if each.kind not in RUNNING_KINDS)
        if any(each.target != "file" for each in waits):
            return False
    return account.now.target == "file" or account.now.kind in RUNNING_KINDS


def _is_stopped_for_stacks(thread: Thread) -> bool:
    """Whether a tracer has stopped it for so short that it may be py-spy, which takes its stack."""
    return thread.state == "t" and (thread.waits_s or 0.0) < TRACED_S


# --- what a thread does --------------------------------------------------------------------------


def activity(
    index: Index,
    process: Process,
    thread: Thread,
    sample: ThreadSample,
    edge: WaitEdge | None,
    hardly_waits: bool = False,
    shows_disk: bool = False,
    task_waits: frozenset[WaitKey] = frozenset(),
) -> Activity:
    """What a thread does now.

    Args:
        index: The snapshot.
        process: The process.
        thread: One of its threads.
        sample: The sample of that thread.
        edge: The wait of that thread in the wait graph.
        hardly_waits: Whether readings before found it running as well.
        shows_disk: Whether a new stack of a wait is one of a wait for a disk.
        task_waits: The waits of workers of pools that are known to be for a task.
    """
    if thread.state == "R" and thread in spinning(index).get(process.process, ()):
        return Activity("spinning", place=_user_place(thread.stack))
    if thread.state == "R":
        return _running(index, process, thread, hardly_waits)
    if thread.state in ("T", "t"):
        return _STOPPED if thread.state == "T" else _TRACED
    if edge is not None and edge.is_ordinary and _holds(edge, thread):
        return _idle(edge.what)
    if thread.state == "D":
        return _blocked(thread, sample, shows_disk)
    stack = thread.stack if is_current(thread) else ()
    shape = shape_in(index, stack) if stack else ""
    known = _batch(index, process, thread, edge, shape)
    if known is not None:
        return known
    if edge is not None and _holds(edge, thread) and edge.what.startswith((OTHERS, *_RANK_WAITS)):
        return Activity("waiting", edge.what, "collective", _few(edge))
    wait = thread.waits_on
    if stack and (by_stack := _by_stack(index, stack, shape)) is not None:
        # The system call names the semaphore of a lock, and the child.
        is_named = wait is not None and (wait.kind, by_stack.target) in _NAMED_BY_CALL
        if wait is None or not is_named:
            return by_stack
    if wait is None:
        return _UNREADABLE if thread.wchan is None else _in_kernel(thread.wchan)
    is_task = process.role == "pool-worker" and _key(wait) in task_waits
    if is_task and shape in ("", "pool-idle"):  # the stack, if any, may be of a task in between
        return _idle(SOMETHING_TO_DO)
    return _by_call(process, thread, wait, edge, stack)


def _key(wait: WaitedOn) -> WaitKey:
    return wait.kind, wait.segment, wait.targets


def _task_waits(before: Account, index: Index) -> frozenset[WaitKey]:
    """The waits for a task that stacks of workers of pools have shown, this snapshot included.

    The workers share one queue. Most waits for it are too short for a stack, and so are known by
    that of another worker, or of another time.
    """
    found = {
        _key(thread.waits_on)
        for process in index.snapshot.living()
        if process.role == "pool-worker"
        for thread in process.threads[:1]
        if thread.waits_on is not None
        and thread.waits_on.kind in ("semaphore", "pipe-read")
        and is_current(thread)
        and shape_in(index, thread.stack) == "pool-idle"
    }
    if found <= before.task_waits or len(before.task_waits) > TASK_WAITS_LIMIT:
        return before.task_waits
    return before.task_waits | found


_STOPPED = Activity("stopped", "by a signal")
_TRACED = Activity("stopped", "by a debugger or tracer")
_UNREADABLE = Activity("unknown", "its system call could not be read")


def is_current(thread: Thread) -> bool:
    """Whether the stack of a waiting thread still shows what it does.

    It does if the thread has waited for the same since. To go from one wait to another takes no cpu
    time that could be measured, so that counts only where the wait is unknown.
    """
    age_s = thread.stack_age_s
    if not thread.stack or age_s is None:
        return False
    same_s = thread.waits_s if thread.waits_s is not None else thread.still_s
    return age_s <= max(SAME_S, same_s or 0.0)


def _holds(edge: WaitEdge, thread: Thread) -> bool:
    """Whether an edge shows what the thread does now: one from an old stack may not."""
    return not edge.evidence.startswith("stack") or is_current(thread)


def _few(edge: WaitEdge) -> tuple[ProcessId, ...]:
    return edge.providers if len(edge.providers) <= PROVIDERS_LIMIT else ()


def _running(index: Index, process: Process, thread: Thread, hardly_waits: bool) -> Activity:
    """Computing or spinning, and where, as far as a new stack shows.

    The stack may be of a wait between two computations, unless the thread held the GIL or ran when
    it was taken, or has hardly waited at all. Where cores are short that is not a question of its
    cpu time.
    """
    if not thread.stack or (thread.stack_age_s or 0.0) > RECENT_S:
        return _COMPUTING
    percent = thread.cpu_percent or 0.0
    ran = thread.has_gil or thread.is_active or _passes_objects_on(thread)
    if not ran and percent < MOSTLY_PERCENT and not hardly_waits:
        return OWN_CODE if _is_in_program(index, thread) else _COMPUTING
    if waits_for_gpu(index, process, thread):
        return waiting_for_gpu(_user_place(thread.stack))
    is_busy = percent >= SPINS_PERCENT
    return _place(index, thread.stack, thread.has_gil, is_busy, thread.is_active)


def _passes_objects_on(thread: Thread) -> bool:
    """Whether a stack of the hook shows pickling, or a helper of a Pool, executor or queue at work.

    A hook cannot tell a thread that runs from one that waits. Nothing is waited for while an object
    is pickled or unpickled; but `queues.py:get` may wait for a lock without a frame of its own.
    Such a helper waits in functions of the standard library; what else its stack shows is pickling,
    or the program's own iterator.
    """
    if thread.is_active is not None:
        return False
    own = own_frames(thread.stack)
    if transfer_of(own) in (PICKLING, UNPICKLING) and not calls(own[:1], _GETS):
        return True
    if not any(calls(own, each) for each in _HELPERS):
        return False
    return bool(transfer_of(own)) or user_frame(thread.stack) is not None


_GETS = "multiprocessing/queues.py:get"
_HELPERS = (
    "multiprocessing/pool.py:_handle_tasks",
    "multiprocessing/pool.py:_handle_results",
    "multiprocessing/queues.py:_feed",
    "concurrent/futures/process.py:run",
)
"""Targets of threads that only pass objects on (CPython 3.10 to 3.14)."""
_COMPUTING = Activity("computing")


def _is_in_program(index: Index, thread: Thread) -> bool:
    """Whether a stack of the hook is in the program's code, and passes nothing on nor waits.

    That its line is where the thread computes is not known: it may have slept there. Only what
    passes objects on would count otherwise, and so seem to be all that such a thread does.
    """
    if thread.is_active is not None or user_frame(thread.stack) is None:
        return False
    own = own_frames(thread.stack)
    if transfer_of(own) or any(calls(own, each) for each in _IMPORTS):
        return False
    return shape_in(index, thread.stack) not in _SHAPES_OF_WAITS


@derived
def _place(
    index: Index,
    stack: tuple[Frame, ...],
    has_gil: bool | None,
    is_busy: bool,
    is_active: bool | None,
) -> Activity:
    """The line of the program at which a thread runs, and whether it only polls there."""
    own, user = own_frames(stack), user_frame(stack)
    if (transfer := transfer_of(own)) and (has_gil or is_active is not False):
        if transfer == COPYING and not is_active:
            return _COMPUTING  # it may have waited for a message, or for room in the pipe
        return Activity("computing", transfer, place=frame_words(user) if user else "")
    place = _user_place(stack)
    if is_busy and any(calls(own[:4], each) for each in _POLLS):
        return Activity("spinning", place=place)
    collective = collective_of(own)
    if collective is not None:
        return Activity("computing", collective, "collective", place=place)
    if shape_in(index, stack) in _SHAPES_OF_WAITS:
        return _COMPUTING  # the stack is of a wait before
    words = {True: "Python code", False: "native code", None: ""}[has_gil]
    if any(calls(own, each) for each in _IMPORTS):
        words = IMPORTS
    elif any(calls(own, each) for each in _TABLES):
        words = ARCHIVE_TABLE
    elif any(calls(own, each) for each in _DECOMPRESSORS) and not calls(own, ":write"):
        words = SEEKING if any(calls(own, each) for each in _SEEKS) else DECOMPRESSION
    return Activity("computing", words, place=place)


def _user_place(stack: Sequence[Frame]) -> str:
    """The innermost line of the user's own code; else that of the code it calls."""
    user, own = user_frame(stack), own_frames(stack)
    return frame_words(user if user is not None else own[0] if own else stack[0])


_IMPORTS = (":_find_and_load", ":_fixup_main_from_path", ":_fixup_main_from_name")
"""Functions that run the code of a module (importlib._bootstrap and multiprocessing/spawn.py of
CPython 3.10 to 3.14)."""
_CODE = re.compile(r"\.pyc$|\.so(?:\.\d+)*$")
"""Files that only an import, or the loading of a library, reads; a source file may be data."""
_TABLES = (
    "zipfile.py:_RealGetContents",
    "zipfile/__init__.py:_RealGetContents",
    "tarfile.py:_load",
    "tarfile.py:_getmember",
    "h5py/_hl/files.py:make_fid",
)
"""Functions that read the table of contents of an archive (CPython 3.10 to 3.14; h5py 3)."""
_DECOMPRESSORS = ("zipfile.py:", "zipfile/__init__.py:", "gzip.py:", "bz2.py:", "lzma.py:")
"""Files of the standard library (CPython 3.10 to 3.14); numpy.load of an .npz uses zipfile."""
_SEEKS = (
    "gzip.py:seek",
    "bz2.py:seek",
    "lzma.py:seek",
    "zipfile.py:seek",
    "zipfile/__init__.py:seek",
)

_SHAPES_OF_WAITS: frozenset[Shape] = frozenset(
    ("worker-idle", "waits-for-batch", "pool-idle", "feeder-idle", "sharer", *_WAITS_BY_SHAPE)
)


def _idle(what: str) -> Activity:
    """A wait by design. The number of a pipe, or that of a batch, makes no difference."""
    return Activity("idle", what.partition(" on ")[0])


def _blocked(thread: Thread, sample: ThreadSample, shows_disk: bool) -> Activity:
    """Uninterruptible: in a read or write, at a page that is not in memory, or in a driver.

    Such waits are short: a stack is hardly ever of the same one. But where a thread waits for
    nothing else, the stack of any of its waits shows the line.
    """
    wait = thread.waits_on
    targets = wait.targets if wait is not None else ()
    path = next((target for target in targets if target.startswith("/")), None)
    is_near = shows_disk and not thread.is_active and (thread.stack_age_s or 0.0) <= RECENT_S
    place = _at(thread.stack) if is_near or is_current(thread) else ""
    if VFORKED in targets:
        return Activity("waiting", VFORKED, place=place)
    if wait is not None and wait.call in SYNC_CALLS:
        return _sync(wait, place)
    in_import = bool(place) and any(calls(own_frames(thread.stack), each) for each in _IMPORTS)
    if path is not None:
        is_code = in_import or _CODE.search(path) is not None
        what = IMPORTS if is_code else f"{path} (a disk or file server)"
        return Activity("waiting", what, "file", place=place)
    if sample.syscall == -1 and (thread.wchan or "").startswith(_FAULT_CHANNELS):
        if in_import:
            return Activity("waiting", IMPORTS, "page-faults", place=place)
        return Activity("waiting", "pages that are not in memory (page faults)", "page-faults")
    if (thread.wchan or "").startswith(_MAPPING_CHANNELS):
        return Activity("waiting", MAPPINGS_LOCK, place=place)
    if (thread.wchan or "").startswith(_GPU_DRIVER_CHANNELS):
        return Activity("waiting", GPU_DRIVER_LOCK, place=place)
    where = f" in the kernel's {thread.wchan}" if thread.wchan else ""
    what = IMPORTS if in_import else f"a disk or driver{where}"
    return Activity("waiting", what, "file", place=place)


def _sync(wait: WaitedOn, place: str) -> Activity:
    """A wait until data is on the disk."""
    path = next((target for target in wait.targets if target.startswith("/")), "")
    return Activity("waiting", f"{wait.call} of {path or 'a file'}", "file", place=place)


def _batch(
    index: Index, process: Process, thread: Thread, edge: WaitEdge | None, shape: Shape
) -> Activity | None:
    """A wait for a batch, or of a DataLoader worker for work; `None` if it is neither."""
    is_poll = is_loader_poll(thread.waits_on)
    is_named = edge is not None and edge.what.startswith(("batch", "a batch"))
    if edge is not None and is_named and (is_poll or _holds(edge, thread)):
        return Activity("waiting", "batches", "batch", _few(edge))
    if shape == "waits-for-batch":
        return _BATCHES
    if thread.tid != process.pid or shape or thread.waits_on is None:
        return None
    if process.role == "loader-worker":
        return _WORK if is_poll else None
    if process.process not in surroundings(index).workers:
        return None
    # With pinned memory main waits for its pin thread.
    return _BATCHES if is_poll or loader_wait(process.sample) else None


_BATCHES = Activity("waiting", "batches", "batch")
_WORK = Activity("idle", "work")


@derived
def _by_stack(index: Index, stack: tuple[Frame, ...], shape: Shape) -> Activity | None:
    """The activity by the stack of a waiting thread; `None` if the system call decides."""
    own = own_frames(stack)
    found = next(
        ((target, what) for patterns, target, what in _WAITS if calls(own[:6], *patterns)),
        _WAITS_BY_SHAPE.get(shape),
    )
    if found is None:
        return None
    target, what = found
    return Activity("waiting", what, target, place=_at(stack))


def _at(stack: Sequence[Frame]) -> str:
    """The line of the program, for a wait."""
    user = user_frame(stack) if stack else None
    return frame_words(user) if user is not None else ""


def _in_kernel(wchan: str) -> Activity:
    return Activity("unknown", f"blocked in the kernel's {wchan}")


def _by_call(
    process: Process,
    thread: Thread,
    wait: WaitedOn,
    edge: WaitEdge | None,
    stack: Sequence[Frame],
) -> Activity:
    """The activity by the system call of a thread."""
    place = _at(stack)
    kind = wait.kind
    if edge is not None and edge.what.startswith(LOCK_ON) and _holds(edge, thread):
        return Activity("waiting", edge.what, "lock", _few(edge), place)
    if wait.call in SYNC_CALLS:
        return _sync(wait, place)
    if kind == "timer" or (kind == "poll" and not wait.targets):
        return Activity("sleeping", place=place) if place else _SLEEPING
    if kind == "futex":
        if _waits_for_gil(process, thread, wait):
            return Activity("waiting", "the GIL", "gil", (), place)
        if stack and waits_in_backward(stack) and has_group(process):
            return Activity("waiting", BACKWARD, "collective", (), place)
        return Activity("waiting", LOCK_OF_THREADS, "lock", (), place)
    providers = _few(edge) if edge is not None else ()
    is_known = edge is not None and _holds(edge, thread)
    what = edge.what if edge is not None and is_known else _target_words(wait)
    words, target = _words_of_call(wait, what)
    if target == "socket" and _is_receiving(thread):
        # Each connection is short, and each has a socket of its own.
        return Activity("waiting", DESCRIPTORS, target, providers, _at(thread.stack))
    if target not in _PROVIDED:
        return Activity("waiting", words, target, (), place)
    if kind in READS:
        place = _at(since_receipt(stack))
    is_of_many = edge is not None and bool(edge.providers) and not providers
    return Activity("waiting", words, target, providers, place, is_of_many)


def _is_receiving(thread: Thread) -> bool:
    """Whether a new stack shows a thread that opens shared tensors, one after the other."""
    if not thread.stack or (thread.stack_age_s or 0.0) > RECENT_S:
        return False
    return transfer_of(own_frames(thread.stack)) == RECEIVING


_SLEEPING = Activity("sleeping")
_PROVIDED = ("child", "pipe", "socket")
"""Only here a provider is known to hold the other end. A process that maps a semaphore need not
hold it."""


def _target_words(wait: WaitedOn) -> str:
    """The targets of a call in short: `pipe 18174, socket 77`."""
    return ", ".join(resource_words(target) for target in wait.targets[:2])


def _words_of_call(wait: WaitedOn, what: str) -> tuple[str, Target]:
    """What a system call waits for, in words, and the kind of that."""
    words = object_words(wait.kind, what)
    match wait.kind:
        case "semaphore":
            return semaphore_words(wait.segment), "lock"
        case "child":
            return OF_A_CHILD, "child"
        case "pipe-write":
            return words, "pipe"
        case "socket-write" | "accept":
            return words, "socket"
        case "pipe-read" | "socket-read" | "poll":
            return words, "socket" if "socket" in f"{wait.targets} {what}" else "pipe"
        case "signal":
            return "a signal", ""
    words = f"the system call {wait.call}" + (f" on {what}" if wait.targets else "")
    return words, "file" if any(each.startswith("/") for each in wait.targets) else ""


def _waits_for_gil(process: Process, thread: Thread, wait: WaitedOn) -> bool:
    """Whether a thread waits in short steps while another thread of its process runs."""
    if wait.timeout_s is None or wait.timeout_s > GIL_POLL_S:
        return False
    if wait.futex_command != _FUTEX_WAIT_BITSET:
        return False
    if not thread.stack and any(other.stack for other in process.threads):
        return False  # stacks show all threads of Python: a native one polls like that, too
    return any(
        other.state == "R" or (other.cpu_percent or 0.0) >= RUNS_PERCENT
        for other in process.threads
        if other.tid != thread.tid
    )
