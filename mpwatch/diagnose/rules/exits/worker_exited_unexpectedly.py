"""A worker exited without being asked to."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from signal import Signals
from typing import Any

from msgspec.structs import replace

from mpwatch.describe.error_messages import KNOWN_ERRORS
from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.describe.waits import FULL_QUEUE
from mpwatch.diagnose.analysis.distributed.rank_exits import (
    FatalExit,
    exception_of,
    failed_for_a_peer,
    is_started_again,
    left_before,
)
from mpwatch.diagnose.analysis.exits.causes import (
    ADVICE_SENDER,
    PARENT_CHECKS,
    busy_at_end,
    cause_of_sending,
    death_signal,
    group_kill,
    handling_words,
    last_exception,
    likely_killer,
    raised_words,
    sent_by,
    why_ended,
)
from mpwatch.diagnose.analysis.exits.gone_programs import GoneProgram, gone_programs
from mpwatch.diagnose.analysis.exits.kinds import (
    TOGETHER_S,
    ParentFate,
    could_not_receive,
    cpu_limit_evidence,
    death_of,
    died_with_parent,
    ended_workers,
    last_seen,
    likely_task,
    memory_evidence,
    parent_fate,
    parent_waiting,
    raised_at,
    reports_a_loss,
    sender_of,
    with_setting,
)
from mpwatch.diagnose.analysis.exits.removed_folders import with_removal
from mpwatch.diagnose.analysis.growth.descriptors import with_descriptors
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import QUEUE_ITEM
from mpwatch.diagnose.analysis.mechanisms.kept_locks import left_lock
from mpwatch.diagnose.analysis.process_queries import (
    GAP_TICKS,
    WORK_ROLES,
    all_called,
    called,
    children_started_by,
    family_head,
    orphaned_before,
)
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    functions_of,
    main_shape,
    main_thread,
    user_frame,
)
from mpwatch.diagnose.analysis.throughput.shares import main_account
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s
from mpwatch.diagnose.known_errors import contains, evidence_of
from mpwatch.model.events import WrittenError
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import is_loader_poll

RULE = "worker-exited-unexpectedly"
NOT_RECEIVED = "producer-exits-before-get"
IN_A_ROW = 4
"""This many processes started after the first such exit are not the workers of the next epoch."""
WORKED_S = 6.0
"""Processes that live this long before they end again do more than to fail at their start."""
FIRST_S = 1.5
"""Processes that exit together can be found in two samples, a second apart."""
COLLECTED_S = 3.0
"""A parent that watches its children collects the exit status within this time."""
SURVIVED_S = 5.0
"""A parent that has been quiet for less than this may still continue."""
INTERRUPTED_S = 4.0
"""Time in which a parent exits that the same ctrl-c interrupted."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for workers that failed, were killed, or exited in the middle of an epoch.

    Workers of one parent with the same exit status make one finding. Exit code 0, SIGTERM or
    SIGINT, and exits that follow the parent's are normal. Crashes and kills for lack of memory have
    rules of their own.
    """
    alike: defaultdict[tuple[ProcessId | None, str], list[tuple[Process, Ended]]]
    alike = defaultdict(list)
    done: defaultdict[tuple[ProcessId | None, str], list[tuple[Process, Ended]]] = defaultdict(list)
    for process, ended in ended_workers(index.snapshot):
        if _is_unexpected(index, process, ended):
            head = family_head(index, process)
            kind = done if _had_done_its_work(index, process, ended) else alike
            kind[None if head is None else head.process, ended.words].append((process, ended))
    yield from (_of_those_done(index, exits) for exits in done.values())
    if not alike:
        yield from _of_programs(index)
        yield from _of_collected(index)
        yield from map(partial(_of_gone, index), gone_programs(index))
    for exits in alike.values():
        # The finding names the first exit, which stays the first when more workers exit.
        exits.sort(key=lambda one: _order(index, *one))
        process, ended = exits[0]
        left = left_before(index, process, ended)
        if left is not None and death_of(left.ended) not in ("normal", "unknown"):
            if left.sure != "possible":
                continue  # reported for the rank that ended first
            left = None
        is_doubtful = _may_be_interrupted(index, exits)
        if _may_be_the_first(index, process, ended) or (
            is_doubtful and not _has_settled(index, process, ended)
        ):
            continue
        found = _finding(index, process, ended, exits)
        if left is not None:
            found = _left_by(found, left, exits)
        elif (head := _keeps_replacing(index, exits)) is not None:
            found = _in_a_row(index.snapshot, found, head, exits)
        entry = last_exception(index.snapshot, process)
        if entry is not None and NOT_RECEIVED in entry.tags:
            found = replace(found, effect_of=NOT_RECEIVED)  # it did not end the sender
        elif (known := _known_error(index.snapshot, exits)) is not None:
            found = replace(found, effect_of=known)
        if is_doubtful and _ended_well(index, process):
            found = replace(found, **_with_a_content_parent(index.snapshot, exits))
        if entry is not None:
            raised, text = entry.details.get("type"), entry.details.get("text")
            found = with_removal(index, found, raised, text)
            found = with_descriptors(index, found, process, text)
        found = _with_full_queue(index, with_setting(index, found, process, ended), process)
        yield found if ended.signal is None else _with_left_lock(index, found)


def _with_full_queue(index: Index, found: Finding, process: Process) -> Finding:
    """The finding about a process that took items of a queue in which others wait for room since.

    Only where no other one was seen to take items. Of a process that had ended before the job was
    watched, it is not known whether it did.
    """
    is_known = main_account(index, process.process) is not None
    others = [each for each in index.snapshot.processes if each.process != process.process]
    putting = [each for each in others if _waits_for_room(index, each)]
    if not putting or (is_known and not _took_items(index, process)):
        return found
    if any(_took_items(index, each) for each in others):
        return found
    names, name, verb = all_called(putting), called(process), wait_verb(putting)
    if any(each.is_gone for each in putting):
        verb = "waited"
    known = f"only {name} was seen to take items" if is_known else "no process takes items"
    emptied = "It also emptied a queue" if is_known else "Most likely it emptied a queue as well"
    return replace(
        found,
        evidence=(*found.evidence, f"{names} {verb} for room in a full queue; {known}"),
        cause=(
            f"{found.cause} {emptied}: {names} {verb} in put() for room in that, which no process "
            "makes any more."
        ),
        advice=(
            f"{found.advice} Let the parent look at the exitcode or sentinel of {name} and start "
            "it anew or end the others, and put with a time limit (put(timeout=...) raises "
            "queue.Full). A larger queue only delays it."
        ),
    )


def _waits_for_room(index: Index, process: Process) -> bool:
    """Whether a process waits for room in a queue, or did so when it was seen last."""
    if process.is_gone:
        account = main_account(index, process.process)
        return account is not None and account.now.what.startswith(FULL_QUEUE)
    return any(
        edge.waiter == process.process and edge.what.startswith(FULL_QUEUE)
        for edge in wait_graph(index).edges
    )


def _took_items(index: Index, process: Process) -> bool:
    """Whether the main thread of a process was ever seen to wait for an item of a queue."""
    account = main_account(index, process.process)
    return account is not None and any(each.what == QUEUE_ITEM for each in account.whole().seen)


def _known_error(snapshot: Snapshot, exits: Sequence[tuple[Process, Ended]]) -> str | None:
    """The rule that explains the error with which these processes have ended; `None` for none."""
    failed = {process.process for process, ended in exits if death_of(ended) == "failed"}
    last = {entry.process: entry for entry in snapshot.errors if entry.process in failed}
    tags = (tag for entry in last.values() for tag in entry.tags)
    return next((tag for tag in tags if tag in _KNOWN_RULES), None)


_KNOWN_RULES = frozenset(known.rule for known in KNOWN_ERRORS)


def _with_left_lock(index: Index, found: Finding) -> Finding:
    """The finding about a killed process; with the lock file that it left where others wait."""
    left = left_lock(index)
    if left is None:
        return found
    return replace(
        found,
        severity=Severity.CRITICAL,
        summary=left.headline,
        evidence=(*found.evidence, *(each for each in left.evidence if each not in found.evidence)),
        cause=left.cause,
        advice=left.advice,
    )


@derived
def _codes_after_work(index: Index) -> Mapping[ProcessId | None, object]:
    """The exit codes of children that an exception ended only after their target had returned.

    The hook notes the exception that leaves `Process.run`, and `os._exit`. If it has noted an exit
    by neither, the exit code comes from what `BaseProcess._bootstrap` calls afterwards.
    """
    raised = {entry.process for entry in index.entries("exception")}
    return {
        entry.process: entry.details.get("code")
        for entry in index.entries("exit")
        if entry.details.get("how") == "" and entry.process not in raised
    }


def _had_done_its_work(index: Index, process: Process, ended: Ended) -> bool:
    """Whether a child failed only after its target had returned."""
    code = _codes_after_work(index).get(process.process)
    return death_of(ended) == "failed" and code is not None and code == ended.exit_code


def _of_those_done(index: Index, exits: list[tuple[Process, Ended]]) -> Finding:
    """The finding about children of one parent that failed after their work."""
    exits.sort(key=lambda one: _order(index, *one))
    process, ended = exits[0]
    others = [called(other) for other, _ in exits[1:]]
    evidence = [f"{called(process)} ended: {ended.words}; no exception had left what it ran"]
    if others:
        evidence.append(f"so did {len(others)} more: {', '.join(others[:4])}")
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        subject="after the work",
        summary=(
            f"{called(process)}{f' and {len(others)} more' if others else ''} ended after the work "
            f"was done, but with {ended.words}"
        ),
        evidence=tuple(evidence),
        cause=_AFTER_WORK,
        advice=_ADVICE_AFTER_WORK,
    )


def _of_programs(index: Index) -> Iterator[Finding]:
    """Yield a finding for a main process, or a program that it runs, that ended by an exception.

    Not where the exception is a known error, which other rules explain, or where it reports that
    another process has ended. A program that the job runs may fail on purpose: that is information,
    unless the exit status was lost on its way.
    """
    for entry in index.entries("exception"):
        process = index.snapshot.get(entry.process)
        if process is None or process.role not in ("main", "other") or process.ended is None:
            continue
        kind = entry.details.get("type")
        is_own = entry.details.get("where") == "main" and not reports_a_loss(entry)
        if death_of(process.ended) != "failed" or not is_own or kind == _KEYBOARD:
            continue
        evidence = (*evidence_of(entry), f"{called(process)} ended: {process.ended.words}")
        if process.role == "main":
            yield Finding(
                rule=RULE,
                severity=Severity.WARNING,
                process=process.process,
                subject="main",
                summary=f"{called(process)} ended by an uncaught {kind}",
                evidence=evidence,
                cause=(
                    "No code of the program caught this exception, so the main process ended, and "
                    "its children with it. An exception that a pool or a future has passed on "
                    "was raised in a worker: the first traceback on standard error is that "
                    "worker's."
                ),
                advice="Fix the code at the line shown, or at the end of the first traceback.",
            )
        elif (root := index.snapshot.get(index.snapshot.root)) is not None and not root.is_gone:
            found = _of_program(index, process, f"{kind}", evidence)
            yield with_removal(index, found, kind, entry.details.get("text"))


def _of_collected(index: Index) -> Iterator[Finding]:
    """Yield a finding for children whose exit status was read before, by what they have written.

    A program may start another one and go on. So it is information where nothing has come to a
    dead end.
    """
    errors = [each for each in index.snapshot.written if each.process_name and each.is_of_job]
    root = index.snapshot.get(index.snapshot.root)
    if not errors or root is None or root.is_gone:
        return
    children = [each for each in index.snapshot.living() if each is not root]
    stacks = [own_frames(each.threads[0].stack) for each in children if each.threads]
    if any(calls(stack, end) for stack in stacks for end in _ENDS):
        return  # one of these may have written it, and wait at its end
    newest, *others = reversed(errors)
    what = f"{newest.raised.type} at {raised_at(newest.raised)}"
    at_dead_end = [each for each in wait_graph(index).chains if each.verdict == "dead-end"]
    first = f" It began with {newest.first.type}." if newest.first is not None else ""
    is_zombie = any(
        each.sample.state == "Z" and each.ended is not None and death_of(each.ended) == "failed"
        for each in index.snapshot.processes
    )
    # A zombie has no name any more that tells which of them it is.
    read = "" if is_zombie else " Its parent has read that since, or it would be there as a zombie."
    yield Finding(
        rule=RULE,
        severity=Severity.CRITICAL if at_dead_end else Severity.INFO,
        process=root.process,
        subject="collected",
        effect_of=_cause_of_collected(index, newest),
        summary=(
            f"{newest.process_name}, a process that is gone, ended by {what}"
            f"{f'; so did {len(others)} more' if others else ''}"
        ),
        evidence=(
            f"its traceback in {newest.file.rpartition('/')[2]}: {newest.raised.type}: "
            f"{newest.raised.text}",
            *(
                f"{each.process_name} ended by {each.raised.type}: {each.raised.text}"
                for each in others[:SHOWN]
            ),
            *(chain.sentence for chain in at_dead_end[:SHOWN]),
        ),
        cause=(
            f"No code of {newest.process_name} caught {what}, so the process ended with exit code "
            f"1.{first}{read} Processes that wait for it are not notified."
        ),
        advice=f"Fix the code at the line shown.{PARENT_CHECKS}",
    )


def _of_gone(index: Index, program: GoneProgram) -> Finding:
    """The finding about a program that the job has started, by what it has written.

    A program may fail on purpose, so that it is information.
    """
    *others, newest = program.errors
    error, log = newest.raised, newest.file.rpartition("/")[2]
    what = f"{error.type} at {raised_at(error)}"
    names = all_called(program.processes) or f"{program.name}, a program that is gone,"
    sure = "" if program.processes else "most likely "
    more = f"; so did {len(others)} more" if others and not program.processes else ""
    root = index.snapshot.get(index.snapshot.root)
    found = Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=program.processes[0].process if program.processes else index.snapshot.root,
        subject=f"program {program.name}",
        summary=f"{names} {sure}ended by {what}{more}, and the job continues",
        evidence=(
            f"its traceback in {log}: {error.type}: {error.text}",
            *(f"another in {log}: {e.raised.type}: {e.raised.text}" for e in others[:SHOWN]),
            *((f"{called(root)} still runs",) if root is not None else ()),
        ),
        cause=_CAUSE_PROGRAM,
        advice=_ADVICE_PROGRAM,
    )
    return with_removal(index, found, error.type, error.text)


def _cause_of_collected(index: Index, newest: WrittenError) -> str | None:
    """The rule whose finding may be what ended a child that is gone.

    Where the program itself has exited, its children lose their connections to it.
    """
    if orphaned_before(index):
        return "orphaned-workers"
    return NOT_RECEIVED if could_not_receive(newest) else None


SHOWN = 3
_ENDS = ("util.py:_exit_function", "threading.py:_shutdown")
"""What a process of multiprocessing calls once its target has returned or raised."""


def _of_program(index: Index, process: Process, kind: str, evidence: tuple[str, ...]) -> Finding:
    """The finding about a program that a job runs, which has failed while the job continues."""
    parent = index.snapshot.get(process.original_parent)
    end = parent.ended if parent is not None else None
    lost = end is not None and end.exit_code == 0
    if lost and parent is not None and end is not None:
        evidence += (f"{called(parent)}, which started it, ended: {end.words}",)
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if lost else Severity.INFO,
        process=process.process,
        subject="program",
        summary=(
            f"{called(process)} ended by an uncaught {kind}, and the job continues"
            f"{': its exit status was lost' if lost else ''}"
        ),
        evidence=evidence,
        cause=_CAUSE_LOST if lost else _CAUSE_PROGRAM,
        advice=_ADVICE_LOST if lost else _ADVICE_PROGRAM,
    )


_CAUSE_LOST = (
    "The process that started it ended with status 0 all the same, so no process above it is told "
    "of the failure. A shell reports the status of the last command of a pipeline (train.py | tee "
    "log) and of a list (a; b). Whatever needs the results of this program may wait for ever."
)
_ADVICE_LOST = (
    "Fix the code at the line shown. Let the shell pass the failure on (set -o pipefail, set -e), "
    "or start the program without a shell and check its exit status."
)
_CAUSE_PROGRAM = (
    "No code of that program caught the exception. The process that started it may expect this; if "
    "not, whatever needs the results of this program waits for them in vain."
)
_ADVICE_PROGRAM = (
    "Fix the code at the line shown if the failure was not expected. Check the exit status of the "
    "programs that are started (subprocess.run(..., check=True))."
)


def _order(index: Index, process: Process, ended: Ended) -> tuple[bool, float, int]:
    """Sort ranks that failed because of another rank behind that one, and all others by time."""
    is_effect = failed_for_a_peer(index, process) and exception_of(index, process) is not None
    return is_effect, ended.at_s, process.pid


def _left_by(found: Finding, left: FatalExit, exits: Sequence[tuple[Process, Ended]]) -> Finding:
    """The finding about a rank that ended without an error, after which the other ranks failed.

    Its exit status may be unknown: `torch.multiprocessing.spawn` collects it within milliseconds.
    """
    process, ended = exits[0]
    first = called(left.rank)
    names = all_called(other for other, _ in exits)
    after_s = ended.at_s - left.ended.at_s
    order = "later" if after_s >= 0 else "before its process had ended"
    is_normal = death_of(left.ended) == "normal"
    how = ", with status 0" if is_normal else ""
    why = (
        "It has run fewer steps than the others: its share of the data is smaller, or it left its "
        "loop early."
        if is_normal
        else "How it ended was not seen: it may have run fewer steps than the others, or have "
        "failed, which its standard error would show."
    )
    sure = "" if left.sure == "certain" else f"{left.sure.capitalize()}: "
    return replace(
        found,
        process=left.rank.process,
        summary=(
            f"{first} left the other ranks{how}, and {names} failed {seconds_text(abs(after_s))} "
            f"{order}: {ended.words}"
        ),
        evidence=(
            f"{first} ended: {left.ended.words}",
            *last_seen(left.rank),
            *(each for each in found.evidence if not each.startswith("so did ")),
        ),
        cause=(
            f"{sure}{first} left the process group while {called(process)} still called "
            f"collectives, which fail when the connection to a rank is closed. {why}"
        ),
        advice=(
            "Give all ranks the same number of steps (DistributedSampler with drop_last, or the "
            "Join context of DistributedDataParallel), and let all of them pass a barrier before "
            "they end."
        ),
    )


def _may_be_interrupted(index: Index, exits: Sequence[tuple[Process, Ended]]) -> bool:
    """Whether a ctrl-c may explain the exits: it reaches all processes of a terminal at once.

    `multiprocessing` turns KeyboardInterrupt into exit code 1, as any other exception. DataLoader
    workers treat it as a request to exit.
    """
    first, ended = exits[0]
    head = family_head(index, first)
    siblings = [
        process
        for process in index.snapshot.processes
        if process.role in WORK_ROLES and _has_head(process, index, head)
    ]
    return _is_like_interrupted(first, ended) and all(
        p.ended and abs(p.ended.at_s - ended.at_s) <= TOGETHER_S for p in siblings
    )


def _may_be_the_first(index: Index, process: Process, ended: Ended) -> bool:
    """Whether the exit is so recent that exits at the same time may not have been sampled yet.

    A ctrl-c reaches all processes of a terminal, and a program that fails kills its workers.
    """
    head = family_head(index, process)
    is_up = head is not None and not head.is_gone
    return (
        is_up
        and (_is_like_interrupted(process, ended) or ended.signal == Signals.SIGKILL)
        and index.snapshot.at_s - ended.at_s < FIRST_S
    )


def _is_like_interrupted(process: Process, ended: Ended) -> bool:
    """Whether its role and exit code allow KeyboardInterrupt as the reason."""
    return process.role in ("spawned", "pool-worker") and ended.exit_code == 1


def _has_head(process: Process, index: Index, head: Process | None) -> bool:
    """Whether `head` started a process."""
    return head is not None and family_head(index, process) == head


def _has_settled(index: Index, process: Process, ended: Ended) -> bool:
    """Whether its parent has exited too, or `INTERRUPTED_S` have passed."""
    head = family_head(index, process)
    is_down = head is not None and head.is_gone
    return is_down or index.snapshot.at_s - ended.at_s >= INTERRUPTED_S


def _ended_well(index: Index, process: Process) -> bool:
    """Whether its parent exited normally afterwards."""
    head = family_head(index, process)
    return head is not None and head.ended is not None and death_of(head.ended) == "normal"


def _with_a_content_parent(
    snapshot: Snapshot, exits: Sequence[tuple[Process, Ended]]
) -> dict[str, Any]:
    """The fields to replace where the parent exited normally after such children.

    If one process of the job was interrupted, ctrl-c explains all. If a child reported an
    exception, the finding stays as it is. Otherwise the reason is open.
    """
    if _was_interrupted(snapshot):
        return {"severity": Severity.INFO, "cause": _INTERRUPTED, "advice": _ADVICE_INTERRUPTED}
    if any(raised_words(snapshot, process) for process, _ in exits):
        return {}
    return {"severity": Severity.INFO, "cause": _TAKEN_WELL}


def _was_interrupted(snapshot: Snapshot) -> bool:
    """Whether a process of the job exited by SIGINT or reported KeyboardInterrupt."""
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


def _is_unexpected(index: Index, process: Process, ended: Ended) -> bool:
    """Whether neither a normal shutdown nor another rule explains this exit."""
    death = death_of(ended)
    if death in ("crash", "shutdown") or died_with_parent(index, process, ended):
        return False
    if death in ("normal", "unknown"):
        return _was_missed(index, process, ended, parent_fate(index, process, ended))
    return death != "killed" or not memory_evidence(index)


def _was_missed(index: Index, process: Process, ended: Ended, fate: ParentFate) -> bool:
    """Whether the parent failed because a loader worker exited with code 0.

    Exit code 0 alone proves nothing: main shuts its workers down after each epoch, and workers of
    an iterable dataset exit one by one as their shards run out. A parent that failed afterwards may
    have failed for another reason: its error has to name the worker, or, without a hook, the parent
    was last seen waiting for a batch that no worker was left to send. If a sibling failed, the
    others were shut down because of it.
    """
    head = family_head(index, process)
    if process.role != "loader-worker" or fate.failed_after_s is None or head is None:
        return False
    siblings = [
        (p, end) for p, end in ended_workers(index.snapshot) if family_head(index, p) == head
    ]
    if any(death_of(end) in ("failed", "crash", "killed") for _, end in siblings):
        return False
    if head.hook.state != "absent":
        return any(
            entry.process == head.process
            and "loader-worker-exited" in entry.tags
            and contains(entry, str(process.pid))
            for entry in index.snapshot.errors
        )
    return _waited_in_vain(head, ended) and not any(
        p.process.start_ticks > process.process.start_ticks + GAP_TICKS for p, _ in siblings
    )


def _waited_in_vain(head: Process, ended: Ended) -> bool:
    """Whether a parent was last seen waiting for a batch after its worker had exited."""
    thread = main_thread(head)
    if thread is None or head.sample.at_s <= ended.at_s:
        return False
    return main_shape(head) == "waits-for-batch" or is_loader_poll(thread.waits_on)


def _finding(
    index: Index, process: Process, ended: Ended, alike: list[tuple[Process, Ended]]
) -> Finding:
    """Describe the exit."""
    death = death_of(ended)
    fate = parent_fate(index, process, ended)
    is_certain = process.role in ("loader-worker", "rank") or death == "failed"
    raised = raised_words(index.snapshot, process)
    sender = sender_of(index, process, ended)
    evidence = [f"{called(process)} ended: {ended.words}", *raised, *fate.words]
    if sender is not None:
        evidence.insert(1, f"{sender} has sent it that signal, as its hook reports")
    if ended.signal == Signals.SIGKILL and (limit := cpu_limit_evidence(index, process)):
        evidence.append(limit)
    if (asks := death_signal(index, process, ended)) is not None:
        evidence.append(f"a signal at the end of the parent is asked for by {mark_words(asks)}")
    killer = likely_killer(index, ended) if sender is None else None
    if killer is not None:
        evidence.append(f"{killer.process} goes round in a loop with {killer.line}{killer.under}")
    evidence += last_seen(process) or likely_task(index, process)
    if (sender is not None or killer is not None) and (busy := busy_at_end(index, process)):
        evidence += busy.evidence
    group = group_kill(index, process, ended) if sender is None and killer is None else None
    if group is not None:
        evidence.append(f"{mark_words(group)} sends that signal to a whole process group")
    others = [called(other) for other, _ in alike[1:]]
    if others:
        evidence.append(f"so did {len(others)} more: {', '.join(others[:4])}")
    evidence += parent_waiting(index, process)
    owed = _owed(index, process)
    evidence += [owed] if owed else []
    if handling := handling_words(index, process, ended):
        evidence.insert(1, handling)
    sends = sent_by(index, ended) if sender is None else None
    if sends is not None:
        evidence.insert(2 if handling else 1, f"{mark_words(sends)} sends that signal")
    names = called(process) if not others else f"{called(process)} and {len(others)} more"
    severity = Severity.CRITICAL if is_certain or owed else Severity.WARNING
    if all(_is_survived(index, *one) for one in alike):
        severity = Severity.INFO
        evidence.append(
            "its launcher has started the ranks again"
            if process.role == "rank"
            else "its parent continues"
        )
    why = why_ended(index, process, ended, (sender, killer, group), raised)
    return Finding(
        rule=RULE,
        severity=severity,
        process=process.process,
        summary=f"{names} ended unexpectedly: {ended.words}{why.brief}",
        evidence=tuple(evidence),
        cause=why.cause if sends is None else f"{cause_of_sending(sends)}{why.cause}",
        advice=why.advice,
    )


_TAKES = re.compile(r"(\w+)\.acquire\(")


def _owed(index: Index, process: Process) -> str:
    """What its parent waits for that only a function would release in which no process is left.

    By the name that both statements have for it; empty where another process may release it.
    """
    head = family_head(index, process)
    thread = main_thread(head) if head is not None and not head.is_gone else None
    wait = thread.waits_on if thread is not None else None
    if head is None or thread is None or wait is None or wait.kind != "semaphore":
        return ""
    frame = user_frame(thread.stack)
    line = source_of(index, frame) if frame is not None else None
    taken = _TAKES.search(line.statement.text) if line is not None else None
    found = [each for each in marks(index, "releases") if taken and each.about == taken[1]]
    last = main_thread(process)
    was_at = functions_of(own_frames(last.stack)) if last is not None else frozenset()
    where = functions_of(found)
    if frame is None or not found or (was_at and where.isdisjoint(was_at)):
        return ""
    for other in index.snapshot.living():
        if any(
            not each.stack or where & functions_of(own_frames(each.stack))
            for each in other.threads[:1]
        ):
            return ""  # it is there, or where it is was not seen
    return (
        f"{called(head)} waits for that at {frame_words(frame)}: {mark_words(found[0])} would "
        "release it, and no process is left that is there"
    )


def _is_survived(index: Index, process: Process, ended: Ended) -> bool:
    """Whether its parent has collected the exit status, and has not come to a stop since.

    A supervisor that ends a task over its time, and a program that tries again, read the status
    and continue. Workers of a DataLoader and ranks are missed in any case, and a Pool loses the
    task.
    """
    head = family_head(index, process)
    if process.role == "rank":
        return is_started_again(index, process)
    if process.role != "spawned" or head is None or head.is_gone:
        return False
    sample, snapshot = process.sample, index.snapshot
    is_present = sample.state == "Z" and sample.at_s >= snapshot.at_s - FIRST_S
    if is_present and snapshot.at_s - ended.at_s >= COLLECTED_S:
        return False
    quiet = quiet_s(head, index)
    if quiet is not None and quiet < max(snapshot.at_s - ended.at_s, SURVIVED_S):
        return True
    return any(
        not other.is_gone and other.process.start_ticks > process.process.start_ticks + GAP_TICKS
        for other in children_started_by(index, head)
        if other.role == process.role
    )


def _keeps_replacing(index: Index, exits: Sequence[tuple[Process, Ended]]) -> Process | None:
    """The running parent that started most of them after the first exit; `None` if there is none.

    The start time of a process that exited before it was read is not known.
    """
    head = family_head(index, exits[0][0])
    first_wall_s = index.snapshot.wall_s + exits[0][1].at_s - index.snapshot.at_s
    started_s = [each for p, _ in exits if (each := p.sample.born_wall_s) is not None]
    later = [each for each in started_s if each > first_wall_s]
    is_in_a_row = len(later) >= IN_A_ROW and 2 * len(later) >= len(started_s)
    return head if head is not None and not head.is_gone and is_in_a_row else None


def _have_worked(snapshot: Snapshot, exits: Sequence[tuple[Process, Ended]]) -> bool:
    """Whether processes that end again and again have lived long enough to have done something."""
    lives = [
        snapshot.wall_s + ended.at_s - snapshot.at_s - process.sample.born_wall_s
        for process, ended in exits
        if process.sample.born_wall_s is not None
    ]
    return bool(lives) and statistics.median(lives) >= WORKED_S


def _in_a_row(
    snapshot: Snapshot, found: Finding, head: Process, exits: Sequence[tuple[Process, Ended]]
) -> Finding:
    """The finding about the parent: the oldest exited workers are dropped as more exit."""
    process, ended = exits[-1]
    is_pool = any(calls(own_frames(t.stack), "pool.py:_handle_workers") for t in head.threads)
    # Forking all the time, the thread for workers may not be recognised by its stack.
    is_first_thing = ended.signal is None and _take_no_task(snapshot, head, exits)
    raised = raised_words(snapshot, process)
    seen = next((words for p, _ in reversed(exits) if (words := last_seen(p))), ())
    at = last_seen(head)
    what = "workers that end in their initializer" if is_first_thing else _UNEXPECTED
    advice = found.advice
    if (is_pool or is_first_thing) and not raised:
        advice = _ADVICE_INITIALIZER if is_first_thing else _ADVICE_POOL
    # A program that ends children which are over their time or their memory, and goes on.
    is_killed = ended.signal == Signals.SIGKILL and not is_pool
    is_program = ended.signal is None and not (is_pool or is_first_thing)
    is_chosen = is_program and ended.exit_code not in _OF_PYTHON
    is_replaced = is_chosen or (is_program and _have_worked(snapshot, exits))
    least = Severity.INFO if is_killed else Severity.WARNING
    if is_replaced:
        advice = (
            f"Nothing is wrong if {called(head)} starts a new process for each that has ended, and "
            "nothing is lost with it: sessions, leases and limits of tasks end processes so. "
            f"Otherwise: {advice[:1].lower()}{advice[1:]}"
        )
    elif is_killed and advice != ADVICE_SENDER:
        advice = (
            f"Nothing is wrong if {called(head)} ends them itself, for example when their time is "
            f"over. Otherwise: {advice[:1].lower()}{advice[1:]}"
        )
    return replace(
        found,
        severity=Severity.INFO if is_replaced else max(found.severity, least),
        process=head.process,
        subject=ended.words,
        summary=f"{called(head)} keeps starting {what}: {ended.words}",
        evidence=(
            f"{len(exits)} recent processes ended this way; the last was {called(process)}",
            *raised,
            *seen,
            *(f"{called(head)} was {words}" for words in at),
            *((_TASKS_UNREAD,) if is_first_thing else ()),
        ),
        cause=_CAUSE_INITIALIZER
        if is_first_thing
        else _CAUSE_POOL
        if is_pool
        else _CAUSE_CHOSEN.format(code=ended.exit_code)
        if is_chosen
        else found.cause,
        advice=advice,
    )


_OF_PYTHON = (1, 2, 120, 255)
"""Exit codes of an uncaught exception, of wrong arguments, of output that could not be written at
the end (`Py_FinalizeEx`), and of -1."""
_CAUSE_CHOSEN = (
    "Exit code {code} is one that the program has chosen, by sys.exit({code}) or os._exit({code}): "
    "an uncaught exception gives 1. So each of these processes ended where its own code lets it "
    "end, as a worker that is replaced after a number of tasks does."
)


def _take_no_task(
    snapshot: Snapshot, head: Process, exits: Sequence[tuple[Process, Ended]]
) -> bool:
    """Whether several workers of a Pool have ended while its full pipe for tasks stayed full."""
    for thread in head.threads:
        full = thread.waits_on is not None and thread.waits_on.kind == "pipe-write"
        if full and calls(own_frames(thread.stack), "pool.py:_handle_tasks"):
            since_s = snapshot.at_s - (blocked_for_s(thread) or 0.0)
            return sum(ended.at_s > since_s for _, ended in exits) >= IN_A_ROW
    return False


_AFTER_WORK = (
    "What it ran had returned; an exception in the functions that Python calls as a child ends "
    "(`threading._shutdown`, a flush of standard output) then made the exit code. Python 3.9 to "
    "3.13 do so in each process that is forked from a thread of a ThreadPoolExecutor: there the "
    "thread would wait for its own end."
)
_ADVICE_AFTER_WORK = (
    "Nothing that it had sent is lost. If something reads the exit codes: start such processes "
    "from the main thread or from a `threading.Thread`."
)
_KEYBOARD = "KeyboardInterrupt"
_INTERRUPTED = (
    "The job was interrupted: a ctrl-c reaches every process of the terminal's foreground group, "
    "and Python raises KeyboardInterrupt in each. multiprocessing turns that into exit code 1."
)
_ADVICE_INTERRUPTED = (
    "Nothing to do if the ctrl-c was deliberate. For a clean exit, let child processes ignore "
    "SIGINT and have their parent tell them to stop."
)
_TAKEN_WELL = (
    "All of them exited at the same time with the code of an uncaught exception, and their parent "
    "exited normally. Their tracebacks are on their standard error."
)
_UNEXPECTED = "processes that end unexpectedly"
_TASKS_UNREAD = "its thread for tasks waits for room in their pipe: no worker takes a task"
_CAUSE_INITIALIZER = (
    "A Pool silently starts a new worker for each one that exits, without limit. These end before "
    "they take their first task, so the function passed as initializer raises (with spawn, also "
    "the import of the program). A call that waits for a result never returns."
)
_ADVICE_INITIALIZER = (
    "Call that function once in the parent, with the same initargs, before the Pool is made: there "
    "it raises with its traceback, which each worker also writes to standard error. "
    "concurrent.futures.ProcessPoolExecutor raises BrokenProcessPool instead of restarting workers."
)
_CAUSE_POOL = (
    "A Pool silently starts a new worker for each one that exits, without limit. All of them fail "
    "in the same way: most often the initializer raises, or a task cannot be unpickled in the "
    "worker. A call that waits for a result never returns."
)
_ADVICE_POOL = (
    "Read the standard error of the job: each worker writes its traceback there. Call the "
    "initializer once in main to see its error. concurrent.futures.ProcessPoolExecutor raises "
    "BrokenProcessPool instead of restarting workers."
)
