"""`Event.set` waits for a process that was killed, or a barrier for one that has exited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mpwatch.describe.frames import at_frame, own_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.diagnose.analysis.exits.kinds import (
    death_of,
    sender_of,
    terminations_near,
    violent_deaths_near,
)
from mpwatch.diagnose.analysis.idle_time import STUCK_S, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import ended_words
from mpwatch.diagnose.analysis.process_queries import (
    GAP_TICKS,
    WORK_ROLES,
    all_called,
    called,
    children_started_by,
    family_head,
)
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, threads_calling, user_frame
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark
from mpwatch.model.units import seconds_text

RULE = "event-set-hangs"
_BARRIER = ("synchronize.py:wait", "threading.py:_wait", "threading.py:wait")
"""`multiprocessing.Barrier.wait` while other parties have yet to arrive; up to CPython 3.15."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each thread blocked in `Condition.notify` and each broken barrier."""
    yield from _in_notify(index)
    yield from _at_barriers(index)


def _in_notify(index: Index) -> Iterator[Finding]:
    """Threads that wait for the acknowledgement of a process they have woken."""
    for process, thread in threads_calling(index, "synchronize.py:notify"):
        if thread.state == "R":
            continue
        quiet = quiet_s(process, index)
        # A woken process acknowledges within microseconds: a healthy notify takes no such time.
        if quiet is None or quiet < STUCK_S:
            continue
        line = at_frame(user_frame(thread.stack), ", from ")
        ended = _ended_in_wait(index, process)
        statements = () if ended else (*marks(index, "terminates"), *marks(index, "kills"))
        known = "a process that waited on it does not respond"
        if ended:
            known = "most likely a process was ended while it waited on it"
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=process.process,
            tid=thread.tid,
            summary=f"{called(process)} is blocked in Condition.notify: {known}",
            evidence=(
                f"in Condition.notify for at least {seconds_text(quiet)}{line}",
                *ended_words(ended, 3),
            ),
            cause=_ACKNOWLEDGE + _why_not(index, ended, statements),
            advice=_ADVICE if ended or statements else _ADVICE_UNKNOWN,
        )


_ACKNOWLEDGE = (
    "Condition.notify and Event.set wait until every waiting process acknowledges the wake-up. "
)
_ADVICE = (
    "Do not end a process by terminate() or kill() while it may wait on an Event or Condition: "
    "tell it to end by a flag or message that it looks at after each wake-up, and join it. Or let "
    "it poll is_set() with a sleep, which counts no waiter. A time limit of its wait, or another "
    "process in its place, does not help: the one that ended is still counted. Restart this "
    "process now."
)
_ADVICE_UNKNOWN = (
    "Restart this process, and replace the Event after a crash. To avoid the hang, poll a shared "
    "Value, or use a pipe, whose reader gets EOF when the writer exits."
)


def _ended_in_wait(index: Index, process: Process) -> tuple[Process, ...]:
    """The processes near it that a signal ended: those last seen in a wait, if there are any."""
    ended = violent_deaths_near(index, process) or terminations_near(index, process)
    waited = tuple(
        each
        for each in ended
        if (thread := main_thread(each)) is not None
        and calls(own_frames(thread.stack), "synchronize.py:wait")
    )
    return waited or ended


def _why_not(index: Index, ended: Sequence[Process], statements: Sequence[Mark]) -> str:
    """Why one of the waiting processes does not acknowledge, and how sure that is."""
    if ended:
        first = ended[0]
        sender = sender_of(index, first, first.ended) if first.ended is not None else None
        by = f" by {sender}" if sender is not None else ""
        return (
            f"{called(first)} was ended{by}, most likely while it waited, and is still counted "
            "among those that wait: a signal ends a process wherever it is, and the rest of the "
            "wait does not run."
        )
    if statements:
        return (
            f"One of them has not. Most likely {mark_words(statements[0])} has ended one that "
            "waited, which is still counted: it ends a process wherever it is, and the rest of the "
            "wait does not run. Otherwise one of them was killed by something else, or is stopped."
        )
    return "One of them has not: it was killed while it waited, or is stopped."


def _at_barriers(index: Index) -> Iterator[Finding]:
    """Barriers at which every living worker of a parent waits, and at least one has exited."""
    at_barrier: defaultdict[ProcessId, list[Process]] = defaultdict(list)
    for process in index.snapshot.living():
        thread = main_thread(process) if process.role in WORK_ROLES else None
        if thread is None or thread.state == "R":
            continue
        if calls(own_frames(thread.stack), *_BARRIER):
            head = family_head(index, process)
            if head is not None:
                at_barrier[head.process].append(process)
    for head_id, arrived in at_barrier.items():
        head = index.snapshot.get(head_id)
        if head is None:
            continue
        family = [p for p in children_started_by(index, head) if p.role in WORK_ROLES]
        gone = [p for p in family if p.is_gone and _is_of_their_age(p, arrived)]
        quiet = [quiet_s(process, index) or 0.0 for process in arrived]
        is_everybody = len(arrived) == sum(not p.is_gone for p in family)
        if gone and is_everybody and min(quiet) >= STUCK_S:
            yield _broken_barrier(arrived, gone, min(quiet))


def _is_of_their_age(process: Process, others: list[Process]) -> bool:
    """Whether a process was started together with the others."""
    starts = [other.process.start_ticks for other in others]
    return min(starts) - GAP_TICKS <= process.process.start_ticks <= max(starts) + GAP_TICKS


def _broken_barrier(arrived: list[Process], gone: list[Process], quiet_s: float) -> Finding:
    """A barrier that waits for a process that has exited."""
    thread = main_thread(arrived[0])
    user = user_frame(thread.stack) if thread is not None else None
    at = at_frame(user, ", at ")
    is_certain = any(p.ended is not None and death_of(p.ended) != "normal" for p in gone)
    waits = wait_verb(arrived)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if is_certain else Severity.WARNING,
        process=arrived[0].process,
        subject="barrier",
        summary=f"{all_called(arrived)} {waits} at a barrier for {called(gone[0])}, which exited",
        evidence=(
            f"in Barrier.wait for at least {seconds_text(quiet_s)}{at}",
            *ended_words(gone, 3),
            "all other processes started with it have arrived",
        ),
        cause=(
            "A barrier counts arrivals and does not notice exits. If a process exits before it "
            "arrives (an exception, or less data than the others), the others wait for ever."
        ),
        advice=(
            "Restart the job: the barrier will not be passed. Give it a timeout, which breaks it "
            "for all processes, and call barrier.abort() where a process fails; or let the parent "
            "terminate the others when one exits, as torch.multiprocessing.spawn does."
        ),
    )
