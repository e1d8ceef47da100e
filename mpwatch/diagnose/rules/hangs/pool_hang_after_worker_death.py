"""A process waits for a Pool's result that was lost, or that no thread receives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.frames import at_frame, frame_words, own_frames
from mpwatch.diagnose.analysis.exits.kinds import death_of, last_seen
from mpwatch.diagnose.analysis.idle_time import STUCK_S, is_stalled, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    all_called,
    called,
    children_started_by,
    counted,
)
from mpwatch.diagnose.analysis.receivers import callbacks_of
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    shape_in,
    shape_of,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.futures import has_unanswered_call
from mpwatch.diagnose.known_errors import number_of, place_of
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark
from mpwatch.model.units import seconds_text

RULE = "pool-hang-after-worker-death"
_RECEIVER = "_handle_results"
_HANDLERS = ("_handle_workers", "_handle_tasks", _RECEIVER)
"""What the threads of a Pool run."""
WAITED_S = 3.0
"""Stacks of two rounds agree by then that no thread receives results."""
NOTHING_S = 15.0
"""Without the hook, what says that a call is lost is only that nothing happens for so long."""
YOUNGER_S = 3.0
"""A worker started so much later than those that work has taken the place of one that ended."""
REPLACED_S = 0.5
"""Forking a Pool takes milliseconds a worker; spawned ones are started back to back as well."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that waits for a Pool's result that cannot arrive.

    Either the Pool has replaced a worker, and all its workers are idle. While any of them is
    running, the result may still arrive, unless a worker was seen to die in its task. A death that
    was not observed shows as a worker that is younger than the others. Or the thread that receives
    the results has ended.
    """
    for process in index.snapshot.living():
        waits = [t for t in process.threads if shape_in(index, t.stack) == "pool-result"]
        if any((t.still_s or 0.0) >= WAITED_S for t in waits) and _has_lost_its_receiver(process):
            yield _without_receiver(index, process, waits[0])
            continue
        quiet = quiet_s(process, index) if waits else None
        if quiet is None or quiet < STUCK_S or _is_fed(process):
            continue
        if any(each.kind == "Pool" for each in callbacks_of(process)):
            continue  # results that lie unread meanwhile are not lost
        children = list(children_started_by(index, process))
        living = [p for p in children if not p.is_gone and p.role in ("spawned", "pool-worker")]
        pools = _pools(process)
        if pools is not None and not any(number_of(pool, "outstanding") for pool in pools):
            continue
        lost = list(_lost(pools or (), living))
        seen = list(_seen_deaths(children))
        deaths = [*seen, *_replaced(living), *lost]
        if not deaths:
            if pools is None and has_unanswered_call(index, process.process):
                if all(is_stalled(each, index, NOTHING_S) for each in (process, *living)):
                    yield _of_lost_task(index, process, waits[0], quiet, living, (), (), 0)
            elif (younger := _idle_since_started(index, waits[0], living)) and not pools:
                yield _of_one_replaced(index, process, waits[0], quiet, younger)
            continue
        if all(is_stalled(p, index, STUCK_S / 2) for p in living):
            yield _of_lost_task(index, process, waits[0], quiet, living, seen, deaths, len(lost))
        elif lost_in_task := [each for each in children if _ended_in_a_task(each)]:
            yield _of_one_of_several(index, process, waits[0], quiet, living, lost_in_task)


def _of_lost_task(
    index: Index,
    process: Process,
    waits: Thread,
    quiet_for_s: float,
    living: Sequence[Process],
    seen: Sequence[str],
    deaths: Sequence[str],
    lost: int,
) -> Finding:
    """The finding about a task that no worker has any more.

    Args:
        index: The job.
        process: The process that waits for its result.
        waits: The thread that does.
        quiet_for_s: For how long.
        living: The workers.
        seen: The ends of workers that were observed, in words.
        deaths: These, and whatever else shows that a worker has ended.
        lost: How many of `deaths` are pools of which the hook counts lost calls.
    """
    frame = user_frame(own_frames(waits.stack))
    at = at_frame(frame, ", at ")
    is_replaced = len(deaths) > len(seen) + lost and not seen
    others = list(_other_threads(process, waits)) if is_replaced else []
    which = "whose worker exited" if seen else "that no worker has any more"
    callbacks = _callbacks(index, process) if len(deaths) == lost else ()
    if callbacks:
        return _of_callback(index, process, waits, quiet_for_s, living, deaths, callbacks)
    if is_replaced:
        which = "that was lost with its worker, which has ended and was replaced"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)} waits{at.replace(', ', ' ', 1)} for a Pool task {which}",
        evidence=(
            f"waiting for a result for {index.lasting(quiet_for_s)}{at}",
            *deaths[:3],
            *others,
            *(_not_by_the_kernel(index) if is_replaced else ()),
            *(() if deaths else _NOTHING_SENT),
            _idle_words(living),
        ),
        cause=(
            (
                "A Pool replaces a worker that exited, but does not run the worker's task "
                f"again. {_UNSEEN if is_replaced else ''}"
                if len(deaths) > lost
                else "The task is neither in the Pool's queue nor in a worker: it was lost on "
                "its way, or with a worker whose exit was not observed. "
            )
            + "The result never arrives, and a wait without a timeout never ends."
        ),
        advice=((_advice_for_unseen(others) if is_replaced else _FIND_OUT) + _NEXT_TIME),
    )


def _idle_words(living: Sequence[Process]) -> str:
    return f"{counted(len(living), 'living worker')}, idle" if living else "no living worker"


_NOTHING_SENT = (
    "its thread that receives results waits for one, and its thread that sends tasks for a task",
)


def _callbacks(index: Index, process: Process) -> Sequence[Mark]:
    """The callbacks of the program's calls of a Pool; those first that show where they may raise.

    Only while the thread that runs them is there: any other exception than a KeyError ends it.
    """
    if not _runs(process, _RECEIVER):
        return ()
    found = marks(index, "pool-callback", process) or marks(index, "pool-callback")
    return sorted(found, key=lambda each: ("; " not in each.about, each.about.startswith("error")))


def _of_callback(
    index: Index,
    process: Process,
    waits: Thread,
    quiet_for_s: float,
    living: Sequence[Process],
    lost: Sequence[str],
    callbacks: Sequence[Mark],
) -> Finding:
    """The finding about a call whose callback, most likely, has raised a KeyError.

    Args:
        index: The job.
        process: The process that waits for its result.
        waits: The thread that does.
        quiet_for_s: For how long.
        living: The workers, all idle.
        lost: What the hook says of calls that are lost.
        callbacks: Those that the program gives to its calls.
    """
    first = callbacks[0]
    callback, lookups = _callback_of(first), first.about.split("; ")[1:]
    file = first.file.rpartition("/")[2]
    places = [f"`{text}` ({file}:{line})" for line, _, text in (e.partition(" ") for e in lookups)]
    line = " or ".join(places)
    at = at_frame(user_frame(own_frames(waits.stack)))
    name = called(process)
    looks_up = f", which looks up {' and '.join(places)}" if line else ""
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        is_doubtful=not line,
        summary=(
            f"{name} waits{at} for the result of a Pool's call that no worker has any more: most "
            f"likely its callback {callback} has raised a KeyError{f', at {line}' if line else ''}"
        ),
        evidence=(
            f"waiting for a result for {index.lasting(quiet_for_s)}{at.replace(' ', ', ', 1)}",
            *lost[:3],
            *(() if lost else _NOTHING_SENT),
            _idle_words(living),
            *(
                f"{mark_words(each)} gives it a callback, {_callback_of(each)}"
                for each in callbacks[:CALLBACKS_SHOWN]
            ),
        ),
        cause=(
            f"{mark_words(first)} has the callback {callback}{looks_up}. A Pool runs callbacks in "
            "its own thread _handle_results, before it marks the call as done; that thread takes a "
            "KeyError for an unknown call and goes on without a message, so the call whose result "
            "lacks such a key is never done, and the wait for it, without a timeout, never "
            "ends. Any other exception of a callback would have ended that thread, which still "
            f"runs. {_NOT_SEEN}"
        ),
        advice=(f"Make the callback {callback} unable to raise: {_CATCH_IT}"),
    )


def _callback_of(mark: Mark) -> str:
    """The callback, as it is written."""
    return mark.about.partition("; ")[0].partition(", ")[2]


CALLBACKS_SHOWN = 2
_CATCH_IT = (
    "use .get(key), or catch and log every exception, and find the result that lacks the key. Or "
    "pass no callback, and take the results with get() or imap_unordered() in the thread that "
    "waits, where an exception is raised. error_callback is not called for what a callback raises; "
    "more workers, maxtasksperchild or another start method do not help: the workers are idle."
)
_NOT_SEEN = (
    "The exception itself was not seen; a call that was lost with a worker before this job was "
    "watched would look the same."
)


def _ended_in_a_task(worker: Process) -> bool:
    """Whether a Pool's worker was killed, crashed or failed while it ran code of the program."""
    if worker.ended is None or death_of(worker.ended) not in ("killed", "crash", "failed"):
        return False
    stack = next((each.stack for each in worker.threads if each.stack), ())
    return calls(stack, "multiprocessing/pool.py:worker") and user_frame(stack) is not None


