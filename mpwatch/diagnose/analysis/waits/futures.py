"""Results that a process waits for and that no thread of it can return.

The result of a future is set by a thread of the same process: one of a ThreadPoolExecutor, or the
manager thread of a ProcessPoolExecutor or of loky; that of a Pool by its thread `_handle_results`.
Checked against CPython 3.10 to 3.14 and joblib 1.5. Stacks are taken of all threads of Python at
once, so a thread without one runs no Python.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.describe.frames import is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.idle_time import are_stalled, is_stalled
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import PipeEnds, channels_among, pipe_ends
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    children_started_by,
    family_head,
)
from mpwatch.diagnose.analysis.receivers import (
    MANAGERS,
    Callback,
    callback_in,
    callbacks_of,
    receives_for,
    waits_for_ever,
)
from mpwatch.diagnose.analysis.stack_patterns import (
    HOOK_THREAD,
    TASK_LOOPS,
    calls,
    main_thread,
    own_threads,
    shape_in,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.providers import is_of_this_wait
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread

Kind: TypeAlias = Literal[
    "importing", "all-wait", "nested", "not-forked", "no-thread", "no-worker", "lost-calls"
]

RESULT = "the result of a future"
POOL_RESULT = "the result of a Pool"
"""The names of these waits."""

_FUTURE = ("threading.py:wait", "concurrent/futures/_base.py:")
_POOL = (("threading.py:wait", "pool.py:wait"), ("threading.py:wait", "pool.py:next"))
POOL_THREAD = "concurrent/futures/thread.py:_worker"
_EXECUTOR = "concurrent/futures/process.py:_process_worker"
"""What a worker of a ProcessPoolExecutor runs."""
THREAD_POOL = "multiprocessing/pool.py:worker"
"""What a thread of a multiprocessing.pool.ThreadPool runs; a worker process of a Pool as well."""
MANAGER_WAITS = "concurrent/futures/process.py:wait_result_broken_or_wakeup"
"""What a manager thread waits in for results, ends of workers and its executor."""
LOST_S = 5.0
"""Threads and processes are read one after the other: a call on its way is seen nowhere."""
_HANDLERS = ("pool.py:_handle_results", "pool.py:_handle_workers", "pool.py:_handle_tasks")
_LOOPS = ("base_events.py:run_forever", "base_events.py:_run_once")


IMPORT_LOCK = "the lock of a module that is being imported"
"""The name of a wait for another thread that imports the same module."""
_IMPORTLIB = "<frozen importlib._bootstrap>"
"""The file of the import system in stacks; its locks are `_ModuleLock` in CPython 3.10 to 3.15."""


class Abandoned(Struct, frozen=True):
    """A result that a main thread waits for and never gets."""

    kind: Kind
    words: str
    """Why it is never set, as the conclusion of a chain."""


def awaited_inside(frames: Sequence[Frame]) -> str | None:
    """The name of a wait for a thread of the same process, where its stack shows more than a lock.

    Args:
        frames: The thread's own stack.
    """
    if calls(frames[:1], f"{_IMPORTLIB}:acquire"):
        return IMPORT_LOCK
    return awaited_result(frames)


def importing(process: Process, waiting: Thread) -> Thread | None:
    """The thread that runs the code of a module while another one waits to import it."""
    return next(
        (
            thread
            for thread in process.threads
            if thread is not waiting
            and calls(own_frames(thread.stack), f"{_IMPORTLIB}:_load_unlocked")
        ),
        None,
    )


def awaited_result(frames: Sequence[Frame]) -> str | None:
    """The name of the wait for a result, of a thread's own stack; `None` if it is another wait."""
    if calls(frames, *_FUTURE):
        return RESULT
    return POOL_RESULT if any(calls(frames, *pattern) for pattern in _POOL) else None


