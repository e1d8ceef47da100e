"""Servers with one thread that wait for one client while another one waits for them.

They read one connection to its end while another has not been accepted yet, or accept, while those
that they have accepted wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import (
    READS,
    Case,
    Mechanism,
    Member,
    at_line,
    awaited,
)
from mpwatch.diagnose.analysis.pipes import channels_among
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, own_threads, user_frame
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.edges import CLIENTS, LISTENS
from mpwatch.model.samples import FdLink
from mpwatch.model.snapshot import Process

ACCEPTS_S = 10.0


def one_at_a_time(case: Case) -> Mechanism | None:
    """A server in the connection of a client that waits for one whose turn does not come."""
    for server in case.members:
        read = _reads_accepted(case.index, server)
        occupants = [p for p in server.edge.providers if p != server.process.process]
        first = next((each for each in case.members if each.process.process in occupants), None)
        waiting = [each.process for each in case.members if _is_pending(server.process, each)]
        if read is not None and first is not None and waiting:
            return _mechanism(case, server, first, waiting)
    return None


def _mechanism(case: Case, server: Member, first: Member, waiting: list[Process]) -> Mechanism:
    name, occupant, others = called(server.process), called(first.process), all_called(waiting)
    at = at_line(main_thread(server.process))
    frames = own_frames(server.thread.stack) if server.thread is not None else ()
    is_http = calls(frames, "http/server.py:")
    is_standard = is_http or calls(frames, "socketserver.py:")
    return Mechanism(
        cause=(
            f"{name} has one thread, and that reads the connection of {occupant}{at} until its "
            f"end{' (HTTP keep-alive leaves it open between requests)' if is_http else ''}. "
            f"{occupant} sends nothing there: it waits for {awaited(case, first)}. Meanwhile "
            f"{name} accepts no other connection: that of {others} is established by the kernel, "
            "and nobody reads its request."
        ),
        advice=(
            "Serve each connection in a thread of its own"
            + (
                f": {'ThreadingHTTPServer' if is_http else 'ThreadingTCPServer'} in place of "
                f"{'HTTPServer' if is_http else 'TCPServer'} for the server that runs{at}"
                if is_standard
                else f", or read with selectors or asyncio{at}"
            )
            + ". Or close each connection after its answer"
            + (" (protocol_version HTTP/1.0, or Connection: close)" if is_http else "")
            + ". Give the handler and the clients a timeout."
        ),
        headline=(
            f"{name} serves one connection at a time and is in that of {occupant}, which "
            f"sends nothing; {others} {'waits' if len(waiting) == 1 else 'wait'} to be accepted."
        ),
        is_certain=True,
    )


def _reads_accepted(index: Index, member: Member) -> FdLink | None:
    """The connection that the only thread of a server reads, at a port on which it listens."""
    wait = member.thread.waits_on if member.thread is not None else None
    channels = channels_among(wait.targets) if wait is not None else ()
    if member.edge.kind not in READS or len(channels) != 1:
        return None
    if len(own_threads(index, member.process)) != 1:
        return None
    links = _links(member.process)
    read = next((link for link in links if link.inode == channels[0]), None)
    ports = {_port(link.address) for link in links if LISTENS in (link.address or "")}
    local = (read.address or "").partition(" > ")[0] if read is not None else ""
    return read if local and _port(local) in ports else None


def _is_pending(server: Process, member: Member) -> bool:
    """Whether a process waits for data on a connection that a server has not accepted."""
    wait = member.thread.waits_on if member.thread is not None else None
    channels = channels_among(wait.targets) if wait is not None else ()
    listening = {link.inode for link in _links(server) if LISTENS in (link.address or "")}
    own = {link.inode: link.peer for link in _links(member.process)}
    return bool(channels) and all(own.get(each) in listening for each in channels)


def _links(process: Process) -> tuple[FdLink, ...]:
    fds = process.sample.fds
    return (fds.links or ()) if fds is not None else ()


def _port(address: str | None) -> str:
    return (address or "").rpartition(":")[2]


class Accepting(NamedTuple):
    """A server with one thread, and the clients that wait for what it would send."""

    server: Process
    port: str
    """`tcp 127.0.0.1:4000`."""
    clients: tuple[Process, ...]
    for_s: float


def accepting_in_vain(index: Index) -> Iterator[Accepting]:
    """Servers whose only thread accepts in code of the program, while accepted clients wait.

    A server that has a thread for each client sends all the same.
    """
    edges = wait_graph(index).edges
    for edge in edges:
        server = index.snapshot.get(edge.waiter)
        if server is None or not edge.what.startswith(CLIENTS) or server.role in SERVICE_ROLES:
            continue
        thread = main_thread(server)
        if thread is None or thread.tid != edge.tid or thread.waits_on is None:
            continue
        is_own = thread.waits_on.kind == "accept" and user_frame(thread.stack) is not None
        if not is_own or len(own_threads(index, server)) > 1:
            continue
        clients = [
            process
            for each in edges
            if each.kind in ("socket-read", "poll")
            and each.providers == (server.process,)
            and each.tid == each.waiter.pid
            and (process := index.snapshot.get(each.waiter)) is not None
        ]
        times = [quiet_s(each, index) for each in (server, *clients)]
        known = [each for each in times if each is not None]
        if clients and len(known) == len(times) and min(known) >= ACCEPTS_S:
            port = edge.what.removeprefix(CLIENTS)
            yield Accepting(server, port, tuple(clients), min(known))
