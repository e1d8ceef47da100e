"""Jobs of which no process makes progress, and what the root or the others wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mpwatch.describe.findings import WAIT_TOLD_S
from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.among_threads import (
    ADVICE_AWAIT,
    LOOP_BLOCKED,
    RESULT_OF_LOOP,
)
from mpwatch.diagnose.analysis.mechanisms.cases import Mechanism, at_line
from mpwatch.diagnose.analysis.mechanisms.coroutines import unsafe_wake
from mpwatch.diagnose.analysis.mechanisms.lost_results import held_up_words
from mpwatch.diagnose.analysis.mechanisms.servers import BothRead, Nested, both_read, nested_permits
from mpwatch.diagnose.analysis.mechanisms.unreleased import lost_permits, may_lose_permits
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called, counted
from mpwatch.diagnose.analysis.receivers import spinning
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    main_shape,
    main_thread,
    own_threads,
    runs_event_loop,
    user_frame,
)
from mpwatch.diagnose.analysis.stalls.lock_holders import SHOWN_THREADS
from mpwatch.diagnose.analysis.waits.blockages import at_one_line_s
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.futures import may_set_a_result, taken_pool
from mpwatch.diagnose.analysis.waits.providers import semaphore_uses
from mpwatch.diagnose.analysis.waits.threads import FOR_EVENT, FOR_ITEM, FOR_RESULTS, purpose
from mpwatch.diagnose.analysis.waits.verdicts import IN_COROUTINE, UNANSWERED, where
from mpwatch.model.findings import Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import PartOfJob
from mpwatch.model.snapshot import Process
from mpwatch.model.waits import WaitChain, WaitLink

WARNED_S = WAIT_TOLD_S
"""The longest pause that is usual for a job of which nothing else is known."""
KNOWN_S = 15.0
"""Until then, a server whose coroutines may wait for each other, as its source shows, is not
reported."""
HOPELESS_S = 120.0
ALONE_COMPUTES_S = 20.0
"""Until then, a process that computes and does nothing else is not reported."""
SHOWN_WAITERS = 4
ADVICE_THREADS = (
    "Compare the lines at which its threads are: one of them has to release the lock or set "
    "the condition. Take several locks in the same order everywhere, and each with a timeout."
)


class Stall(NamedTuple):
    """A job that makes no progress, or a part of one, as a finding tells it."""

    severity: Severity
    process: ProcessId
    subject: str
    summary: str
    evidence: tuple[str, ...]
    cause: str
    advice: str
    others: tuple[ProcessId, ...] = ()
    is_doubtful: bool = False


def waits_for_a_semaphore(index: Index) -> Iterator[Stall]:
    """What is known if some wait for one semaphore, and all others sleep in loops or wait.

    Nothing shows which process has taken it, and a parent that only polls is not seen to be
    about to release.
    """
    if any(chain.verdict in ("cycle", "dead-end") for chain in wait_graph(index).chains):
        return
    living = [
        each
        for each in index.snapshot.living()
        if each.role not in SERVICE_ROLES and each.sample.state != "Z"
    ]
    waiting = [each for each in living if _acquires(each, index)]
    others = [each for each in living if each not in waiting]
    uses = semaphore_uses(index)
    if not waiting or len({uses[each.process].segment for each in waiting}) != 1:
        return
    asleep = [each for each in others if at_one_line_s(index, each.process) >= ALONE_COMPUTES_S]
    if not asleep or any(
        (quiet_s(each, index) or 0.0) < WARNED_S for each in others if each not in asleep
    ):
        return
    for_s = min(quiet_s(each, index) or 0.0 for each in waiting)
    names, wait = all_called(waiting, SHOWN_WAITERS), "has" if len(waiting) == 1 else "have"
    sleepers = all_called(asleep, SHOWN_WAITERS)
    yield Stall(
        severity=Severity.INFO,
        process=waiting[0].process,
        others=tuple(each.process for each in waiting[1:]),
        subject="semaphore",
        summary=(
            f"{names} {wait} waited {index.lasting(for_s)} for a semaphore"
            f"{at_line(main_thread(waiting[0]))}, and no process is at work that could release it"
        ),
        evidence=(
            *(
                f"{called(each)} waits{at_line(main_thread(each))}"
                for each in waiting[:SHOWN_WAITERS]
            ),
            *(
                f"{called(each)} sleeps again and again{at_line(main_thread(each))}"
                for each in asleep[:SHOWN_WAITERS]
            ),
            f"those that wait have made no progress for {index.lasting(for_s)}",
        ),
        cause=(
            "The kernel does not show which process has taken a semaphore. Those that wait may "
            "have taken all of it themselves (in an outer block, or before an exception or return "
            f"that skipped the release), or {sleepers} is to release it and waits for something "
            "else."
        ),
        advice=(
            "Look at every line that takes this semaphore: none may take it a second time before "
            "it has released it, and each needs a with-statement, or release() in a finally block. "
            "acquire(timeout=...) turns the wait into an error. Nothing is wrong if it only "
            "signals work that has not come yet."
        ),
    )


def _acquires(process: Process, index: Index) -> bool:
    """Whether a process has waited long for a semaphore that it takes by itself."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    if thread is None or wait is None or wait.kind != "semaphore" or wait.timeout_s is not None:
        return False
    if (
        main_shape(process) not in ("", "lock-between-processes")
        or user_frame(thread.stack) is None
    ):
        return False
    if calls(own_frames(thread.stack)[:2], "multiprocessing/queues.py:get"):
        return False  # another reader of that queue has the lock while it waits for an item
    return (quiet_s(process, index) or 0.0) >= WARNED_S


