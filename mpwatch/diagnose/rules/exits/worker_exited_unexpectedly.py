"""A worker is gone although nobody asked it to go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from signal import Signals
from typing import Any

from mpwatch.diagnose.analysis.exits import (
    TOGETHER_S,
    Death,
    ParentFate,
    death_of,
    died_with_parent,
    ended_workers,
    last_seen,
    memory_evidence,
    parent_fate,
)
from mpwatch.diagnose.analysis.loader_waits import is_loader_poll
from mpwatch.diagnose.analysis.process_queries import GAP_TICKS, WORK_ROLES, called, family_head
from mpwatch.diagnose.analysis.stack_patterns import calls, main_shape, main_thread, own_frames
from mpwatch.diagnose.known_errors import contains, evidence_of
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process, Snapshot

RULE = "worker-exited-unexpectedly"
IN_A_ROW = 4
"""So many that were started after others had ended alike are not the workers of the next epoch."""
FIRST_S = 1.5
"""Processes that end at once are seen to at two looks, a second apart."""
INTERRUPTED_S = 4.0
"""How long a parent that a ctrl-c interrupted as well may take to end."""


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for workers that failed, were killed, or left in the middle of an epoch.

    Those of one parent that ended alike are told together. Exit code 0, a polite signal, and
    whatever follows the end of the parent are normal. Crashes and kills for lack of memory have
    rules of their own.
    """
    alike: defaultdict[tuple[ProcessId | None, str], list[tuple[Process, Ended]]]
    alike = defaultdict(list)
    for process, ended in ended_workers(snapshot):
        if _is_unexpected(snapshot, history, process, ended):
            head = family_head(snapshot, process)
            alike[None if head is None else head.process, ended.words].append((process, ended))
    for members in alike.values():
        # The first to go speaks for all: it stays the first when others follow.
        members.sort(key=lambda member: (member[1].at_s, member[0].pid))
        process, ended = members[0]
        is_doubtful = _may_be_interrupted(snapshot, members)
        if _may_be_the_first(snapshot, process, ended) or (
            is_doubtful and not _has_settled(snapshot, process, ended)
        ):
            continue
        found = _finding(snapshot, process, ended, members)
        if (head := _keeps_replacing(snapshot, members)) is not None:
            found = _in_a_row(snapshot, found, head, members)
        if is_doubtful and _ended_well(snapshot, process):
            found = replace(found, **_with_a_content_parent(snapshot, members))
        yield found


def _may_be_interrupted(snapshot: Snapshot, members: Sequence[tuple[Process, Ended]]) -> bool:
    """Whether a ctrl-c may have ended them, which reaches all children of a terminal at once.

    `multiprocessing` makes an exit code of 1 out of KeyboardInterrupt, as of any exception, and
    says so nowhere else. A DataLoader's workers take it as a request to leave.
    """
    first, ended = members[0]
    head = family_head(snapshot, first)
    siblings = [
        process
        for process in snapshot.processes
        if process.role in WORK_ROLES and _has_head(process, snapshot, head)
    ]
    return _is_like_interrupted(first, ended) and all(
        p.ended and abs(p.ended.at_s - ended.at_s) <= TOGETHER_S for p in siblings
    )


def _may_be_the_first(snapshot: Snapshot, process: Process, ended: Ended) -> bool:
    """Whether it went so lately that others which went with it may not have been seen to yet."""
    head = family_head(snapshot, process)
    is_up = head is not None and not head.is_gone
    return is_up and _is_like_interrupted(process, ended) and snapshot.at_s - ended.at_s < FIRST_S


def _is_like_interrupted(process: Process, ended: Ended) -> bool:
    """Whether it may have ended by KeyboardInterrupt, for all that can be seen of it alone."""
    return process.role in ("spawned", "pool-worker") and ended.exit_code == 1


def _has_head(process: Process, snapshot: Snapshot, head: Process | None) -> bool:
    """Whether a process was started by this one."""
    return head is not None and family_head(snapshot, process) == head


def _has_settled(snapshot: Snapshot, process: Process, ended: Ended) -> bool:
    """Whether its parent has ended as well, or has had the time to."""
    head = family_head(snapshot, process)
    is_down = head is not None and head.is_gone
    return is_down or snapshot.at_s - ended.at_s >= INTERRUPTED_S


def _ended_well(snapshot: Snapshot, process: Process) -> bool:
    """Whether its parent took the end for what it expected."""
    head = family_head(snapshot, process)
    return head is not None and head.ended is not None and death_of(head.ended) == "normal"


