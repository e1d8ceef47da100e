"""A worker is blocked in input or output, or in one sample, far beyond its usual time."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, of_role
from mpwatch.diagnose.analysis.stack_patterns import main_shape, main_thread, user_frame
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.deadlocks import ADVICE as READ_BOTH
from mpwatch.diagnose.analysis.waits.deadlocks import UnreadPipe, unread_by
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.loader_polls import is_loader_poll
from mpwatch.model.samples import WaitKind
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.units import seconds_text

RULE = "stuck-worker-io"
BLOCKED_S = 15.0
TASK_S = 30.0
TASK_FACTOR = 10.0
"""A task this many times longer than the slow ones before it is not just a slow one."""
HOPELESS_S = 60.0
_OUTSIDE: frozenset[WaitKind] = frozenset(("socket-read", "socket-write", "disk"))


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each worker that is blocked in a file or socket, or in one sample.

    An idle worker polls its pipe of work: that is neither. Sleeping and computing are slow, not
    blocked, unless the hook knows that a task takes many times longer than ever before.
    """
    for worker in of_role(index.snapshot, "loader-worker"):
        thread = main_thread(worker)
        if thread is None:
            continue
        quiet = quiet_s(worker, index) if _is_blocked(worker, thread) else None
        if quiet is not None and quiet >= BLOCKED_S:
            waits = wait_graph(index)
            unread = unread_by(index.snapshot, waits, worker.process)
            yield _finding(worker, thread, quiet, unread)
        elif (since := _task_too_long_s(worker)) is not None:
            yield _finding(worker, thread, since, None)


def _is_blocked(worker: Process, thread: Thread) -> bool:
    """Whether a thread waits for the world outside: state D, a socket, or a call in a sample."""
    if thread.state == "D":
        return True
    wait = thread.waits_on
    if thread.state != "S" or wait is None:
        return False
    if wait.kind in _OUTSIDE:
        return True
    if is_loader_poll(wait):
        return False
    is_in_sample = main_shape(worker) == "worker-fetching"
    return is_in_sample and wait.kind in ("pipe-read", "poll", "unknown")


def _task_too_long_s(worker: Process) -> float | None:
    """How long the hook has seen it in one task, if that is many times its usual."""
    load = worker.loader
    if load is None or load.task_since_s is None or load.fetch_p99_s is None:
        return None
    is_long = load.task_since_s >= max(TASK_S, TASK_FACTOR * load.fetch_p99_s)
    return load.task_since_s if is_long else None


def _finding(worker: Process, thread: Thread, since_s: float, unread: UnreadPipe | None) -> Finding:
    """The finding for one worker.

    Args:
        worker: The blocked worker.
        thread: Its blocked thread.
        since_s: Seconds without progress.
        unread: The full pipe that the worker does not read, where that blocks it for ever.
    """
    wait = thread.waits_on
    evidence = [
        f"{called(worker)} has made no progress for {seconds_text(since_s)}, state {thread.state}"
    ]
    if wait is not None:
        evidence.append(f"in {wait.call} on {', '.join(wait.targets[:3]) or 'nothing visible'}")
    if thread.wchan:
        evidence.append(f"kernel wait channel {thread.wchan}")
    frame = user_frame(thread.stack)
    if frame is not None:
        evidence.append(f"at {frame_words(frame)}")
    if worker.loader is not None and worker.loader.task is not None:
        index = "" if worker.loader.index is None else f", index {worker.loader.index}"
        evidence.append(f"in batch {worker.loader.task}{index}")
    if unread is not None:
        return _of_unread(worker, unread, since_s, (*evidence, unread.evidence))
    is_hopeless = since_s >= HOPELESS_S
    hint = "" if worker.hook.state == "ready" else " Attach the hook to see which sample it is."
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if is_hopeless else Severity.WARNING,
        process=worker.process,
        summary=f"{called(worker)} has been blocked for {seconds_text(since_s)}",
        evidence=tuple(evidence),
        cause=(
            "Network storage that does not answer and has no timeout, a file server or FUSE mount "
            "that is down, or a corrupt file that keeps a decoder busy. A DataLoader without a "
            "timeout waits for the worker for ever. State D ignores signals, SIGKILL included."
        ),
        advice=(
            "Give the DataLoader a timeout beyond its worst case, and the storage client one of "
            "its own; read with retries or from a local copy. A process in state D continues "
            "only when the storage answers." + hint
        ),
    )


def _of_unread(
    worker: Process, unread: UnreadPipe, since_s: float, evidence: tuple[str, ...]
) -> Finding:
    """Put into words that a worker and a program it started wait for each other."""
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=worker.process,
        summary=(
            f"{called(worker)} and {called(unread.writer)} have waited for each other for "
            f"{seconds_text(since_s)}"
        ),
        evidence=evidence,
        cause=unread.cause,
        advice=READ_BOTH,
    )