def waits_for_one_that_is_idle(index: Index) -> Iterator[Stall]:
    """A job that is at rest, whose root waits for a process that itself waits for work."""
    for chain in wait_graph(index).chains:
        root, end = chain.links[0], chain.links[-1]
        is_unanswered = chain.conclusion in UNANSWERED
        is_idle = chain.verdict == "ordinary" or is_unanswered
        if not is_idle or root.process != index.snapshot.root or root is end:
            continue
        if not is_unanswered and not end.words.startswith(_FOR_WORK):
            continue  # it is stopped, or a person has to answer
        # A timer of an event loop may wake up the server, and changes nothing.
        for_s = _nothing_moves_s(index, end.process if is_unanswered else None)
        process = index.snapshot.get(root.process)
        is_known = chain.conclusion == IN_COROUTINE and (
            nested_at_end(index, end) is not None or _unsafe_at_end(index, end) is not None
        )
        if for_s < (KNOWN_S if is_known else WARNED_S) or process is None:
            continue
        time = index.lasting(for_s)
        thread = main_thread(process)
        tasks = _TASKS if thread is not None and runs_event_loop(thread) else ""
        lost = lost_permits(index, process)
        both = both_read(index, chain)
        if both is not None:
            yield _of_both(index, process, both, chain, for_s)
            return
        if is_unanswered:
            yield _of_unanswered(index, process, chain, time)
            return
        yield Stall(
            severity=Severity.INFO,
            process=process.process,
            subject=str(process.pid),
            summary=(
                f"this job has made no progress for {time}: {called(process)} waits for "
                f"{end.name}, which waits for something to do"
            ),
            evidence=(
                chain.sentence,
                *(f"{called(each)} is at {at[2:]}" for each in (process,) if (at := where(each))),
                *_threads_of_last(index, end),
                f"no process of the job has used cpu for {time}, short wakes aside",
                *((f"{called(process)} {lost.evidence}",) if lost is not None else ()),
            ),
            cause=lost.cause
            if lost is not None
            else (
                f"{end.name} has nothing to do, so what {called(process)} waits for will not come "
                "by itself. Nothing is wrong if both wait for a request from elsewhere; otherwise "
                f"a request or its answer was lost, or was never sent.{tasks}"
            ),
            advice=lost.advice
            if lost is not None
            else (
                "If the job should be working, look for what was to be sent: read the log for a "
                "connection that ended or an exception that was only noted, and give the wait a "
                "timeout."
            ),
        )
        return


def _of_unanswered(index: Index, process: Process, chain: WaitChain, time: str) -> Stall:
    """A job that waits for the answer of a server that seems idle."""
    end = chain.links[-1]
    is_loop = chain.conclusion == IN_COROUTINE
    nested = nested_at_end(index, end) if is_loop else None
    lost = lost_permits(index, process) or (may_lose_permits(index) if is_loop else None)
    unsafe = _unsafe_at_end(index, end) if is_loop else None
    known = nested or unsafe or lost
    evidence = () if known is None else known.evidence
    count = _requests(index, end)
    causes = [
        f"{end.name} is not idle, although it waits: a client waits for its answer. "
        f"{chain.conclusion}"
    ]
    if is_loop and known is None:
        causes.append(
            "It waits for a lock, semaphore, queue, future or pooled connection that another "
            "coroutine has to set or give back, or for an answer from elsewhere."
        )
    return Stall(
        severity=Severity.INFO if nested is None and unsafe is None else Severity.WARNING,
        process=process.process,
        others=() if end.process is None or end.process == process.process else (end.process,),
        subject=str(process.pid),
        summary=(
            f"this job has made no progress for {time}: {called(process)} waits for {end.name}, "
            "which has not answered a request"
        ),
        evidence=(
            chain.sentence,
            *(f"{called(each)} is at {at[2:]}" for each in (process,) if (at := where(each))),
            *_threads_of_last(index, end),
            f"{counted(count, 'request')} of other processes "
            f"{'waits' if count == 1 else 'wait'} for {end.name}",
            *((evidence,) if isinstance(evidence, str) else evidence),
        ),
        cause=" ".join([*causes, *([known.cause] if known is not None else [])]),
        advice=known.advice if known is not None else _ADVICE_UNANSWERED,
        is_doubtful=True,
    )