def _with_a_content_parent(
    snapshot: Snapshot, members: Sequence[tuple[Process, Ended]]
) -> dict[str, Any]:
    """What changes in a finding where the parent ended well after children that may be interrupted.

    Where they said what they raised, it was that. Where one was interrupted, all may have been.
    Otherwise nothing speaks for a ctrl-c, nor against it.
    """
    if _was_interrupted(snapshot):
        return {"severity": Severity.INFO, "cause": _INTERRUPTED, "advice": _ADVICE_INTERRUPTED}
    if any(_raised(snapshot, process) for process, _ in members):
        return {}
    return {"severity": Severity.INFO, "cause": _TAKEN_WELL}


def _was_interrupted(snapshot: Snapshot) -> bool:
    """Whether anything of the job was ended by SIGINT, or told of KeyboardInterrupt."""
    for process in snapshot.processes:
        ended = process.ended
        if ended is not None and (
            ended.signal == Signals.SIGINT or ended.exit_code == 128 + Signals.SIGINT
        ):
            return True
    return any(
        _KEYBOARD in (entry.details.get("how"), entry.details.get("type"))
        for entry in snapshot.log
        if entry.kind in ("exit", "exception")
    )


def _is_unexpected(snapshot: Snapshot, history: History, process: Process, ended: Ended) -> bool:
    """Whether nothing ordinary explains this end, and no other rule."""
    death = death_of(ended)
    if death in ("crash", "shutdown") or died_with_parent(snapshot, process, ended):
        return False
    if death in ("normal", "unknown"):
        return _was_missed(snapshot, process, ended, parent_fate(snapshot, process, ended))
    return death != "killed" or not memory_evidence(snapshot, history)


def _was_missed(snapshot: Snapshot, process: Process, ended: Ended, fate: ParentFate) -> bool:
    """Whether a loader worker that left quietly brought its parent down.

    A quiet end by itself says nothing: main shuts its workers down after each epoch, and those of
    an iterable dataset leave one by one as their shards run out. A parent that failed afterwards
    may have reasons of its own: it has to say so, or, without a hook, to have been seen waiting
    for a batch when nobody was left to bring one. If a sibling failed, that is why the others were
    told to leave.
    """
    head = family_head(snapshot, process)
    if process.role != "loader-worker" or fate.failed_after_s is None or head is None:
        return False
    siblings = [(p, end) for p, end in ended_workers(snapshot) if family_head(snapshot, p) == head]
    if any(death_of(end) in ("failed", "crash", "killed") for _, end in siblings):
        return False
    if head.hook.state != "absent":
        return any(
            entry.process == head.process
            and "loader-worker-exited" in entry.tags
            and contains(entry, str(process.pid))
            for entry in snapshot.errors
        )
    return _waited_in_vain(head, ended) and not any(
        p.process.start_ticks > process.process.start_ticks + GAP_TICKS for p, _ in siblings
    )


def _waited_in_vain(head: Process, ended: Ended) -> bool:
    """Whether a parent was last seen waiting for a batch, and that after the end of its worker."""
    thread = main_thread(head)
    if thread is None or head.sample.at_s <= ended.at_s:
        return False
    return main_shape(head) == "waits-for-batch" or is_loader_poll(thread.waits_on)


def _finding(
    snapshot: Snapshot, process: Process, ended: Ended, alike: list[tuple[Process, Ended]]
) -> Finding:
    """Put the death into words."""
    death = death_of(ended)
    fate = parent_fate(snapshot, process, ended)
    is_loading = process.role == "loader-worker"
    is_certain = is_loading or process.role == "rank" or death == "failed"
    raised = _raised(snapshot, process)
    evidence = [f"{called(process)} ended: {ended.words}", *raised, *fate.words]
    evidence += last_seen(process)
    others = [called(other) for other, _ in alike[1:]]
    if others:
        evidence.append(f"so did {len(others)} more: {', '.join(others[:4])}")
    who = called(process) if not others else f"{called(process)} and {len(others)} more"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if is_certain else Severity.WARNING,
        process=process.process,
        summary=f"{who} ended unexpectedly: {ended.words}",
        evidence=tuple(evidence),
        cause=(_CAUSES if is_loading else _CAUSES | _CAUSE_OTHERS).get(death, _QUIET),
        advice=_advice(death, is_loading=is_loading, is_known=bool(raised)),
    )


def _keeps_replacing(
    snapshot: Snapshot, members: Sequence[tuple[Process, Ended]]
) -> Process | None:
    """The living parent that started most of them after others had ended; `None` if none did.

    Of one that ended before it could be read the time of its birth is not known.
    """
    head = family_head(snapshot, members[0][0])
    first_wall_s = snapshot.wall_s + members[0][1].at_s - snapshot.at_s
    born = [each for p, _ in members if (each := p.sample.born_wall_s) is not None]
    later = [each for each in born if each > first_wall_s]
    is_in_a_row = len(later) >= IN_A_ROW and 2 * len(later) >= len(born)
    return head if head is not None and not head.is_gone and is_in_a_row else None


