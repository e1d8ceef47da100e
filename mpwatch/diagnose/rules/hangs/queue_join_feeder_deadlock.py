"""A parent joins a child that cannot exit before the parent has read its queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import with_sigterm
from mpwatch.diagnose.analysis.pipes import pipe_ends, pipes_among
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head
from mpwatch.diagnose.analysis.stack_patterns import main_shape, main_thread
from mpwatch.diagnose.analysis.waits.edges import is_busy
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot, Thread

RULE = "queue-join-feeder-deadlock"
STUCK_S = 5.0


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each parent that waits for a child whose feeder thread is blocked.

    A full pipe whose reader is alive and busy is back-pressure; the parent's own wait for the exit
    of the child is what makes it a deadlock. Further children in the same state are evidence.
    """
    blocked: defaultdict[ProcessId, list[tuple[Process, Thread, float]]] = defaultdict(list)
    for child in index.snapshot.living():
        feeder = next((t for t in child.threads if _is_blocked(t)), None)
        parent = family_head(index, child)
        if feeder is None or feeder.waits_on is None or parent is None or parent.is_gone:
            continue
        quiet, parents_quiet = quiet_s(child, index), quiet_s(parent, index)
        if quiet is None or parents_quiet is None or min(quiet, parents_quiet) < STUCK_S:
            continue
        readers_of = pipe_ends(index).readers
        readers = {
            reader
            for pipe in pipes_among(feeder.waits_on.targets)
            for reader in readers_of.get(pipe, ())
        }
        if not _is_read(index.snapshot, readers, parent, child):
            blocked[parent.process].append((child, feeder, min(quiet, parents_quiet)))
    for parent_id, children in blocked.items():
        parent = index.snapshot.get(parent_id)
        first = next((each for each in children if parent and _joins(parent, each[0])), None)
        if parent is not None and first is not None:
            others = [child for child, _, _ in children if child is not first[0]]
            yield _finding(index, parent, first, others)


def _is_blocked(thread: Thread) -> bool:
    """Whether a thread is blocked writing to a pipe."""
    return thread.waits_on is not None and thread.waits_on.kind == "pipe-write"


def _joins(parent: Process, child: Process) -> bool:
    """Whether the parent waits for the exit of this child, or of one that is not named."""
    thread = main_thread(parent)
    if thread is None:
        return False
    wait = thread.waits_on
    named = wait.targets if wait is not None and wait.kind == "child" else ()
    if any(target.startswith("pid ") for target in named):
        return f"pid {child.pid}" in named
    return main_shape(parent) in ("joins-process", "shuts-workers-down")


def _is_read(snapshot: Snapshot, readers: set[ProcessId], parent: Process, child: Process) -> bool:
    """Whether a busy process other than these two may read the pipe."""
    others = [snapshot.get(reader) for reader in readers - {parent.process, child.process}]
    return any(p is not None and any(is_busy(t) for t in p.threads) for p in others)


def _finding(
    index: Index,
    parent: Process,
    joined: tuple[Process, Thread, float],
    others: Sequence[Process],
) -> Finding:
    child, feeder, since_s = joined
    wait = feeder.waits_on
    queued = (
        "" if wait is None or wait.queued_bytes is None else f", {wait.queued_bytes} bytes unread"
    )
    pipe = "" if wait is None else ", ".join(wait.targets)
    cause, advice = with_sigterm(child, _CAUSE, _ADVICE)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=parent.process,
        subject=str(child.pid),
        summary=f"{called(parent)} joins {called(child)} before it has read the child's queue",
        evidence=(
            f"{called(parent)} has waited {index.lasting(since_s)} for the exit of {called(child)}",
            f"thread {feeder.name} of {called(child)} is blocked writing to {pipe}{queued}",
            *([f"no process reads what {all_called(others)} would send either"] if others else ()),
        ),
        cause=cause,
        advice=advice,
    )


_CAUSE = (
    "Before it exits, a process that has put items on a queue waits until all of them are in the "
    "pipe, and a pipe holds 64 KiB. The parent, which should read the pipe, waits for the child's "
    "exit. Results smaller than the pipe do not show the fault."
)
_ADVICE = (
    "Get all items from the queue first, then join. cancel_join_thread() lets the child exit, but "
    "loses items; a Manager's queue works in any order, but is slower."
)
