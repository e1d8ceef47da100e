"""A forked child waits for a lock that a thread of its parent held at the fork."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from mpwatch.describe.frames import is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, user_frame
from mpwatch.diagnose.analysis.waits.providers import nested_in, taken_at
from mpwatch.diagnose.analysis.waits.threads import ForkedAlone, forked_alone, older_threads
from mpwatch.diagnose.analysis.waits.verdicts import is_same_function, own_lock
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId

RULE = "fork-with-threads-lock"
_FEEDER = "QueueFeeder"
"""Begins the name of the thread that sends the items of a multiprocessing queue."""
_ENDING_WAITS = sum(
    1 << number - 1
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTERM)
)
"""Signals whose handlers programs use to set an event."""

_CAUSE = (
    "A fork copies the state of all locks, but only the thread that forks. A lock that another "
    "thread held at the fork stays locked in the child for ever: the thread that would release it "
    "does not exist there."
)
_CAUSE_UNKNOWN = (
    "No other Python thread of the parent is known from the time of the fork. Either one held the "
    "lock at that moment (a fork copies the state of all locks, but only the thread that forks), "
    "or this thread takes a plain lock that it holds already."
)
_OR_ITS_OWN = (
    "Or this thread holds it itself: a function of the name of the one that waits is on its stack "
    "a second time, and a plain lock cannot be taken twice."
)
_CAUSE_WOKEN = (
    "A fork copies only the thread that forks. This thread waits on a condition (the result of a "
    "thread pool, an Event, a queue) that only another thread would signal, and that thread does "
    "not exist in the child: a thread pool made before the fork accepts work, but has no threads."
)
_CAUSE_EXECUTOR = (
    "The executor was made before this process was forked. Its threads exist in the parent only, "
    "and its lock may have been held at the fork: it is held while workers are started. What a "
    "worker submits to the executor that it runs in, or to another one of its parent, is never run."
)
_ADVICE = (
    "Start the processes before starting threads, or start them by {how} (everything is pickled, "
    "start-up takes seconds), or create the lock anew in each process "
    "(os.register_at_fork(after_in_child=...)). This child can only be killed{then}"
)
_ADVICE_WOKEN = (
    "Create the thread pool, or the queue and its thread, in each process at its first use{init}. "
    "Or start the processes by {how}, which pickles everything and takes seconds. This child can "
    "only be killed{then}"
)
_ADVICE_EXECUTOR = (
    "Do not submit from inside of a worker to the executor that runs it: do the inner work "
    "directly, or return and let the caller submit the next step. An executor that a process needs "
    "for itself has to be made in that process{init}. This child can only be killed{then}"
)
_EXECUTORS = (
    "concurrent/futures/process.py:submit",
    "concurrent/futures/thread.py:submit",
    "process_executor.py:submit",
)
"""Functions of CPython 3.10 to 3.14 and of loky that take the lock of an executor."""
Kind: TypeAlias = Literal["lock", "woken", "executor"]
_FOR_LOADER: Mapping[str, str] = {
    "how": 'multiprocessing_context="forkserver" or "spawn"',
    "init": ", or in worker_init_fn",
    "then": "; main then raises 'exited unexpectedly'.",
}
_FOR_OTHERS: Mapping[str, str] = {
    "how": 'mp.get_context("forkserver") or "spawn"',
    "init": "",
    "then": ".",
}


def check(index: Index) -> Iterator[Finding]:
    """Yield one finding for all forked children of a parent that are blocked in the same way.

    A child that is seen to have taken the lock itself is none of them. One that waits on an event
    in its own code may be meant to, until a handler of a signal sets it.
    """
    by_head: defaultdict[tuple[ProcessId | None, Kind], list[ForkedAlone]] = defaultdict(list)
    for stuck in forked_alone(index, "lock"):
        if own_lock(index, stuck.process, stuck.thread) or nested_in(index, stuck.thread):
            continue
        if _may_be_meant_to_wait(stuck) or _is_of_its_own(index, stuck):
            continue
        head = family_head(index, stuck.process)
        by_head[None if head is None else head.process, _kind(stuck)].append(stuck)
    for (_, kind), alike in by_head.items():
        yield _finding(index, alike, kind)


def _finding(index: Index, alike: Sequence[ForkedAlone], kind: Kind) -> Finding:
    """The finding for children blocked alike, at the first of them, with the others named."""
    stuck, others = alike[0], [each.process for each in alike[1:]]
    names, have, were = called(stuck.process), "has", "it was"
    if others:
        names, have, were = f"{names} and {len(others)} more", "have", "they were"
    had_threads = any(each.parents_threads and not each.is_native for each in alike)
    which = f"was locked when {were} forked" if had_threads else "no thread of its own can release"
    waits_for = f"a lock that {which}"
    cause, advice = _CAUSE if had_threads else _CAUSE_UNKNOWN, _ADVICE
    takers = tuple(dict.fromkeys(words for each in alike for words in _takers(index, each)))
    if takers:
        cause = f"{cause} Here that is most likely such a thread of the parent, which takes it too."
    elif had_threads and any(_may_be_its_own(index, each) for each in alike):
        cause = f"{_CAUSE} {_OR_ITS_OWN}"
    if kind != "lock":
        waits_for = f"a thread that was not forked with {'them' if others else 'it'}"
        cause, advice = _CAUSE_WOKEN, _ADVICE_WOKEN
    if kind == "executor":
        waits_for, cause = "an executor that was made before the fork", _CAUSE_EXECUTOR
        advice = _ADVICE_EXECUTOR
    is_loader = stuck.process.role == "loader-worker"
    so_do = (f"so do {len(others)} more: {all_called(others)}",) if others else ()
    shortest = min(each.quiet_s for each in alike)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=stuck.process.process,
        tid=stuck.thread.tid,
        summary=f"{names} {have} waited {index.lasting(shortest)} for {waits_for}",
        evidence=(*stuck.evidence, *takers[:2], *so_do),
        cause=cause,
        advice=advice.format_map(_FOR_LOADER if is_loader else _FOR_OTHERS),
    )


def _may_be_its_own(index: Index, stuck: ForkedAlone) -> bool:
    """Whether the function that is blocked is a second time on the stack of its thread."""
    own = program_frames(stuck.thread.stack)
    return any(is_same_function(index, own[0], each) for each in own[1:])


def _takers(index: Index, stuck: ForkedAlone) -> Iterator[str]:
    """The threads of the parent that take what is written like the lock of a child, and where."""
    frame = user_frame(stuck.thread.stack)
    line = source_of(index, frame) if frame is not None else None
    lock = taken_at(line, line.statement) if line is not None else None
    head = family_head(index, stuck.process)
    if frame is None or lock is None or head is None:
        return
    older = {each.tid for each in older_threads(head, stuck.process)}
    for thread in head.threads:
        for each in own_frames(thread.stack) if thread.tid in older else ():
            other = source_of(index, each) if each.file == frame.file else None
            same = [
                taken
                for taken in (other.locks if other is not None else ())
                if (taken.name, taken.owner) == (lock.name, lock.owner)
            ]
            if same:
                file = each.file.rpartition("/")[2]
                yield (
                    f"thread {thread.name} of {called(head)} takes {lock.name} as well: "
                    f"`{same[0].statement.text}` at {file}:{same[0].statement.line}"
                )
                break


def _kind(stuck: ForkedAlone) -> Kind:
    """Whether the thread waits in an executor, on a condition, or for a lock."""
    frames = own_frames(stuck.thread.stack)
    if any(calls(frames[:3], each) for each in _EXECUTORS):
        return "executor"
    return "woken" if frames and calls(frames[:1], "threading.py:wait") else "lock"


def _is_of_its_own(index: Index, stuck: ForkedAlone) -> bool:
    """Whether it waits to be woken by a thread that it cannot have lost at the fork.

    Its parent had none then but those that send the items of queues: it was the child's own.
    """
    head = family_head(index, stuck.process)
    is_known = head is not None and head.sample.threads is not None
    others = [each for each in stuck.parents_threads if not each.startswith(_FEEDER)]
    return _kind(stuck) == "woken" and is_known and not others


def _may_be_meant_to_wait(stuck: ForkedAlone) -> bool:
    """Whether user code waits on a condition, as a process does that is parked until a signal."""
    frames = own_frames(stuck.thread.stack)
    caller = next((f for f in frames if not f.file.endswith("threading.py")), None)
    if _kind(stuck) != "woken" or caller is None or is_library(caller):
        return False
    handles = (stuck.process.sample.signals_caught or 0) & _ENDING_WAITS
    return bool(handles) or not stuck.parents_threads
