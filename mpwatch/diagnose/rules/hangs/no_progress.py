"""A process makes no progress, or takes long, while others wait for it; no other rule says why.

`standing-still` names waits that can never end. This rule names every other wait that lasts: its
end may come from outside of the job, by itself, or not at all. A process that only computes, while
no other one works, is information.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from signal import Signals

from mpwatch.describe.account import always_inside
from mpwatch.describe.findings import WAIT_TOLD_S
from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.describe.processes import STATE_D
from mpwatch.describe.waits import SEMAPHORE
from mpwatch.diagnose.analysis.distributed.habits import is_at_usual_pace
from mpwatch.diagnose.analysis.distributed.nccl_words import nccl_words
from mpwatch.diagnose.analysis.idle_time import last_transfer_s, quiet_s, woken_per_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.among_threads import (
    ADVICE_AWAIT,
    LOOP_BLOCKED,
    RESULT_OF_LOOP,
)
from mpwatch.diagnose.analysis.mechanisms.cases import Mechanism, at_line
from mpwatch.diagnose.analysis.mechanisms.joined_executors import JoinedWords, joined_words
from mpwatch.diagnose.analysis.mechanisms.kept_locks import (
    KeptFile,
    advice_of_kept_file,
    advice_of_left_lock,
    cause_of_kept_file,
    cause_of_left_lock,
    kept_lock_file,
    left_for_s,
    left_function,
    left_lock,
    waiting_for_left_lock,
)
from mpwatch.diagnose.analysis.mechanisms.polling import (
    AwaitsInLoop,
    Connecting,
    InVain,
    Unseen,
    awaits_in_loops,
    connecting_in_vain,
    polls_in_vain,
    polls_reaped_children,
)
from mpwatch.diagnose.analysis.mechanisms.remote_calls import UnansweredCalls, unanswered_calls
from mpwatch.diagnose.analysis.mechanisms.servers import (
    Accepting,
    BothRead,
    Nested,
    accepting_in_vain,
    both_read,
    nested_permits,
    unwoken,
)
from mpwatch.diagnose.analysis.mechanisms.unreleased import lost_permits, may_lose_permits
from mpwatch.diagnose.analysis.pipes import KeptOutput, channels_among, kept_outputs, output_of
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    counted,
)
from mpwatch.diagnose.analysis.shares import (
    Computation,
    core_share,
    has_come_back,
    lonely_computations,
    mostly_sleeps,
)
from mpwatch.diagnose.analysis.source_code import (
    Costly,
    end_of_loop,
    mark_words,
    marks,
    spin,
    why_endless,
    wide_pattern,
)
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    main_shape,
    main_thread,
    own_threads,
    runs_event_loop,
    user_frame,
    writes_output,
)
from mpwatch.diagnose.analysis.values import awaited_number, loop_values, number_beside
from mpwatch.diagnose.analysis.waits.blockages import (
    USUAL_FACTOR,
    Blockage,
    Reason,
    at_one_line_s,
    blockages,
    usual_pause_s,
)
from mpwatch.diagnose.analysis.waits.chains import answering_threads, wait_graph
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s, semaphore_users, surroundings
from mpwatch.diagnose.analysis.waits.file_locks import (
    LIKELY,
    LOCK_FILE,
    LOCK_ON,
    inherited_lock,
    is_database,
)
from mpwatch.diagnose.analysis.waits.futures import may_set_a_result, taken_pool
from mpwatch.diagnose.analysis.waits.providers import (
    ThreadLock,
    held_lock,
    is_seen_outside,
    is_seen_to_hold,
    semaphore_uses,
    thread_words,
)
from mpwatch.diagnose.analysis.waits.threads import (
    FOR_EVENT,
    FOR_ITEM,
    FOR_RESULTS,
    is_at_exit,
    purpose,
)
from mpwatch.diagnose.analysis.waits.verdicts import IN_COROUTINE, UNANSWERED, where
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import OPENS, READS, PartOfJob, inode_of
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import WaitChain, WaitEdge, WaitLink

RULE = "no-progress"
REPORTED_S = 10.0
WARNED_S = WAIT_TOLD_S
"""The longest pause that is usual for a job of which nothing else is known."""
KNOWN_S = 15.0
"""Until then, a server whose coroutines may wait for each other, as its source shows, is not
reported."""
HOPELESS_S = 120.0
ONE_LINE_S = 60.0
"""A process that has only slept at one line for so long, while others wait for it, is in a loop
that waits or tries again."""
COMPUTES_S = 30.0
"""Until then, a process that computes while others wait for it is not reported."""
ALONE_COMPUTES_S = 20.0
"""Until then, a process that computes and does nothing else is not reported."""
ALONE_S = 60.0
"""Until then, a process that waits for an answer while none waits for it is information."""
NO_CORE_SHARE = 0.5
"""A process that waits for a free core this part of the time has not computed for long."""
FIRST_PART = 0.25
"""Of a wait: what was read and written so early may be the task itself."""
SHOWN_THREADS = 3
SHOWN_WAITERS = 4
_STOPS = (Signals.SIGSTOP, Signals.SIGTSTP, Signals.SIGTTIN)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose lack of progress holds up others, or itself.

    A rank whose steps are long makes progress as long as it takes no longer than usual.
    """
    yield from (each for each in _found(index) if not is_at_usual_pace(index, each.process))