@derived
def abandoned(index: Index, identity: ProcessId) -> Abandoned | None:
    """Why no thread returns the result that the main thread of a process waits for.

    Returns:
        `None` where it waits for something else or with a timeout, or where some thread may return
        the result: one that runs code of the program, or an event loop.
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    if process is None or main is None or main.waits_on is None or not main.stack:
        return None
    if main.waits_on.kind != "futex" or main.waits_on.timeout_s is not None:
        return None
    nested = nested_calls(index, identity)
    if nested is not None:
        return Abandoned("nested", nested.words)
    result = awaited_result(own_frames(main.stack))
    leaves = calls(own_frames(main.stack), "concurrent/futures/thread.py:shutdown")
    others = [each for each in process.threads if each is not main and _runs_python(index, each)]
    if any(map(_is_loop, others)) or _has_newer_threads(index, process, main):
        return None
    if _ends_an_executor(main):
        return _lost_calls(index, process, others)
    held = _waits_for_its_import(index, process, main, others)
    if held is not None:
        return held
    if result is None:
        return _all_wait(others) if leaves else None
    pool_threads = [each for each in others if _calls(each, POOL_THREAD)]
    if result == RESULT and pool_threads:
        return _all_wait(others)
    if result == POOL_RESULT and any(_calls(each, THREAD_POOL) for each in others):
        return _all_wait([each for each in others if not handles_a_pool(each)])
    if result == POOL_RESULT and _receives_none(main, others):
        return _no_thread(index, process, result)
    if others:
        is_managed = all(any(_calls(each, way) for way in MANAGERS) for each in others)
        return _no_worker(index, process) if is_managed and result == RESULT else None
    return _no_thread(index, process, result)


@derived
def has_unanswered_call(index: Index, identity: ProcessId) -> bool:
    """Whether a process waits for a Pool's result that is neither queued, nor worked on, nor sent.

    Its thread that sends tasks waits for a task, not for an iterable of the program; the thread
    that receives results waits for one, and runs no callback; all workers are idle, and one of them
    reads the queue of tasks, so that this is empty. (In CPython 3.10 to 3.15 `_handle_tasks` waits
    in a queue that is written in C, so that it is the innermost frame itself.)
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    if process is None or main is None or main.waits_on is None:
        return False
    if main.waits_on.kind != "futex" or main.waits_on.timeout_s is not None:
        return False
    if awaited_result(own_frames(main.stack)) != POOL_RESULT:
        return False
    stacks = [own_frames(each.stack) for each in process.threads if each is not main]
    sending = [each for each in stacks if calls(each, f"multiprocessing/{_SENDS}")]
    receiving = [each for each in stacks if calls(each, f"multiprocessing/{_RECEIVES}")]
    if not sending or not all(calls(each[:1], _SENDS) for each in sending):
        return False
    if not receiving or not all(_receives(each) for each in receiving):
        return False
    workers = [
        each
        for each in children_started_by(index, process)
        if not each.is_gone and each.role in ("spawned", "pool-worker")
    ]
    mains = [thread for each in workers if (thread := main_thread(each)) is not None]
    if not workers or len(mains) < len(workers):
        return False
    idle = all(shape_in(index, each.stack) == "pool-idle" for each in mains)
    waits = [each.waits_on for each in mains]
    return idle and any(each is not None and each.kind == "pipe-read" for each in waits)


_SENDS, _RECEIVES = "pool.py:_handle_tasks", "pool.py:_handle_results"


def _receives(frames: Sequence[Frame]) -> bool:
    """Whether a thread is in the call that receives the next message, not in a callback."""
    return calls(frames[:1], "connection.py:") and user_frame(frames) is None


def _receives_none(main: Thread, others: Sequence[Thread]) -> bool:
    """Whether no thread is there that sets the results of a Pool of multiprocessing.

    Only its thread `_handle_results` does: what other threads of the program do does not matter.
    """
    own = own_frames(main.stack)
    is_std = any(calls(own, f"multiprocess{end}/pool.py:") for end in ("ing", ""))
    return is_std and not any(_calls(each, "pool.py:") for each in others)


_AWAITS_CALLS = re.compile(r"(?:^|_)(?:get|results?|wait|gather|fetch|collect|join|map|starmap)")
"""The name of a function that waits for the results of calls."""


class NestedCalls(Struct, frozen=True):
    """Calls that occupy all workers of a process, and wait for further calls of these workers."""

    workers: tuple[Process, ...]
    call: Frame
    """Where the call of the first of them waits."""
    waits: Frame
    """The function that it has called for that, in the file of the loop that runs the calls."""

    @property
    def words(self) -> str:
        """The conclusion of a chain."""
        count = len(self.workers)
        those = f"All {count} workers run calls that wait" if count > 1 else "Its worker waits"
        return f"{those} for results of further calls, and no worker is free to run these."