def _in_a_row(
    snapshot: Snapshot, found: Finding, head: Process, members: Sequence[tuple[Process, Ended]]
) -> Finding:
    """Say it of the parent: of those that ended the first are forgotten as others follow."""
    process, ended = members[-1]
    is_pool = any(calls(own_frames(t.stack), "pool.py:_handle_workers") for t in head.threads)
    raised = _raised(snapshot, process)
    return replace(
        found,
        process=head.process,
        subject=ended.words,
        summary=(f"{called(head)} keeps starting processes that end unexpectedly: {ended.words}"),
        evidence=(
            f"{len(members)} of those still known ended so, the last {called(process)}",
            *raised,
            *last_seen(process),
        ),
        cause=_CAUSE_POOL if is_pool else found.cause,
        advice=found.advice if raised or not is_pool else _ADVICE_POOL,
    )


def _raised(snapshot: Snapshot, process: Process) -> tuple[str, ...]:
    """The last exception it told of, or how it left of its own will, with the line."""
    told = [
        entry
        for entry in snapshot.log
        if entry.process == process.process
        and (entry.kind == "exception" or (entry.kind == "exit" and entry.details.get("how")))
    ]
    return evidence_of(told[-1]) if told else ()


def _advice(death: Death, *, is_loading: bool, is_known: bool) -> str:
    """What to do, by what is known and what it was."""
    if death == "killed":
        return _ADVICE_KILLED
    if is_known:
        return (
            "Fix what the line shown does: an exception that is expected has to be caught in the "
            "process itself, and a library that calls sys.exit or os._exit takes it along."
        )
    return _ADVICE if is_loading else _ADVICE_OTHERS


_KEYBOARD = "KeyboardInterrupt"
_INTERRUPTED = (
    "The job was interrupted: a ctrl-c reaches every process of the terminal, and Python raises "
    "KeyboardInterrupt in each. multiprocessing makes an exit code of 1 out of that."
)
_ADVICE_INTERRUPTED = (
    "Nothing, if that was meant. To let children end well, have them ignore SIGINT and let their "
    "parent tell them to stop."
)
_TAKEN_WELL = (
    "All of them ended at once with the code of an uncaught exception, and their parent ended as "
    "if nothing was wrong. What they raised is on their standard error."
)
_CAUSE_POOL = (
    "A Pool starts a new worker for each that ended, without end and without a word. All of them "
    "fail alike: most often the initializer raises, or a task cannot be unpickled there. Whoever "
    "waits for a result waits for ever."
)
_ADVICE_POOL = (
    "Read the standard error of the job: each worker writes its traceback there. Call the "
    "initializer once in main to see it raise. concurrent.futures.ProcessPoolExecutor raises "
    "BrokenProcessPool instead of starting them again."
)
_QUIET = (
    "It left without an error while its parent still counted on it: os._exit or sys.exit in "
    "dataset code, or the whole set of workers was shut down from a forked child. The parent "
    "notices only at its next look, up to 5 s later."
)
_CAUSES = {
    "failed": (
        "An exception outside the fetching of a sample: while unpickling the dataset in a spawned "
        "worker, in worker_init_fn, in an import, or sys.exit and os._exit in the user's code. Its "
        "text is on the worker's standard error, not in what main raises."
    ),
    "killed": (
        "Somebody sent SIGKILL: a person, a scheduler, a parent that lost patience, or the "
        "kernel's out-of-memory killer. The numbers seen here do not speak for a lack of memory. "
        "A lock or queue it held at that moment stays locked for ever."
    ),
}
_ADVICE = (
    "Read the worker's standard error. num_workers=0 shows the whole traceback, slowly; an "
    "instrumented worker reports its last exception here."
)
_CAUSE_OTHERS = {
    "failed": (
        "An exception that nobody caught in that process, or sys.exit and os._exit in its code. "
        "Its text is on the standard error of that process. Others that wait for it are not told."
    ),
}
_ADVICE_OTHERS = (
    "Read its standard error; an instrumented process reports its last exception here. A parent "
    "learns of such an end from exitcode only: look at it, or use concurrent.futures or "
    "torch.multiprocessing.spawn, which raise it in the parent."
)
_ADVICE_KILLED = (
    "Look into the kernel log (dmesg) for 'Out of memory', and into the scheduler's. Stop workers "
    "with SIGTERM, so that they release what they hold."
)
