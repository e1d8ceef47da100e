"""The thread of a server that has the connection on which a client waits for an answer.

A server with a thread for each connection accepts in one thread, which waits for clients all the
time: that says nothing of the others. The thread that reads the other end of the client's
connection is known by its system call. One that has read a request and waits for something else is
known by its stack: it runs what the threads run that read other connections, or a handler of the
standard library. An event loop watches all of its connections, and its coroutines are on no stack.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.describe.frames import own_frames, program_frames
from mpwatch.diagnose.analysis.idle_time import COUNTED_S, WOKEN_SPAN_S, gets_before_limit
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import LISTENS, PipeEnds, channels_among, listening_at
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES
from mpwatch.diagnose.analysis.source.lines import marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, own_threads, user_frame
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Channel
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import MarkKind

How: TypeAlias = Literal["reads", "handles", "loop"]
"""`reads`: the thread waits to receive on the same connection; `handles`: it has likely read the
request, and does something else; `loop`: it runs the event loop that watches the connection."""
_HANDLERS = ("socketserver.py:process_request_thread", "http/server.py:handle")
_REPEATS = re.compile(r"(?:async )?for |while (?:True|1) ?:")
_WAKING: tuple[MarkKind, ...] = ("wakes", "releases", "put")
_LATER_S = 1.5
"""A handler begins to wait after its client does; both are read one after the other."""


class Answering(Struct, frozen=True):
    """A connection on which a client waits, and the thread of the server that has it."""

    client: Process
    waiting: Thread
    """The thread of the client that waits."""
    server: Process
    thread: Thread
    how: How
    connection: Channel
    """The socket of the client."""
    is_sure: bool
    """Whether only this thread can be the one, or all that can are at the same line."""


def peer_of_wait(ends: PipeEnds, thread: Thread) -> tuple[Channel, Channel] | None:
    """The only socket that a thread waits to read from, and its other end."""
    wait = thread.waits_on
    if wait is None or wait.kind not in ("socket-read", "poll"):
        return None
    channels = channels_among(wait.targets)
    if len(channels) != 1 or len(wait.targets) != 1:
        return None
    peer = ends.peers.get(channels[0])
    return None if peer is None else (channels[0], peer)


def has_accepted(index: Index, server: Process, socket: Channel) -> bool:
    """Whether a process has a connection that came to a port or path at which it listens."""
    return server.role not in SERVICE_ROLES and socket in _accepted(index, server.process)


def reads_accepted(index: Index, server: Process, thread: Thread) -> bool:
    """Whether a thread of a server waits to read from a connection that the server has accepted."""
    socket = read_by(thread)
    return socket is not None and has_accepted(index, server, socket)


@derived
def _accepted(index: Index, identity: ProcessId) -> frozenset[Channel]:
    """The connections of a process that came to a port or path at which it listens.

    An accepted socket of a path has the path of the one that listens. Forked workers have thousands
    of descriptors, and are asked for each of their siblings.
    """
    server = index.snapshot.get(identity)
    links = [each for each in server.sample.links if each.address] if server is not None else []
    ports = listening_at(server) if server is not None else {}
    unix = f"unix{LISTENS}"
    paths = {path for each in links if (path := (each.address or "").partition(unix)[2])}
    found = []
    for link in links if ports or paths else ():
        kind, _, rest = (link.address or "").partition(" ")
        local, _, remote = rest.partition(" > ")
        is_tcp = kind == "tcp" and bool(remote) and local.rpartition(":")[2] in ports
        if link.channel is not None and (is_tcp or (kind == "unix" and rest in paths)):
            found.append(link.channel)
    return frozenset(found)


def answering(
    index: Index, ends: PipeEnds, client: Process, waiting: Thread, server: Process
) -> Answering | None:
    """The thread of a server that has the connection on which a thread of a client waits.

    Returns:
        `None` if the server has not accepted that connection, or nothing shows which thread has it.
    """
    found = peer_of_wait(ends, waiting)
    if found is None or client is server or not has_accepted(index, server, found[1]):
        return None
    own, other = found
    made = (client, waiting, server)
    reader = next((each for each in own_threads(index, server) if read_by(each) == other), None)
    if reader is not None:
        return Answering(*made, reader, "reads", own, is_sure=True)
    loop = next((each for each in own_threads(index, server) if other in _watches(each)), None)
    if loop is not None:
        return Answering(*made, loop, "loop", own, is_sure=True)
    handlers = _handlers(index, server.process)
    if not handlers:
        return None
    thread = _fitting(handlers, waiting)
    places = {user_frame(each.stack) for each in handlers}
    return Answering(*made, thread, "handles", own, is_sure=len(places) == 1)


def _fitting(handlers: Sequence[Thread], waiting: Thread) -> Thread:
    """The thread that began to wait next after the client did; else the one that waits longest."""
    most_s = (waiting.still_s or 0.0) + _LATER_S
    later = [each for each in handlers if (each.still_s or 0.0) <= most_s]
    return max(later or handlers, key=lambda each: each.still_s or 0.0)


@derived
def _handlers(index: Index, identity: ProcessId) -> tuple[Thread, ...]:
    """The threads of a server that have read a request and do something else than read."""
    server = index.snapshot.get(identity)
    main = main_thread(server) if server is not None else None
    if server is None:
        return ()
    own = [each for each in own_threads(index, server) if each.stack]
    reading = [t for t in own if reads_accepted(index, server, t)]
    entries = {entry for each in reading if (entry := _entry(each)) is not None}
    others = [
        each
        for each in own
        if each is not main and each not in reading and not accepts(server, each)
    ]
    known = [each for each in others if _is_handler(each) or _entry(each) in entries]
    if known:
        return tuple(known)
    likely = [each for each in others if _may_answer(index, each)]
    return tuple(likely) if len({_entry(each) for each in likely}) == 1 else ()


def _is_handler(thread: Thread) -> bool:
    return any(calls(own_frames(thread.stack), each) for each in _HANDLERS)


def _may_answer(index: Index, thread: Thread) -> bool:
    """Whether a thread waits for another one in a function that also sends."""
    wait = thread.waits_on
    frames = program_frames(thread.stack)
    if wait is None or wait.kind == "timer" or wait.timeout_s is not None or not frames:
        return False
    line = source_of(index, frames[-1])
    return line is None or line.may_send


def _entry(thread: Thread) -> tuple[str, str] | None:
    """The function of the program with which a thread has begun."""
    frames = program_frames(thread.stack)
    return (frames[-1].file, frames[-1].function) if frames else None


def accepts(process: Process, thread: Thread) -> bool:
    """Whether a thread waits for clients."""
    wait = thread.waits_on
    if wait is None:
        return False
    if wait.kind == "accept":
        return True
    return wait.kind == "poll" and not listening_sockets(process).isdisjoint(
        channels_among(wait.targets)
    )


def listening_sockets(process: Process) -> set[Channel | None]:
    """The sockets at which a process listens."""
    return {each.channel for each in process.sample.links if LISTENS in (each.address or "")}


def read_by(thread: Thread) -> Channel | None:
    """The socket that a thread waits to read from, if it is the only one."""
    wait = thread.waits_on
    if wait is None or wait.kind not in ("socket-read", "poll"):
        return None
    found = channels_among(wait.targets)
    return found[0] if len(found) == 1 else None


def _watches(thread: Thread) -> tuple[Channel, ...]:
    """All that a thread waits for in a poll."""
    wait = thread.waits_on
    return channels_among(wait.targets) if wait is not None and wait.kind == "poll" else ()


_HANDSHAKES = (
    ("multiprocessing/connection.py:deliver_challenge", "multiprocessing/connection.py:accept"),
    ("multiprocessing/connection.py:answer_challenge", "multiprocessing/connection.py:accept"),
    ("ssl.py:do_handshake", "ssl.py:accept"),
)
"""A handshake with a client that is part of accepting its connection (CPython 3.10 to 3.14)."""


def is_in_handshake(thread: Thread) -> bool:
    """Whether a thread waits in accept() for what a client has to send before it returns.

    Until then no other thread of its process has that connection.
    """
    return any(calls(own_frames(thread.stack), *each) for each in _HANDSHAKES)


def all_wait_to_receive(index: Index, ends: PipeEnds, found: Answering) -> bool:
    """Whether both ends of a connection wait to receive, and no other thread is left to send there.

    A subscriber and its server both wait to receive as well, where another thread, or the thread of
    another connection, sends now and then. So the client has to be at a call that has sent before
    it receives, and every other thread of both has to wait: for clients, inside of its process, or
    to receive from one of this job that waits to receive as well. Where the server is in a
    handshake, no other thread of it has the connection.
    """
    waits = found.waiting.waits_on, found.thread.waits_on
    in_handshake = is_in_handshake(found.thread)
    has_to_send = (
        has_asked(index, found.waiting) if not in_handshake else _is_outside(found.waiting)
    )
    if found.how != "reads" or not ends.is_complete or not has_to_send:
        return False
    if any(each is None or each.timeout_s is not None for each in waits):
        return False
    if found.waiting.tid == found.client.pid and _may_get(index, found.client):
        return False
    return not any(
        _may_send(index, ends, process, each)
        for process, used in ((found.client, found.waiting), (found.server, found.thread))
        if not (in_handshake and process is found.server)
        for each in own_threads(index, process)
        if each is not used
    )


def _is_outside(waiting: Thread) -> bool:
    """Whether a client takes no part in a handshake: it waits in code of its own."""
    own = own_frames(waiting.stack)
    return bool(own) and not calls(own, "connection.py:Client") and not calls(own, ":do_handshake")


def _may_get(index: Index, client: Process) -> bool:
    """Whether a client may get something again and again, in between two readings.

    What is received is in no count of bytes. Wake-ups are counted every few seconds: before that,
    nothing is known of them.
    """
    switches = index.history.of(client.process, "voluntary_switches")
    if switches and switches[-1].at_s - switches[0].at_s < COUNTED_S:
        return True
    return any(gets_before_limit(index, client, each) for each in (COUNTED_S, WOKEN_SPAN_S))


def has_asked(index: Index, thread: Thread) -> bool:
    """Whether a thread that receives has sent something for it before, as its source shows."""
    own = own_frames(thread.stack)
    if calls(own, "http/client.py:getresponse"):
        return True
    for frame in program_frames(thread.stack):
        line = source_of(index, frame)
        if line is None or line.asked is not None:
            return line is not None
        if any(_REPEATS.match(each.text) for each in line.within):
            return False  # it goes through all that comes
    return False


def _may_send(index: Index, ends: PipeEnds, process: Process, thread: Thread) -> bool:
    """Whether a thread may send, or have another one send, before something is sent to its process.

    One that works may hand its result to a thread that sends it: only one that sleeps, in functions
    that neither send nor wake up another thread, does not.
    """
    wait, frames = thread.waits_on, program_frames(thread.stack)
    if accepts(process, thread) or (wait is not None and _waits_for_threads(thread)):
        return False
    if wait is not None and (peer := peer_of_wait(ends, thread)) is not None:
        return wait.timeout_s is not None or not _is_read(index, peer[1])
    if wait is None or wait.kind not in ("timer", "futex") or _runs_a_call(thread):
        return bool(frames)
    lines = [source_of(index, frame) for frame in frames]
    waking = {(each.file, each.function) for kind in _WAKING for each in marks(index, kind)}
    return any(line is None or line.may_send for line in lines) or any(
        (frame.file, frame.function) in waking for frame in frames
    )


def _runs_a_call(thread: Thread) -> bool:
    """Whether a thread of an executor runs a call, whose end may call back."""
    return calls(own_frames(thread.stack), "concurrent/futures/thread.py:_worker")


def _waits_for_threads(thread: Thread) -> bool:
    wait = thread.waits_on
    return wait is not None and wait.kind == "futex" and wait.timeout_s is None


def _is_read(index: Index, socket: Channel) -> bool:
    """Whether a thread of the job waits to read from a socket."""
    return socket in _all_read(index)


@derived
def _all_read(index: Index) -> frozenset[Channel]:
    return frozenset(
        socket
        for process in index.snapshot.living()
        for thread in process.threads
        if (socket := read_by(thread)) is not None
    )