def _found(index: Index) -> Iterator[Finding]:
    unseen, retried = [*polls_reaped_children(index)], [*connecting_in_vain(index)]
    kept = [each for each in kept_outputs(index) if _waits_for_s(index, each) >= REPORTED_S]
    remote = unanswered_calls(index, REPORTED_S)
    if remote is not None and remote.for_s < (KNOWN_S if remote.nested else WARNED_S):
        remote = None
    yield from map(_of_reaped, unseen)
    yield from [_of_remote_calls(remote)] if remote is not None else ()
    yield from map(_of_attempts, retried)
    yield from (_of_kept_output(index, each, _waits_for_s(index, each)) for each in kept)
    reported = {each.process.process for each in unseen}
    reported.update(process.process for each in retried for process in each.processes)
    reported.update(each.reader.process for each in kept)
    reported.update(_parts_of(remote) if remote is not None and remote.nested else ())
    left = None
    if any((quiet_s(each, index) or 0.0) >= REPORTED_S for each in index.snapshot.living()):
        left = left_lock(index)
        blocked = [each for each in blockages(index) if not _ends_at_kept_output(index, each)]
        if index.snapshot.part_of is not None:
            blocked = [each for each in blocked if each.reason in _ENDS_INSIDE]
        reported.update(each.process.process for each in blocked)
        yield from _of_blockages(index, blocked) if left is None else [_of_left_lock(index, left)]
        if not reported and index.snapshot.part_of is not None:
            yield from _of_part(index, index.snapshot.part_of)
            return
        if not reported:
            yield from _waits_for_one_that_is_idle(index)
            yield from _waits_for_own_threads(index)
        for accepting in accepting_in_vain(index):
            reported.add(accepting.server.process)
            yield _of_server(index, accepting)
    if not reported and left is None:
        in_vain = polls_in_vain(index)
        yield from (
            _waits_for_a_semaphore(index) if in_vain is None else [_of_polls(index, in_vain)]
        )
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


def _parts_of(remote: UnansweredCalls) -> tuple[ProcessId, ...]:
    """The processes that run or wait for remote calls, those that run one first."""
    found = (
        *(each.process.process for each in remote.nested),
        *(p.process for p in remote.callers),
    )
    return tuple(dict.fromkeys(found))


def _of_remote_calls(remote: UnansweredCalls) -> Finding:
    """The finding about remote calls that are not answered."""
    first, *others = _parts_of(remote)
    severity = Severity.INFO
    if remote.nested:
        severity = Severity.CRITICAL if remote.for_s >= HOPELESS_S else Severity.WARNING
    return Finding(
        rule=RULE,
        severity=severity,
        process=first,
        others=tuple(others),
        subject="rpc",
        summary=remote.summary,
        evidence=remote.evidence,
        cause=remote.cause,
        advice=remote.advice,
        is_doubtful=not remote.nested,
    )


def _of_reaped(unseen: Unseen) -> Finding:
    """The finding about a process that polls for exits which it can no longer notice."""
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=unseen.process.process,
        subject="reaped",
        summary=unseen.summary,
        evidence=tuple(unseen.evidence),
        cause=unseen.cause,
        advice=unseen.advice,
    )


def _of_attempts(retried: Connecting) -> Finding:
    """The finding about processes that try to connect again and again."""
    first, *others = retried.processes
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=first.process,
        others=tuple(each.process for each in others),
        subject="connects",
        summary=retried.summary,
        evidence=tuple(retried.evidence),
        cause=retried.cause,
        advice=retried.advice,
    )


def _of_polls(index: Index, in_vain: InVain) -> Finding:
    """The finding about a job of which no process does anything but poll, or wait."""
    first, *others = in_vain.pollers
    threads = [thread for each in in_vain.others if (thread := main_thread(each)) is not None]
    lost = may_lose_permits(index) if any(map(runs_event_loop, threads)) else None
    ends = (each.links[-1] for each in wait_graph(index).chains if each.conclusion == IN_COROUTINE)
    known = next((found for each in ends if (found := _nested(index, each))), None) or lost
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
            yield _finding(index, each, severity)


def _ends_at_kept_output(index: Index, blockage: Blockage) -> bool:
    """Whether a process of a blockage reads an output that orphans keep open."""
    ends = {blockage.process.process, *(each.process for each in blockage.waiters)}
    return any(each.reader.process in ends for each in kept_outputs(index))


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
    command = "a command" if child is None else called(child)
    have = "has" if len(kept.keepers) == 1 else "have"
    names = all_called(kept.keepers, SHOWN_WAITERS)
    started = "it" if child is None else called(child)
    pipes = " and ".join(f"pipe {each}" for each in kept.pipes)
    return Finding(
        rule=RULE,
        severity=severity,
        process=reader.process,
        others=tuple(each.process for each in kept.keepers),
        subject="output",
        summary=(
            f"{called(reader)} has waited {index.lasting(for_s)}{at_line(main_thread(reader))} for "
            f"the end of the output of {command}, which has ended: {names} still {have} it open"
        ),
        evidence=(
            *([f"{called(child)} ended: {ended.words}"] if child is not None and ended else ()),
            f"{called(reader)} waits for the end of {pipes}, and no other process can write there",
            *(
                f"{called(each)} is{at_line(main_thread(each)) or ' still there'}"
                for each in kept.keepers[:SHOWN_WAITERS]
            ),
        ),
        cause=(
            f"communicate() and read() wait for the end of the output, not for the exit of the "
            f"command: until every process that has inherited it has closed it. {names}, which "
            f"{started} has started, {'lives' if have == 'has' else 'live'} on"
            + (
                f": the signal that has ended {called(child)} ends only the process itself, and "
                "none that it has started."
                if child is not None and is_killed
                else "."
            )
        ),
        advice=(
            "Start the command in a session of its own (start_new_session=True) and end the whole "
            "group with os.killpg(proc.pid, signal.SIGKILL), not the command alone. Give "
            "communicate() a timeout, so that the read ends too; a longer limit for the exit of "
            "the command does not help. What is to stay in the background needs an output of its "
            "own (> file 2>&1 &)."
        ),
    )


