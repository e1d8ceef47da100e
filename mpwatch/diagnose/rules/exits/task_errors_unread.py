"""Tasks of a pool have raised, and nothing shows that the program has asked for their results.

An exception of a task is raised where the program asks for its result. A callback of `apply_async`
is called for results only, and a future that nobody asks keeps its exception to itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.idle_time import mean_cpu_percent, quiet_s, watched_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import at_line
from mpwatch.diagnose.analysis.mechanisms.unreleased import lost_permits
from mpwatch.diagnose.analysis.process_queries import (
    all_called,
    called,
    children_started_by,
    counted,
    family_head,
)
from mpwatch.diagnose.analysis.stack_patterns import calls, main_shape, main_thread
from mpwatch.diagnose.analysis.throughput.shares import is_work, shares
from mpwatch.diagnose.analysis.waits.blockages import POLLS_PERCENT
from mpwatch.diagnose.analysis.waits.futures import POOL_THREAD
from mpwatch.diagnose.known_errors import number_of, place_of
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import LogEntry, Process
from mpwatch.model.source_code import DroppedResult
from mpwatch.model.units import seconds_text

RULE = "task-errors-unread"
WAITS_S = 15.0
"""Until then, a process that waits while its pool has nothing to do is not said to wait in vain."""
POLL_S = 2.0
"""A longer sleep is a pause of the program rather than a loop that waits."""
SHOWN = 3
EXECUTOR_WORKER = "concurrent/futures/process.py:_process_worker"
"""The function of each worker of a ProcessPoolExecutor (CPython 3.10 to 3.15)."""
BUSY_SHARE = 0.1


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose pool has tasks that have raised."""
    groups: defaultdict[ProcessId, list[LogEntry]] = defaultdict(list)
    in_threads: list[LogEntry] = []
    for entry in index.entries("exception"):
        if entry.details.get("where") == "task":
            process = index.snapshot.get(entry.process)
            if _is_in_threads(entry):
                in_threads += [entry] if process is not None and not process.is_gone else []
                continue
            head = family_head(index, process) if process is not None else None
            if head is not None and not head.is_gone:
                groups[head.process].append(entry)
    for identity, entries in groups.items():
        head = index.snapshot.get(identity)
        if head is not None:
            yield _finding(index, head, entries)
    if in_threads:
        yield _finding_of_threads(index, in_threads)
    if not groups and not in_threads:
        yield from _possible(index)


def _is_in_threads(entry: LogEntry) -> bool:
    return entry.details.get("pool") == "threads"


def _finding_of_threads(index: Index, entries: Sequence[LogEntry]) -> Finding:
    """The finding about calls in pools of threads, of all processes that have such."""
    processes = [
        process
        for identity in dict.fromkeys(each.process for each in entries)
        if (process := index.snapshot.get(identity)) is not None
    ]
    count, kinds = _count(entries), sorted({_error(each) for each in entries})
    newest_s = index.snapshot.at_s - max(each.at_s for each in entries)
    idle = [each for each in processes if _has_only_idle_threads(each)]
    evidence = [_told(each) for each in _first_of_each(entries)[:SHOWN]]
    if idle:
        evidence.append(
            f"{all_called(idle, SHOWN)}: the threads of that pool have nothing to do now, "
            f"{seconds_text(newest_s)} after the last of these errors"
        )
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=processes[0].process,
        others=tuple(each.process for each in processes[1:]),
        subject="threads",
        summary=(
            f"{counted(count, 'call')} in thread pools of {all_called(processes, SHOWN)} "
            f"{'has' if count == 1 else 'have'} raised {', '.join(kinds[:SHOWN])}, and no code had "
            "asked for the result"
        ),
        evidence=tuple(evidence),
        cause=(
            "The exception is raised only where result() of the future is called, and nothing is "
            "printed. A call that was to run for as long as the program (a loop that consumes a "
            "queue) has ended with it, and the process continues without it."
        ),
        advice=(
            "Keep the futures and call result() on each, or add_done_callback with a function that "
            "logs future.exception(). Catch and log what one item may raise inside of such a "
            "loop, or run the loop in the main thread, so that the process ends with it."
        ),
    )


