"""Waits of processes for what a manager of multiprocessing keeps: queues, locks, events, barriers.

A call of a proxy sends a request and waits for its answer on a socket. The manager has a thread for
each client, which waits in place of the client; so the manager is never the process that has to do
something, but another client of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import PipeEnds, channels_among
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.stack_patterns import calls, main_shape
from mpwatch.diagnose.analysis.waits.cases import Case, Mechanism, awaited
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread

_CALL = "_callmethod"
_FILE = "multiprocessing/managers.py"
ITEM = "an item of a queue of the manager"
ROOM = "room in a full queue of the manager"
LOCK = "a lock of the manager"
EVENT = "an event or condition of the manager"
BARRIER = "the other parties of a barrier of the manager"
TASKS = "the tasks of a queue of the manager to be done"
MANAGED = (ITEM, ROOM, LOCK, EVENT, BARRIER, TASKS)
"""The names of these waits."""
_BY_METHOD: Mapping[str, str] = {
    "get": ITEM,
    "put": ROOM,
    "acquire": LOCK,
    "__enter__": LOCK,
    "wait": EVENT,
    "wait_for": EVENT,
    "join": TASKS,
}
"""By the method of the proxy (managers.py, CPython 3.10 to 3.14)."""
NAMED = 4
SETTLED_S = 2.0
"""A shorter wait may be the time in which the manager works for the client."""


def managed_wait(
    index: Index, ends: PipeEnds, process: Process, thread: Thread
) -> tuple[str, tuple[ProcessId, ...]] | None:
    """What a proxy's call waits for, and the other clients, one of which has to provide it.

    Returns:
        `None` if it is another wait, or if a thread of the manager may be at work for it: its
        stacks are needed to tell.
    """
    wait = thread.waits_on
    what = _awaited(own_frames(thread.stack))
    if what is None or wait is None or wait.kind not in ("socket-read", "poll"):
        return None
    channels = channels_among(wait.targets)
    holders = {holder for each in channels for holder in ends.writers.get(each, ())}
    manager = next(
        (
            each
            for each in map(index.snapshot.get, holders)
            if each is not None and each is not process and _keeps_waiting(each)
        ),
        None,
    )
    if manager is None:
        return None
    clients = tuple(
        other.process
        for other in index.snapshot.living()
        if other is not process
        and other is not manager
        and other.role not in SERVICE_ROLES
        and other.sample.state != "Z"
        and main_shape(other) != "pool-idle"
    )
    return what, clients


def _awaited(frames: Sequence[Frame]) -> str | None:
    """What a stack of a proxy's call waits for; `None` for another stack."""
    place = next(
        (n for n, f in enumerate(frames) if f.function.endswith(_CALL) and f.file.endswith(_FILE)),
        None,
    )
    if place is None or place + 1 >= len(frames):
        return None
    return _BY_METHOD.get(frames[place + 1].function.rpartition(".")[2])


def _keeps_waiting(manager: Process) -> bool:
    """Whether it is a manager, and a thread of it waits in place of a client."""
    return any(
        calls(frames := own_frames(thread.stack), f"{_FILE}:serve_client")
        and not calls(frames, "multiprocessing/connection.py:recv")
        and thread.waits_on is not None
        and thread.waits_on.kind == "futex"
        and (thread.still_s or 0.0) >= SETTLED_S
        for thread in manager.threads
    )


def managed(case: Case) -> Mechanism | None:
    """Processes that wait for what no other client of their manager provides."""
    waiting = [each for each in case.members if each.edge.what in MANAGED]
    if not waiting:
        return None
    what = waiting[0].edge.what
    here = [
        each
        for each in case.index.snapshot.living()
        if any(edge.waiter == each.process and edge.what == what for edge in case.waits.edges)
    ]
    gone = [
        each
        for each in case.index.snapshot.processes
        if each.ended is not None and each.role not in SERVICE_ROLES
    ]
    verb = "wait" if len(here) > 1 else "waits"
    missing, advice = _TEXTS[what]
    others = [each for each in case.members if each.process not in here]
    words = "; ".join(f"{called(each.process)} waits for {awaited(case, each)}" for each in others)
    ended = ""
    if gone:
        have = "have" if len(gone) > 1 else "has"
        lost = "held" if what == LOCK else "was to do"
        whose = "it" if len(gone) == 1 else "one of them"
        ended = f" {all_called(gone, NAMED)} {have} ended: what {whose} {lost} may be lost."
    return Mechanism(
        cause=(
            f"{all_called(here)} {verb} for {what}, in a call of a proxy, and no other client of "
            f"the manager is at work that could do that. {f'{words}. ' if words else ''}The "
            f"manager itself only waits in their place.{ended}"
        ),
        advice=advice,
        evidence=tuple(_ended_words(gone)),
        headline=f"{all_called(here)} {verb} for {what} that no process {missing}.",
    )


def _ended_words(gone: Sequence[Process]) -> Iterator[str]:
    for each in gone[:NAMED]:
        if each.ended is not None:
            yield f"{called(each)} ended: {each.ended.words}"


_COUNT = (
    "Count what is put and what is taken: every task needs exactly one answer, also where it fails "
    "or has no result. Use get(timeout=...) and check then whether the others are alive."
)
_SET = (
    "Set or notify it in a finally block, and wait with a timeout. A notify() before the wait is "
    "lost: wait for a state (wait_for)."
)
_TEXTS: Mapping[str, tuple[str, str]] = {
    ITEM: ("puts", _COUNT),
    ROOM: (
        "takes out",
        "Take items out of the queue until all that put into it have ended, or give it no maxsize.",
    ),
    LOCK: (
        "releases",
        "A lock of a manager stays locked when its holder is killed or ends without release(): "
        "take it in a with block, do not end such processes by os._exit() or kill(), and use "
        "acquire(timeout=...).",
    ),
    EVENT: ("sets or notifies", _SET),
    BARRIER: ("completes", "Give the barrier a timeout and exactly as many parties as come to it."),
    TASKS: (
        "completes",
        "Call task_done() once for each item that was taken, in a finally block.",
    ),
}
"""What no process does, and what to change."""
