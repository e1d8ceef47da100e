"""Waits for a key of a TCPStore of torch that a program has made itself, or given its own port.

The store is a thread of one process, written in C++, which answers get() and wait() once the key is
set. Its name tells it apart from other servers of the job, and the stack of a process that waits
for it ends at the call: a client of another server is in the code of a library that reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mpwatch.describe.frames import is_library, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import PipeEnds, channels_among
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.waits.cases import Case, Mechanism
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Thread

KEY = "a key of the store at port "
"""Begins the name of the wait."""
_LISTENS = "tcp listens on "
_SERVER = "pt_tcpstore"
"""Begins the kernel's name of a store's thread: `pt_tcpstore_uv`, and `pt_tcpstore` without libuv
(torch 2.13)."""
_LOOPBACK = ("127.", "[::1]", "::1", "localhost", "[::ffff:127.")
NAMED = 4


def key_wait(
    index: Index, ends: PipeEnds, process: Process, thread: Thread
) -> tuple[str, tuple[ProcessId, ...]] | None:
    """A wait for a key, and the other processes that are connected to the same store.

    Returns:
        `None` for another wait.
    """
    wait, own = thread.waits_on, own_frames(thread.stack)
    if wait is None or wait.kind not in ("socket-read", "poll") or not process.sample.torch_loaded:
        return None
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
        if any(thread.name.startswith(_SERVER) for thread in process.threads)
        for port in _ports(process)
    }


def _ports(process: Process) -> Iterator[str]:
    links = process.sample.fds.links if process.sample.fds is not None else ()
    for link in links or ():
        if (link.address or "").startswith(_LISTENS):
            yield (link.address or "").rpartition(":")[2]


def _remote_port(address: str) -> str | None:
    """The port at the other end of a connection within this machine."""
    remote = address.partition(" > ")[2]
    host, _, port = remote.rpartition(":")
    return port if host.startswith(_LOOPBACK) else None


def _is_connected(process: Process, port: str) -> bool:
    links = process.sample.fds.links if process.sample.fds is not None else ()
    return any(_remote_port(link.address or "") == port for link in links or ())


def unset_key(case: Case) -> Mechanism | None:
    """All processes that use a store wait for a key of it."""
    if not case.members or not all(each.edge.what.startswith(KEY) for each in case.members):
        return None
    what = case.members[0].edge.what
    here = [
        process
        for process in case.index.snapshot.living()
        if any(edge.waiter == process.process and edge.what == what for edge in case.waits.edges)
    ]
    gone = [
        each
        for each in case.index.snapshot.processes
        if each.ended is not None and each.role not in SERVICE_ROLES
    ]
    ended = ""
    if gone:
        have = "have" if len(gone) > 1 else "has"
        ended = f" {all_called(gone, NAMED)} {have} ended, and may not have set its key."
    verb = "wait" if len(here) > 1 else "waits"
    return Mechanism(
        cause=(
            f"get() and wait() of a store return once another process has set the key. "
            f"{all_called(here)} {verb} for one, and no other living process uses this store: a "
            f"key is set under another name than it is read, the number of ranks is not what the "
            f"program expects, or each waits for what another one sets after its own wait.{ended}"
        ),
        advice=(
            "Compare the names of keys in set() and get() at the lines above, prefixes included, "
            "and set before you wait. Give the wait a timeout (wait(keys, timeout), the timeout of "
            "the store), which raises with the name of the key."
        ),
        evidence=tuple(
            f"{called(each)} ended: {each.ended.words}" for each in gone[:NAMED] if each.ended
        ),
        headline=f"{all_called(here)} {verb} for keys of a store that no process sets.",
        is_certain=len(here) > 1,
    )