def _waits_for_a_semaphore(index: Index) -> Iterator[Finding]:
    """A finding if some wait for one semaphore, and all others sleep in loops or wait.

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
    yield Finding(
        rule=RULE,
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
            "it has released it, and each needs with, or release() in a finally block. "
            "acquire(timeout=...) turns the wait into an error. Nothing is wrong if it is the "
            "signal to begin some work that has not come yet."
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
    if _is_unread(blockage) and _is_output(index, blockage):
        if waited_s < WARNED_S:
            return Severity.INFO if waited_s >= REPORTED_S else None
        return Severity.CRITICAL if waited_s >= HOPELESS_S else Severity.WARNING
    path = _locked_path(blockage)
    if path is not None and blockage.reason != "computes":
        return _severity_of_lock(index, blockage, path)
    is_known = held_lock(index, blockage.process.process) is not None
    is_known |= bool(_ended_writers(index, blockage)) or _kept_file(blockage) is not None
    if blockage.reason == "receives":
        return Severity.INFO if waited_s >= COMPUTES_S else None
    if blockage.reason == "computes" or (blockage.reason == "polls" and not is_known):
        if has_come_back(index, blockage.process):
            return None
        if blockage.reason == "computes" and _goes_from_task_to_task(index, blockage):
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
    if blockage.reason == "stopped" and _is_stopped_meanwhile(index, blockage):
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


def _is_stopped_meanwhile(index: Index, blockage: Blockage) -> bool:
    """Whether a process is stopped while another one works and those that wait poll now and then.

    A program that stops a process to let another one run waits for that one, with a time limit.
    """
    edge = blockage.edge
    waiter = index.snapshot.get(edge.waiter) if edge is not None else None
    thread = main_thread(waiter) if waiter is not None else None
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.timeout_s is None:
        return False
    still = {blockage.process.process, *(each.process for each in blockage.waiters)}
    others = [each for each in index.snapshot.living() if each.process not in still]
    return any(
        (quiet := quiet_s(each, index)) is not None and quiet < REPORTED_S
        for each in others
        if each.role not in SERVICE_ROLES
    )


def _stopper(index: Index, stopped: Process) -> str:
    """Which process of the job has sent the signal, and where, as its hook reports."""
    for entry in reversed(index.entries("kill")):
        sender = index.snapshot.get(entry.process)
        is_it = entry.details.get("pid") == stopped.pid
        if sender is None or not is_it or entry.details.get("signal") not in _STOPS:
            continue
        site = entry.details.get("site")
        return f" {called(sender)} has sent it{f' at {site}' if site else ''}."
    return ""


def _goes_from_task_to_task(index: Index, blockage: Blockage) -> bool:
    """Whether a process that computes has done more than one computation since the others wait.

    It was found at work between two sleeps, is a worker started since, or has read a task or
    written a result.
    """
    process, since_s = blockage.process, index.snapshot.at_s - blockage.waited_s
    born_s = process.sample.born_wall_s
    if born_s is not None and born_s - index.snapshot.wall_s + index.snapshot.at_s > since_s:
        return True
    exchanged_s = last_transfer_s(index, process)
    is_recent = exchanged_s > since_s + blockage.waited_s * FIRST_PART
    return mostly_sleeps(index, process) or (isfinite(exchanged_s) and is_recent)


def _severity_of_lock(index: Index, blockage: Blockage, path: str) -> Severity | None:
    """How bad it is that a process keeps a file lock while others wait for it."""
    waited_s = blockage.waited_s
    if waited_s < REPORTED_S:
        return None
    is_forgotten = inherited_lock(index, path, blockage.process.process) is not None
    if waited_s < WARNED_S or not (is_forgotten or _holds_up_the_job(index, blockage)):
        return Severity.INFO
    return Severity.CRITICAL if waited_s >= HOPELESS_S else Severity.WARNING


def _is_unread(blockage: Blockage) -> bool:
    """Whether a process waits for room in a pipe whose reader does something else than compute.

    A producer that is ahead of a consumer that computes waits by design.
    """
    edge = blockage.edge
    return edge is not None and edge.kind == "pipe-write" and blockage.reason != "computes"


def _is_output(index: Index, blockage: Blockage) -> bool:
    """Whether the pipe is standard output or error of the process that writes: no queue of work."""
    edge = blockage.edge
    process = index.snapshot.get(edge.waiter) if edge is not None else None
    return process is not None and writes_output(process)


def _kept_file(blockage: Blockage) -> KeptFile | None:
    """The lock file for whose removal a process likely polls, kept by one that waits for it."""
    if blockage.reason not in ("polls", "sleeps"):
        return None
    return kept_lock_file(blockage.process, blockage.waiters)


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
    path = _locked_path(blockage)  # its holder may change from one snapshot to the next
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
        is_doubtful=severity is Severity.INFO and blockage.reason in _AT_WORK,
    )


_AT_WORK = ("computes", "polls", "receives", "sleeps")
"""A process at the end of waits that is so far not known to stand still."""


def _waits_for_one_that_is_idle(index: Index) -> Iterator[Finding]:
    """A finding if the root waits for a process that itself waits for work, and nothing moves."""
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
        is_known = chain.conclusion == IN_COROUTINE and _nested(index, end) is not None
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
        yield Finding(
            rule=RULE,
            severity=Severity.INFO,
            process=process.process,
            subject=str(process.pid),
            summary=(
                f"nothing in this job has moved for {time}: {called(process)} waits for "
                f"{end.name}, which waits for something to do"
            ),
            evidence=(
                chain.sentence,
                *(f"{called(each)} is at {at[2:]}" for each in (process,) if (at := where(each))),
                *_threads_of_last(index, end),
                f"no process of the job has made progress for {time}",
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


def _of_unanswered(index: Index, process: Process, chain: WaitChain, time: str) -> Finding:
    """The finding about a job that waits for the answer of a server that seems idle."""
    end = chain.links[-1]
    is_loop = chain.conclusion == IN_COROUTINE
    nested = _nested(index, end) if is_loop else None
    lost = lost_permits(index, process) or (may_lose_permits(index) if is_loop else None)
    known = nested if nested is not None else lost
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
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if nested is not None else Severity.INFO,
        process=process.process,
        others=() if end.process is None or end.process == process.process else (end.process,),
        subject=str(process.pid),
        summary=(
            f"nothing in this job has moved for {time}: {called(process)} waits for {end.name}, "
            "which has not answered a request"
        ),
        evidence=(
            chain.sentence,
            *(f"{called(each)} is at {at[2:]}" for each in (process,) if (at := where(each))),
            *_threads_of_last(index, end),
            f"{counted(count, 'request')} of other processes "
            f"{'waits' if count == 1 else 'wait'} for {end.name}",
            *((known.evidence,) if known is not None else ()),
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


def _nested(index: Index, end: WaitLink) -> Nested | None:
    """What the source says of coroutines of a server that may wait for each other."""
    process = index.snapshot.get(end.process)
    return None if process is None else nested_permits(index, process, _requests(index, end))


_ADVICE_UNANSWERED = (
    "Look at what the handler of a request does between reading it and answering. In an event "
    "loop, print the tasks with the lines at which they wait: for task in asyncio.all_tasks(): "
    "task.print_stack(), from a signal handler (loop.add_signal_handler) or a debug request. Give "
    "each wait in a handler a timeout (asyncio.wait_for), so that it becomes an error."
)


def _of_both(
    index: Index, process: Process, both: BothRead, chain: WaitChain, for_s: float
) -> Finding:
    """The finding about a job that waits for a connection of which both ends are read."""
    is_sure = both.short_read is not None
    end = chain.links[-1]
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if is_sure or for_s >= HOPELESS_S else Severity.INFO,
        process=process.process,
        others=tuple(each.process for each in (both.client, both.server) if each is not process),
        subject=str(process.pid),
        summary=(
            f"nothing in this job has moved for {index.lasting(for_s)}: {called(both.client)} and "
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


_ENDS_INSIDE: tuple[Reason, ...] = ("computes", "polls", "sleeps", "stopped", "disk", "file-lock")
"""Of what the last process does where only a part of a job is watched: what proves itself."""


def _of_part(index: Index, part: PartOfJob) -> Iterator[Finding]:
    """A finding if a part of a job makes no progress, which may be due to the rest of it."""
    for_s, process = _nothing_moves_s(index), index.snapshot.get(index.snapshot.root)
    chains = [
        chain
        for chain in wait_graph(index).chains
        if chain.verdict == "unknown" and chain.links[0].process == index.snapshot.root
    ]
    if for_s < WARNED_S or process is None or not chains:
        return
    root, time = part.root.pid, index.lasting(for_s)
    yield Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        subject="part",
        summary=(
            f"{called(process)} has made no progress for {time}{at_line(main_thread(process))}; "
            f"it is part of the job of {root} ({part.name}), which was not looked at"
        ),
        evidence=(
            chains[0].sentence,
            *_other_threads(index, process),
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


def _waits_for_own_threads(index: Index) -> Iterator[Finding]:
    """A finding if the root's chain ends at a wait for a thread of one process, and nothing moves.

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
        is_loop = runs_event_loop(thread)
        if len(chain.links) == 1 and purpose(thread) in _OF_SERVERS and not is_loop:
            continue  # a server waits like this for its whole life
        name, time = called(process), index.lasting(for_s)
        at = at_line(main_thread(process))
        cause = f"Only another thread of {name} can end this wait, and none of them has for {time}."
        what = f"{name} waits {purpose(thread)}{at}"
        if is_loop:
            what = f"the event loop of {name} is blocked{at}, where it waits {purpose(thread)}"
            is_result = purpose(thread) in FOR_RESULTS and not may_set_a_result(process)
            cause = f"{LOOP_BLOCKED} {RESULT_OF_LOOP if is_result else cause}"
        yield Finding(
            rule=RULE,
            severity=Severity.WARNING if is_loop else Severity.INFO,
            process=process.process,
            subject=str(process.pid),
            summary=f"nothing in this job has moved for {time}: {what}",
            evidence=(
                chain.sentence,
                *_other_threads(index, process),
                f"no process of the job has made progress for {time}",
            ),
            cause=_cause_of_taken_pool(process) or cause,
            advice=ADVICE_AWAIT
            if is_loop
            else _ADVICE_TAKEN_POOL
            if taken_pool(process) is not None
            else _ADVICE["thread"],
        )
        return