def _requests(index: Index, end: WaitLink) -> int:
    """The connections on which threads of other processes wait for a server."""
    return sum(
        end.process in edge.providers and edge.kind in ("socket-read", "poll")
        for edge in wait_graph(index).edges
    )


def nested_at_end(index: Index, end: WaitLink) -> Nested | None:
    """What the source says of coroutines of a server that may wait for each other."""
    process = index.snapshot.get(end.process)
    return None if process is None else nested_permits(index, process, _requests(index, end))


def _unsafe_at_end(index: Index, end: WaitLink) -> Mechanism | None:
    """A call of another thread of a server that its event loop may not have seen."""
    process = index.snapshot.get(end.process)
    return None if process is None else unsafe_wake(index, process)


_ADVICE_UNANSWERED = (
    "Look at what the handler of a request does between reading it and answering. In an event "
    "loop, print the tasks with the lines at which they wait: for task in asyncio.all_tasks(): "
    "task.print_stack(), from a signal handler (loop.add_signal_handler) or a debug request. Give "
    "each wait in a handler a timeout (asyncio.wait_for), so that it becomes an error."
)


def _of_both(
    index: Index, process: Process, both: BothRead, chain: WaitChain, for_s: float
) -> Stall:
    """A job that waits for a connection of which both ends are read."""
    is_sure = both.short_read is not None
    end = chain.links[-1]
    return Stall(
        severity=Severity.WARNING if is_sure or for_s >= HOPELESS_S else Severity.INFO,
        process=process.process,
        others=tuple(each.process for each in (both.client, both.server) if each is not process),
        subject=str(process.pid),
        summary=(
            f"this job has made no progress for {index.lasting(for_s)}: {called(both.client)} and "
            f"{called(both.server)} each wait for the other one to send"
        ),
        evidence=(
            both.evidence,
            chain.sentence,
            *(f"{called(each)} is at {at[2:]}" for each in (process,) if (at := where(each))),
            *_threads_of_last(index, end),
        ),
        cause=both.cause,
        advice=both.advice,
        is_doubtful=not is_sure,
    )


def _nothing_moves_s(index: Index, besides: ProcessId | None = None) -> float:
    """Seconds for which no process of the job has made progress; 0 where one was not watched.

    Args:
        index: The snapshot.
        besides: A process that does not count.
    """
    times = [quiet_s(each, index) for each in index.snapshot.living() if each.process != besides]
    return min((0.0 if each is None else each for each in times), default=0.0)


def part_at_rest(index: Index, part: PartOfJob) -> Iterator[Stall]:
    """What is known if a part of a job makes no progress, which may be due to the rest of it."""
    for_s, process = _nothing_moves_s(index), index.snapshot.get(index.snapshot.root)
    chains = [
        chain
        for chain in wait_graph(index).chains
        if chain.verdict == "unknown" and chain.links[0].process == index.snapshot.root
    ]
    if for_s < WARNED_S or process is None or not chains:
        return
    root, time = part.root.pid, index.lasting(for_s)
    yield Stall(
        severity=Severity.INFO,
        process=process.process,
        subject="part",
        summary=(
            f"{called(process)} has made no progress for {time}{at_line(main_thread(process))}; "
            f"it is part of the job of {root} ({part.name}), which was not looked at"
        ),
        evidence=(
            chains[0].sentence,
            *other_threads(index, process),
            f"no process of those looked at has made progress for {time}",
        ),
        cause=(
            "What it waits for is outside of what is watched, so that nothing follows from this "
            f"process alone: {called(process)} may wait for other processes of its job."
        ),
        advice=f"Look at the whole job: mpwatch diagnose {root}.",
        is_doubtful=True,
    )


