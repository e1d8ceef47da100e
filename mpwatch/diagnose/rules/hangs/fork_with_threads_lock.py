"""A forked child waits for a lock that a thread of its parent held at the fork."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.diagnose.analysis.waits.deadlocks import ForkedAlone, forked_alone
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.units import seconds_text

RULE = "fork-with-threads-lock"

_CAUSE = (
    "A fork copies locks as they are and only the thread that forks. A lock that another thread "
    "held at that moment stays locked in the child for ever: the thread that would release it does "
    "not exist here."
)
_OR_TWICE = (
    "No other thread of the parent is known from that time; the line above may as well take a "
    "plain lock that this very thread holds already."
)
_CAUSE_WOKEN = (
    "A fork copies only the thread that forks. This one waits to be woken, as for the result of a "
    "thread pool, for an Event or for a queue, and what would wake it is a thread of its parent, "
    "which does not exist here: a pool or queue made before the fork takes work and nobody does it."
)
_ADVICE = (
    "Start the workers before starting threads, or start them with "
    'multiprocessing_context="forkserver" or "spawn" (everything is pickled, start-up '
    "takes seconds), or make the lock in each process. This child can only be killed; "
    "main then raises 'exited unexpectedly'."
)
_ADVICE_WOKEN = (
    "Make the thread pool, or the queue and the thread behind it, in each process: at its first "
    "use there, or in worker_init_fn. Or start the processes with "
    'multiprocessing_context="forkserver" or "spawn", which pickles everything and takes seconds. '
    "This child can only be killed; main then raises 'exited unexpectedly'."
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for the forked children of each parent that stand alike."""
    by_head: defaultdict[tuple[ProcessId | None, bool], list[ForkedAlone]] = defaultdict(list)
    for stuck in forked_alone(index, "lock"):
        head = family_head(index, stuck.process)
        key = None if head is None else head.process, _waits_to_be_woken(stuck)
        by_head[key].append(stuck)
    for (_, waits_to_be_woken), alike in by_head.items():
        yield _finding(alike, waits_to_be_woken=waits_to_be_woken)


def _finding(alike: Sequence[ForkedAlone], *, waits_to_be_woken: bool) -> Finding:
    """Put the first into words, with the names of those that stand as it does."""
    stuck, others = alike[0], [each.process for each in alike[1:]]
    who, have, were = called(stuck.process), "has", "it was"
    if others:
        who, have, were = f"{who} and {len(others)} more", "have", "they were"
    had_threads = any(each.parents_threads for each in alike)
    which = f"was locked when {were} forked" if had_threads else "no thread of its own can release"
    waits_for = f"a lock that {which}"
    cause, advice = _CAUSE if had_threads else f"{_CAUSE} {_OR_TWICE}", _ADVICE
    if waits_to_be_woken:
        waits_for = f"a thread that was not forked with {'them' if others else 'it'}"
        cause, advice = _CAUSE_WOKEN, _ADVICE_WOKEN
    so_do = (f"so do {len(others)} more: {all_called(others)}",) if others else ()
    shortest = min(each.quiet_s for each in alike)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=stuck.process.process,
        tid=stuck.thread.tid,
        summary=f"{who} {have} waited {seconds_text(shortest)} for {waits_for}",
        evidence=(*stuck.evidence, *so_do),
        cause=cause,
        advice=advice,
    )


def _waits_to_be_woken(stuck: ForkedAlone) -> bool:
    """Whether it waits for a condition, and not to get a lock."""
    frames = own_frames(stuck.thread.stack)
    return calls(frames[:1], "threading.py:wait") and bool(frames)
