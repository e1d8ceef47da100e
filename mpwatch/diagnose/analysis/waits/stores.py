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
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Thread

KEY = "a key of the store at port "
"""Begins the name of the wait."""
_LISTENS = "tcp listens on "
_SERVER = "pt_tcpstore"
"""Begins the kernel's name of a store's thread: `pt_tcpstore_uv`, and `pt_tcpstore` without libuv
(torch 2.13)."""
_LOOPBACK = ("127.", "[::1]", "::1", "localhost", "[::ffff:127.")


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
