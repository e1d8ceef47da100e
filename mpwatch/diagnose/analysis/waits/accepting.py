"""Servers that wait for a further connection while those that they have accepted wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES
from mpwatch.diagnose.analysis.stack_patterns import main_thread, own_threads, user_frame
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.edges import CLIENTS
from mpwatch.model.snapshot import Process

ACCEPTS_S = 10.0


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
