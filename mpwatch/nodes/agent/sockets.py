"""The ends of TCP connections that lead out of the jobs of this node. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.samples import FdLink, inode_of
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.nodes.wire.summary import SocketRow

SOCKETS_LIMIT = 64
"""Most ends of a node: they are sent once, and gloo connects each rank with each other one."""
SOCKETS_OF_PROCESS = 4
"""Of a process, besides those that its main thread waits for."""
_TCP, _TO = "tcp ", " > "


def socket_rows(snapshots: Sequence[Snapshot]) -> dict[str, SocketRow]:
    """The ends by key, those that a main thread waits to read from first.

    The other end of each is held by no process of these jobs.
    """
    ends = [
        (process, link)
        for snapshot in snapshots
        for process in snapshot.living()
        for link in _connections(process)
    ]
    if not ends:
        return {}
    held = {link.inode for _, link in ends}
    rows = [
        (*_row(process, link), index)
        for index, (process, link) in enumerate(ends)
        if link.peer not in held
    ]
    found: dict[str, SocketRow] = {}
    counts: dict[int, int] = {}
    for key, row, _ in sorted(rows, key=lambda each: (not each[1].is_awaited, each[2])):
        counts[row.pid] = counts.get(row.pid, 0) + (not row.is_awaited)
        if len(found) < SOCKETS_LIMIT and counts[row.pid] <= SOCKETS_OF_PROCESS:
            found[key] = row
    return found


def _connections(process: Process) -> Iterator[FdLink]:
    fds = process.sample.fds
    for link in fds.links or () if fds is not None else ():
        if link.address is not None and link.address.startswith(_TCP) and _TO in link.address:
            yield link


def _row(process: Process, link: FdLink) -> tuple[str, SocketRow]:
    local, _, remote = (link.address or "").removeprefix(_TCP).partition(_TO)
    is_awaited = link.inode is not None and _awaited(process) == link.inode
    key = f"{process.pid} {local} {remote}"
    return key, SocketRow(process.pid, process.label, local, remote, is_awaited)


def _awaited(process: Process) -> int | None:
    """The socket, and nothing else, that the main thread waits to read from."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.kind not in ("socket-read", "poll") or len(wait.targets) != 1:
        return None
    return inode_of(wait.targets[0])