def _has_only_idle_threads(process: Process) -> bool:
    """Whether it has threads of a ThreadPoolExecutor, and all of them wait for a call."""
    own = [each for each in process.threads if calls(own_frames(each.stack), POOL_THREAD)]
    return bool(own) and all(calls(own_frames(each.stack)[:1], POOL_THREAD) for each in own)


def _possible(index: Index) -> Iterator[Finding]:
    """A finding where calls are started whose exceptions are raised nowhere, and none is at work.

    Whether one of them has raised is not known without the hook.
    """
    for call in index.snapshot.dropped:
        users = [each for each in index.snapshot.living() if _runs_file(each, call.file)]
        in_threads = [each for each in users if _has_only_idle_threads(each)]
        if call.method == "submit" and in_threads:
            idle, what = in_threads, "the threads of its executor"
        else:
            idle = [each for each in users if _has_idle_workers(index, each)]
            what = "the workers of its pool"
        if idle and min(_idle_for_s(index, each) for each in idle) >= WAITS_S:
            yield _possible_finding(idle, call, what)
            return


def _runs_file(process: Process, file: str) -> bool:
    """Whether a stack of a process has a line of a file."""
    return any(frame.file == file for thread in process.threads for frame in thread.stack)


def _has_idle_workers(index: Index, head: Process) -> bool:
    """Whether a process has a pool of processes, and all of its workers wait for a task now."""
    workers = _workers_of(index, head)
    return bool(workers) and all(main_shape(each) == "pool-idle" for each in workers)


def _workers_of(index: Index, head: Process) -> list[Process]:
    started = children_started_by(index, head)
    return [each for each in started if each.role == "pool-worker" and not each.is_gone]


def _idle_for_s(index: Index, process: Process) -> float:
    """How long a process has been watched in which its pool did next to nothing.

    0 where the workers are known to have been at a task for more than `BUSY_SHARE` of the time. A
    worker of a pool sleeps only in a task, and a main thread beside an executor for what it likes.
    """
    workers = _workers_of(index, process)
    seen = workers or [process]
    busy = [
        share.share
        for each in seen
        for share in shares(index, each)
        if is_work(share.activity) and (workers or share.activity.kind != "sleeping")
    ]
    return 0.0 if sum(busy) > BUSY_SHARE * len(seen) else watched_s(index)


def _possible_finding(idle: Sequence[Process], call: DroppedResult, what: str) -> Finding:
    names, file = all_called(idle, SHOWN), call.file.rpartition("/")[2]
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=idle[0].process,
        others=tuple(each.process for each in idle[1:]),
        subject=f"{file}:{call.line}",
        summary=(
            f"possible: calls that {names} {'starts' if len(idle) == 1 else 'start'} at "
            f"{file}:{call.line} have raised unseen"
        ),
        evidence=(
            f"{file}:{call.line} is `{call.statement.text}`: what it returns is dropped",
            f"{what} have nothing to do now",
        ),
        cause=(
            "An exception of such a call is raised only where the program asks for its result, and "
            "this one is asked nowhere: nothing is printed if it fails. Whether any has raised "
            "cannot be seen from outside."
        ),
        advice=(
            "Give apply_async an error_callback, or keep what it returns and call get() or "
            "result() on each. With the hook (mpwatch run) such exceptions are named."
        ),
        is_doubtful=True,
    )


def _finding(index: Index, head: Process, entries: Sequence[LogEntry]) -> Finding:
    """The finding about one process; a warning once it waits for what does not come."""
    newest = max(entries, key=lambda each: each.at_s)
    count = _count(entries)
    waits_s = _waits_in_vain_s(index, head, newest.at_s)
    name = called(head)
    what = (
        f"{counted(count, 'task')} of the pool of {name} {'has' if count == 1 else 'have'} raised"
    )
    kinds = sorted({_error(each) for each in entries})
    summary = f"{what} {', '.join(kinds[:SHOWN])}"
    if waits_s is not None:
        at = at_line(main_thread(head))
        summary += f", and it waits{at} for {index.lasting(waits_s)}"
    evidence = [_told(each) for each in _first_of_each(entries)[:SHOWN]]
    if waits_s is not None:
        evidence.append(
            f"since then no task is left in the pool, and its workers are idle: {name} has waited "
            f"for {index.lasting(waits_s)}"
        )
    lost = lost_permits(index, head) if waits_s is not None else None
    if lost is not None:
        evidence.append(lost.evidence)
        cause, advice = lost.cause, lost.advice
    else:
        cause, advice = _why(_is_executor(index, head), is_waiting=waits_s is not None), _ASK
    return Finding(
        rule=RULE,
        severity=Severity.INFO if waits_s is None else Severity.WARNING,
        process=head.process,
        summary=summary,
        evidence=tuple(evidence),
        cause=cause,
        advice=advice,
    )