def _of_one_of_several(
    index: Index,
    process: Process,
    waits: Thread,
    quiet_for_s: float,
    living: Sequence[Process],
    ended: Sequence[Process],
) -> Finding:
    """The finding about a task that was lost while workers still run others."""
    frame = user_frame(own_frames(waits.stack))
    at = at_frame(frame)
    name, names = called(process), all_called(ended)
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=process.process,
        summary=(
            f"{name} waits{at} for the results of a Pool, one of which was lost with {names}: it "
            "never arrives"
        ),
        evidence=(
            f"waiting for a result for {index.lasting(quiet_for_s)}{at}",
            *(
                f"{called(each)} ended in a task: {each.ended.words}"
                for each in ended
                if each.ended
            ),
            *(words for each in ended for words in last_seen(each)),
            f"{counted(len(living), 'living worker')}, of which some still work",
        ),
        cause=(
            "A Pool replaces a worker that ended, but does not run its task again: the task of "
            f"{names} is lost, and the new worker takes the next one, if there is any. {name} "
            "still waits when all others are done, and is not told."
        ),
        advice=(
            "Find out first what ended the worker (see the evidence and other findings). Use "
            "concurrent.futures.ProcessPoolExecutor, which raises BrokenProcessPool; or wait with "
            "a timeout (get, or next of imap) and submit the task again, if it may run twice. A "
            "loop that runs for ever belongs in a Process that is watched, not in a Pool."
        ),
    )