_FOR_WORK = ("waits for a client of", "waits for work", "waits for something to do")
_TASKS = (
    " Tasks of asyncio that have ended with an exception do not show from outside: a process "
    "that waits for what they were to send or receive waits for ever."
)


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
    frame = user_frame(thread.stack) if thread is not None else None
    pattern = wide_pattern(index, frame) if frame is not None else None
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
    if _is_unread(blockage):
        return _ADVICE_UNREAD
    if _left_by(index, blockage) is not None:
        return _ADVICE_OPEN_END
    if _ended_writers(index, blockage):
        return _ADVICE_INHERITED
    if (kept := _kept_file(blockage)) is not None:
        return advice_of_kept_file(blockage.thread, kept)
    path = _locked_path(blockage)
    if path is not None:
        if inherited_lock(index, path, blockage.process.process) is not None:
            return _ADVICE_HEIR
        if _waits_for_itself(index, blockage, path):
            return _ADVICE_OWN_DATABASE
        left = left_function(blockage.process, _wait_for_it(index, blockage))
        if left is not None:
            return advice_of_left_lock(blockage.process, left, is_database=is_database(index, path))
        return _ADVICE_DATABASE if is_database(index, path) else _ADVICE_HELD
    if _is_held_unseen(index, blockage):
        return _ADVICE_HELD if _is_only_user(index, blockage) else _ADVICE_UNSEEN
    if held_lock(index, blockage.process.process) is not None:
        return _ADVICE_INSIDE_LOCK
    if _is_at_exit(blockage):
        return _ADVICE_AT_EXIT
    if _is_held_lock(index, blockage):
        return _ADVICE_HELD
    found = spin(index, blockage.process) if blockage.reason == "computes" else None
    pattern = _pattern(index, blockage)
    if pattern is not None and found is None:
        return pattern.advice
    if blockage.reason == "computes" and found is None and _for_a_core(index, blockage):
        return _ADVICE_NO_CORE
    if _left_outputs(index, blockage):
        return _ADVICE_LEFT_OUTPUTS
    if blockage.reason == "thread" and taken_pool(blockage.process) is not None:
        return _ADVICE_TAKEN_POOL
    return _ADVICE[blockage.reason] if found is None else end_of_loop(found.loop, found.process)


