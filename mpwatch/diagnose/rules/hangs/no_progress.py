"""A process makes no progress, or takes long, while others wait for it; no other rule says why.

`standing-still` names waits that can never end. This rule names every other wait that lasts: its
end may come from outside of the job, by itself, or not at all. A process that only computes, while
no other one works, is information.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from mpwatch.describe.account import always_inside
from mpwatch.describe.processes import STATE_D
from mpwatch.diagnose.analysis.distributed.habits import is_at_usual_pace
from mpwatch.diagnose.analysis.distributed.nccl_words import nccl_words
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import Mechanism, at_line
from mpwatch.diagnose.analysis.mechanisms.kept_locks import (
    advice_of_kept_file,
    cause_of_kept_file,
    left_for_s,
    left_lock,
    waiting_for_left_lock,
)
from mpwatch.diagnose.analysis.mechanisms.lost_limits import with_lost_limit
from mpwatch.diagnose.analysis.mechanisms.servers import Accepting, accepting_in_vain, unwoken
from mpwatch.diagnose.analysis.mechanisms.unreleased import may_lose_permits
from mpwatch.diagnose.analysis.pipes import KeptOutput, kept_outputs
from mpwatch.diagnose.analysis.process_queries import all_called, called, counted
from mpwatch.diagnose.analysis.source.costs import slow_pattern
from mpwatch.diagnose.analysis.source.loops import end_of_loop, spin
from mpwatch.diagnose.analysis.stack_patterns import main_thread, runs_event_loop
from mpwatch.diagnose.analysis.stalls.at_work import (
    ADVICE_NO_CORE,
    AT_WORK,
    REPORTED_S,
    cause_of_computation,
    cause_of_receiving,
    cause_of_stop,
    does,
    goes_from_task_to_task,
    is_stopped_meanwhile,
    others_continue,
    pattern_at_its_line,
    place_of,
    rest_of_sleep,
    waits_for_a_core,
)
from mpwatch.diagnose.analysis.stalls.idle_servers import IdleServer, idle_servers
from mpwatch.diagnose.analysis.stalls.jobs_at_rest import (
    ADVICE_TAKEN_POOL,
    ADVICE_THREADS,
    ALONE_COMPUTES_S,
    HOPELESS_S,
    KNOWN_S,
    SHOWN_WAITERS,
    WARNED_S,
    Stall,
    cause_of_taken_pool,
    nested_at_end,
    other_threads,
    part_at_rest,
    waits_for_a_semaphore,
    waits_for_one_that_is_idle,
    waits_for_own_threads,
)
from mpwatch.diagnose.analysis.stalls.joined_executors import JoinedWords, joined_words
from mpwatch.diagnose.analysis.stalls.lock_holders import (
    ADVICE_HELD,
    ADVICE_INSIDE_LOCK,
    ADVICE_UNSEEN,
    advice_of_file_lock,
    cause_of_file_lock,
    cause_of_lock,
    cause_of_unseen_holder,
    ended_users,
    is_held_lock,
    is_held_unseen,
    is_only_user,
    kept_file_of,
    locked_path,
    may_have_standby,
)
from mpwatch.diagnose.analysis.stalls.lost_wakeups import LostWakeup, lost_wakeup
from mpwatch.diagnose.analysis.stalls.open_ends import (
    ADVICE_INHERITED,
    ADVICE_LEFT_OUTPUTS,
    ADVICE_OPEN_END,
    ADVICE_UNREAD,
    cause_of_pipe,
    ended_writers,
    is_output,
    is_unread,
    left_by,
    left_outputs,
    reads_a_kept_output,
    unread_words,
)
from mpwatch.diagnose.analysis.stalls.polling import (
    AwaitsInLoop,
    Connecting,
    InVain,
    Unseen,
    awaits_in_loops,
    connecting_in_vain,
    polls_in_vain,
    polls_reaped_children,
)
from mpwatch.diagnose.analysis.stalls.remote_calls import UnansweredCalls, unanswered_calls
from mpwatch.diagnose.analysis.stalls.starved import (
    Starved,
    starved,
    starved_processes,
    starving,
)
from mpwatch.diagnose.analysis.stalls.taken_executors import (
    TakenExecutor,
    explain_taken,
    processes_at_taken,
    taken_executors,
)
from mpwatch.diagnose.analysis.throughput.shares import (
    Computation,
    has_come_back,
    lonely_computations,
)
from mpwatch.diagnose.analysis.values import awaited_number, loop_values, number_beside
from mpwatch.diagnose.analysis.waits.blockages import (
    UNWATCHED,
    USUAL_FACTOR,
    Blockage,
    Reason,
    at_one_line_s,
    blockages,
    usual_pause_s,
)
from mpwatch.diagnose.analysis.waits.chains import answering_threads, wait_graph
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s
from mpwatch.diagnose.analysis.waits.file_locks import inherited_lock
from mpwatch.diagnose.analysis.waits.futures import taken_pool
from mpwatch.diagnose.analysis.waits.providers import held_lock
from mpwatch.diagnose.analysis.waits.threads import is_at_exit
from mpwatch.diagnose.analysis.waits.verdicts import IN_COROUTINE, where
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import OPENS
from mpwatch.model.snapshot import Process, Thread

RULE = "no-progress"
ONE_LINE_S = 60.0
"""A process that has only slept at one line for so long, while others wait for it, is in a loop
that waits or tries again."""
COMPUTES_S = 30.0
"""Until then, a process that computes while others wait for it is not reported."""
ALONE_S = 60.0
"""Until then, a process that waits for an answer while none waits for it is information."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose lack of progress holds up others, or itself.

    A rank whose steps are long makes progress as long as it takes no longer than usual.
    """
    yield from (each for each in _found(index) if not is_at_usual_pace(index, each.process))


def _found(index: Index) -> Iterator[Finding]:
    lost = lost_wakeup(index)
    if lost is not None:
        yield _of_lost_wakeup(lost)
        return
    yield from _found_of_waits(index)


def _of_lost_wakeup(lost: LostWakeup) -> Finding:
    """The finding about a job at rest, in which a notification came before the wait for it."""
    processes = (each.process for each in lost.processes)
    return _of_explained(lost, "lost-wakeup", Severity.WARNING, processes)


def _found_of_waits(index: Index) -> Iterator[Finding]:
    unseen, retried = [*polls_reaped_children(index)], [*connecting_in_vain(index)]
    kept = [each for each in kept_outputs(index) if _waits_for_s(index, each) >= REPORTED_S]
    remote = unanswered_calls(index, REPORTED_S)
    if remote is not None and remote.for_s < (KNOWN_S if remote.nested else WARNED_S):
        remote = None
    yield from map(_of_reaped, unseen)
    yield from [_of_remote_calls(remote)] if remote is not None else ()
    yield from map(_of_attempts, retried)
    yield from (_of_kept_output(index, each, _waits_for_s(index, each)) for each in kept)
    yield from (_of_starved(index, each) for each in starved(index))
    yield from (_of_taken(index, each) for each in taken_executors(index))
    yield from map(_of_idle_server, idle_servers(index))
    reported = {each.process.process for each in unseen}
    reported.update(processes_at_taken(index))
    reported.update(process.process for each in retried for process in each.processes)
    reported.update(each.reader.process for each in kept)
    reported.update(each.process.process for each in starved(index))
    reported.update(each.process.process for each in idle_servers(index))
    reported.update(_parts_of(remote) if remote is not None and remote.nested else ())
    left = None
    if any((quiet_s(each, index) or 0.0) >= REPORTED_S for each in index.snapshot.living()):
        left = left_lock(index)
        blocked = [each for each in blockages(index) if not _ends_at_kept_output(index, each)]
        known = starved_processes(index) | processes_at_taken(index)
        known |= {each.process.process for each in idle_servers(index)}
        blocked = [each for each in blocked if not _is_behind(each, known)]
        if index.snapshot.part_of is not None:
            blocked = [each for each in blocked if each.reason in _ENDS_INSIDE]
        reported.update(each.process.process for each in blocked)
        yield from _of_blockages(index, blocked) if left is None else [_of_left_lock(index, left)]
        if not reported and index.snapshot.part_of is not None:
            yield from map(_of_stall, part_at_rest(index, index.snapshot.part_of))
            return
        if not reported:
            yield from (_of_idle(index, each) for each in waits_for_one_that_is_idle(index))
            yield from map(_of_stall, waits_for_own_threads(index))
        for accepting in accepting_in_vain(index):
            reported.add(accepting.server.process)
            yield _of_server(index, accepting)
    if not reported and left is None:
        in_vain = polls_in_vain(index)
        if in_vain is not None:
            yield _of_polls(index, in_vain)
        else:
            yield from map(_of_stall, waits_for_a_semaphore(index))
    yield from _of_loop_ends(index) if not reported else ()
    for awaited in awaits_in_loops(index):
        if awaited.process.process not in reported:
            yield _of_awaited(index, awaited)
    for computation in lonely_computations(index, ALONE_COMPUTES_S):
        if computation.process.process not in reported:
            yield _of_computation(index, computation)


def _of_loop_ends(index: Index) -> Iterator[Finding]:
    """The findings about processes for which none waits, and whose asyncio.run does not return.

    The results of all calls that a coroutine awaited are there by then.
    """
    for process in index.snapshot.living():
        main = main_thread(process)
        for_s = blocked_for_s(main) if main is not None else None
        if for_s is None or for_s < COMPUTES_S:
            continue
        joined = joined_words(index, process.process)
        if joined is None or joined.by != "asyncio":
            continue
        yield Finding(
            rule=RULE,
            severity=Severity.INFO,
            process=process.process,
            subject=str(process.pid),
            summary=(
                f"{called(process)} has made no progress for {index.lasting(for_s)}: it "
                f"{joined.what}"
            ),
            evidence=joined.evidence,
            cause=joined.cause,
            advice=joined.advice,
        )


def _of_stall(stall: Stall) -> Finding:
    """The finding about a job that makes no progress."""
    return Finding(rule=RULE, **stall._asdict())


def _of_idle(index: Index, stall: Stall) -> Finding:
    """The finding about a job whose root waits for a process that has nothing to do."""
    root = index.snapshot.get(stall.process)
    found = _of_stall(stall)
    return found if root is None else with_lost_limit(index, found, root)


def _parts_of(remote: UnansweredCalls) -> tuple[ProcessId, ...]:
    """The processes that run or wait for remote calls, those that run one first."""
    found = (
        *(each.process.process for each in remote.nested),
        *(p.process for p in remote.callers),
    )
    return tuple(dict.fromkeys(found))


class _Explained(Protocol):
    """Something seen with its reasons, as the analyses of stalls have it."""

    @property
    def headline(self) -> str: ...
    @property
    def evidence(self) -> Iterable[str]: ...
    @property
    def cause(self) -> str: ...
    @property
    def advice(self) -> str: ...


def _of_explained(
    explained: _Explained,
    subject: str,
    severity: Severity,
    processes: Iterable[ProcessId],
    *,
    is_doubtful: bool = False,
) -> Finding:
    """The finding about something that an analysis has explained.

    Args:
        explained: What was seen, and why.
        subject: What distinguishes it from other findings about its process.
        severity: How bad it is.
        processes: Whose it is, then those that it concerns as well; each counts once.
        is_doubtful: Whether the processes may be right to wait.
    """
    first, *others = dict.fromkeys(processes)
    return Finding(
        rule=RULE,
        severity=severity,
        process=first,
        others=tuple(others),
        subject=subject,
        summary=explained.headline,
        evidence=tuple(explained.evidence),
        cause=explained.cause,
        advice=explained.advice,
        is_doubtful=is_doubtful,
    )


def _of_remote_calls(remote: UnansweredCalls) -> Finding:
    """The finding about remote calls that are not answered."""
    severity = Severity.INFO
    if remote.nested:
        severity = Severity.CRITICAL if remote.for_s >= HOPELESS_S else Severity.WARNING
    return _of_explained(remote, "rpc", severity, _parts_of(remote), is_doubtful=not remote.nested)


def _of_reaped(unseen: Unseen) -> Finding:
    """The finding about a process that polls for exits which it can no longer notice."""
    return _of_explained(unseen, "reaped", Severity.CRITICAL, [unseen.process.process])


def _of_attempts(retried: Connecting) -> Finding:
    """The finding about processes that try to connect again and again."""
    processes = (each.process for each in retried.processes)
    return _of_explained(retried, "connects", Severity.INFO, processes)


def _of_polls(index: Index, in_vain: InVain) -> Finding:
    """The finding about a job of which no process does anything but poll, or wait."""
    first, *others = in_vain.pollers
    threads = [thread for each in in_vain.others if (thread := main_thread(each)) is not None]
    lost = may_lose_permits(index) if any(map(runs_event_loop, threads)) else None
    ends = (each.links[-1] for each in wait_graph(index).chains if each.conclusion == IN_COROUTINE)
    known = next((found for each in ends if (found := nested_at_end(index, each))), None) or lost
    advice = in_vain.advice
    loops = [
        f"{called(each)} goes round in {words}"
        for each in in_vain.pollers[:SHOWN_WAITERS]
        if (words := loop_values(index, each))
    ]
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=first.process,
        others=tuple(each.process for each in others),
        subject="polls",
        summary=in_vain.headline,
        evidence=tuple(in_vain.evidence),
        cause=". ".join([*([known.cause.rstrip(".")] if known else []), *loops, in_vain.cause]),
        advice=f"{known.advice} Otherwise: {advice[:1].lower()}{advice[1:]}" if known else advice,
    )


def _of_awaited(index: Index, awaited: AwaitsInLoop) -> Finding:
    """The finding about a process that only checks a condition again while others work."""
    values = loop_values(index, awaited.process)
    awaits = awaited_number(index, awaited.process)
    limit = number_beside(index, awaited.process, awaited.limit)
    is_beyond = False
    if limit is not None and awaits is not None:
        is_beyond = awaits > limit
        # Otherwise the loop waits for less than may be kept.
        awaited = awaited if is_beyond else awaited._replace(bound=None)
        values = f"{values}, {awaited.limit} is {limit}" if is_beyond else values
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if is_beyond else Severity.INFO,
        process=awaited.process.process,
        subject=f"loop {awaited.loop.line}",
        summary=awaited.summary,
        evidence=tuple(awaited.evidence),
        cause=awaited.cause(values, is_beyond),
        advice=awaited.advice,
        is_doubtful=not is_beyond,
    )


def _of_blockages(index: Index, blocked: list[Blockage]) -> Iterator[Finding]:
    """The findings about processes at the end of waits, where a pause as long is not usual."""
    for each in blocked:
        severity = _severity(index, each)
        if severity is not None and not _is_usual(index, each):
            yield with_lost_limit(index, _finding(index, each, severity), each.process)


def _ends_at_kept_output(index: Index, blockage: Blockage) -> bool:
    """Whether a process of a blockage reads an output that orphans keep open."""
    ends = {blockage.process.process, *(each.process for each in blockage.waiters)}
    return any(each.reader.process in ends for each in kept_outputs(index))


def _is_behind(blockage: Blockage, known: frozenset[ProcessId]) -> bool:
    """Whether a process of a blockage is one of those, of which the reason is known."""
    ends = {blockage.process.process, *(each.process for each in blockage.waiters)}
    return not ends.isdisjoint(known)


def _of_taken(index: Index, found: TakenExecutor) -> Finding:
    """The finding about an executor whose tasks wait for others in its queue."""
    processes = (each.process for each in (found.process, *found.behind))
    return _of_explained(explain_taken(index, found), "executor", Severity.CRITICAL, processes)


def _of_idle_server(found: IdleServer) -> Finding:
    """The finding about a process that others wait for, and whose loop finds nothing to do."""
    severity = Severity.INFO
    if found.is_likely:
        severity = Severity.CRITICAL if found.for_s >= ONE_LINE_S else Severity.WARNING
    return Finding(
        rule=RULE,
        severity=severity,
        process=found.process.process,
        others=tuple(each.process for each in found.waiters),
        subject="idle server",
        summary=found.summary,
        evidence=tuple(found.evidence),
        cause=found.cause,
        advice=found.advice,
        is_doubtful=not found.is_likely,
    )


def _of_starved(index: Index, found: Starved) -> Finding:
    """The finding about a writer that others do not let in."""
    severity = Severity.CRITICAL if found.for_s >= HOPELESS_S else Severity.WARNING
    processes = (each.process for each in (found.process, *found.others, *found.behind))
    return _of_explained(starving(index, found), "starved", severity, processes)


def _waits_for_s(index: Index, kept: KeptOutput) -> float:
    """How long a process has waited for the end of an output."""
    return quiet_s(kept.reader, index) or 0.0


def _of_kept_output(index: Index, kept: KeptOutput, for_s: float) -> Finding:
    """The finding about a process that reads to the end of an output that orphans keep open."""
    reader, child = kept.reader, kept.child
    ended = child.ended if child is not None else None
    is_killed = ended is not None and ended.signal is not None
    works = any((quiet_s(each, index) or 0.0) < REPORTED_S for each in kept.keepers)
    severity = Severity.CRITICAL if for_s >= HOPELESS_S else Severity.WARNING
    if not is_killed and (for_s < WARNED_S or works):
        severity = Severity.INFO
    processes = (each.process for each in (reader, *kept.keepers))
    return _of_explained(reads_a_kept_output(index, kept, for_s), "output", severity, processes)


def _of_left_lock(index: Index, left: Mechanism) -> Finding:
    """The finding about a lock file that no living process of the job can remove."""
    first, *others = waiting_for_left_lock(index)
    for_s = min(left_for_s(index, each) for each in (first, *others))
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if for_s >= WARNED_S or left.is_certain else Severity.INFO,
        process=first.process,
        others=tuple(each.process for each in others),
        subject="lock file",
        summary=left.headline,
        evidence=(
            *(each.sentence for each in wait_graph(index).chains[:SHOWN_WAITERS]),
            f"none of them has made progress for {index.lasting(for_s)}",
            *left.evidence,
        ),
        cause=left.cause,
        advice=left.advice,
    )


def _severity(index: Index, blockage: Blockage) -> Severity | None:
    """How bad it is; `None` as long as it means nothing."""
    waited_s = blockage.waited_s
    if is_unread(blockage) and is_output(index, blockage):
        if waited_s < WARNED_S:
            return Severity.INFO if waited_s >= REPORTED_S else None
        return Severity.CRITICAL if waited_s >= HOPELESS_S else Severity.WARNING
    path = locked_path(blockage)
    if path is not None and blockage.reason != "computes":
        return _severity_of_lock(index, blockage, path)
    is_known = held_lock(index, blockage.process.process) is not None
    is_known |= bool(ended_writers(index, blockage)) or kept_file_of(blockage) is not None
    if blockage.reason == "receives":
        return Severity.INFO if waited_s >= COMPUTES_S else None
    if blockage.reason == "computes" or (blockage.reason == "polls" and not is_known):
        if has_come_back(index, blockage.process):
            return None
        if blockage.reason == "computes" and goes_from_task_to_task(index, blockage):
            return None
        is_polling = blockage.reason == "polls" and _holds_up_the_job(index, blockage)
        at_one_line = at_one_line_s(index, blockage.process.process) if is_polling else 0.0
        if _is_past_its_result(index, blockage) and waited_s >= HOPELESS_S:
            return Severity.WARNING if _holds_up_the_job(index, blockage) else Severity.INFO
        if is_polling and waited_s >= (ONE_LINE_S if at_one_line >= ONE_LINE_S else HOPELESS_S):
            return Severity.WARNING
        return Severity.INFO if waited_s >= COMPUTES_S else None
    if waited_s < REPORTED_S:
        return None
    if _is_at_exit(blockage):
        return Severity.INFO
    if not blockage.waiters:
        is_met = blockage.reason == "fifo" and any(_others_that_open(index, blockage.process))
        is_met |= waited_s >= WARNED_S and any(_killed_holders(index, blockage))
        return Severity.WARNING if is_met or waited_s >= ALONE_S else Severity.INFO
    if waited_s < WARNED_S or not _holds_up_the_job(index, blockage):
        return Severity.INFO
    if blockage.reason == "stopped" and is_stopped_meanwhile(index, blockage):
        return Severity.INFO
    return Severity.CRITICAL if waited_s >= HOPELESS_S else Severity.WARNING


def _joined(index: Index, blockage: Blockage) -> JoinedWords | None:
    """What the last process joins, where that is the end of a thread pool."""
    if blockage.reason not in ("computes", "other", "thread"):
        return None
    return joined_words(index, blockage.process.process)


def _is_past_its_result(index: Index, blockage: Blockage) -> bool:
    """Whether asyncio.run has its result, and only joins threads."""
    joined = _joined(index, blockage)
    return joined is not None and joined.by == "asyncio"


def _severity_of_lock(index: Index, blockage: Blockage, path: str) -> Severity | None:
    """How bad it is that a process keeps a file lock while others wait for it."""
    waited_s = blockage.waited_s
    if waited_s < REPORTED_S:
        return None
    is_forgotten = inherited_lock(index, path, blockage.process.process) is not None
    if waited_s < WARNED_S or not (is_forgotten or _holds_up_the_job(index, blockage)):
        return Severity.INFO
    if not is_forgotten and may_have_standby(index, blockage):
        return Severity.INFO
    return Severity.CRITICAL if waited_s >= HOPELESS_S else Severity.WARNING


def _holds_up_the_job(index: Index, blockage: Blockage) -> bool:
    """Whether the root or a rank waits, or a child that the root joins.

    Another process may just have nothing to do.
    """
    return any(
        waiter.process == index.snapshot.root
        or waiter.role in ("main", "rank")
        or f"pid {waiter.pid}" in _joined_by_root(index)
        for waiter in blockage.waiters
    )


def _joined_by_root(index: Index) -> tuple[str, ...]:
    """The child whose exit the root waits for, as named by its system call."""
    root = index.snapshot.get(index.snapshot.root)
    thread = main_thread(root) if root is not None else None
    wait = thread.waits_on if thread is not None else None
    return wait.targets if wait is not None and wait.kind == "child" else ()


def _is_usual(index: Index, blockage: Blockage) -> bool:
    """Whether the first process that waits has come back from a pause about as long as this."""
    first = blockage.waiters[0] if blockage.waiters else blockage.process
    return blockage.waited_s < USUAL_FACTOR * usual_pause_s(index, first)


def _finding(index: Index, blockage: Blockage, severity: Severity) -> Finding:
    """The finding about one process at the end of waits."""
    first = blockage.waiters[0] if blockage.waiters else blockage.process
    path = locked_path(blockage)  # its holder may change from one snapshot to the next
    return Finding(
        rule=RULE,
        severity=severity,
        process=first.process,
        others=tuple(each.process for each in blockage.waiters[1:]) if path is not None else (),
        subject=path or str(blockage.process.pid),
        summary=_summary(index, blockage),
        evidence=tuple(_evidence(index, blockage)),
        cause=_cause(index, blockage),
        advice=_advice(index, blockage),
        is_doubtful=severity is Severity.INFO and blockage.reason in AT_WORK,
    )


_ENDS_INSIDE: tuple[Reason, ...] = ("computes", "polls", "sleeps", "stopped", "disk", "file-lock")
"""Of what the last process does where only a part of a job is watched: what proves itself."""


def _of_server(index: Index, accepting: Accepting) -> Finding:
    """The finding about a server that waits for one client more than there are."""
    name, clients = called(accepting.server), all_called(accepting.clients)
    time, is_one = index.lasting(accepting.for_s), len(accepting.clients) == 1
    wait = "waits" if is_one else "wait"
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=accepting.server.process,
        subject="accepts",
        summary=(
            f"{name} has waited {time} for a further connection to {accepting.port}, and {clients} "
            f"{wait} for data from it"
        ),
        evidence=(
            f"{name} is in accept{at_line(main_thread(accepting.server))}, and has one thread",
            *(
                f"{called(each)} waits for what it sends{at_line(main_thread(each))}"
                for each in accepting.clients[:SHOWN_WAITERS]
            ),
        ),
        cause=(
            f"{name} sends nothing while it is in accept(), and goes on only when one more client "
            f"connects. {counted(len(accepting.clients), 'client')} that it has accepted "
            f"{wait} meanwhile. It expects more clients than connect, one of them has failed or "
            "uses another port, or the clients were to connect twice."
        ),
        advice=(
            "Compare the number of clients that it waits for with those that are started, and log "
            "each accept. Give the listening socket a timeout (settimeout()). Nothing is wrong if "
            "its work comes from clients outside of this job that connect now and then."
        ),
    )


def _of_computation(index: Index, computation: Computation) -> Finding:
    """The finding about a process that computes, while nothing shows whether it gets anywhere."""
    name, time = called(computation.process), index.lasting(computation.for_s)
    thread = main_thread(computation.process)
    matched = slow_pattern(index, thread.stack) if thread is not None else None
    pattern = matched.stuck if matched is not None else None
    why = f": {pattern.words}" if pattern is not None else ""
    known = f"At its line, {pattern.words}{pattern.cause}" if pattern is not None else ""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=computation.process.process,
        subject=str(computation.process.pid),
        summary=(
            f"{name} has done nothing but compute for {time}, always inside "
            f"{computation.function}{why}"
        ),
        evidence=(
            f"all {computation.stacks} stacks taken in this time are in this call",
            f"it has read and written nothing for {time}, and no other process of the job works",
        ),
        cause=known
        or (
            "It is in a loop that does not end, or in a long computation: which of the two cannot "
            "be seen from outside. It waits for no process, lock or file."
        ),
        advice=pattern.advice
        if pattern is not None
        else (
            "Look at the condition that ends the loop in that function, with the values that it "
            f"has now: mpwatch dump --locals {computation.process.pid}. Nothing is wrong if this "
            "part is meant to take so long."
        ),
    )


def _advice(index: Index, blockage: Blockage) -> str:
    """What to change, by what the processes wait for."""
    unanswered = _unwoken(index, blockage)
    if unanswered is not None:
        return unanswered.advice
    if (joined := _joined(index, blockage)) is not None:
        return joined.advice
    if is_unread(blockage):
        return ADVICE_UNREAD
    if left_by(index, blockage) is not None:
        return ADVICE_OPEN_END
    if ended_writers(index, blockage):
        return ADVICE_INHERITED
    if (kept := kept_file_of(blockage)) is not None:
        return advice_of_kept_file(blockage.thread, kept)
    path = locked_path(blockage)
    if path is not None:
        return advice_of_file_lock(index, blockage, path)
    if is_held_unseen(index, blockage):
        return ADVICE_HELD if is_only_user(index, blockage) else ADVICE_UNSEEN
    if held_lock(index, blockage.process.process) is not None:
        return ADVICE_INSIDE_LOCK
    if _is_at_exit(blockage):
        return _ADVICE_AT_EXIT
    if is_held_lock(index, blockage):
        return ADVICE_HELD
    found = spin(index, blockage.process) if blockage.reason == "computes" else None
    pattern = pattern_at_its_line(index, blockage)
    if pattern is not None and found is None:
        return pattern.advice
    if blockage.reason == "computes" and found is None and waits_for_a_core(index, blockage):
        return ADVICE_NO_CORE
    if left_outputs(index, blockage):
        return ADVICE_LEFT_OUTPUTS
    if blockage.reason == "thread" and taken_pool(blockage.process) is not None:
        return ADVICE_TAKEN_POOL
    return _ADVICE[blockage.reason] if found is None else end_of_loop(found.loop, found.process)


def _summary(index: Index, blockage: Blockage) -> str:
    """Which processes wait, for how long, for which process, and what that process does."""
    end, waiters = blockage.process, blockage.waiters
    time = index.lasting(blockage.waited_s)
    joined = _joined(index, blockage)
    what = joined.what if joined is not None else f"{does(blockage)}{at_line(main_thread(end))}"
    if held_lock(index, end.process) is not None or _is_answering(index, blockage):
        what = blockage.chain.links[-1].words
    if _is_at_exit(blockage):
        return f"{called(end)} has come to its end and has waited {time} for its other threads"
    if not waiters:
        return f"{called(end)} has made no progress for {time}: it {what}"
    names, have = called(waiters[0]), "has"
    if len(waiters) > 1:
        count = len(waiters) - 1
        names, have = f"{names} and {count} other{'s' if count > 1 else ''}", "have"
    if is_unread(blockage) and len(waiters) == 1:
        full = unread_words(blockage)
        return (
            f"{names} has waited {time} to write to {full}: {called(end)}, which could read it, "
            f"{what}"
        )
    path = locked_path(blockage)
    if path is not None:
        return (
            f"{names} {have} waited {time} for the lock on {path}: {called(end)} has it and {what}"
        )
    kept = kept_file_of(blockage)
    if kept is not None:
        return (
            f"{called(kept.process)} has waited {time} for {called(end)}, which {what}, most "
            f"likely until the lock file {kept.path} is gone, which {called(kept.process)} has left"
        )
    if is_held_unseen(index, blockage):
        if is_only_user(index, blockage):
            return (
                f"{names} {have} waited {time} for a lock or semaphore that {called(end)} most "
                f"likely holds: it {what}"
            )
        return (
            f"{names} {have} waited {time} for a lock between processes that no process is seen to "
            "hold"
        )
    lock = "a lock that " if is_held_lock(index, blockage) else ""
    holds = f"{called(end)} holds, and it" if lock else f"{called(end)}, which"
    pattern = pattern_at_its_line(index, blockage)
    why = f": {pattern.words}" if pattern is not None else ""
    return f"{names} {have} waited {time} for {lock}{holds} {what}{why}"


def _is_answering(index: Index, blockage: Blockage) -> bool:
    """Whether the chain ends at the thread of a server that has the connection of a client."""
    link = blockage.chain.links[-1]
    return (blockage.process.process, link.tid) in answering_threads(index)


def _unwoken(index: Index, blockage: Blockage) -> Mechanism | None:
    """Why the thread of a server that a client waits for is not woken up; `None` for others."""
    if blockage.reason != "thread":
        return None
    return unwoken(index, blockage.process, blockage.chain.links[-1].tid)


def _is_at_exit(blockage: Blockage) -> bool:
    """Whether a program has come to its end and waits for threads that run on."""
    thread = blockage.thread
    return blockage.reason == "thread" and thread is not None and is_at_exit(thread)


def _evidence(index: Index, blockage: Blockage) -> Iterator[str]:
    """The chain, the processes that wait, and the lines at which they do."""
    yield blockage.chain.sentence
    waiters = blockage.waiters
    for waiter in waiters[:SHOWN_WAITERS]:
        place = where(waiter)
        if place:
            yield f"{called(waiter)} is at {place.removeprefix(', ')}"
    if len(waiters) > SHOWN_WAITERS:
        yield f"{len(waiters)} processes wait for {called(blockage.process)}"
    watched = "none of them has made progress" if waiters else "it has made no progress"
    if blockage.reason in UNWATCHED:
        watched = "those that wait have made no progress"
    yield f"{watched} for {index.lasting(blockage.waited_s)}"
    if (joined := _joined(index, blockage)) is not None:
        yield from joined.evidence
        return
    account = index.snapshot.account.processes.get(blockage.process.process)
    if blockage.reason == "computes" and account is not None and (inside := always_inside(account)):
        yield f"{called(blockage.process)} has always been inside {inside}"
    if blockage.reason == "computes" and (held := loop_values(index, blockage.process)):
        yield f"{called(blockage.process)} is in {held}"
    if blockage.reason == "thread":
        yield from other_threads(index, blockage.process)
    if blockage.reason == "fifo":
        yield from _others_that_open(index, blockage.process)
    yield from _killed_holders(index, blockage)
    if blockage.edge is not None and is_held_unseen(index, blockage):
        at = at_line(main_thread(blockage.process))
        yield f"{called(blockage.process)}, which has this lock too, {does(blockage)}{at}"
        if ended := ended_users(index, blockage.edge):
            yield f"these had it and have ended: {', '.join(ended[:SHOWN_WAITERS])}"
    ranks = [p for p in (blockage.process, *waiters) if p.role in ("rank", "spawned")]
    yield from nccl_words(index, ranks)


def _others_that_open(index: Index, process: Process) -> Iterator[str]:
    """The other processes that open a FIFO as well, which may be the ones that are waited for."""
    for other in index.snapshot.living():
        thread = main_thread(other)
        wait = thread.waits_on if thread is not None else None
        if other is process or wait is None:
            continue
        for target in wait.targets:
            if target.startswith(OPENS):
                yield f"{called(other)} waits for {target}{at_line(main_thread(other))}"


def _killed_holders(index: Index, blockage: Blockage) -> Iterator[str]:
    """The processes of the job that were killed and may have left the lock file behind."""
    if blockage.reason == "file-lock" and locked_path(blockage) is None:
        for process in index.snapshot.processes:
            if process.ended is not None and process.ended.signal is not None:
                yield (
                    f"{called(process)} ended: {process.ended.words}; a lock file that it had "
                    "stays where it is"
                )


def _cause(index: Index, blockage: Blockage) -> str:
    """What a process would have to do for the others to continue, as far as was observed."""
    unanswered = _unwoken(index, blockage)
    if unanswered is not None:
        return unanswered.cause
    if (joined := _joined(index, blockage)) is not None:
        return f"{joined.cause} {others_continue(blockage)}".strip()
    path = locked_path(blockage)
    if path is not None:
        return cause_of_file_lock(index, blockage, path)
    kept = kept_file_of(blockage)
    if kept is not None:
        return cause_of_kept_file(blockage.process, place_of(blockage), kept)
    if _is_at_exit(blockage):
        return (
            "Python joins all threads that are not daemons before it exits. If such a thread is "
            "meant to keep running, nothing is wrong. If not, it was not told to end: an exception "
            "in the main thread also skips the lines that would have."
        )
    if is_held_unseen(index, blockage):
        return cause_of_unseen_holder(index, blockage)
    inherited = cause_of_pipe(index, blockage)
    if inherited is not None:
        return inherited
    lock = held_lock(index, blockage.process.process)
    if lock is not None:
        return cause_of_lock(blockage, lock)
    if is_held_lock(index, blockage):
        end = called(blockage.process)
        return f"{end} holds the lock while it {does(blockage)}{rest_of_sleep(blockage.thread)}."
    return _cause_of_reason(index, blockage)


def _cause_of_reason(index: Index, blockage: Blockage) -> str:
    """What the last process does, where no more is known than that."""
    end, thread = called(blockage.process), blockage.thread
    if blockage.reason == "sleeps":
        return f"{end} sleeps{rest_of_sleep(thread)}. {others_continue(blockage)}"
    if blockage.reason == "polls":
        held = loop_values(index, blockage.process)
        return (
            f"{end} sleeps again and again, as a loop does that waits for something or tries "
            f"again. {f'It goes round in {held}. ' if held else ''}{others_continue(blockage)}"
        )
    if blockage.reason == "receives":
        return cause_of_receiving(index, blockage)
    if blockage.reason == "computes":
        return cause_of_computation(index, blockage)
    if blockage.reason == "stopped":
        return cause_of_stop(index, blockage)
    if blockage.reason == "pipe":
        return (
            "No process of this job has the writing end of that pipe, and there is no end of file. "
            "So a process outside of the job has it open, such as one that an ended child has "
            "started and left behind."
        )
    if blockage.reason == "thread" and (taken := cause_of_taken_pool(blockage.process)):
        return taken
    if left := left_outputs(index, blockage):
        return (
            f"{end} runs an event loop that waits for data on {left}, and no process of this job "
            "has a writing end, nor is there an end of file. So a process outside of the job has "
            "it open: most likely a command that has ended has left one in the background, such "
            "as a server, which has inherited its outputs. communicate() and read() wait for the "
            "end of that output, not for the exit of the command."
        )
    if blockage.reason == "socket":
        limit = "" if _has_timeout(thread) else " The system call has no timeout."
        return f"The other end of this connection is outside of the job and sends nothing.{limit}"
    if blockage.reason == "signal":
        return (
            f"{end} waits for a signal. Only a kill() by another process, or a timer that it has "
            "set, ends that; no process of this job is seen to be about to send one."
        )
    return f"{blockage.chain.conclusion} {others_continue(blockage)}".strip()


def _has_timeout(thread: Thread | None) -> bool:
    return (
        thread is not None
        and thread.waits_on is not None
        and (thread.waits_on.timeout_s is not None)
    )


_ADVICE_AT_EXIT = (
    "Read standard error for a traceback of the main thread. End such a thread in a finally block "
    "(set the event or flag that its loop checks, then join it), or start it with daemon=True if "
    "it may be cut off at any line."
)
_ADVICE: Mapping[Reason, str] = {
    "sleeps": (
        "Look at the line where it sleeps: shorten the sleep, or do it in a process for which no "
        "other one waits."
    ),
    "polls": (
        "Look at the line where it sleeps and at the condition of that loop; give the loop a limit "
        "after which it raises."
    ),
    "computes": (
        "Nothing is wrong if this part is meant to take so long. If not, look at the condition "
        "that ends the loop around that line, with its present values (mpwatch dump --locals). "
        "A time limit of those that wait has to be longer than this part."
    ),
    "receives": (
        "Look at what it does between receiving and sending: a request that is put aside (out of "
        "order, a full batch, a deadline that each new request puts off, a key that is not found) "
        "or dropped is never answered. Log what it keeps, and give each kept request a time limit "
        "of its own."
    ),
    "stopped": (
        "Continue it with kill -CONT and its pid, or with fg in its shell, unless what has stopped "
        "it is to continue it."
    ),
    "socket": (
        "Check the server at the other end, and give the client that opens this connection a "
        "timeout and retries."
    ),
    "pipe": (
        "Find the process that has the other end (ls -l /proc/*/fd, grep for the number of the "
        "pipe). Give a process that stays behind an output of its own (stdout=subprocess.DEVNULL "
        "or a file); or wait for the child itself, then read what is there."
    ),
    "file-lock": (
        "Look which process has the lock (lslocks shows it), and end it if it is left over from an "
        "earlier run; take the lock with a timeout, so that the wait is reported."
    ),
    "fifo": (
        "Let both sides open the same FIFOs in the same order, or open them with O_RDWR or "
        "O_NONBLOCK, which do not wait; check that the other side runs and uses the same path."
    ),
    "disk": (
        "Check the storage that the line reads (dmesg, mount): the process continues when the "
        f"storage answers. {STATE_D}"
    ),
    "thread": ADVICE_THREADS,
    "signal": (
        "Look which line was to send the signal (os.kill, Process.terminate), and whether it was "
        "reached: a signal that came before pause() is lost. Wait with signal.sigtimedwait(), or "
        "for an Event of multiprocessing."
    ),
    "other": (
        "Look at the line where it waits, and check what should answer there; give that call a "
        "timeout."
    ),
}
