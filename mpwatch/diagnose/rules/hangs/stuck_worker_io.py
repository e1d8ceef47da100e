"""A loader worker is blocked in a file or socket, or needs far longer than usual for a batch."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import at_frame, frame_words
from mpwatch.describe.processes import STATE_D
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import READ_BOTH, UnreadPipe, unread_by
from mpwatch.diagnose.analysis.process_queries import called, of_role
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.source.loops import end_of_loop, endless_loop, why_endless
from mpwatch.diagnose.analysis.stack_patterns import main_thread, shape_in, user_frame
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.shared_connections import is_told
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Frame, WaitKind
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import EndlessLoop, Statement
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import WaitGraph, is_loader_poll

RULE = "stuck-worker-io"
BLOCKED_S = 15.0
TASK_S = 30.0
TASK_FACTOR = 10.0
"""A task this many times longer than the slow ones before it is not just a slow one."""
HOPELESS_S = 60.0
_OUTSIDE: frozenset[WaitKind] = frozenset(("socket-read", "socket-write", "disk"))


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each worker that is blocked in a file or socket, or in one sample.

    A worker that polls its index queue is idle. A worker that sleeps or computes is slow, not
    blocked, unless the hook measured that its batch takes many times longer than those before.
    """
    for worker in of_role(index.snapshot, "loader-worker"):
        thread = main_thread(worker)
        if thread is None:
            continue
        quiet = quiet_s(worker, index) if _is_blocked(index, thread) else None
        if quiet is not None and quiet >= BLOCKED_S:
            waits = wait_graph(index)
            unread = unread_by(index.snapshot, waits, worker.process)
            if unread is None and _is_dead_end(waits, worker):
                continue  # `standing-still` says why no process can end it
            if is_told(index, worker):
                continue  # `shared-connection` says that the peer may well have answered
            yield _blocked(index, worker, thread, quiet, unread)
        elif (since := _task_too_long_s(worker)) is not None:
            if _is_in_a_cycle(wait_graph(index), worker):
                continue  # `standing-still` says which process does not read or release what
            yield _slow_batch(index, worker, thread, since)


def _is_dead_end(waits: WaitGraph, worker: Process) -> bool:
    """Whether a worker waits for what no process can do."""
    return any(
        chain.verdict == "dead-end" and chain.links[-1].process == worker.process
        for chain in waits.chains
    )


def _is_in_a_cycle(waits: WaitGraph, worker: Process) -> bool:
    """Whether a worker waits for a process that waits for it."""
    return any(
        chain.verdict == "cycle" and any(each.process == worker.process for each in chain.links)
        for chain in waits.chains
    )


def _is_blocked(index: Index, thread: Thread) -> bool:
    """Whether a thread is in state D, waits on a socket, or waits in a call inside a sample."""
    if thread.state == "D":
        return True
    wait = thread.waits_on
    if thread.state != "S" or wait is None:
        return False
    if wait.kind in _OUTSIDE:
        return True
    if is_loader_poll(wait) or wait.kind not in ("pipe-read", "poll", "unknown"):
        return False
    return shape_in(index, thread.stack) == "worker-fetching"


def _task_too_long_s(worker: Process) -> float | None:
    """Seconds the worker has spent on its batch, if that is many times its usual time."""
    load = worker.loader
    if load is None or load.task_since_s is None or load.fetch_p99_s is None:
        return None
    is_long = load.task_since_s >= max(TASK_S, TASK_FACTOR * load.fetch_p99_s)
    return load.task_since_s if is_long else None


def _blocked(
    index: Index, worker: Process, thread: Thread, since_s: float, unread: UnreadPipe | None
) -> Finding:
    """The finding for a worker that has been blocked for `since_s` seconds.

    Args:
        index: The job.
        worker: The blocked worker.
        thread: Its blocked thread.
        since_s: Seconds without progress.
        unread: The full pipe that the worker does not read, where that blocks it for ever.
    """
    evidence = (
        f"{called(worker)} has made no progress for {index.lasting(since_s)}, state {thread.state}",
        *_place(worker, thread),
    )
    if unread is not None:
        return _of_unread(index, worker, unread, since_s, (*evidence, unread.evidence))
    cause, advice = _cause_and_advice(thread)
    return Finding(
        rule=RULE,
        severity=_severity(since_s),
        process=worker.process,
        summary=f"{called(worker)} has been blocked for {index.lasting(since_s)}{_line(thread)}",
        evidence=evidence,
        cause=f"{cause} {_CAUSE_LOADER}",
        advice=f"{advice} {_ADVICE_LOADER}{_hint(worker)}",
    )


