"""Why a server of the job does not answer one of its clients.

It has one thread, which reads one connection to its end while another one has not been accepted
yet, or accepts while those that it has accepted wait. Or it is a manager or a store, and no other
client of it provides what is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.findings import capital
from mpwatch.describe.frames import frame_words, own_frames, program_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import (
    NAMED,
    Case,
    Mechanism,
    Waiter,
    at_line,
    awaited,
    ended_ones,
    ended_words,
    waiting_for,
)
from mpwatch.diagnose.analysis.mechanisms.lost_limits import below_zero
from mpwatch.diagnose.analysis.pipes import channels_among, pipe_ends
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called, counted
from mpwatch.diagnose.analysis.source.lines import marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    functions_of,
    main_thread,
    own_threads,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.chains import answering_threads, wait_graph
from mpwatch.diagnose.analysis.waits.connections import (
    is_in_handshake,
    listening_sockets,
    peer_of_wait,
    read_by,
    reads_accepted,
)
from mpwatch.diagnose.analysis.waits.edges import CLIENTS
from mpwatch.diagnose.analysis.waits.futures import taken_pool
from mpwatch.diagnose.analysis.waits.providers import thread_words
from mpwatch.diagnose.analysis.waits.servers import (
    BARRIER,
    EVENT,
    ITEM,
    KEY,
    LOCK,
    MANAGED,
    ROOM,
    TASKS,
)
from mpwatch.diagnose.analysis.waits.verdicts import BOTH_READ
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from mpwatch.model.waits import WaitChain

ACCEPTS_S = 10.0


def one_at_a_time(case: Case) -> Mechanism | None:
    """A server in the connection of a client that waits for one whose turn does not come."""
    for server in case.waiters:
        is_in_one = _is_in_a_connection(case.index, server)
        occupants = [p for p in server.edge.providers if p != server.process.process]
        first = next((each for each in case.waiters if each.process.process in occupants), None)
        waiting = [each.process for each in case.waiters if _is_pending(server.process, each)]
        if is_in_one and first is not None and waiting:
            return _mechanism(case, server, first, waiting)
    return None


def _mechanism(case: Case, server: Waiter, first: Waiter, waiting: list[Process]) -> Mechanism:
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
            "and no thread reads its request."
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
            f"sends nothing; {others} {wait_verb(waiting)} to be accepted."
        ),
        is_certain=True,
    )


def _is_in_a_connection(index: Index, waiter: Waiter) -> bool:
    """Whether the only thread of a server waits for data on a connection that it has accepted."""
    return (
        waiter.thread is not None
        and reads_accepted(index, waiter.process, waiter.thread)
        and len(own_threads(index, waiter.process)) == 1
    )


def _is_pending(server: Process, waiter: Waiter) -> bool:
    """Whether a process waits for data on a connection that a server has not accepted."""
    wait = waiter.thread.waits_on if waiter.thread is not None else None
    channels = channels_among(wait.targets) if wait is not None else ()
    own = {link.channel: link.other_end for link in waiter.process.sample.links}
    listening = listening_sockets(server)
    return bool(channels) and all(own.get(each) in listening for each in channels)


class BothRead(Struct, frozen=True):
    """A connection of which both ends wait to receive."""

    client: Process
    server: Process
    thread: Thread
    """That of the server."""
    connection: str
    line: SourceLine | None
    """Where that thread reads."""
    waiting: Thread
    """That of the client."""
    sent: SourceLine | None = None
    """The line of the client whose function has sent something before."""
    counted: Mark | None = None
    """Where a program sends the length of a text before its encoded bytes."""

    @property
    def short_read(self) -> Statement | None:
        """The condition that ends its loop once it has got less than it asked for."""
        received = _RECEIVES.match(self.line.statement.text) if self.line is not None else None
        if self.line is None or received is None:
            return None
        found = ((each, _SHORT.match(each.text)) for each in self.line.ends)
        return next((e for e, short in found if short and short[1] == received[1]), None)

    @property
    def evidence(self) -> str:
        """Who reads which end, where, and what was sent."""
        return (
            f"{called(self.client)} and thread {self.thread.name} of {called(self.server)} both "
            f"wait to receive on one connection, {self.connection}: {called(self.client)}"
            f"{at_line(self.waiting)}{_wanted(self.waiting)}, {called(self.server)}"
            f"{at_line(self.thread)}{_wanted(self.thread)}"
            f"{self._sent_words}"
        )

    @property
    def _sent_words(self) -> str:
        """What the client has sent before it waits."""
        if self.sent is None or self.sent.asked is None:
            return ""
        place = f"{self.sent.file.rpartition('/')[2]}:{self.sent.asked.line}"
        return f"; before that {called(self.client)} has sent `{self.sent.asked.text}` ({place})"

    @property
    def cause(self) -> str:
        """Why neither side sends."""
        names = f"{called(self.client)} and {called(self.server)} each wait for the other to send"
        short = self.short_read
        if short is not None and self.line is not None:
            reads, file = self.line.statement, self.line.file.rpartition("/")[2]
            return (
                f"{names}: most likely the server has received the whole request and waits for "
                f"more of it. `{reads.text}` ({file}:{reads.line}) is repeated until "
                f"`{short.text}` of line {short.line}, but how much one recv() returns does not "
                "say where a message ends: TCP is a stream of bytes. After a request whose last "
                "part is as long as the limit of recv(), or comes to a multiple of it, it waits "
                "for more, and the client waits for the answer. A request that arrives in parts "
                "ends too early."
            )
        if self.counted is not None:
            return f"{names}. {_counted_words(self.counted)}"
        if self.sent is not None:
            return (
                f"{names}. {called(self.client)} has sent its request{at_line(self.waiting)} and "
                f"believes it complete; the thread of {called(self.server)} waits for more bytes, "
                "or has not found its end. So the length that is sent with a message, or the "
                "mark of its end, does not match the bytes that follow; or the bytes are still in "
                "a buffer that was not flushed. One message of a wrong length is enough: from "
                "then on the reader takes parts of messages for lengths."
            )
        return (
            f"{names}. Either a request or an answer was shorter than the other side expects, is "
            "still in a buffer that was not flushed, or was never sent; or the two do not agree on "
            "whose turn it is."
        )

    @property
    def advice(self) -> str:
        """What to change."""
        if self.short_read is None and self.counted is not None:
            name = self.counted.about
            return (
                f"Encode first, and send the length of the bytes: data = {name}.encode(), then "
                "len(data). Check a received length against a maximum, so that a wrong one is an "
                "error. A timeout, a new connection, TCP_NODELAY or more threads of the server "
                "only hide it until the next such message."
            )
        if self.short_read is None:
            return (
                "Compare what each side has sent with what the other one reads at the lines above: "
                "send the length of each message before it and read exactly that many bytes, and "
                "flush what is buffered (makefile().flush()). With settimeout() the wait becomes "
                "an error."
            )
        return (
            "Send the length of each message first (struct.pack) and read exactly that many bytes, "
            "or end each message with a delimiter, or use multiprocessing.connection, which "
            "does so. Another size of the reads, TCP_NODELAY or more threads only change which "
            "message is affected; a timeout turns the wait into an error."
        )


def _wanted(thread: Thread) -> str:
    """How many bytes a thread has asked for."""
    wait = thread.waits_on
    count = wait.wanted_bytes if wait is not None else None
    return "" if count is None else f" (asks for {counted(count, 'byte')})"


def _counted_words(mark: Mark) -> str:
    place = f"{mark.file.rpartition('/')[2]}:{mark.statement.line}"
    return (
        f"`{mark.statement.text}` ({place}) sends the number of characters of {mark.about} as its "
        "length, and then its encoded bytes: a character that is not ASCII takes more than one "
        "byte, so the reader takes too few, and what is left for the length of the next message. "
        "From there on it waits for a message that is never sent."
    )


_SHORT = re.compile(r"if len\((\w+)\) ?(?:<|!=) ?([\w.]+):")
_RECEIVES = re.compile(r"(\w+) = .*\brecv(?:_into)?\(")


def both_read(index: Index, chain: WaitChain) -> BothRead | None:
    """The last connection of a chain, if a thread at its end reads the other end of it as well."""
    if len(chain.links) < 2:
        return None
    client = index.snapshot.get(chain.links[-2].process)
    server = index.snapshot.get(chain.links[-1].process)
    if client is None or server is None or client is server:
        return None
    waiter = next((each for each in client.threads if each.tid == chain.links[-2].tid), None)
    ends = pipe_ends(index)
    found = peer_of_wait(ends, waiter) if waiter is not None else None
    if waiter is None or found is None:
        return None
    read, peer = found
    thread = next((t for t in own_threads(index, server) if read_by(t) == peer), None)
    if thread is None:
        return None
    frame = user_frame(thread.stack)
    line = source_of(index, frame) if frame is not None else None
    lines = [source_of(index, each) for each in program_frames(waiter.stack)]
    sent = next((each for each in lines if each is not None and each.asked is not None), None)
    files = {each.file for t in (waiter, thread) for each in program_frames(t.stack)}
    on_stacks = {e.function for t in (waiter, thread) for e in program_frames(t.stack)}
    asked = {each.asked.text for each in lines if each is not None and each.asked is not None}
    lengths = (
        each
        for each in marks(index, "length-of-text")
        if each.file in files
        and (each.function in on_stacks or any(f"{each.function}(" in text for text in asked))
    )
    return BothRead(
        client, server, thread, ends.words(read), line, waiter, sent, next(lengths, None)
    )


def both_receive(case: Case) -> Mechanism | None:
    """A client has sent a request that the thread of its server believes incomplete."""
    if case.chain.conclusion != BOTH_READ:
        return None
    both = both_read(case.index, case.chain)
    if both is None:
        return None
    if is_in_handshake(both.thread):
        return _handshake(case.index, both)
    is_known = both.short_read is not None or both.counted is not None
    lost = None if is_known else below_zero(case)
    return lost or Mechanism(
        cause=both.cause,
        advice=both.advice,
        evidence=(both.evidence,),
        headline=(
            f"{called(both.client)} and {called(both.server)} each wait for the other one to send "
            "on one connection."
        ),
        is_certain=True,
    )


def _handshake(index: Index, both: BothRead) -> Mechanism:
    """A client takes no part in the handshake that accepting its connection includes."""
    server, client = called(both.server), called(both.client)
    at, away = at_line(both.thread), at_line(both.waiting)
    pending = _pending_at(index, both.server)
    others = f" So far {all_called(pending)} {wait_verb(pending)} for that." if pending else ""
    is_ssl = calls(own_frames(both.thread.stack), ":do_handshake")
    what = "the handshake of TLS" if is_ssl else "the authentication of a Listener with an authkey"
    return Mechanism(
        cause=(
            f"{server} is in accept(){at}, which includes {what}: it waits there for what {client} "
            f"has to send. {client} takes no part in it, and waits to receive itself{away}. "
            "accept() returns only when that connection ends, and nobody else is accepted until "
            f"then.{others}"
        ),
        advice=(
            "Let accept() return before the handshake: wrap_socket(do_handshake_on_connect=False) "
            "of the listening socket, and do_handshake() with a time limit in the thread that "
            "serves the connection."
            if is_ssl
            else "Make the Listener without an authkey, and call deliver_challenge() and "
            "answer_challenge() with a time limit in the thread that serves the connection; or let "
            f"{client} connect by multiprocessing.connection.Client with the same authkey. To "
            "notice the end of a process, wait for its sentinel in place of a connection."
        )
        + " More threads, a longer backlog or new clients do not help.",
        evidence=(both.evidence,),
        headline=(
            f"{server} accepts nobody while it waits for {client}, which takes no part in {what}."
        ),
        is_certain=True,
    )


def _pending_at(index: Index, server: Process) -> list[Process]:
    """The processes whose connections a server has not accepted yet."""
    ends, listening = pipe_ends(index), listening_sockets(server)
    pending = {each for each in ends.unaccepted if ends.peers.get(each) in listening}
    return [
        process
        for process in index.snapshot.living()
        if any(
            thread.waits_on is not None
            and not pending.isdisjoint(channels_among(thread.waits_on.targets))
            for thread in process.threads
        )
    ]


_WAITS_FOR = re.compile(r"(?P<what>(?:\w+\.)*\w+)\.(?:wait|wait_for|acquire|get|join|result)\(")
_SHOWN_WAKES = 3


def unwoken(index: Index, process: Process, tid: int | None) -> Mechanism | None:
    """Why the thread of a server that has the connection of a client is not woken up.

    Args:
        index: The snapshot.
        process: The server.
        tid: The thread at which a chain of waits ends.

    Returns:
        `None` where it is no such thread, or waits for something else than its own process.
    """
    answer = answering_threads(index).get((process.process, tid or 0))
    wait = answer.thread.waits_on if answer is not None else None
    if answer is None or answer.how != "handles" or wait is None or wait.kind != "futex":
        return None
    if taken_pool(process) is not None:
        return None
    frame = user_frame(answer.thread.stack)
    line = source_of(index, frame) if frame is not None else None
    found = _WAITS_FOR.search(line.statement.text) if line is not None else None
    name, client = called(process), called(answer.client)
    cause = (
        f"{name} has the request of {client}: {thread_words(process, answer.thread)} waits"
        f"{at_line(answer.thread)}, and its main thread, which waits for clients, cannot end that."
    )
    if frame is None or line is None or found is None:
        return Mechanism(cause=cause, advice=_ADVICE_WAKE)
    what = found["what"]
    wakes = [
        each
        for each in (*marks(index, "wakes"), *marks(index, "releases"))
        if each.about.rpartition(".")[2] == what.rpartition(".")[2]
        and each.function != frame.function
        and (each.file == frame.file or "." not in what)
    ]
    lost = next(
        (
            each
            for each in marks(index, "emptied-late")
            if each.file == frame.file and frame.function in each.about.split(", ")[2:]
        ),
        None,
    )
    return Mechanism(
        cause=f"{cause} {_who_wakes(index, process, answer.thread, what, wakes)}"
        f"{_lost_words(lost, frame.function) if lost is not None else ''}",
        advice=_ADVICE_LOST if lost is not None else _ADVICE_WAKE,
    )


def _who_wakes(
    index: Index, process: Process, waiting: Thread, what: str, wakes: Sequence[Mark]
) -> str:
    """At which lines something is set, notified or released, and what the threads there do."""
    if not wakes:
        return f"In the files that were read, no other line sets, notifies or releases {what}."
    places = [
        f"`{each.statement.text}` ({each.file.rpartition('/')[2]}:{each.statement.line} "
        f"{each.function})"
        for each in wakes[:_SHOWN_WAKES]
    ]
    files = {each.file for each in wakes}
    functions = functions_of(wakes)
    others = [
        (each, user_frame(each.stack))
        for each in own_threads(index, process)
        if each is not waiting and each is not main_thread(process)
    ]
    near = [
        (thread, frame)
        for thread, frame in others
        if frame is not None and frame.file in files and frame != user_frame(waiting.stack)
    ]
    words = f"{what}, matched by its name only, is woken up at {' and '.join(places)}."
    if not near:
        return f"{words} No thread of the process is there, nor in that file."
    thread, frame = near[0]
    is_there = any((each.file, each.function) in functions for each in program_frames(thread.stack))
    there = "in that function" if is_there else "in that file"
    return (
        f"{words} {capital(thread_words(process, thread))} is {there}, at {frame_words(frame)}, "
        "and has not done so for this request."
    )


def _lost_words(mark: Mark, function: str) -> str:
    """That a container is emptied of what other threads have added since it was read."""
    container, line = mark.about.split(", ")[:2]
    file = mark.file.rpartition("/")[2]
    return (
        f" Most likely its entry is lost: {mark.function} reads {container} in line {line}, and "
        f"`{mark.statement.text}` ({file}:{mark.statement.line}) empties all of it later. What "
        f"{function} has added in between is thrown away, and never answered."
    )


_ADVICE_WAKE = (
    "Look at what has to happen before that line is woken up: each request needs exactly one "
    "answer, also where one fails, and each wait a check of its condition and a timeout that "
    "becomes an error. Nothing is wrong with the connection, the client or the number of threads."
)
_ADVICE_LOST = (
    "Remove only what was read: take the container out under the lock before the work begins "
    "(batch, self.items = self.items, {}), or delete its keys one by one. A timeout with another "
    "try only hides it; more clients or threads make it more frequent."
)


class Nested(Struct, frozen=True):
    """Permits or connections of which coroutines take a second one while they keep the first."""

    evidence: str
    cause: str
    advice: str


def nested_permits(index: Index, server: Process, count: int) -> Nested | None:
    """Why the coroutines of a server may all wait, as far as its source shows.

    Args:
        index: The snapshot.
        server: Runs an event loop.
        count: The threads of clients that wait for it.
    """
    found = marks(index, "takes-again")
    files = {frame.file for thread in server.threads for frame in program_frames(thread.stack)}
    # Of the files of its handlers none need be on a stack, but those of its folder may be its own.
    folders = {file.rpartition("/")[0] for file in files}
    near = [each for each in found if each.file.rpartition("/")[0] in folders]
    elsewhere = {
        frame.file
        for process in index.snapshot.living()
        if process.process != server.process
        for thread in process.threads
        for frame in program_frames(thread.stack)
    }
    mark = next((each for each in near if each.file in files or each.file not in elsewhere), None)
    if mark is None:
        return None
    name = called(server)
    taken, first, function, second = mark.about.rsplit(", ", 3)
    file = mark.file.rpartition("/")[2]
    inner = f"{function or mark.function} takes it once more in line {second}"
    return Nested(
        f"{file}:{mark.statement.line} is `{mark.statement.text}`, inside of `async with {taken}` "
        f"of line {first}; {inner}",
        (
            f"Most likely its coroutines wait for each other: {mark.function} keeps what `{taken}` "
            f"has given it in {file}:{first} while it awaits `{mark.statement.text}` "
            f"({file}:{mark.statement.line}), and {inner}. Once as many of them run as there are "
            f"permits or connections, each has one and waits for a second one, for ever. "
            f"At least {counted(count, 'request')} {'waits' if count == 1 else 'wait'} for {name} "
            "now."
        ),
        (
            f"Take only one at a time: hand the first to {function or mark.function} as an "
            f"argument, or leave the block of {file}:{first} before line {mark.statement.line}. A "
            "larger pool only helps while it is larger than the number of requests at a time; a "
            "timeout turns the wait into errors. The clients only wait."
        ),
    )


class Accepting(Struct, frozen=True):
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


def managed(case: Case) -> Mechanism | None:
    """Processes that wait for what no other client of their manager provides."""
    waiting = [each for each in case.waiters if each.edge.what in MANAGED]
    if not waiting:
        return None
    what = waiting[0].edge.what
    here = waiting_for(case, what)
    gone = ended_ones(case)
    verb = wait_verb(here)
    missing, advice = _TEXTS[what]
    others = [each for each in case.waiters if each.process not in here]
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
        evidence=ended_words(gone),
        headline=f"{all_called(here)} {verb} for {what} that no process {missing}.",
    )


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
    BARRIER: (
        "completes",
        "Give the barrier a timeout and exactly as many parties as call its wait().",
    ),
    TASKS: (
        "completes",
        "Call task_done() once for each item that was taken, in a finally block.",
    ),
}
"""What no process does, and what to change."""


def unset_key(case: Case) -> Mechanism | None:
    """All processes that use a store wait for a key of it."""
    if not case.waiters or not all(each.edge.what.startswith(KEY) for each in case.waiters):
        return None
    what = case.waiters[0].edge.what
    here = waiting_for(case, what)
    gone = ended_ones(case)
    ended = ""
    if gone:
        have = "have" if len(gone) > 1 else "has"
        ended = f" {all_called(gone, NAMED)} {have} ended, and may not have set its key."
    verb = wait_verb(here)
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
        evidence=ended_words(gone),
        headline=f"{all_called(here)} {verb} for keys of a store that no process sets.",
        is_certain=len(here) > 1,
    )