@derived
def nested_calls(index: Index, identity: ProcessId) -> NestedCalls | None:
    """The calls for which all workers of a pool wait that the program itself has written.

    Each child of the process is in a loop, below that in code of another file, and below that again
    in the file of the loop, in a function that waits for results: for data from the process. And
    that one has no thread that does anything but wait for another of its threads or for data from
    these children, so that none of all these can make the first step.
    """
    process = index.snapshot.get(identity)
    main = main_thread(process) if process is not None else None
    wait = main.waits_on if main is not None else None
    if process is None or wait is None or wait.kind != "futex" or wait.timeout_s is not None:
        return None
    workers = tuple(
        child
        for child in children_started_by(index, process)
        if child.role not in SERVICE_ROLES and not child.is_gone and child.sample.state != "Z"
    )
    found = [_call_that_waits(each) for each in workers]
    calls_of = [each for each in found if each is not None]
    if not calls_of or len(calls_of) < len(workers):
        return None
    ends = pipe_ends(index)
    closed = {process.process, *(each.process for each in workers)}
    count = process.sample.thread_count
    if not ends.is_complete or count is None or count > len(process.threads):
        return None
    if not all(
        process.process in _writers(ends, each) and closed.issuperset(_writers(ends, each))
        for worker in workers
        if (each := main_thread(worker)) is not None
    ):
        return None
    rest = [each for each in own_threads(index, process) if each is not main and each.stack]
    reads = [each for each in rest if each.waits_on is None or each.waits_on.kind != "futex"]
    if any(each.waits_on is None or each.waits_on.timeout_s is not None for each in rest):
        return None
    if not reads or not all(closed.issuperset(_writers(ends, each)) for each in reads):
        return None
    return NestedCalls(workers, *calls_of[0])


def _call_that_waits(worker: Process) -> tuple[Frame, Frame] | None:
    """Where the call that a worker runs waits for other calls; `None` if that is not shown."""
    thread = main_thread(worker)
    wait = thread.waits_on if thread is not None else None
    if thread is None or wait is None or wait.timeout_s is not None or not is_of_this_wait(thread):
        return None
    if wait.kind not in ("pipe-read", "socket-read"):
        return None
    own = program_frames(thread.stack)
    if not own or own[0].file != own[-1].file:
        return None
    call = next((place for place, each in enumerate(own) if each.file != own[0].file), None)
    if call is None or not _AWAITS_CALLS.search(own[call - 1].function):
        return None
    return own[call], own[call - 1]


def _writers(ends: PipeEnds, thread: Thread) -> set[ProcessId | None]:
    """The processes that may send what a thread waits for; with `None` if that is not known."""
    targets = thread.waits_on.targets if thread.waits_on is not None else ()
    channels = channels_among(targets)
    found: set[ProcessId | None] = set()
    if not channels or len(channels) < len(targets):
        found.add(None)
    for channel in channels:
        found.update(ends.writers.get(channel, (None,)))
    return found


POOL_END = "the end of the calls of a Pool"
"""The name of the wait of a process that joins a Pool."""


def joins_a_pool(frames: Sequence[Frame]) -> bool:
    """Whether a thread joins a Pool, which ends once all its calls have returned."""
    return calls(frames, "threading.py:join", "multiprocessing/pool.py:join")


def workers_at_work(index: Index, process: Process) -> tuple[ProcessId, ...]:
    """The workers of a process's pools that run a call, where its main thread waits for a result.

    Returns:
        Nothing where it waits for something else, or where a thread of its own may return the
        result: only the stacks of all workers show which of them do.
    """
    main = main_thread(process)
    frames = own_frames(main.stack) if main is not None else ()
    if main is None or not (awaited_result(frames) or joins_a_pool(frames)):
        return ()
    if any(_calls(each, POOL_THREAD) for each in process.threads):
        return ()
    found = []
    for child in children_started_by(index, process):
        thread = main_thread(child)
        inner = own_frames(thread.stack) if thread is not None else ()
        if child.is_gone or not any(calls(inner, each) for each in TASK_LOOPS):
            continue
        if user_frame(inner) is not None:
            found.append(child.process)
    return tuple(found)


class HeldUp(Struct, frozen=True):
    """A pool of which no result is received, as the thread for that waits inside a callback."""

    callback: Callback
    waits: Literal["own-result", "result", "other"]
    """`own-result`: for a result, or the end, of the same pool. `result`: for one of a pool of that
    kind, which may be another one. `other`: for something else."""
    are_idle: bool
    """Whether all workers that the process has started wait for a task, for some seconds."""