def _slow_batch(index: Index, worker: Process, thread: Thread, since_s: float) -> Finding:
    """The finding for a worker that has worked on one batch for `since_s` seconds."""
    found = endless_loop(index, thread.stack)
    if found is not None:
        return _in_loop(index, worker, thread, since_s, *found)
    load = worker.loader
    usual_s = None if load is None else load.fetch_p99_s
    usual = "" if usual_s is None else f"; 99% of its batches took at most {seconds_text(usual_s)}"
    return Finding(
        rule=RULE,
        severity=_severity(since_s),
        process=worker.process,
        summary=(
            f"{called(worker)} has worked on one batch for {index.lasting(since_s)}{_line(thread)}"
        ),
        evidence=(
            f"in this batch for {index.lasting(since_s)}, state {thread.state}{usual}",
            *_place(worker, thread),
        ),
        cause=(
            f"One batch takes more than {TASK_FACTOR:.0f} times its usual time: a sample is far "
            f"larger than the others, or the code that reads it does not end. {_CAUSE_LOADER}"
        ),
        advice=(
            "Load the samples of this batch alone, in one process, to find the one that takes so "
            f"long; skip or repair it. {_ADVICE_LOADER}{_hint(worker)}"
        ),
    )


def _in_loop(
    index: Index,
    worker: Process,
    thread: Thread,
    since_s: float,
    frame: Frame,
    header: Statement,
) -> Finding:
    """The finding for a worker that is in a loop without an end in one batch."""
    name, time = called(worker), index.lasting(since_s)
    line = f"`{header.text}` of line {header.line}"
    source = source_of(index, frame)
    loop = source.endless if source is not None else None
    why = "It ends only from within" if loop is None else why_endless(loop, name)
    return Finding(
        rule=RULE,
        severity=_severity(since_s),
        process=worker.process,
        summary=(
            f"{name} has worked on one batch for {time}, in a loop without an end at "
            f"{frame_words(frame)}"
        ),
        evidence=(
            f"in this batch for {time}, state {thread.state}, inside {line}",
            *_place(worker, thread),
        ),
        cause=(
            f"{name} has gone round in the loop {line} in {frame.function}() for about {time}. "
            f"{why}. {_CAUSE_LOADER}"
        ),
        advice=(
            f"{end_of_loop(loop or EndlessLoop(header), worker)} {_ADVICE_LOADER}{_hint(worker)}"
        ),
    )


def _line(thread: Thread) -> str:
    """The user's line a thread is at, after a comma; empty without a stack."""
    frame = user_frame(thread.stack)
    return at_frame(frame, ", at ")


def _severity(since_s: float) -> Severity:
    return Severity.CRITICAL if since_s >= HOPELESS_S else Severity.WARNING


def _hint(worker: Process) -> str:
    is_ready = worker.hook.state == "ready"
    return "" if is_ready else " Attach the hook to see which sample it is."


def _place(worker: Process, thread: Thread) -> Iterator[str]:
    """The system call, kernel wait channel, line and batch where a worker is, as far as known."""
    wait = thread.waits_on
    if wait is not None:
        yield f"in {wait.call} on {', '.join(wait.targets[:3]) or 'nothing visible'}"
    if thread.wchan:
        yield f"kernel wait channel {thread.wchan}"
    frame = user_frame(thread.stack)
    if frame is not None:
        yield f"at {frame_words(frame)}"
    if worker.loader is not None and worker.loader.task is not None:
        index = "" if worker.loader.index is None else f", index {worker.loader.index}"
        yield f"in batch {worker.loader.task}{index}"


def _cause_and_advice(thread: Thread) -> tuple[str, str]:
    """Cause and fix for the kind of wait that was observed."""
    kind = None if thread.waits_on is None else thread.waits_on.kind
    if thread.state == "D":
        return (
            "The worker is in an uninterruptible wait (state D) in the kernel, usually for a disk, "
            "or for a network or FUSE file system whose server does not answer. "
            f"{STATE_D}",
            "Check the storage that the line reads (dmesg, mount): the process continues "
            "when the storage answers. Read from a local copy where the storage is unreliable.",
        )
    if kind == "disk":
        return (
            "The worker waits for a file: the disk or file system does not deliver it.",
            "Check the storage that the line reads, or read from a local copy.",
        )
    if kind in ("socket-read", "socket-write"):
        return (
            "The worker waits on a socket: the peer does not answer, and the call has no timeout "
            "that would have ended the wait by now.",
            "Check the server at the other end, and give the client that opens this connection a "
            "timeout and retries.",
        )
    if kind == "pipe-read":
        return (
            "The worker reads a pipe inside a sample, and the process that should write to it "
            "sends nothing.",
            "Check the process at the other end of the pipe, and read with a timeout.",
        )
    return (
        "The worker waits in a system call inside a sample, and the call does not return.",
        "Look at the line where it waits, and give that call a timeout.",
    )


_CAUSE_LOADER = "A DataLoader without a timeout waits for the worker for ever."
_ADVICE_LOADER = (
    "DataLoader(timeout=...) makes the main process raise instead of waiting; it has to be longer "
    "than the slowest batch."
)


def _of_unread(
    index: Index,
    worker: Process,
    unread: UnreadPipe,
    since_s: float,
    evidence: tuple[str, ...],
) -> Finding:
    """The finding for a worker and a program it started that wait for each other."""
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=worker.process,
        summary=(
            f"{called(worker)} and {called(unread.writer)} have waited for each other for "
            f"{index.lasting(since_s)}"
        ),
        evidence=evidence,
        cause=unread.cause,
        advice=READ_BOTH,
    )