def _locked_path(blockage: Blockage) -> str | None:
    """The path of the file whose lock leads to the last process; `None` for other waits."""
    what = blockage.edge.what if blockage.edge is not None else ""
    likely = f"{LOCK_FILE}{LIKELY}"
    prefix = next((each for each in (LOCK_ON, likely) if what.startswith(each)), None)
    return None if prefix is None else what.removeprefix(prefix)


def _wait_for_it(index: Index, blockage: Blockage) -> list[Process]:
    """Those of the processes that wait which wait for the lock itself."""
    what = blockage.edge.what if blockage.edge is not None else ""
    waiting = {edge.waiter for edge in wait_graph(index).edges if edge.what == what}
    return [each for each in blockage.waiters if each.process in waiting]


def _waits_for_itself(index: Index, blockage: Blockage, path: str) -> bool:
    """Whether the holder of a database's lock sleeps where the others try to get it."""
    if blockage.reason not in ("sleeps", "polls") or not is_database(index, path):
        return False
    place = where(blockage.process)
    return bool(place) and any(where(each) == place for each in blockage.waiters)


def _summary(index: Index, blockage: Blockage) -> str:
    """Which processes wait, for how long, for which process, and what that process does."""
    end, waiters = blockage.process, blockage.waiters
    time = index.lasting(blockage.waited_s)
    joined = _joined(index, blockage)
    what = joined.what if joined is not None else f"{_does(blockage)}{at_line(main_thread(end))}"
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
    if _is_unread(blockage) and len(waiters) == 1:
        full = _unread_words(blockage)
        return (
            f"{names} has waited {time} to write to {full}: {called(end)}, which could read it, "
            f"{what}"
        )
    path = _locked_path(blockage)
    if path is not None:
        return (
            f"{names} {have} waited {time} for the lock on {path}: {called(end)} has it and {what}"
        )
    kept = _kept_file(blockage)
    if kept is not None:
        return (
            f"{called(kept.process)} has waited {time} for {called(end)}, which {what}, most "
            f"likely until the lock file {kept.path} is gone, which {called(kept.process)} has left"
        )
    if _is_held_unseen(index, blockage):
        if _is_only_user(index, blockage):
            return (
                f"{names} {have} waited {time} for a lock or semaphore that {called(end)} most "
                f"likely holds: it {what}"
            )
        return (
            f"{names} {have} waited {time} for a lock between processes that no process is seen to "
            "hold"
        )
    lock = "a lock that " if _is_held_lock(index, blockage) else ""
    holds = f"{called(end)} holds, and it" if lock else f"{called(end)}, which"
    pattern = _pattern(index, blockage)
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


def _is_held_unseen(index: Index, blockage: Blockage) -> bool:
    """Whether processes wait for a lock of multiprocessing whose holder nothing shows.

    The last process of the chain has the semaphore open, as all have that were started with it.
    """
    edge = blockage.edge
    if edge is None or edge.kind != "semaphore" or not edge.what.startswith(SEMAPHORE):
        return False
    segment = _segment(index, edge)
    end = blockage.process.process
    return segment is not None and not is_seen_to_hold(index, edge.waiter, end, segment)


def _is_held_lock(index: Index, blockage: Blockage) -> bool:
    """Whether processes wait for a lock of multiprocessing that the last one is seen to hold."""
    edge = blockage.edge
    if edge is None or edge.kind != "semaphore" or not edge.what.startswith(SEMAPHORE):
        return False
    segment = _segment(index, edge)
    end = blockage.process.process
    return segment is not None and is_seen_to_hold(index, edge.waiter, end, segment)


def _is_only_user(index: Index, blockage: Blockage) -> bool:
    """Whether of all that had a semaphore, only the last process can be the one that has it now."""
    edge = blockage.edge
    segment = _segment(index, edge) if edge is not None else None
    if edge is None or segment is None or _ended_users(index, edge):
        return False
    if is_seen_outside(index, blockage.process.process):
        return False
    if any(
        each.ended is not None and not each.sample.segments for each in index.snapshot.processes
    ):
        return False  # what it had was not read
    uses = semaphore_uses(index)
    others = [
        user
        for user in semaphore_users(index).get(segment, ())
        if user != blockage.process.process
        and (process := index.snapshot.get(user)) is not None
        and process.role not in SERVICE_ROLES
    ]
    return all(uses[each].segment == segment or uses[each].joins for each in others)


def _segment(index: Index, edge: WaitEdge) -> SegmentId | None:
    """The semaphore that a wait is for."""
    waiter = index.snapshot.get(edge.waiter)
    thread = next((t for t in waiter.threads if t.tid == edge.tid), None) if waiter else None
    return thread.waits_on.segment if thread is not None and thread.waits_on is not None else None


def _ended_users(index: Index, edge: WaitEdge) -> list[str]:
    """The processes that have ended and had the semaphore of a wait, with how they ended."""
    segment = _segment(index, edge)
    return [
        f"{called(process)} ({process.ended.words})"
        for process in index.snapshot.processes
        if process.ended is not None
        and any(use.segment == segment for use in process.sample.segments or ())
    ]


def _unread_words(blockage: Blockage) -> str:
    """The full pipe to which a process writes, and which of its outputs that is."""
    edge = blockage.edge
    what = edge.what.removeprefix("a reader of ") if edge is not None else "a pipe"
    writer = next((each for each in blockage.waiters if edge and each.process == edge.waiter), None)
    thread = main_thread(writer) if writer is not None else None
    wait = thread.waits_on if thread is not None else None
    pipes = channels_among(wait.targets) if wait is not None else ()
    stream = output_of(writer, pipes[0]) if writer is not None and pipes else ""
    return f"its {stream}, {what}" if stream else what


