"""Cycles of processes that wait for semaphores: full queues, locks, and barriers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.describe.waits import FULL_QUEUE, SEMAPHORE
from mpwatch.diagnose.analysis.mechanisms.cases import (
    NAMED,
    QUEUE_ITEM,
    Case,
    Mechanism,
    Waiter,
    awaited,
    ended_words,
    has_no_timeout,
    names_of,
)
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    WORK_ROLES,
    all_called,
    called,
    counted,
)
from mpwatch.diagnose.analysis.stack_patterns import main_shape
from mpwatch.diagnose.analysis.waits.providers import BARRIER, semaphore_uses
from mpwatch.model.snapshot import Process


def all_put(case: Case) -> Mechanism | None:
    """Every process of a cycle waits for room in a queue with a bound, so that none will get."""
    if not case.waiters or not all(_is_full_queue(each) for each in case.waiters):
        return None
    uses = semaphore_uses(case.index)
    segments = {uses[each.process.process].segment for each in case.waiters}
    putting = [
        process
        for process in case.index.snapshot.living()
        if (use := uses[process.process]).what == FULL_QUEUE and use.segment in segments
    ]
    queues = counted(len(segments), "full queue")
    return Mechanism(
        cause=(
            f"Room in a queue with a maxsize comes only from a get(). All the processes that have "
            f"{'this queue' if len(segments) == 1 else 'these queues'} wait, "
            f"{len(putting)} of them in put(), and none of them gets an item."
        ),
        advice=(
            "Look at which of them reads the queue: a process that puts items back into the queue "
            "that it reads waits for itself once the queue is full, and so does one that puts all "
            "its tasks before it collects results. Keep such items in a list of its own, collect "
            "between the puts, or use put(timeout=...) and get in between."
        ),
        evidence=(f"in put of {queues}: {all_called(putting)}", *_where_they_get(case, putting)),
        headline=f"{all_called(putting)} wait to put into {queues} that none of them reads.",
        is_certain=all(has_no_timeout(each) for each in case.waiters),
    )


def _where_they_get(case: Case, processes: Sequence[Process]) -> Iterator[str]:
    """The lines at which processes that now put were seen to wait for an item before."""
    for process in processes[:NAMED]:
        account = case.index.snapshot.account.processes.get(process.process)
        if account is None or not account.uncounted:
            continue
        seen = account.uncounted[0].whole().seen
        places = [each.place for each in seen if each.what == QUEUE_ITEM and each.place]
        if places:
            yield f"{called(process)} was seen before to wait for {QUEUE_ITEM}, at {places[0]}"


def _is_full_queue(waiter: Waiter) -> bool:
    return waiter.edge.what.startswith(FULL_QUEUE)


def all_take_locks(case: Case) -> Mechanism | None:
    """Every process of a cycle is about to take a lock, without a time limit."""
    takes = [
        main_shape(each.process) == "lock-between-processes"
        and each.edge.kind == "semaphore"
        and has_no_timeout(each)
        for each in case.waiters
    ]
    if not takes or not all(takes):
        return None
    return Mechanism(
        cause=(
            "Each of these processes waits to take a lock that the next one has as well, and none "
            "of them runs. Processes that take the same locks in different order block each other "
            "like this."
        ),
        advice=(
            "Take the locks in the same order in every process, or use one lock in place of "
            "several. With acquire(timeout=...) a process can release what it holds and try again."
        ),
        headline=f"{names_of(case)} each wait to take a lock that another one of them has.",
        is_certain=True,
    )


def all_acquire(case: Case) -> Mechanism | None:
    """Every process of a cycle calls acquire() of another semaphore, outside of a with block."""
    waiters = case.waiters
    if len(waiters) < 2 or not all(
        each.edge.what.startswith(SEMAPHORE) and has_no_timeout(each) for each in waiters
    ):
        return None
    return Mechanism(
        cause=(
            f"{names_of(case)} each wait in acquire() for a lock or semaphore that another one of "
            "them has to release. Either each holds one that the next wants (taken in different "
            "order), or semaphores count items and room, and one release() too few was called: a "
            "return, a continue or an exception between acquire() and release() skips it, and the "
            "count is wrong from then on."
        ),
        advice=(
            "Look at every way between acquire() and release() at the lines above: release in a "
            "finally block. Take several locks in the same order everywhere. A Queue(maxsize) "
            "keeps such counts itself."
        ),
        headline=f"{names_of(case)} each wait to acquire what another one of them has to release.",
    )


def too_few_parties(case: Case) -> Mechanism | None:
    """All processes that run the same have reached a barrier, and it still waits."""
    first = next((each for each in case.waiters if each.edge.what.startswith(BARRIER)), None)
    wait = first.thread.waits_on if first is not None and first.thread is not None else None
    if first is None or wait is None:
        return None
    uses = semaphore_uses(case.index)
    here = [
        process
        for process in case.index.snapshot.living()
        if uses[process.process].segment == wait.segment
    ]
    after = [each for each in case.waiters if each.process not in here]
    if len(after) != 1 or after[0].process.role in WORK_ROLES:
        return None
    parent, is_join = called(after[0].process), after[0].edge.kind == "child"
    also = "" if is_join else f", or {parent} was to come to it and waits at another line instead"
    return Mechanism(
        cause=(
            "A barrier opens when as many have arrived as it was made for. "
            f"{all_called(here)} {'have' if len(here) > 1 else 'has'} reached it, and no other "
            f"process runs the same; {parent}, which has it as well, waits for "
            f"{awaited(case, after[0])}. It was "
            f"made for more parties than call wait(){also}."
        ),
        advice=(
            "Make the barrier for exactly as many parties as call wait(): one more for the parent "
            "only if the parent calls it too. With a timeout, a wrong number becomes an error."
        ),
        headline=(
            f"{all_called(here)} wait{'' if len(here) > 1 else 's'} at a barrier for more "
            "parties than call its wait()."
        ),
        is_certain=has_no_timeout(first) and is_join,
    )


def all_at_barrier(case: Case) -> Mechanism | None:
    """Every process of a cycle has reached the same barrier, so that another one is missing."""
    waits = [each.thread.waits_on for each in case.waiters if each.thread is not None]
    segments = {wait.segment for wait in waits if wait is not None}
    if len(segments) != 1 or not all(each.edge.what.startswith(BARRIER) for each in case.waiters):
        return None
    uses, (segment,) = semaphore_uses(case.index), segments
    here = [
        process
        for process in case.index.snapshot.living()
        if uses[process.process].segment == segment
    ]
    heads = {process.process for process in here} | {process.parent for process in here}
    gone = [
        process
        for process in case.index.snapshot.processes
        if process.ended is not None
        and process.parent in heads
        and process.role not in SERVICE_ROLES
    ]
    why = (
        f" {all_called(gone)} {'have' if len(gone) > 1 else 'has'} ended, most likely before "
        "reaching it."
        if gone
        else " It was made for more parties than these, or one of them has ended."
    )
    return Mechanism(
        cause=(
            "A barrier opens when as many have arrived as it was made for, and does not notice "
            f"exits. {all_called(here)} {'have' if len(here) > 1 else 'has'} arrived, and no other "
            f"living process of the job is on its way to it.{why}"
        ),
        advice=(
            "Give the barrier a timeout, which breaks it for all, and call barrier.abort() where a "
            "process fails. Read the standard error of what has ended; make the barrier for "
            "exactly as many parties as call wait()."
        ),
        evidence=ended_words(gone),
        headline=(
            f"{all_called(here)} wait at a barrier for {all_called(gone)}, which "
            f"{'have' if len(gone) > 1 else 'has'} ended."
            if gone
            else f"{all_called(here)} wait at a barrier that no other process reaches."
        ),
        is_certain=bool(gone),
    )
