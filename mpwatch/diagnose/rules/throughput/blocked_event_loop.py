"""A coroutine whose call waits in the thread of its event loop, so that no other task runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import itemgetter

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    counted,
)
from mpwatch.diagnose.analysis.source.lines import line_at, mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.diagnose.analysis.throughput.shares import (
    can_end_alone,
    shares,
    shares_apart,
)
from mpwatch.diagnose.analysis.waits.connections import has_accepted, reads_accepted
from mpwatch.model.account import FUTURE_RESULT, Activity, ProcessAccount, ThreadAccount
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import SourceLine

RULE = "blocked-event-loop"
IS_OF_SHARES = True
BLOCKED_SHARE = 0.15
"""The part of its time in which stacks show the thread of a loop waiting in calls of coroutines.
Many of such waits are too short for a stack, so it is more than that."""
LIKELY_SHARE = 0.3
"""The part that it is if those without a stack are like the others."""
CLIENT_WAITS = 0.3
"""A process waits so much of its time for the one with the loop, to be called one that is held up.
"""
SHOWN = 3
_LOOPS = ("asyncio/base_events.py:_run_once", "asyncio/runners.py:run")
"""Functions below which coroutines run (CPython 3.10 to 3.14); uvloop has the second one only."""
_OTHER_WAITS = frozenset(("gil", "core"))
"""What a thread waits for that would run."""


class _Blocked(Struct, frozen=True):
    """A thread with an event loop, and where coroutines make it wait."""

    process: Process
    account: ThreadAccount
    place: str
    """The line of most of these waits."""
    coroutine: str
    """The innermost coroutine there."""
    does: Activity
    share: float
    """Of the thread's time, in all such waits that a stack shows, 0 to 1."""
    siblings: tuple[str, ...]
    """What shows that other tasks are there, each as a sentence of evidence."""
    clients: tuple[Process, ...]


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each event loop whose coroutines make its thread wait much of the time.

    Only where other tasks are there that this holds up: several of the same coroutine, clients
    that are connected, or processes of the job that wait. A coroutine that is alone may wait as it
    likes, and so may one that works for the only client.
    """
    if not any(line.is_async for line in index.snapshot.source):
        return
    for process in index.snapshot.living():
        account = index.snapshot.account.processes.get(process.process)
        if account is None or process.role in SERVICE_ROLES:
            continue
        threads = {each.tid: each for each in process.threads}
        for number, each in enumerate(account.uncounted):
            thread = threads.get(each.tid)
            if thread is not None and _has_loop(index, thread.stack):
                blocked = _blocked(index, process, thread, account, number)
                if blocked is not None:
                    yield _finding(blocked)


@derived
def _has_loop(index: Index, stack: tuple[Frame, ...]) -> bool:
    """Whether a thread runs an event loop; workers have equal stacks."""
    del index
    return any(calls(own_frames(stack), each) for each in _LOOPS)


def _blocked(
    index: Index, process: Process, thread: Thread, account: ProcessAccount, number: int
) -> _Blocked | None:
    """Where the coroutines of a loop make its thread wait, if that holds up others."""
    known = account.thread(number)
    found = shares_apart(known)
    at: defaultdict[str, float] = defaultdict(float)
    for each in found:
        if _coroutines_at(index, thread, each.activity):
            at[each.activity.place] += each.share
    share = min(1.0, sum(at.values()))
    waits = [each for each in found if _waits(each.activity)]
    with_place = sum(each.share for each in waits if each.activity.place)
    likely = share * sum(each.share for each in waits) / with_place if with_place else 0.0
    if share < BLOCKED_SHARE or likely < LIKELY_SHARE:
        return None
    place = max(at.items(), key=itemgetter(1))[0]
    here = [each for each in found if each.activity.place == place]
    does = max((e for e in here if _waits(e.activity)), key=lambda each: each.share).activity
    names = _coroutines_at(index, thread, does)
    serves = not any(_may_serve(index, process, e) for e in process.threads if e is not thread)
    clients = _clients(index, process) if serves else ()
    siblings = (*_several(index, names), *(_connected(index, process) if serves else ()))
    if not siblings and len(clients) < 2:
        return None
    return _Blocked(
        process,
        known,
        place,
        names[0],
        does,
        share,
        siblings,
        clients,
    )


def _may_serve(index: Index, process: Process, thread: Thread) -> bool:
    """Whether clients of a process may be those of this thread, not of a loop in another one."""
    wait = thread.waits_on
    accepts = wait is not None and wait.kind == "accept"
    return accepts or _has_loop(index, thread.stack) or reads_accepted(index, process, thread)


def _waits(activity: Activity) -> bool:
    """Whether a thread waits in a call, and would not run if it got the GIL or a core."""
    if activity.kind == "sleeping":
        return True
    return activity.kind == "waiting" and activity.target not in _OTHER_WAITS


def _coroutines_at(index: Index, thread: Thread, activity: Activity) -> Sequence[str]:
    """The coroutines in which a thread waits, innermost first; empty where it is in none.

    A loop that has nothing to do waits in no coroutine: these are on its stack only while they run.
    """
    if not _waits(activity) or not activity.place:
        return ()
    frames = own_frames(thread.stack)
    own = [each for each in frames if not is_library(each)]
    if own and frame_words(own[0]) == activity.place:
        return [each.function for each in own if _is_async(source_of(index, each))]
    line = line_at(index, activity.place)
    return [line.function] if line is not None and line.is_async else ()


def _is_async(line: SourceLine | None) -> bool:
    return line is not None and line.is_async


def _several(index: Index, coroutines: Sequence[str]) -> Iterator[str]:
    """The statements that start several tasks of the outermost coroutine, as evidence."""
    for mark in marks(index, "several-tasks"):
        if coroutines[-1] in mark.about.split(", "):
            yield f"{mark_words(mark)} starts tasks of {mark.about}() that run beside each other"
            return


def _connected(index: Index, process: Process) -> Iterator[str]:
    """How many clients have a connection to the process, if they are several."""
    channels = [each.channel for each in process.sample.links]
    count = sum(has_accepted(index, process, each) for each in channels if each is not None)
    if count > 1:
        yield f"{counted(count, 'client')} have a connection to {called(process)}"


def _clients(index: Index, process: Process) -> tuple[Process, ...]:
    """The processes that wait for the one with the loop, and that no other one serves."""
    return tuple(
        each
        for each in index.snapshot.living()
        if each.process != process.process
        and each.sample.parent_pid != process.pid
        and sum(
            share.share
            for share in shares(index, each)
            if share.activity.target == "socket"
            and can_end_alone(index, process, share.activity.providers)
        )
        >= CLIENT_WAITS
    )


def _finding(blocked: _Blocked) -> Finding:
    name, place, clients = called(blocked.process), blocked.place, blocked.clients
    does, instead = _words(blocked)
    verb = "waits" if len(clients) == 1 else "wait"
    whose = (
        f"the event loop of {name}"
        if blocked.account.tid == blocked.process.pid
        else f"the event loop in thread {blocked.account.name} of {name}"
    )
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if clients else Severity.INFO,
        costs=blocked.share,
        process=blocked.process.process,
        others=tuple(each.process for each in clients),
        tid=None if blocked.account.tid == blocked.process.pid else blocked.account.tid,
        subject="event loop",
        summary=(
            f"{whose} is blocked at least {blocked.share:.0%} of the time: its coroutine "
            f"{blocked.coroutine}() {does} at {place} in a call that is not awaited"
        ),
        evidence=(
            f"the thread of the loop was found in such waits {blocked.share:.0%} of the time, "
            f"mostly at {place}; waits that are too short for a stack are not counted",
            *blocked.siblings,
            *([f"{all_called(clients, SHOWN)} {verb} for {name}"] if clients else ()),
        ),
        cause=(
            "An event loop has one thread, and goes on with another task only where the present "
            f"one awaits something. The call at {place} {does} in that thread: until it returns, "
            "no other task of the loop runs, no timer and no connection is served. Tasks that were "
            "written to wait beside each other wait one after the other."
        ),
        advice=(
            f"{instead} Or have a thread make the call at {place}: await asyncio.to_thread("
            "function, ...), or loop.run_in_executor(pool, function, ...) with as many threads as "
            "calls are to wait at the same time. More tasks or a larger limit of a semaphore do "
            "not help."
        ),
    )


def _words(blocked: _Blocked) -> tuple[str, str]:
    """What a call does while it blocks, as a verb, and what to await in its place."""
    does = blocked.does
    if does.kind == "sleeping":
        return "sleeps", "Use await asyncio.sleep() in place of time.sleep()."
    if does.target == "socket":
        return (
            "waits for a socket",
            "Use a client that is made for asyncio (its calls are awaited).",
        )
    if does.target in ("child", "pipe"):
        what = "another process" if does.target == "child" else does.what
        return (
            f"waits for {what}",
            "For a program use await asyncio.create_subprocess_exec() and its communicate().",
        )
    if does.what == FUTURE_RESULT:
        return (
            f"waits for {FUTURE_RESULT}",
            "Await it: asyncio.wrap_future(future) makes an executor's future one of the loop.",
        )
    if does.target == "queue":
        return "waits for a queue", "Use asyncio.Queue between tasks of the loop."
    if does.target == "file":
        return "waits for a disk or file server", "Read or write in larger pieces."
    return f"waits for {does.what}", "Use a call that can be awaited, where there is one."