@derived
def held_up(index: Index, identity: ProcessId) -> HeldUp | None:
    """The pool of a process of which no result is received, because of a callback that waits.

    A wait for a result is one for the same pool where the process has no other pool, or where no
    other one has anything to do.
    """
    process = index.snapshot.get(identity)
    waiting = [e for e in callbacks_of(process) if waits_for_ever(e)] if process is not None else []
    if process is None or not waiting:
        return None
    are_idle = _have_no_call(index, process)
    found = []
    for callback in waiting:
        waits: Literal["own-result", "result", "other"] = "other"
        if _waits_for_such_a_result(callback):
            is_own = not _may_be_of_another_pool(index, process, callback, are_idle=are_idle)
            waits = "own-result" if is_own else "result"
        found.append(HeldUp(callback, waits, are_idle))
    return min(found, key=lambda each: ("own-result", "result", "other").index(each.waits))


def _have_no_call(index: Index, process: Process) -> bool:
    """Whether each worker that a process has started has waited for a task for some seconds."""
    workers = [
        child
        for child in children_started_by(index, process)
        if child.role not in SERVICE_ROLES and not child.is_gone
    ]
    mains = [thread for each in workers if (thread := main_thread(each)) is not None]
    if not workers or not all(shape_in(index, each.stack) == "pool-idle" for each in mains):
        return False
    return are_stalled(workers, index)


def _waits_for_such_a_result(callback: Callback) -> bool:
    """Whether a callback waits for a result, or for the end, of a pool of its kind."""
    inner = callback.frames
    if callback.kind == "executor":
        return awaited_result(inner) == RESULT
    return awaited_result(inner) == POOL_RESULT or joins_a_pool(inner)


def _may_be_of_another_pool(
    index: Index, process: Process, callback: Callback, *, are_idle: bool
) -> bool:
    """Whether something else than the thread that runs a callback may set the result it awaits.

    The results of a Pool are set by its own thread alone. Any thread may set a Future.
    """
    others = [
        each for each in own_threads(index, process) if each is not callback.thread and each.stack
    ]
    receiving = [each for each in others if receives_for(each) == callback.kind]
    if any(callback_in(each) is not None for each in receiving) or (receiving and not are_idle):
        return True
    # The workers of a ThreadPool are threads of this process.
    if receiving and any(_runs_a_call_of_a_thread_pool(each) for each in others):
        return True
    if callback.kind == "Pool":
        return False
    return not all(
        each in receiving
        or _is_of_a_pool_at_rest(each)
        or (each.tid == process.pid and _waits_inside(each))
        for each in others
    )


def _runs_a_call_of_a_thread_pool(thread: Thread) -> bool:
    return _calls(thread, THREAD_POOL) and not _calls_first(thread, THREAD_POOL)


def _waits_inside(thread: Thread) -> bool:
    """Whether a thread waits for another one of its process, and runs no event loop."""
    wait = thread.waits_on
    return wait is not None and wait.kind == "futex" and not _is_loop(thread)


def handles_a_pool(thread: Thread) -> bool:
    """Whether a thread is one that a Pool has in the process that made it."""
    return any(_calls(thread, each) for each in _HANDLERS)


def may_set_a_result(process: Process) -> bool:
    """Whether a thread of an executor runs a call, or one manages the workers of a process pool."""
    return any(
        (_calls(each, POOL_THREAD) and not _calls_first(each, POOL_THREAD))
        or any(_calls(each, way) for way in MANAGERS)
        for each in process.threads
    )


def _has_newer_threads(index: Index, process: Process, main: Thread) -> bool:
    """Whether a thread was started after the stacks were taken, so that its own is not known."""
    if main.stack_at_s is None:
        return False
    taken_at = main.stack_at_s * index.snapshot.ticks_per_s
    unknown = {thread.tid for thread in process.threads if not thread.stack}
    return any(
        sample.start_ticks is not None and sample.start_ticks > taken_at
        for sample in process.sample.threads or ()
        if sample.tid in unknown
    )