def _does(blockage: Blockage) -> str:
    """What the process at the end does, without its line."""
    thread = blockage.thread
    words = _DOES.get(blockage.reason)
    if words is not None:
        return words
    last = blockage.chain.links[-1].words
    place = where(blockage.process)
    if blockage.reason == "disk" and thread is not None and thread.wchan:
        return f"is in an uninterruptible wait in the kernel ({thread.wchan})"
    return last.removesuffix(place) if place else last


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
    if blockage.reason in ("computes", "polls", "receives", "stopped"):
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
        yield from _other_threads(index, blockage.process)
    if blockage.reason == "fifo":
        yield from _others_that_open(index, blockage.process)
    yield from _killed_holders(index, blockage)
    if blockage.edge is not None and _is_held_unseen(index, blockage):
        at = at_line(main_thread(blockage.process))
        yield f"{called(blockage.process)}, which has this lock too, {_does(blockage)}{at}"
        if ended := _ended_users(index, blockage.edge):
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
    if blockage.reason == "file-lock" and _locked_path(blockage) is None:
        for process in index.snapshot.processes:
            if process.ended is not None and process.ended.signal is not None:
                yield (
                    f"{called(process)} ended: {process.ended.words}; a lock file that it had "
                    "stays where it is"
                )


def _other_threads(index: Index, process: Process) -> Iterator[str]:
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
        yield from (f"{end.name}: {words}" for words in _other_threads(index, process))


def _cause(index: Index, blockage: Blockage) -> str:
    """What a process would have to do for the others to continue, as far as was observed."""
    unanswered = _unwoken(index, blockage)
    if unanswered is not None:
        return unanswered.cause
    if (joined := _joined(index, blockage)) is not None:
        return f"{joined.cause} {_others_continue(blockage)}".strip()
    path = _locked_path(blockage)
    if path is not None:
        return _cause_of_file_lock(index, blockage, path)
    kept = _kept_file(blockage)
    if kept is not None:
        return cause_of_kept_file(blockage.process, _place_of(blockage), kept)
    if _is_at_exit(blockage):
        return (
            "Python joins all threads that are not daemons before it exits. If such a thread is "
            "meant to keep running, nothing is wrong. If not, it was not told to end: an exception "
            "in the main thread also skips the lines that would have."
        )
    if _is_held_unseen(index, blockage):
        return _cause_of_unseen_holder(index, blockage)
    inherited = _cause_of_pipe(index, blockage)
    if inherited is not None:
        return inherited
    lock = held_lock(index, blockage.process.process)
    if lock is not None:
        return _cause_of_lock(blockage, lock)
    if _is_held_lock(index, blockage):
        end = called(blockage.process)
        return f"{end} holds the lock while it {_does(blockage)}{_left(blockage.thread)}."
    return _cause_of_reason(index, blockage)


def _cause_of_file_lock(index: Index, blockage: Blockage, path: str) -> str:
    """Which process has the lock on a file, and how it came by it."""
    end = called(blockage.process)
    held = inherited_lock(index, path, blockage.process.process)
    if held is None and _waits_for_itself(index, blockage, path):
        return (
            f"{end} holds the lock on {path}, and is at the same line as the processes that "
            "wait for it: likely it waits for its own lock, by a second connection to the "
            "database. A transaction of SQLite belongs to one connection, not to the process."
        )
    place = left_function(blockage.process, _wait_for_it(index, blockage))
    if held is None and place is not None:
        return cause_of_left_lock(
            blockage.process, _place_of(blockage), path, place, is_database=is_database(index, path)
        )
    left = _left(blockage.thread) if blockage.reason == "sleeps" else ""
    return held or f"{end} holds the lock on {path} while it {_does(blockage)}{left}."


def _place_of(blockage: Blockage) -> str:
    """`sleeps again and again at data.py:48 wait`."""
    return f"{_does(blockage)}{at_line(main_thread(blockage.process))}"


def _cause_of_unseen_holder(index: Index, blockage: Blockage) -> str:
    """Which process may hold a lock of multiprocessing whose holder nothing shows."""
    end = called(blockage.process)
    if _is_only_user(index, blockage):
        return (
            f"{end} is the only living process that has this lock and neither waits for it nor "
            "joins one that does, and no process that had it is known to have ended. So it holds "
            f"the lock while it {_does(blockage)}, or is the one that has to release it."
        )
    return (
        f"The kernel does not show which process holds such a lock. If {end} does not hold it at "
        "that line, a process that has ended took it and did not release it: a lock of "
        "multiprocessing stays locked when its holder is killed, and the others wait for ever."
    )


def _cause_of_pipe(index: Index, blockage: Blockage) -> str | None:
    """Why a pipe is full or gets no end of file; `None` for other waits."""
    edge, end = blockage.edge, called(blockage.process)
    if edge is None:
        return None
    if _is_unread(blockage):
        what = edge.what.removeprefix("a reader of ")
        return (
            f"{what} is full, and {end}, which has its reading end, has read nothing from it for "
            f"{index.lasting(blockage.waited_s)}. The process that writes continues only when that "
            "process reads: a pipe holds 64 KiB."
        )
    parent = _left_by(index, blockage)
    if parent is not None:
        return (
            f"{called(parent)} has ended. {end}, which it started, has inherited the writing end "
            f"of {edge.what} and still has it open, so its reader gets no end of file."
        )
    heirs = _ended_writers(index, blockage)
    if heirs and not _is_held_lock(index, blockage):
        have = "have" if len(heirs) > 1 else "has"
        return (
            f"{end} has the writing end of {edge.what} open, and {_does(blockage)}. If it "
            f"is not the one to write, it has inherited that end at its fork: {all_called(heirs)} "
            f"{have} ended, and a reader gets an end of file (EOFError) only once every copy of "
            "the writing end is closed."
        )
    return None


def _cause_of_taken_pool(process: Process) -> str:
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


_ADVICE_TAKEN_POOL = (
    "Do not wait inside of a pool for a call of the same pool: give calls that wait for others a "
    "pool or threads of their own, do the inner work directly, or return the futures and let the "
    "caller wait. More threads (max_workers) only move the limit to more calls at a time."
)