_OF_SERVERS = (FOR_EVENT, FOR_ITEM)


def waits_for_own_threads(index: Index) -> Iterator[Stall]:
    """A job at rest, where the root's chain ends at a wait for another thread of one process.

    Whether that thread will end the wait is not known. An event loop that is blocked is a fault.
    """
    for_s = _nothing_moves_s(index)
    for chain in wait_graph(index).chains:
        process = index.snapshot.get(chain.links[-1].process)
        thread = main_thread(process) if process is not None else None
        wait = thread.waits_on if thread is not None else None
        has_root = any(link.process == index.snapshot.root for link in chain.links)
        if chain.verdict != "unknown" or not has_root or for_s < WARNED_S:
            continue
        if process is None or thread is None or wait is None or wait.kind != "futex":
            continue
        is_loop, held = runs_event_loop(thread), held_up_words(index, process)
        is_server = len(chain.links) == 1 and purpose(thread) in _OF_SERVERS and not is_loop
        if is_server and held is None:
            continue  # it waits like this for its whole life
        name, time = called(process), index.lasting(for_s)
        at = at_line(main_thread(process))
        cause = f"Only another thread of {name} can end this wait, and none of them has for {time}."
        what = f"{name} waits {purpose(thread)}{at}"
        if is_loop:
            what = f"the event loop of {name} is blocked{at}, where it waits {purpose(thread)}"
            is_result = purpose(thread) in FOR_RESULTS and not may_set_a_result(process)
            cause = f"{LOOP_BLOCKED} {RESULT_OF_LOOP if is_result else cause}"
        advice = ADVICE_AWAIT if is_loop else ADVICE_THREADS
        lost = None if is_loop else held or lost_permits(index, process)
        if taken_pool(process) is not None:
            cause = cause_of_taken_pool(process) or cause
            advice = advice if is_loop else ADVICE_TAKEN_POOL
        elif lost is not None:
            cause, advice = f"{cause} {lost.cause}", lost.advice
        yield Stall(
            severity=Severity.WARNING if is_loop or lost is not None else Severity.INFO,
            process=process.process,
            subject=str(process.pid),
            summary=f"this job has made no progress for {time}: {what}",
            evidence=(
                chain.sentence,
                *other_threads(index, process),
                *(held.evidence if held is not None else ()),
                f"no process of the job has used cpu for {time}, short wakes aside"
                f"{', and what a thread that polls uses' * bool(spinning(index))}",
            ),
            cause=cause,
            advice=advice,
        )
        return


_FOR_WORK = ("waits for a client of", "waits for work", "waits for something to do")
_TASKS = (
    " Tasks of asyncio that have ended with an exception do not show from outside: a process "
    "that waits for what they were to send or receive waits for ever."
)


def other_threads(index: Index, process: Process) -> Iterator[str]:
    """Where the other threads of Python are, one of which has to end the wait."""
    main = main_thread(process)
    places = [
        (thread, frame)
        for thread in own_threads(index, process)
        if thread is not main and (frame := user_frame(thread.stack)) is not None
    ]
    for thread, frame in places[:SHOWN_THREADS]:
        yield f"its thread {thread.name} is at {frame_words(frame)}"


def _threads_of_last(index: Index, end: WaitLink) -> Iterator[str]:
    """Where the other threads of an idle process are: one of them may be the one to answer."""
    process = index.snapshot.get(end.process)
    if process is not None:
        yield from (f"{end.name}: {words}" for words in other_threads(index, process))


def cause_of_taken_pool(process: Process) -> str:
    """That no thread of a pool is left for the calls that its threads wait for; empty if one is."""
    taken = taken_pool(process)
    if taken is None:
        return ""
    count = len(taken.waiting) + len(taken.others)
    these = "1 waits" if len(taken.waiting) == 1 else f"{len(taken.waiting)} wait"
    return (
        f"All {counted(count, 'thread')} of the thread pool {taken.name} of {called(process)} are "
        f"blocked in calls, of which {these} for results of further calls"
        f"{at_line(taken.waiting[0])}, and the others{at_line(taken.others[0])}. Most likely the "
        "further calls were submitted to the same pool and stand in its queue: no thread is free "
        "to run them, and what the others wait for comes from them."
    )


ADVICE_TAKEN_POOL = (
    "Do not wait inside of a pool for a call of the same pool: give calls that wait for others a "
    "pool or threads of their own, do the inner work directly, or return the futures and let the "
    "caller wait. More threads (max_workers) only move the limit to more calls at a time."
)