def _idle_since_started(
    index: Index, waits: Thread, living: Sequence[Process]
) -> Sequence[Process]:
    """Workers that were started later than others that still work, and that got no task.

    A Pool starts its workers at once, and later only those that take the place of one that ended:
    by `maxtasksperchild`, which must not be in the statement that made the Pool, or on its own.
    """
    workers = [each for each in living if _is_of_pool(each)]
    working = [each for each in workers if not _is_idle(each)]
    frame = user_frame(own_frames(waits.stack))
    line = source_of(index, frame) if frame is not None else None
    makes = [each.text for each in line.within if "Pool(" in each.text] if line is not None else []
    if not working or not makes or "maxtasksperchild" in makes[-1]:
        return ()
    last = max(each.process.start_ticks for each in working)
    later = YOUNGER_S * index.snapshot.ticks_per_s
    return [each for each in workers if _is_idle(each) and each.process.start_ticks - last >= later]


def _of_one_replaced(
    index: Index,
    process: Process,
    waits: Thread,
    quiet_for_s: float,
    younger: Sequence[Process],
) -> Finding:
    """The finding about a Pool some of whose workers have taken the place of others."""
    frame = user_frame(own_frames(waits.stack))
    at = at_frame(frame)
    name, names = called(process), all_called(younger)
    is_ = "are" if len(younger) > 1 else "is"
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=process.process,
        is_doubtful=True,
        summary=(
            f"{name} waits{at} for the results of a Pool of which a worker has ended: {names}, "
            f"started in its place, {is_} idle"
        ),
        evidence=(
            f"waiting for a result for {index.lasting(quiet_for_s)}{at}",
            *(
                f"{called(each)} was started later than the workers that still work, and waits for "
                "a task"
                for each in younger
            ),
        ),
        cause=(
            "A Pool replaces a worker that ended, but does not run its task again. If the one that "
            f"ended was in a task, {name} waits for that result for ever, also when all others "
            f"are done, and is not told. {_UNSEEN}"
        ),
        advice=(
            "Watch the job from its start (mpwatch run): it then names the worker and how it "
            "ended. A loop that runs for ever belongs in a Process that is watched (sentinel, "
            "exitcode) and started again, not in a Pool: a new worker does not start it. For tasks "
            "that end, concurrent.futures.ProcessPoolExecutor raises BrokenProcessPool."
        ),
    )