def _left_outputs(index: Index, blockage: Blockage) -> str:
    """The pipes for which an event loop waits and to which no process of the job can write.

    Without standard input, and empty where not all descriptors are known.
    """
    thread, around = blockage.thread, surroundings(index)
    wait = thread.waits_on if thread is not None else None
    if thread is None or wait is None or wait.kind != "poll" or not around.is_complete:
        return ""
    if not calls(own_frames(thread.stack), "asyncio/base_events.py:_run_once"):
        return ""
    fds = blockage.process.sample.fds
    given = {link.inode for link in (fds.links if fds is not None else None) or () if link.fd == 0}
    pipes = [
        target
        for target in wait.targets
        if target.startswith("pipe:")
        and (inode := inode_of(target)) not in given
        and inode is not None
        and not around.pipes.writers.get(inode)
    ]
    return " and ".join(around.pipes.words(inode_of(each) or 0) for each in pipes)


_ADVICE_LEFT_OUTPUTS = (
    "Find that process (ls -l /proc/*/fd, grep for the number of the pipe). Put the time limit "
    "around communicate() itself, start commands in a session of their own (start_new_session="
    "True) and end the whole group with os.killpg, or give what stays in the background an output "
    "of its own (> file 2>&1 &). A longer limit for the exit of the command does not help."
)


def _pattern(index: Index, blockage: Blockage) -> Costly | None:
    """The ambiguous regular expression at the line of a process that computes."""
    thread = blockage.thread
    frame = user_frame(thread.stack) if thread is not None else None
    if frame is None or blockage.reason != "computes":
        return None
    return wide_pattern(index, frame)


def _for_a_core(index: Index, blockage: Blockage) -> float:
    """The share of the time in which the last process could run and got no core; 0 if that is low.

    One that hardly gets a core has not computed for long.
    """
    waited = core_share(index, blockage.process)
    return waited if waited >= NO_CORE_SHARE else 0.0


def _cause_of_receiving(index: Index, blockage: Blockage) -> str:
    """Why a process that goes on receiving may not have sent what another one waits for."""
    woken = woken_per_s(index, blockage.process)
    often = f"about {woken:.0f} times a second" if woken is not None else "again and again"
    cause = (
        f"{called(blockage.process)} is alive: its main thread is woken up {often} where it waits "
        "to receive, so most likely it gets requests there. What the process that waits has sent "
        "was answered to another one, put aside, dropped, or has not arrived."
    )
    renewed = marks(index, "renews-deadline", blockage.process)
    return f"{cause}{_put_off(renewed[0])}" if renewed else cause


def _put_off(mark: Mark) -> str:
    return (
        f" Most likely it is put aside until a deadline: {mark_words(mark)} sets it to a time from "
        "now each time that it is reached, whatever was set before. If each of the requests that "
        "go on coming reaches it, it is put off for ever and never due: set it only where none is "
        "set."
    )


def _cause_of_reason(index: Index, blockage: Blockage) -> str:
    """What the last process does, where no more is known than that."""
    end, thread = called(blockage.process), blockage.thread
    if blockage.reason == "sleeps":
        return f"{end} sleeps{_left(thread)}. {_others_continue(blockage)}"
    if blockage.reason == "polls":
        held = loop_values(index, blockage.process)
        return (
            f"{end} sleeps again and again, as a loop does that waits for something or tries "
            f"again. {f'It goes round in {held}. ' if held else ''}{_others_continue(blockage)}"
        )
    if blockage.reason == "receives":
        return _cause_of_receiving(index, blockage)
    if blockage.reason == "computes":
        return _cause_of_computation(index, blockage)
    if blockage.reason == "stopped":
        return _cause_of_stop(index, blockage)
    if blockage.reason == "pipe":
        return (
            "No process of this job has the writing end of that pipe, and there is no end of file. "
            "So a process outside of the job has it open, such as one that an ended child has "
            "started and left behind."
        )
    if blockage.reason == "thread" and (taken := _cause_of_taken_pool(blockage.process)):
        return taken
    if left := _left_outputs(index, blockage):
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
    return f"{blockage.chain.conclusion} {_others_continue(blockage)}".strip()


def _cause_of_computation(index: Index, blockage: Blockage) -> str:
    """What a process computes that others wait for, as far as it shows."""
    end = called(blockage.process)
    if (found := spin(index, blockage.process)) is not None:
        time = index.lasting(index.snapshot.at_s - found.since_s)
        return (
            f"{end} has gone round in {found.words} for {time}. {why_endless(found.loop, end)}. "
            f"{_others_continue(blockage)}"
        ).strip()
    if (pattern := _pattern(index, blockage)) is not None:
        return (
            f"{end} computes, and has answered none of those that wait for it for "
            f"{index.lasting(blockage.waited_s)}. At its line, {pattern.words}{pattern.cause} "
            f"{_others_continue(blockage)}"
        ).strip()
    if waited := _for_a_core(index, blockage):
        return (
            f"{end} has answered none of those that wait for it for "
            f"{index.lasting(blockage.waited_s)}. It could compute all that time, and waited for a "
            f"free core {waited:.0%} of it: it may only be slow. {_others_continue(blockage)}"
        )
    return (
        f"{end} computes, and has answered none of those that wait for it for "
        f"{index.lasting(blockage.waited_s)}: it is in a long computation, or in a loop that "
        f"does not end. {_others_continue(blockage)}"
    )


def _cause_of_stop(index: Index, blockage: Blockage) -> str:
    """What has stopped the last process, and whether that may be on purpose."""
    words = (
        f"A signal (SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU) has stopped {called(blockage.process)}; "
        f"only SIGCONT continues it.{_stopper(index, blockage.process)}"
    )
    if _is_stopped_meanwhile(index, blockage):
        words += (
            " A program may stop a process on purpose while another one runs, and continue it "
            "later: another process of this job works on, and the one that waits does so with "
            "a time limit."
        )
    return words


