"""Waits of processes for what a manager of multiprocessing keeps: queues, locks, events, barriers.

A call of a proxy sends a request and waits for its answer on a socket. The manager has a thread for
each client, which waits in place of the client; so the manager is never the process that has to do
something, but another client of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import PipeEnds, channels_among
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES
from mpwatch.diagnose.analysis.stack_patterns import calls, main_shape
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.waits import SETTLED_S

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