_ASK = (
    "Give apply_async an error_callback, or keep what it returns and call get() on each; call "
    "result() on each future. That costs nothing and raises the error where it is seen."
)


def _why(is_executor: bool, *, is_waiting: bool) -> str:
    """Why nobody learns of the exceptions; callbacks of a future are called in any case."""
    asks = "result() of its future" if is_executor else "get(), result(), next of imap"
    cause = f"The exception of a task is raised only where the program asks for its result ({asks})"
    if not is_executor:
        cause += ". A callback of apply_async is not called for such a task"
    cause += ", and nothing is printed."
    if not is_waiting:
        return f"{cause} Whether the program has asked is not known."
    if is_executor:
        return cause
    return f"{cause} So a loop that counts callbacks or finished results waits for ever."


def _is_executor(index: Index, head: Process) -> bool:
    """Whether the workers of a process are those of a ProcessPoolExecutor."""
    mains = [main_thread(each) for each in _workers_of(index, head)]
    return bool(mains) and all(
        main is not None and calls(own_frames(main.stack), EXECUTOR_WORKER) for main in mains
    )


def _count(entries: Sequence[LogEntry]) -> int:
    """How many tasks have raised, at least: each note has the number of its kind so far."""
    most: dict[tuple[object, ...], int] = {}
    for each in entries:
        key = (each.process, _error(each), place_of(each.details))
        most[key] = max(most.get(key, 0), int(number_of(each.details, "count") or 1))
    return sum(most.values())


def _first_of_each(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """One note of each error and line."""
    found: dict[tuple[object, ...], LogEntry] = {}
    for each in entries:
        found.setdefault((_error(each), place_of(each.details)), each)
    return list(found.values())


def _error(entry: LogEntry) -> str:
    return str(entry.details.get("type") or "an exception")


def _told(entry: LogEntry) -> str:
    """`ValueError: bad shape, at data.py:12 score`."""
    text, place = entry.details.get("text"), place_of(entry.details)
    words = f"{_error(entry)}: {text}" if text else _error(entry)
    return f"{words}, at {place}" if place else words


def _waits_in_vain_s(index: Index, head: Process, failed_at_s: float) -> float | None:
    """Seconds for which a process has waited while its pool has had nothing to do.

    Returns:
        `None` while a task is left, a worker works, or the process does something else; also where
        its pools could not be read.
    """
    pools = _outstanding(head)
    if not pools or any(pools) or not _only_waits(index, head):
        return None
    workers = [each for each in children_started_by(index, head) if each.role == "pool-worker"]
    times = [quiet_s(each, index) or 0.0 for each in workers if not each.is_gone]
    waits_s = min([*times, index.snapshot.at_s - failed_at_s])
    return waits_s if waits_s >= WAITS_S else None


def _only_waits(index: Index, head: Process) -> bool:
    """Whether its main thread waits without a limit, or sleeps and checks again and again."""
    thread = main_thread(head)
    wait = thread.waits_on if thread is not None else None
    if wait is None:
        return False
    if wait.kind != "timer":
        return wait.kind == "futex" and wait.timeout_s is None
    cpu_percent = mean_cpu_percent(head, index.history)
    is_idle = cpu_percent is not None and cpu_percent <= POLLS_PERCENT
    return is_idle and (wait.timeout_s or 0.0) <= POLL_S


def _outstanding(head: Process) -> list[int]:
    """The number of tasks that each pool of a process has left, as its hook has said."""
    gauge = head.gauges.get("pools") if head.gauges else None
    pools = gauge if isinstance(gauge, list) else []
    found = [number_of(each, "outstanding") for each in pools if isinstance(each, dict)]
    return [int(each) for each in found if each is not None]