def _cause_of_lock(blockage: Blockage, lock: ThreadLock) -> str:
    """Which thread keeps others of its process from their work."""
    process, count = blockage.process, len(lock.waiters)
    holder = thread_words(process, lock.holder)
    names = ", ".join(each.name for each in lock.waiters[:SHOWN_THREADS])
    those = f"{count} threads ({names})" if count > 1 else thread_words(process, lock.waiters[0])
    wait = "wait" if count > 1 else "waits"
    return (
        f"In {called(process)}, {holder} is further down in the function in which {those} {wait} "
        "to take a lock, so likely it has that lock. Until it is released, none of them does "
        f"what it is there for. {_others_continue(blockage)}".strip()
    )


def _left_by(index: Index, blockage: Blockage) -> Process | None:
    """The ended process from which the last one has the pipe's end for which its reader waits.

    Returns:
        A child of the reader that has ended and has started the last process; `None` otherwise.
    """
    edge = blockage.edge
    if edge is None or edge.kind not in ("pipe-read", "poll"):
        return None
    end, parent = blockage.process, index.snapshot.get(blockage.process.original_parent)
    if parent is None or end.process not in edge.providers:
        return None
    has_ended = parent.is_gone or parent.sample.state == "Z"
    return parent if has_ended and parent.sample.parent_pid == edge.waiter.pid else None


def _ended_writers(index: Index, blockage: Blockage) -> list[Process]:
    """Ended processes that may have been the writers of the pipe that a process reads to its end.

    Returns:
        Those of the same parent as the reader, if the last process was forked and may have only
        inherited the writing end; nothing for a queue, whose readers see no end of file.
    """
    edge = blockage.edge
    if edge is None or edge.kind not in READS:
        return []
    reader, end = index.snapshot.get(edge.waiter), blockage.process
    thread = main_thread(reader) if reader is not None else None
    if reader is None or thread is None or end.process not in edge.providers:
        return []
    if end.sample.start_method != "fork" or calls(own_frames(thread.stack), "queues.py:get"):
        return []
    return [
        each
        for each in index.snapshot.processes
        if (each.ended is not None or each.sample.state == "Z")
        and each.role not in SERVICE_ROLES
        and each.sample.parent_pid in (reader.sample.parent_pid, reader.pid)
    ]


def _others_continue(blockage: Blockage) -> str:
    """That the processes that wait depend on this one; empty where none does."""
    if not blockage.waiters:
        return ""
    those = "The process that waits goes" if len(blockage.waiters) == 1 else "The others go"
    return f"{those} on when it has done its part."


def _left(thread: Thread | None) -> str:
    """How much of a sleep is left, where the system call shows it."""
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.timeout_s is None or wait.call != "clock_nanosleep":
        return ""
    return f" and will wake up by itself in {seconds_text(wait.timeout_s)}"


def _has_timeout(thread: Thread | None) -> bool:
    return (
        thread is not None
        and thread.waits_on is not None
        and (thread.waits_on.timeout_s is not None)
    )


_DOES: Mapping[Reason, str] = {
    "sleeps": "sleeps",
    "polls": "sleeps again and again",
    "computes": "computes",
    "receives": "goes on receiving",
    "stopped": "is stopped by a signal",
    "signal": "waits for a signal",
}
_ADVICE_OPEN_END = (
    "Give a process that stays behind an output of its own (stdout=subprocess.DEVNULL or a file, "
    "start_new_session=True), or end it with its parent. Or do not read until the end of file: "
    "wait for the child itself, then read what is there."
)
_ADVICE_INHERITED = (
    "Make each pipe right before the processes that use it, and close in every process the ends "
    "that it does not use (also in those that are forked later or earlier for something else). Or "
    "send an item that tells the reader to end; or start processes by spawn, which inherits "
    "nothing that was not passed."
)
_ADVICE_HEIR = (
    "Unlock the file before it is closed (fcntl.flock(fd, fcntl.LOCK_UN)): that releases the lock "
    "for all copies of the descriptor. Or start the child before the lock is taken, or close the "
    "descriptor in the child."
)
_ADVICE_DATABASE = (
    "Commit or roll back before the slow part, so that a transaction that writes is short; the "
    "others raise 'database is locked' when the timeout of their connection is over."
)
_ADVICE_OWN_DATABASE = (
    "Use the connection that began the transaction for everything inside of it, or commit before "
    "a function is called that opens a connection of its own."
)
_ADVICE_HELD = (
    "Look at the line where the holder is: do the slow part outside of the lock, and release the "
    "lock in a finally or a with block. Give the attempts of the others a limit, after which they "
    "raise."
)
_ADVICE_UNSEEN = (
    "Look whether a process that uses this lock was killed (terminate(), kill(), a watchdog, the "
    "kernel for memory). End such processes by a message or an event instead, or let the others "
    "acquire with a timeout. With the hook (mpwatch run) the holder is known."
)
_ADVICE_INSIDE_LOCK = (
    "Do not wait while a lock is held: if what the thread waits for comes from a thread that needs "
    "the lock, neither continues. threading.Condition.wait_for() releases its lock meanwhile; or "
    "wait first and take the lock for the change only."
)
_ADVICE_AT_EXIT = (
    "Read standard error for a traceback of the main thread. End such a thread in a finally block "
    "(set the event or flag that its loop checks, then join it), or start it with daemon=True if "
    "it may be cut off at any line."
)
_ADVICE_UNREAD = (
    "Read it for as long as the other process runs: in a thread of its own, or with communicate() "
    "where it is the output of a subprocess. Or write the output to a file."
)
_ADVICE_NO_CORE = (
    "See what uses the cores: other programs, or more processes and threads of this job than cores "
    "(torch.set_num_threads(1) in each process). A time limit of those that wait has to be longer "
    "than this part."
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
    "thread": (
        "Compare the lines at which its threads are: one of them has to release the lock or set "
        "the condition. Take several locks in the same order everywhere, and each with a timeout."
    ),
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
