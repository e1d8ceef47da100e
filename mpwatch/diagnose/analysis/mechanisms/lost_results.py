"""Results of pools and executors that never come, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mpwatch.describe.frames import at_frame, frame_words, own_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.diagnose.analysis.exits.kinds import Death, death_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import (
    NAMED,
    Case,
    Mechanism,
    at_line,
    ended_words,
    gets_from_queue,
)
from mpwatch.diagnose.analysis.process_queries import all_called, called, children_started_by
from mpwatch.diagnose.analysis.receivers import PoolKind, spinning
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    main_shape,
    main_thread,
    own_threads,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.futures import (
    MANAGER_WAITS,
    POOL_END,
    POOL_RESULT,
    RESULT,
    HeldUp,
    Kind,
    NestedCalls,
    abandoned,
    held_up,
    imported_at,
    nested_calls,
)
from mpwatch.diagnose.analysis.waits.providers import QUEUE_LOCK
from mpwatch.diagnose.analysis.waits.threads import purpose, sentence
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread


def calls_wait_for_items(case: Case) -> Mechanism | None:
    """A process waits for the results of a pool, whose calls wait for items of a queue."""
    results = [each for each in case.waiters if each.edge.what in (RESULT, POOL_RESULT, POOL_END)]
    running = [each for each in case.waiters if each not in results]
    if len(results) != 1 or not running:
        return None
    if not all(gets_from_queue(each) or each.edge.what.startswith(QUEUE_LOCK) for each in running):
        return None
    parent, names = called(results[0].process), all_called([each.process for each in running])
    verb = wait_verb(running)
    return Mechanism(
        cause=(
            f"{parent} waits for {results[0].edge.what}. The call that {names} "
            f"{'runs' if len(running) == 1 else 'run'} {verb} in Queue.get for an item, which only "
            f"{parent} or another call could put. What was put has been taken: a call that takes "
            "an item for a time (a device, a slot, a token) and does not put it back, or fewer "
            "items than calls, leaves the queue empty for good."
        ),
        advice=(
            "Put such an item back in a finally block, also where the call returns early or "
            "raises. Give each worker its own item in the initializer of the pool; use "
            "get(timeout=...), which raises in the call and is passed on with its result."
        ),
        headline=(
            f"a call of the pool of {parent} waits for an item of a queue that no process puts, in "
            f"{names}."
        ),
    )


def no_result(case: Case) -> Mechanism | None:
    """A result that no thread of the process returns."""
    at_end = case.index.snapshot.get(case.chain.links[-1].process)
    found = abandoned(case.index, at_end.process) if at_end is not None else None
    if found is None or found.words != case.chain.conclusion:
        return None
    if found.kind == "no-worker" and at_end is not None:
        return _without_workers(case.index, at_end)
    if found.kind == "no-thread" and at_end is not None:
        ended = _left_pool(case.index, at_end)
        if ended is not None:
            return ended
    cause, advice = _NO_RESULT[found.kind]
    nested = nested_calls(case.index, at_end.process) if at_end is not None else None
    if nested is not None:
        return _nested(case.index, nested, cause, advice)
    headline = ""
    if found.kind == "lost-calls" and at_end is not None:
        at = at_line(main_thread(at_end))
        headline = (
            f"{called(at_end)} waits{at} for the end of an executor that has lost calls: all its "
            "workers are idle."
        )
    main = main_thread(at_end) if at_end is not None else None
    module = imported_at(main) if main is not None and found.kind == "importing" else None
    if module is not None and at_end is not None:
        headline = (
            f"{called(at_end)} waits{at_line(main)} while it imports {_module(module)} (line "
            f"{module.line}), and a thread that is to do what it waits for waits for that import."
        )
        return Mechanism(cause, advice, evidence=(found.words,), headline=headline)
    return Mechanism(cause=cause, advice=advice, headline=headline)


# --- a callback that waits ----------------------------------------------------------------------


def held_up_words(index: Index, process: Process) -> Mechanism | None:
    """Why no result of a pool is received: the thread for that waits inside of a callback.

    Returns:
        `None` where no callback waits in such a thread; `is_certain` where it waits for a result
        that only this thread could receive.
    """
    held = held_up(index, process.process)
    if held is None:
        return None
    thread, pool = held.callback.thread, _POOLS[held.callback.kind]
    function = held.callback.function
    callback = f"{function.function}()" if function is not None else "a callback of a library"
    place = user_frame(held.callback.frames)
    at = at_frame(place if place is not None else held.callback.frames[0])
    name, wait = called(process), _WAITS_FOR.get(held.waits, purpose(thread).removeprefix("for "))
    return Mechanism(
        cause=(
            f"A callback of a {pool.name} runs in the one thread of {name} that receives its "
            f"results, {thread.name}. {callback} waits there{at} for {wait}. Until it returns, no "
            f"other result of this {pool.name} is received, its other callbacks do not run, and "
            f"whoever waits for one of these waits as well. {_BECAUSE[held.waits]}"
        ),
        advice=_NOT_IN_CALLBACKS[held.waits == "other"],
        evidence=tuple(_evidence_of_held_up(index, process, held, at, pool)),
        headline=(
            f"in {name}, the callback {callback} of a {pool.name} waits{at} for {wait}: the thread "
            f"that runs it is the one that receives the results of the {pool.name}."
        ),
        is_certain=held.waits == "own-result",
    )


class _PoolWords(NamedTuple):
    """What is said of one kind of pool."""

    name: str
    calls_back: str
    """What in the library calls its callbacks."""


_POOLS: Mapping[PoolKind, _PoolWords] = {
    "Pool": _PoolWords("Pool", "_handle_results"),
    "executor": _PoolWords("process pool executor", "the manager thread"),
}
_WAITS_FOR: Mapping[str, str] = {
    "own-result": "a result of the same pool",
    "result": "a result of a pool",
}
_BECAUSE: Mapping[str, str] = {
    "own-result": (
        "What it waits for is one of these results: only the thread that waits for it could "
        "receive it, so this wait never ends, also where a worker has computed the result long ago."
    ),
    "result": "If that result is one of the same pool, only this thread could receive it: then the "
    "wait never ends.",
    "other": "If what it waits for comes from one of those, none of them ever goes on.",
}
_NOT_IN_CALLBACKS: Mapping[bool, str] = {
    False: (
        "Never wait for a pool in its callback (get, wait, apply, map, result): let the callback "
        "put the outcome on a queue.Queue, and the main thread, or one of your own, submit the "
        "next call and wait for it; or submit it with a second callback (apply_async, submit and "
        "add_done_callback) that does the rest. More workers, more calls at a time or a longer "
        "wait do not help."
    ),
    True: (
        "Let a callback only note what has come, and return: put it on a queue.Queue without a "
        "limit (put_nowait), and let the main thread, or one of your own, do what has to wait. "
        "More workers do not help."
    ),
}
"""By whether it waits for something else than a result."""


def _evidence_of_held_up(
    index: Index, process: Process, held: HeldUp, at: str, pool: _PoolWords
) -> Iterator[str]:
    """What was seen of the thread that waits, of the pool, and of those that wait for it."""
    thread = held.callback.thread
    since_s = thread.still_s or 0.0
    yield (
        f"{_with_role(thread, pool.calls_back)} receives the results of a {pool.name}, and has "
        f"waited in a callback{at} for {index.lasting(since_s)}"
    )
    if held.are_idle:
        yield f"all workers that {called(process)} has started wait for a task"
    for each in spinning(index).get(process.process, ())[:1]:
        yield (
            f"{_with_role(each, '_handle_workers')} uses {each.cpu_percent or 0:.0f}% of a core "
            "meanwhile: it watches the workers of the Pool, is woken up by a result that lies "
            "unread, and gets nothing done"
        )
    waiting = [
        each
        for each in own_threads(index, process)
        if each is not thread
        and each.waits_on is not None
        and each.waits_on.kind == "futex"
        and user_frame(each.stack) is not None
    ]
    for each in waiting[:NAMED]:
        yield f"{sentence(process, each)}{_ended_by_it(index, each, held)}"


def _with_role(thread: Thread, role: str) -> str:
    """A thread by its name, with what it runs; Python names a thread after its function."""
    return f"thread {thread.name}{'' if role in thread.name else f' ({role})'}"


def _ended_by_it(index: Index, thread: Thread, held: HeldUp) -> str:
    """That the callback would end the wait of another thread, by the names in the source."""
    frame, function = user_frame(thread.stack), held.callback.function
    line = source_of(index, frame) if frame is not None else None
    if line is None or function is None:
        return ""
    is_named = any(
        (each.file, each.function) == (function.file, function.function) for each in line.ended_by
    )
    return f", which as far as names tell {function.function}() ends" if is_named else ""


# --- pools whose workers or threads are missing -------------------------------------------------


def _nested(index: Index, nested: NestedCalls, cause: str, advice: str) -> Mechanism:
    """All workers of a pool run calls that wait for further calls of the same pool."""
    count, call, first = len(nested.workers), frame_words(nested.call), called(nested.workers[0])
    inner = [
        f"{mark_words(each)} submits the inner calls"
        for each in marks(index, "submits")
        if (each.file, each.function) == (nested.call.file, nested.call.function)
        and each.statement.line <= nested.call.line
    ]
    those = f"all {count} workers wait" if count > 1 else "the only worker waits"
    return Mechanism(
        cause,
        advice,
        evidence=(
            f"{first} runs a call that is at {call}, and waits in {frame_words(nested.waits)}",
            *(
                f"so {'does' if len(others) == 1 else 'do'} {all_called(others, NAMED)}"
                for others in [nested.workers[1:]]
                if others
            ),
            *inner[-1:],
        ),
        headline=(
            f"{those} at {call}, inside of a call, for results of further calls of the same "
            "workers, and none is free to run these."
        ),
    )


def _module(frame: Frame) -> str:
    """The file of a module, without its folder."""
    return frame.file.rpartition("/")[2]


_RECYCLES = (3, 11), (3, 15)
"""The first release in which ProcessPoolExecutor has max_tasks_per_child, and the first of which
every final release replaces such workers: gh-115634, fixed in 3.14.7 and in 3.13 in July 2026."""


def _left_pool(index: Index, process: Process) -> Mechanism | None:
    """A result that is awaited after the `with` block of its Pool, which has ended the Pool."""
    thread = main_thread(process)
    frames = own_frames(thread.stack) if thread is not None else ()
    blocks, left = marks(index, "pool-block", process), marks(index, "pool-left", process)
    if len(left) == 1:
        at, file = int(left[0].about.rpartition(", ")[2]), left[0].file
        blocks = [e for e in blocks if (e.file, e.statement.line) == (file, at)]
    if len(blocks) != 1 or main_shape(process) != "pool-result":
        return None
    first, _, last = blocks[0].about.partition("-")
    if any(f.file == blocks[0].file and int(first) <= f.line <= int(last) for f in frames):
        return None  # it is in the block still
    block, name = mark_words(blocks[0]), called(process)
    if len(left) == 1:
        return Mechanism(
            cause=(
                f"{mark_words(left[0])} only starts the calls and returns at once; their results "
                f"are taken later, after {block}. At the end of that block terminate() has killed "
                "the workers and ended the thread that receives results, which is no more here: "
                "no worker of this Pool is left or started again, what had not arrived is lost, "
                "and nothing is raised."
            ),
            advice=f"{_IN_BLOCK[left[0].about.startswith('imap')]} {_NOT_IN_BLOCK}",
            headline=(
                f"{name} waits{at_line(thread)} for results of a Pool that has ended with its "
                "with block: none of its workers is left."
            ),
        )
    return Mechanism(
        cause=(
            f"Most likely the Pool has ended with its block: at the end of {block}, which "
            f"{called(process)} has left, terminate() kills the workers and ends the thread that "
            "receives results. What had not arrived by then is lost, and nothing is raised."
        ),
        advice=(
            "Take all results inside of that block: call get() there, or pool.close() and "
            "pool.join() as its last lines. A longer wait or more workers do not help. An executor "
            "of concurrent.futures waits for its tasks at the end of its block."
        ),
        headline=f"{called(process)} waits for a result of a Pool whose with block it has left.",
    )


_IN_BLOCK: Mapping[bool, str] = {
    True: (
        "Go through the results inside of that block, or return list(...) of them from there; "
        "where they are to come one by one, make the function with the block a generator (`yield "
        "from` in place of `return`), or keep the Pool open in the caller."
    ),
    False: (
        "Take all results inside of that block: call get() there, or pool.close() and pool.join() "
        "as its last lines; or keep the Pool open in the caller."
    ),
}
"""By whether the results are those of imap()."""
_NOT_IN_BLOCK = "A longer wait, more workers, another chunksize or start method do not help."


def _without_workers(index: Index, process: Process) -> Mechanism:
    """A process pool without a worker whose manager thread starts none and calls nothing broken.

    A worker that fails breaks a ProcessPoolExecutor at once: BrokenProcessPool is the result of all
    its futures. So these ended as they were told to, after max_tasks_per_child tasks.
    """
    gone = [each for each in children_started_by(index, process) if each.ended is not None]
    failed = [each for each in gone if each.ended and death_of(each.ended) not in _AS_TOLD]
    version = process.hook.python or process.sample.python_version or ""
    is_std = any(calls(own_frames(t.stack), MANAGER_WAITS) for t in process.threads)
    if failed or not is_std or not _may_fail_to_replace(version):
        return Mechanism(
            cause=(
                "All workers of the process pool have ended, and its manager thread waits for "
                "results that none of them sends."
            ),
            advice=(
                "Read standard error for why the workers ended, and wait with result(timeout=...): "
                "after such a wait the executor has to be made anew."
            ),
            evidence=ended_words(failed),
        )
    of_python = f" (this is {version})" if version else ""
    return Mechanism(
        cause=(
            "The workers ended as they were told to, else the futures would have raised "
            "BrokenProcessPool: ProcessPoolExecutor(max_tasks_per_child=...) ends each worker "
            "after so many tasks. CPython from 3.11 on may then start no other one while tasks "
            f"are left (gh-115634; fixed in 3.14.7, and in 3.13 in July 2026){of_python}. So the "
            "tasks that are left are never run."
        ),
        advice=(
            "Leave max_tasks_per_child out, or use multiprocessing.Pool(maxtasksperchild=...), "
            "which replaces its workers, or a CPython with the fix. If workers have to be renewed "
            "for their memory, make a new executor for each part of the tasks."
        ),
        evidence=ended_words(gone),
        headline=(
            f"{called(process)} waits{at_line(main_thread(process))} for tasks of a process pool "
            "whose workers have all ended and are not replaced."
        ),
    )


def _may_fail_to_replace(version: str) -> bool:
    """Whether a release, `3.11` or `3.14.2`, may not replace workers; true if it is unknown."""
    numbers = tuple(int(each) for each in version.split(".") if each.isdigit())
    if len(numbers) < 2:
        return True
    return _RECYCLES[0] <= numbers[:2] < _RECYCLES[1] and numbers < (3, 14, 7)


_AS_TOLD: frozenset[Death] = frozenset(("normal", "unknown"))
_NO_RESULT: Mapping[Kind, tuple[str, str]] = {
    "importing": (
        "The code of a module runs while it is imported, under the lock of that module. It starts "
        "work in a pool and waits for it, and a thread of the pool needs the same module, to find "
        "the function that it sends or runs: each waits for the other.",
        "Do not start work in a pool at the top level of a module: put it into a function that is "
        "called after the import, from under if __name__ == '__main__'.",
    ),
    "all-wait": (
        "A call that runs in a thread pool has submitted another call to it and waits for that "
        "one. Once all threads of the pool do so, none is left to run what they wait for.",
        "Do not wait inside of a pool for a call of the same pool: do the inner work directly, "
        "give it a pool of its own, or return and let the caller combine the results.",
    ),
    "nested": (
        "A call that runs in a worker has submitted further calls to the same workers and waits "
        "for their results. It keeps its worker meanwhile. Once as many such calls run as there "
        "are workers, what they wait for stays in the queue and is never run.",
        "Do not wait inside of a call for calls of the same workers: submit the inner calls from "
        "the main process and combine the results there, run them directly in the outer call, or "
        "give them workers of their own. More workers help only where they are more than the "
        "outer calls that are submitted at once; a timeout or a restart does not.",
    ),
    "not-forked": (
        "The pool or executor object is a copy from before the fork. Its threads, which hand out "
        "calls and receive results, exist in the parent only: what is submitted here is never run.",
        "Make the pool in the process that uses it, after the fork, and do not use a global one "
        "from inside of its own workers; or start the processes with spawn.",
    ),
    "no-thread": (
        "Results are received by a thread of the same process, and no such thread is here: it has "
        "ended, by an exception or by a shutdown of the pool, or it did not survive a fork.",
        "Look for a traceback of that thread on standard error. Make the pool in the process that "
        "uses it, keep it open until all results are there, and wait with result(timeout=...).",
    ),
    "lost-calls": (
        "The manager thread of the ProcessPoolExecutor ends when no call is pending, and some are "
        "that never reached a worker. The feeder thread drops a call that it cannot pickle (a "
        "lambda, a local function, a lock or an open file in its arguments or in the object of "
        "a bound method). After shutdown(cancel_futures=True) nothing tells the executor of that, "
        "and its wait never ends (CPython 3.9 and newer).",
        "Make what is submitted picklable: a function of a module in place of a lambda, also "
        "inside of the object whose method is submitted; pickle.dumps() of it shows the error. "
        "Until then do not combine cancel_futures=True with wait=True: cancel the futures that "
        "are kept, then call shutdown().",
    ),
}