def _waits_for_its_import(
    index: Index, process: Process, main: Thread, others: Sequence[Thread]
) -> Abandoned | None:
    """A thread waits for the module that the main thread imports while it waits for the result.

    The thread of a process pool that sends tasks imports the module of the function that it sends.
    No other thread may be importing, or be able to end the wait of the main thread: of a pool, all
    that run a call wait for the module, and no worker has one; without a pool, all threads do.
    """
    if not _imports(main):
        return None
    waiting = [each for each in others if _waits_for_a_module(each)]
    rest = [each for each in others if each not in waiting]
    if not waiting or any(map(_imports, rest)):
        return None
    is_for_a_pool = awaited_result(own_frames(main.stack)) is not None
    if any(not (is_for_a_pool and _is_of_a_pool_at_rest(each)) for each in rest):
        return None
    children = [
        child
        for child in children_started_by(index, process)
        if child.role not in SERVICE_ROLES and not child.is_gone
    ]
    if is_for_a_pool and not all(map(_has_no_call, children)):
        return None
    return Abandoned(
        "importing",
        f"Its thread {waiting[0].name} waits for a module that the main thread is importing, and "
        "the main thread waits for the result before it has finished the import.",
    )


def _imports(thread: Thread) -> bool:
    """Whether it runs the code of a module that it imports, and so has the lock of that module."""
    return calls(own_frames(thread.stack), f"{_IMPORTLIB}:_load_unlocked")


def _waits_for_a_module(thread: Thread) -> bool:
    """Whether it waits without a time limit for the lock of a module."""
    is_timed = thread.waits_on is not None and thread.waits_on.timeout_s is not None
    return not is_timed and awaited_inside(own_frames(thread.stack)) == IMPORT_LOCK


def _is_of_a_pool_at_rest(thread: Thread) -> bool:
    """Whether a thread belongs to a pool and runs no call of it."""
    handles = handles_a_pool(thread) or any(_calls(thread, way) for way in MANAGERS)
    feeds = _calls(thread, "multiprocessing/queues.py:_feed")
    return handles or feeds or _calls_first(thread, POOL_THREAD)


def _has_no_call(child: Process) -> bool:
    """Whether the stack of a child shows that it runs no code of the program."""
    thread = main_thread(child)
    return thread is not None and bool(thread.stack) and user_frame(thread.stack) is None


def imported_at(thread: Thread) -> Frame | None:
    """The line of the module that a thread imports, innermost, at which it is now."""
    own = own_frames(thread.stack)
    loads = next(
        (
            place
            for place, each in enumerate(own)
            if each.function == "_load_unlocked" and each.file == _IMPORTLIB
        ),
        0,
    )
    return next((each for each in reversed(own[:loads]) if not is_library(each)), None)


def _runs_python(index: Index, thread: Thread) -> bool:
    """Whether a thread runs code of Python, other than helpers at rest."""
    if not thread.stack or thread.name == HOOK_THREAD:
        return False
    return shape_in(index, thread.stack) not in ("feeder-idle", "sharer")


def _calls(thread: Thread, pattern: str) -> bool:
    return calls(own_frames(thread.stack), pattern)


def _is_loop(thread: Thread) -> bool:
    return any(_calls(thread, way) for way in _LOOPS)


class TakenPool(Struct, frozen=True):
    """A thread pool all of whose threads are blocked in calls, some of them for further calls."""

    name: str
    waiting: tuple[Thread, ...]
    """Those that wait for the results of further calls."""
    others: tuple[Thread, ...]


def taken_pool(process: Process) -> TakenPool | None:
    """The thread pool of a process that has no thread left for what its own threads wait for.

    `None` if a thread of it is idle or runs, or if none waits for a further call. Where all of them
    do, `abandoned` says it.
    """
    return next((each for each in taken_pools(process) if each.others), None)


def taken_pools(process: Process) -> Iterator[TakenPool]:
    """The thread pools of a process without an idle thread, of which some wait for further calls.

    Also those of which all threads do.
    """
    pools: defaultdict[str, list[Thread]] = defaultdict(list)
    for thread in process.threads:
        if _calls(thread, POOL_THREAD):
            pools[thread.name.rpartition("_")[0]].append(thread)
    for name, threads in pools.items():
        idle = any(own_frames(each.stack)[0].function == "_worker" for each in threads)
        blocked = all(
            each.waits_on is not None and each.waits_on.timeout_s is None for each in threads
        )
        waiting = [each for each in threads if awaited_result(own_frames(each.stack)) == RESULT]
        if blocked and not idle and waiting:
            others = tuple(each for each in threads if each not in waiting)
            yield TakenPool(name, tuple(waiting), others)