def _is_of_pool(worker: Process) -> bool:
    return any(calls(own_frames(each.stack), "pool.py:worker") for each in worker.threads)


def _is_idle(worker: Process) -> bool:
    return any(shape_of(thread.stack) == "pool-idle" for thread in worker.threads)


_NEXT_TIME = (
    "Use concurrent.futures.ProcessPoolExecutor, which raises BrokenProcessPool; or wait with a "
    "timeout (get, or next of imap) and submit the task again, if it may run twice."
)
_FIND_OUT = "Find out what happened to the task (see the evidence and other findings). "
_UNSEEN = (
    "How the worker ended was not seen. An exception in a task does not end a worker: the Pool "
    "passes it on. What does: os._exit() or sys.exit() in the task or in a library that it calls "
    "(argparse calls sys.exit on a bad argument), a signal (SIGKILL or SIGTERM by the program's "
    "own watchdog, a user, or the kernel for lack of memory), or a crash in native code. "
)


def _other_threads(process: Process, waits: Thread) -> Iterator[str]:
    """Where other threads of the program are: one of them may end workers."""
    for thread in process.threads:
        frame = user_frame(own_frames(thread.stack))
        if thread is not waits and frame is not None:
            yield f"its thread {thread.name} is at {frame_words(frame)}"


def _not_by_the_kernel(index: Index) -> Iterator[str]:
    """That the kernel has killed nothing, where its counter says so."""
    cgroup = index.snapshot.host.cgroup
    if cgroup is not None and cgroup.oom_kills == 0:
        yield "the kernel has killed no process of this control group for lack of memory"


def _advice_for_unseen(threads: Sequence[str]) -> str:
    """Where to look for what has ended a worker before it was watched."""
    own = (
        f"Look first at what the program itself does to its workers ({threads[0]}): a watchdog "
        "that kills a worker loses the task that it runs. "
        if threads
        else ""
    )
    return (
        f"This wait does not end by itself: stop the job. {own}Search what the task calls for "
        "os._exit and sys.exit, and run the last tasks once without a Pool. Give tasks a size "
        "whose memory fits the limit. Under mpwatch run the worker and its exit status are named. "
    )


def _has_lost_its_receiver(process: Process) -> bool:
    """Whether a Pool's threads that start workers and send tasks run, and none receives results.

    The thread that receives results ends last when a Pool is closed (pool.py, Python 3.10 to 3.15).
    Stacks are taken of all threads of Python at once.
    """
    running = {name for name in _HANDLERS if _runs(process, name)}
    return running == set(_HANDLERS) - {_RECEIVER}


def _runs(process: Process, handler: str) -> bool:
    return any(calls(own_frames(t.stack), f"pool.py:{handler}") for t in process.threads)


class _Death(Struct, frozen=True):
    """How the thread that receives the results of a Pool has ended."""

    at: str
    """The line that raised the exception, after ` at `; empty where it is not known."""
    evidence: tuple[str, ...]
    cause: str
    advice: str


_UNKNOWN_DEATH = _Death(
    "",
    (),
    "The thread of the Pool that receives results has ended, most likely by an exception, whose "
    "traceback is then on standard error. Most often a callback (callback= or error_callback=), "
    "which runs in this thread, has raised it; or something that a worker sent could not be "
    "unpickled here: an exception class whose __init__ takes other arguments than it passes to "
    "super().__init__, or a tensor whose sender has exited.",
    "Read the traceback of the thread on standard error. Let callbacks catch their exceptions. "
    "Pass all arguments of an exception class to super().__init__ or give it __reduce__; or catch "
    "such exceptions in the task and return plain values.",
)


