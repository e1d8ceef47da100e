"""Waits at a server for what another client of it has to provide: a manager, or a TCPStore.

A call of a manager's proxy sends a request and waits for its answer on a socket. The manager of
multiprocessing has a thread for each client, which waits in place of the client. A TCPStore that a
program of torch has made itself, or given its own port, is a thread of one process, written in C++,
which answers get() and wait() once the key is set. So the server is never the process that has to
do something, but another client of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpwatch.describe.frames import is_library, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import PipeEnds, channels_among, listening_at
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
    if wait is None or wait.kind not in ("socket-read", "poll"):
        return None
    what = _awaited(own_frames(thread.stack))
    if what is None:
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


KEY = "a key of the store at port "
"""Begins the name of the wait."""
_SERVER = "pt_tcpstore"
"""Begins the kernel's name of a store's thread, which tells it apart from other servers of the job:
`pt_tcpstore_uv`, and `pt_tcpstore` without libuv (torch 2.13)."""
_LOOPBACK = ("127.", "[::1]", "::1", "localhost", "[::ffff:127.")


def key_wait(
    index: Index, ends: PipeEnds, process: Process, thread: Thread
) -> tuple[str, tuple[ProcessId, ...]] | None:
    """A wait for a key, and the other processes that are connected to the same store.

    The stack of a process that waits for a key ends at the call: a client of another server is in
    the code of a library that reads.

    Returns:
        `None` for another wait.
    """
    wait = thread.waits_on
    if wait is None or wait.kind not in ("socket-read", "poll") or not process.sample.torch_loaded:
        return None
    own = own_frames(thread.stack)
    if not own or (is_library(own[0]) and "/torch/distributed/" not in own[0].file):
        return None
    channels = channels_among(wait.targets)
    if len(channels) != 1 or len(wait.targets) != 1:
        return None
    port = _remote_port(ends.addresses.get(channels[0], ""))
    if port is None or port not in _stores(index):
        return None
    others = tuple(
        other.process
        for other in index.snapshot.living()
        if other is not process
        and other.role not in SERVICE_ROLES
        and other.sample.state != "Z"
        and _is_connected(other, port)
    )
    return f"{KEY}{port}", others


@derived
def _stores(index: Index) -> Mapping[str, ProcessId]:
    """The ports of the processes in which a thread of a store runs."""
    return {
        port: process.process
        for process in index.snapshot.living()
        if serves_a_store(process)
        for port in listening_at(process)
    }


def serves_a_store(process: Process) -> bool:
    """Whether a thread of a process is the server of a TCPStore."""
    return any(thread.name.startswith(_SERVER) for thread in process.threads)


def _remote_port(address: str) -> str | None:
    """The port at the other end of a connection within this machine."""
    remote = address.partition(" > ")[2]
    host, _, port = remote.rpartition(":")
    return port if host.startswith(_LOOPBACK) else None


def _is_connected(process: Process, port: str) -> bool:
    return any(_remote_port(link.address or "") == port for link in process.sample.links)