def _all_wait(threads: Sequence[Thread]) -> Abandoned | None:
    """All threads are of a thread pool, and each waits for the result of another call."""
    waiting = [
        each
        for each in threads
        if (_calls(each, POOL_THREAD) or _calls(each, THREAD_POOL))
        and awaited_result(own_frames(each.stack)) is not None
        and (each.waits_on is None or each.waits_on.timeout_s is None)
    ]
    if not waiting or len(waiting) < len(threads):
        return None
    count = len(waiting)
    those = f"All {count} threads" if count > 1 else "The only thread"
    return Abandoned(
        "all-wait",
        f"{those} of its thread pool {'wait' if count > 1 else 'waits'} for results of further "
        "calls, and no thread is free to run these.",
    )


def _ends_an_executor(main: Thread) -> bool:
    """Whether it joins the manager thread of a ProcessPoolExecutor, in shutdown or a with block."""
    pattern = ("threading.py:join", "concurrent/futures/process.py:shutdown")
    return calls(own_frames(main.stack), *pattern)


def _lost_calls(index: Index, process: Process, threads: Sequence[Thread]) -> Abandoned | None:
    """An executor that is shut down waits for calls that it has not sent to any worker.

    Its manager thread ends once no call is pending. The workers have none, and its feeder thread
    has nothing to send: it has dropped them, as it does with what cannot be pickled.
    """
    if not any(_calls(each, MANAGER_WAITS) for each in threads):
        return None
    children = [
        (child, thread)
        for child in children_started_by(index, process)
        if child.role not in SERVICE_ROLES
        and not child.is_gone
        and (thread := main_thread(child)) is not None
    ]
    workers = [each for each in children if not each[1].stack or _calls(each[1], _EXECUTOR)]
    if not workers or not all(_waits_for_a_call(thread) for _, thread in workers):
        return None
    around = (process, *(child for child, _ in workers))
    if not all(is_stalled(each, index, LOST_S) for each in around):
        return None
    return Abandoned(
        "lost-calls",
        "Its executor waits for calls that no worker has: all its workers wait for a call, and its "
        "feeder thread has none to send.",
    )


def _waits_for_a_call(worker: Thread) -> bool:
    """Whether the main thread of a worker of a ProcessPoolExecutor has no call to run."""
    own = own_frames(worker.stack)
    is_reading = calls(own, "multiprocessing/queues.py:get", _EXECUTOR)
    return is_reading and user_frame(own) is None


def _no_worker(index: Index, process: Process) -> Abandoned | None:
    """The manager thread of a process pool runs, and no worker lives."""
    children = [
        child
        for child in children_started_by(index, process)
        if child.role not in SERVICE_ROLES and not child.is_gone and child.sample.state != "Z"
    ]
    if children:
        return None
    return Abandoned("no-worker", "No worker of its process pool is alive, and none is started.")


def forked_without_executor(index: Index, process: Process) -> Process | None:
    """The parent that had threads of an executor when it forked a process that has none of them.

    The name of such a thread begins with that of its executor. Threads of the process's own, such
    as those of the default executor of its event loop, have nothing to do.
    """
    head = family_head(index, process) if process.sample.start_method == "fork" else None
    own = [each for each in process.threads if _calls(each, POOL_THREAD)]
    if head is None or not all(_calls_first(each, POOL_THREAD) for each in own):
        return None
    theirs = {_executor(each) for each in head.threads if _calls(each, POOL_THREAD)}
    lost = theirs - {_executor(each) for each in own} - {"asyncio"}
    return head if lost else None


def _executor(thread: Thread) -> str:
    """The name of the executor that a thread belongs to: `encode` of `encode_0`."""
    return thread.name.rpartition("_")[0]


def _calls_first(thread: Thread, pattern: str) -> bool:
    return calls(own_frames(thread.stack)[:1], pattern)


def _no_thread(index: Index, process: Process, result: str) -> Abandoned:
    """No thread of a pool is there at all."""
    head = family_head(index, process) if process.sample.start_method == "fork" else None
    has_threads = head is not None and any(
        _calls(each, way)
        for each in head.threads
        if each.stack
        for way in (POOL_THREAD, *MANAGERS, *_HANDLERS)
    )
    what = "a pool's" if result == POOL_RESULT else "an executor's"
    if head is not None and has_threads:
        return Abandoned(
            "not-forked",
            f"It was forked from {head.label}, which has {what} threads. A fork does not copy "
            "threads, so no thread of this process returns the result.",
        )
    return Abandoned(
        "no-thread", f"No thread of this process is {what}, so none returns the result."
    )