def _death_of_receiver(index: Index, process: Process) -> _Death:
    """How that thread has ended, as the hook has noted it, or what is likely."""
    for entry in reversed(index.entries("thread-died")):
        if entry.process != process.process or _RECEIVER not in entry.words:
            continue
        place = place_of(entry.details)
        at = f" at {place}" if place else ""
        ended = f"The thread of the Pool that receives results has ended by an exception{at}."
        if "_set" in {call[0] for call in _calls(entry.details)}:
            return _Death(
                at,
                (entry.words,),
                f"{ended} It is a callback, which that thread runs.",
                f"Fix the callback{at}, and let callbacks catch their exceptions: one that leaves "
                "a callback ends the thread.",
            )
        return _Death(at, (entry.words,), ended, _UNKNOWN_DEATH.advice)
    return _UNKNOWN_DEATH


def _calls(details: Mapping[str, object]) -> Iterator[tuple[str, ...]]:
    """The calls of a traceback, as notes have them: function, file, line."""
    frames = details.get("frames")
    for call in frames if isinstance(frames, list) else ():
        if isinstance(call, list | tuple) and call:
            yield tuple(map(str, call))


def _without_receiver(index: Index, process: Process, thread: Thread) -> Finding:
    """The finding about a Pool whose thread for results has ended."""
    death = _death_of_receiver(index, process)
    frame = user_frame(own_frames(thread.stack))
    at = at_frame(frame)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=(
            f"{called(process)} waits for a Pool's result, and no thread receives results"
            f"{death.at and f': it has ended{death.at}'}"
        ),
        evidence=(
            f"{called(process)} waits{at}",
            f"its threads run the Pool's {' and '.join(sorted(set(_HANDLERS) - {_RECEIVER}))}, "
            f"none runs {_RECEIVER}",
            *death.evidence,
        ),
        cause=f"{death.cause} No result of this Pool is received any more.",
        advice=death.advice,
    )


def _is_fed(process: Process) -> bool:
    """Whether user code is producing the next task: imap takes its tasks from an iterator."""
    return any(
        calls(frames := own_frames(thread.stack), "pool.py:_handle_tasks")
        and user_frame(frames) is not None
        for thread in process.threads
    )


def _pools(process: Process) -> list[Mapping[str, object]] | None:
    """The pools its hook reports; `None` without a hook or without that gauge."""
    reading = process.gauges.get("pools")
    if not isinstance(reading, list):
        return None
    return [pool for pool in reading if isinstance(pool, Mapping) and pool.get("kind") == "Pool"]


def _lost(pools: Iterable[Mapping[str, object]], living: Sequence[Process]) -> Iterator[str]:
    """A sentence for each pool with calls that are neither queued nor running in a worker."""
    for pool in pools:
        pids, outstanding = pool.get("pids"), number_of(pool, "outstanding")
        if not outstanding or number_of(pool, "queued") != 0 or not isinstance(pids, list):
            continue
        workers = [process for process in living if process.pid in pids]
        is_known = len(workers) == len(pids) and all(p.hook.state == "ready" for p in workers)
        if is_known and not any(_has_job(worker) for worker in workers):
            calls_lost = counted(outstanding, "call")
            yield f"{calls_lost} without a result, not queued, and no worker is running one"


def _has_job(worker: Process) -> bool:
    """Whether its hook reports a running call."""
    job = worker.gauges.get("job")
    return isinstance(job, Mapping) and job.get("since_ns") is not None


def _seen_deaths(children: Iterable[Process]) -> Iterator[str]:
    """A sentence for each child that was killed, crashed or exited with an error."""
    for process in children:
        if process.ended is not None and death_of(process.ended) in ("killed", "crash", "failed"):
            yield f"{called(process)} ended: {process.ended.words}"


def _replaced(living: Sequence[Process]) -> Iterator[str]:
    """A sentence for each idle worker started well after the first: a Pool starts all at once."""
    idle = [each for each in living if _is_idle(each)]
    if not idle or len(idle) < len(living):
        return
    first = min(process.process.start_ticks for process in idle)
    for process in idle:
        later_s = (process.process.start_ticks - first) / 100
        if later_s >= REPLACED_S:
            yield f"{called(process)} was started {seconds_text(later_s)} after the others"
