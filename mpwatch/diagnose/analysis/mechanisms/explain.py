"""Why the processes of a cycle of waits, or of a chain with a dead end, cannot continue.

Each mechanism is recognised by what was observed of every process concerned: its system call, its
stack, and which of the others could end its wait. Where none is recognised, the cause says for each
process what another one would have to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mpwatch.describe.waits import FULL_QUEUE
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.among_threads import (
    any_missed,
    idle_loop,
    only_a_callback,
    only_thread,
    own_lock,
    own_log,
    own_queue,
    waits_for_own_threads,
)
from mpwatch.diagnose.analysis.mechanisms.cases import (
    NAMED,
    Case,
    Mechanism,
    Waiter,
    awaited,
    names_of,
)
from mpwatch.diagnose.analysis.mechanisms.joins import joins_one_that_waits_for_it, joins_readers
from mpwatch.diagnose.analysis.mechanisms.kept_locks import kept_file_lock, own_file_lock
from mpwatch.diagnose.analysis.mechanisms.lost_limits import below_zero
from mpwatch.diagnose.analysis.mechanisms.lost_results import calls_wait_for_items, no_result
from mpwatch.diagnose.analysis.mechanisms.no_other_end import (
    no_end_of_file,
    no_process_left,
    reads_after_the_last,
    unreceived_end,
    unsent_items,
)
from mpwatch.diagnose.analysis.mechanisms.pipe_cycles import (
    all_read,
    all_write,
    blocked_output,
    unread_output,
)
from mpwatch.diagnose.analysis.mechanisms.rank_cycles import (
    all_at_one_call,
    all_send,
    at_different_groups,
)
from mpwatch.diagnose.analysis.mechanisms.semaphores import (
    all_acquire,
    all_at_barrier,
    all_put,
    all_take_locks,
    too_few_parties,
)
from mpwatch.diagnose.analysis.mechanisms.servers import (
    both_receive,
    managed,
    one_at_a_time,
    unset_key,
)
from mpwatch.diagnose.analysis.mechanisms.taken_items import dropped_answers
from mpwatch.diagnose.analysis.mechanisms.unreleased import (
    left,
    not_given_back,
    taken_twice,
    uncounted,
    unreleased,
    unset_alone,
)
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.waits.futures import POOL_END, POOL_RESULT, RESULT
from mpwatch.diagnose.analysis.waits.providers import BARRIER, EVENT, QUEUE_LOCK
from mpwatch.model.waits import WaitChain, WaitGraph


def mechanism_of(index: Index, waits: WaitGraph, chain: WaitChain) -> Mechanism | None:
    """Why a chain that is a cycle or a dead end cannot continue.

    Returns:
        `None` where nothing more is known than that it is one.
    """
    waiters = _waiters(index, waits, chain)
    case = Case(index, waits, chain, waiters)
    ways = _OF_CYCLES if chain.verdict == "cycle" else _OF_DEAD_ENDS
    return next((found for way in ways if (found := way(case)) is not None), None)


def _waiters(index: Index, waits: WaitGraph, chain: WaitChain) -> tuple[Waiter, ...]:
    """The processes of a chain in its order, each with the wait that the chain follows."""
    edges = {(edge.waiter, edge.tid): edge for edge in waits.edges}
    found: dict[object, Waiter] = {}
    for link in chain.links[chain.cycle_at :]:
        process = index.snapshot.get(link.process)
        edge = edges.get((link.process, link.tid or 0)) if link.process is not None else None
        if process is None or edge is None:
            continue
        thread = next((each for each in process.threads if each.tid == edge.tid), None)
        # Two links of one process: its main thread waits for another of its threads.
        found[process.process] = Waiter(process, edge, thread)
    return tuple(found.values())


def _step_by_step(case: Case) -> Mechanism | None:
    """A cycle of different waits: what each process needs of the next one."""
    waiters = case.waiters
    if len(waiters) < 2:
        return None
    steps = [
        f"{called(each.process)} continues when {called(after.process)} {_needed_action(each)}"
        for each, after in zip(waiters, (*waiters[1:], waiters[0]), strict=True)
    ]
    return Mechanism(
        cause=f"{'; '.join(steps[:NAMED])}. None of this happens, because each of them waits.",
        advice=(
            "Break the cycle at one of the lines above: let one of these processes do its part "
            "before it waits, or wait with a timeout and then do it."
        ),
        headline=(
            f"{names_of(case)} wait for each other: "
            f"{'; '.join(f'{called(m.process)} for {awaited(case, m)}' for m in waiters[:NAMED])}."
        ),
    )


def _needed_action(waiter: Waiter) -> str:
    """What another process would have to do for one to continue."""
    edge = waiter.edge
    by_name = next((words for name, words in _ACTIONS if edge.what.startswith(name)), None)
    if by_name is not None:
        return by_name
    return _ACTIONS_BY_KIND.get(edge.kind, f"ends its wait for {edge.what}")


_ACTIONS = (
    (RESULT, "returns from the call that it runs"),
    (POOL_RESULT, "returns from the call that it runs"),
    (POOL_END, "returns from the call that it runs"),
    (BARRIER, "reaches the barrier"),
    (FULL_QUEUE, "gets an item from that queue"),
    (QUEUE_LOCK, "has got its item from that queue"),
    (EVENT, "sets or notifies it"),
    ("the lock on ", "releases that lock"),
    ("the other ranks in ", "takes part"),
    ("batch", "sends that batch"),
    ("a batch", "sends a batch"),
)
_ACTIONS_BY_KIND: Mapping[str, str] = {
    "pipe-read": "writes to the pipe it reads",
    "socket-read": "sends to the socket it reads",
    "poll": "sends to what it reads",
    "pipe-write": "reads from the pipe it writes to",
    "socket-write": "reads from the socket it writes to",
    "semaphore": "releases that semaphore",
    "child": "exits",
}

_Way = Callable[[Case], Mechanism | None]
_OF_CYCLES: Sequence[_Way] = (
    any_missed,
    dropped_answers,
    all_write,
    all_put,
    all_take_locks,
    all_acquire,
    unread_output,
    too_few_parties,
    all_at_barrier,
    managed,
    unset_key,
    kept_file_lock,
    joins_readers,
    calls_wait_for_items,
    joins_one_that_waits_for_it,
    all_send,
    one_at_a_time,
    uncounted,
    not_given_back,
    all_read,
    unreleased,
    all_at_one_call,
    at_different_groups,
    blocked_output,
    below_zero,
    _step_by_step,
)
_OF_DEAD_ENDS: Sequence[_Way] = (
    managed,
    both_receive,
    left,
    taken_twice,
    no_end_of_file,
    unreceived_end,
    own_lock,
    own_file_lock,
    own_log,
    dropped_answers,
    waits_for_own_threads,
    only_a_callback,
    idle_loop,
    own_queue,
    only_thread,
    no_result,
    unsent_items,
    reads_after_the_last,
    unset_alone,
    no_process_left,
    below_zero,
)
