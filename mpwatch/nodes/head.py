"""The head: starts an agent on each node, keeps what they send, asks them, and ends them.

Driven by one thread that calls `Head.step`. What a node sends is checked, sanitized and bounded
(`mpwatch.nodes.messages`, `mpwatch.nodes.summary`); nothing of it is executed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from mpwatch import __version__
from mpwatch.model.sanitize import clean
from mpwatch.nodes.framing import NODE_LIMIT_BYTES, PROTOCOL, Frame, FrameReader
from mpwatch.nodes.launchers.launch import CannotLaunch, ChangingNodes, Launch, Pipes
from mpwatch.nodes.messages import (
    Answer,
    Ask,
    Close,
    Do,
    FromHead,
    FromNode,
    Hello,
    Next,
    NotAMessage,
    Part,
    Ping,
    Pong,
    Refusal,
    Resend,
    Summary,
    head_frame,
    message_of_node,
)
from mpwatch.nodes.summary import MalformedSummary, NodeSummary, SummaryReader
from mpwatch.nodes.view_source import OpenedJob, Receive

STARTING_LIMIT = 16
"""So many agents are started at the same time: a login node dislikes more."""
BURST = 4
"""So many are started at once, if the last start was long enough ago."""
HELD_UP_S = 5.0
"""A node that has not answered after so long is waited for beside the others: hosts that hang keep
no other host from being started."""
SPACING_S = 0.05
"""Mean time from one start to the next. An sshd, also that of a jump host, refuses connections
at random while ten are not authenticated yet (MaxStartups in sshd_config(5), OpenSSH 9.2), and a
host takes 0.2 s for that."""
SILENT_S = 10.0
"""A node that has sent nothing for so long is silent; it sends something each second, but where ten
processes ran for each cpu there were once more than five seconds between two."""
PING_S = 5.0
CLOCKS_APART = 1e-3
"""Seconds by which two clocks may move apart in a second: Linux lets a time server change the rate
of a clock by 500 parts in a million (MAXFREQ in include/linux/timex.h, Linux 6.12)."""
GRACE_S = 3.0
"""How long agents may take to end once their input is closed."""
EXIT_S = 0.3
"""How long the exit status of a launcher whose output has ended is waited for."""
RESTART_S = 10.0
"""Shortest time until a node that has failed is tried again; each time twice as long."""
RESTART_MOST_S = 120.0
REFUSALS_LIMIT = 5
REFUSED_S = 1.0
"""Time until a node that was refused for the moment is tried again; each time twice as long."""
FOLLOW_S = 1.0
"""Interval at which an engine whose nodes join and leave is asked for them."""
LOOK_S = 0.05
"""Interval at which all nodes are looked after; a thousand of them send at as many moments."""
UNSENT_BYTES_LIMIT = 1 << 16
_POLL_S = 0.01
_CHUNK_BYTES = 1 << 16
_TOLD_BYTES = 4096

NodeState: TypeAlias = Literal["waiting", "starting", "live", "silent", "ended", "failed"]
"""`waiting` to be started; `failed`: no agent could be reached, or it is not understood; `ended`:
the agent or the way to it has ended."""


Keep: TypeAlias = Callable[[str, FromNode], None]
"""Is called with the name of a node and a message that it has sent."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as the head knows it."""

    name: str
    state: NodeState
    last_seen_s: float | None = None
    """Seconds since something was received from it; `None` if never."""
    problem: str = ""
    """Why it is not live, in one sentence."""
    host: str = ""
    """The name that the machine gives itself."""
    version: str = ""
    """Of the agent."""
    summary: NodeSummary | None = None
    clock_offset_s: float | None = None
    """Its clock minus the clock of the head; `None` if unknown."""
    clock_error_s: float | None = None
    """The offset is known to that much: half of a round trip, and `CLOCKS_APART` since then."""
    received_bytes: int = 0
    check: str = ""
    """A command that shows whether mpwatch runs there."""


def with_silence(
    state: NodeState, problem: str, last_seen_s: float | None
) -> tuple[NodeState, str]:
    """State and problem of a node, of a live one by the time since it was last heard of."""
    if state == "live" and last_seen_s is not None and last_seen_s > SILENT_S:
        return "silent", f"Nothing was received for {last_seen_s:.0f} s."
    return state, problem


class Head:
    """The agents of a job."""

    def __init__(
        self,
        launches: Sequence[Launch] | ChangingNodes,
        *,
        restarts: bool = False,
        keep: Keep | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a head that has started nothing yet.

        Args:
            launches: The nodes; those that change are followed, and closed with the head.
            restarts: Start an agent again when it has ended or failed.
            keep: Called with each message that is shown: greetings, summaries that fit to the one
                before, and answers to requests.
            clock: Monotonic seconds.
        """
        self._keep = keep
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._restarts = restarts
        self._changing = None if isinstance(launches, Sequence) else launches
        self._followed_s = clock()
        self._looked_s = self._started_s = float("-inf")
        self._nodes: dict[str, _Node] = {}
        self._add(launches if isinstance(launches, Sequence) else launches.launches())
        self._requests = 0
        self._answers: dict[int, Answer] = {}
        self._asked: dict[int, str] = {}
        self._opened: dict[int, OpenedJob] = {}
        _raise_descriptor_limit()

    def step(self, timeout_s: float) -> None:
        """Start what is to be started, and receive for at most this long."""
        self._follow()
        self._start_some()
        heard: dict[str, _Node] = {}
        for key, _ in self._selector.select(timeout_s):
            node, stream = key.data
            node.receive(stream)
            heard[node.name] = node
        if self._clock() - self._looked_s >= LOOK_S:
            self._looked_s = self._clock()
            for node in self._nodes.values():
                node.look_after()
        for node in heard.values():
            for answer in node.take_answers():
                if self._asked.pop(answer.request, None) == node.name:
                    self._answers[answer.request] = answer
                    if self._keep is not None:
                        self._keep(node.name, answer)
            for part in node.take_parts():
                opened = self._opened.get(part.view)
                if opened is not None and opened.node == node.name:
                    opened.receive(part)
        for opened in self._opened.values():
            opened.go_on(self._nodes.get(opened.node))

    def views(self) -> tuple[NodeView, ...]:
        """All nodes, in the order of the launcher."""
        return tuple(node.view() for node in self._nodes.values())

    def full_summaries(self) -> Iterator[tuple[str, Summary]]:
        """The state of each node that has sent one, as one message, with the name of the node."""
        for node in self._nodes.values():
            message = node.full_summary()
            if message is not None:
                yield node.name, message

    def ask(self, name: str, what: str, **options: bool | int) -> int:
        """Ask a node for a document.

        Args:
            name: The node.
            what: See `mpwatch.nodes.messages.Ask`.
            options: Further fields of the request.

        Returns:
            The number of the request, for `answer`.
        """
        self._requests += 1
        request = self._requests
        message = msgspec.convert({"request": request, "what": what, **options, "type": "ask"}, Ask)
        self._asked[request] = name
        node = self._nodes.get(name)
        if node is None or not node.send(message):
            self._asked.pop(request)
            self._answers[request] = Answer(request, problem=f"{name} does not answer.")
        return request

    def answer(self, request: int) -> Answer | None:
        """The answer to a request, once; `None` while there is none."""
        answer = self._answers.pop(request, None)
        if answer is None and request in self._asked:
            name = self._asked[request]
            node = self._nodes.get(name)
            if node is None or node.is_over:
                del self._asked[request]
                problem = node.problem if node is not None else ""
                return Answer(request, problem=problem or f"{name} has ended.")
        return answer

    def open(self, view: int, name: str, pid: int, receive: Receive) -> None:
        """Open the job of a process on a node; again whenever a new agent answers there.

        Args:
            view: A number that no job was opened with before.
            name: The node.
            pid: The process.
            receive: Called with what the node sends about it.
        """
        self._opened[view] = OpenedJob(view, name, pid, receive)

    def tell(self, message: Next | Do | Close) -> None:
        """Send a message about an opened job; one about a job that is not open is dropped."""
        opened = self._opened.get(message.view)
        if opened is not None:
            opened.tell(message)
            opened.go_on(self._nodes.get(opened.node))
            if isinstance(message, Close):
                del self._opened[message.view]

    @property
    def start_s(self) -> float:
        """How long the first message of any node may take from the start of its launcher."""
        return max((node.start_s for node in self._nodes.values()), default=0.0)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of any node; not so where agents are started again."""
        return not self._restarts and all(node.is_over for node in self._nodes.values())

    @property
    def is_settled(self) -> bool:
        """Whether each node has sent its first complete reading, or will not."""
        return all(node.is_settled for node in self._nodes.values())

    def close(self) -> None:
        """End all agents; returns after `GRACE_S` at the latest, and leaves none behind."""
        for node in self._nodes.values():
            node.hang_up()
        end_s = time.monotonic() + GRACE_S
        for node in self._nodes.values():
            node.wait(max(0.0, end_s - time.monotonic()))
        for node in self._nodes.values():
            node.kill()
        if self._changing is not None:
            self._changing.close()
        self._selector.close()

    def _add(self, launches: Sequence[Launch]) -> None:
        """Add the nodes that are not known yet."""
        for launch in launches:
            if launch.name not in self._nodes:
                self._nodes[launch.name] = _Node(launch, self._selector, self._clock, self._keep)

    def _follow(self) -> None:
        """Add the nodes that have joined, and remove those that have left."""
        if self._changing is None or self._clock() - self._followed_s < FOLLOW_S:
            return
        self._followed_s = self._clock()
        launches = self._changing.launches()
        for name in self._nodes.keys() - {launch.name for launch in launches}:
            self._nodes.pop(name).kill()
        self._add(launches)

    def _start_some(self) -> None:
        """Start the next nodes that are due, those first that never were started."""
        now_s = self._clock()
        room = STARTING_LIMIT - sum(node.is_holding_up for node in self._nodes.values())
        count = min(room, BURST, (now_s - self._started_s) // SPACING_S)
        if count < 1:
            return
        due = [node for node in self._nodes.values() if node.is_due(self._restarts)]
        for node in sorted(due, key=lambda node: node.was_started)[: int(count)]:
            self._started_s = now_s
            node.start()


class _ClockOffset(NamedTuple):
    """The clock of a node minus the clock of the head, as estimated from one round trip."""

    offset_s: float
    error_s: float
    """Half of the round trip."""
    at_s: float
    """When it was estimated, by the monotonic clock of the head."""

    def error_at_s(self, now_s: float) -> float:
        """How far the offset may be wrong by now: the clocks move apart meanwhile."""
        return self.error_s + CLOCKS_APART * max(0.0, now_s - self.at_s)

    def is_better(self, newer: _ClockOffset) -> bool:
        """Whether this says more than a newer estimate, and agrees with it.

        Two estimates that exclude each other mean that one of the clocks was set.
        """
        error_s = self.error_at_s(newer.at_s)
        agrees = abs(self.offset_s - newer.offset_s) <= error_s + newer.error_s
        return agrees and error_s <= newer.error_s


class _Node:
    """One node: its launcher's process and what it has sent."""

    def __init__(
        self,
        launch: Launch,
        selector: selectors.BaseSelector,
        clock: Callable[[], float],
        keep: Keep | None,
    ) -> None:
        self.name = launch.name
        self._keep = keep
        self.problem = ""
        self._launch = launch
        self._selector = selector
        self._clock = clock
        self._process: Pipes | None = None
        self._state: NodeState = "waiting"
        self._again_s = float("-inf")
        self._failures = 0
        self._refusals = 0
        self._heard_s: float | None = None
        self.greetings = 0
        self._hello: Hello | None = None
        self._received_bytes = 0
        self._summaries = SummaryReader()
        self._has_summary = False
        self._offset: _ClockOffset | None = None
        self._reset()

    def _reset(self) -> None:
        self._started_s = self._pinged_s = self._clock()
        self._frames = FrameReader(NODE_LIMIT_BYTES)
        self._told = bytearray()
        self._unsent = bytearray()
        self._answers: list[Answer] = []
        self._parts: list[Part | Refusal] = []

    # --- state -----------------------------------------------------------------------------------

    @property
    def start_s(self) -> float:
        """How long its first message may take from the start of its launcher."""
        return self._launch.start_s

    @property
    def is_starting(self) -> bool:
        """Whether its launcher runs and its agent has said nothing."""
        return self._state == "starting"

    @property
    def is_holding_up(self) -> bool:
        """Whether it counts among those that are started at the same time."""
        return self.is_starting and self._clock() - self._started_s < HELD_UP_S

    @property
    def was_started(self) -> bool:
        """Whether it has been started before."""
        return self._state != "waiting"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of it."""
        return self._state in ("ended", "failed")

    @property
    def is_settled(self) -> bool:
        """Whether it has read its jobs for the first time, or will not."""
        if self._state == "live" and self._has_summary:
            return self._summaries.summary().node.state != "starting"
        return self.is_over

    def is_due(self, restarts: bool) -> bool:
        """Whether its launcher is to be started now."""
        if self._state == "waiting":
            return self._clock() >= self._again_s
        return restarts and self.is_over and self._clock() >= self._again_s

    @property
    def version(self) -> str:
        """The version of its agent."""
        return self._hello.mpwatch if self._hello else ""

    @property
    def view_version(self) -> int:
        """Which version of opened jobs its agent has; 0 if none."""
        return self._hello.view if self._hello else 0

    def view(self) -> NodeView:
        """The node as it is known now."""
        last_seen_s = None if self._heard_s is None else self._clock() - self._heard_s
        state, problem = with_silence(self._state, self.problem, last_seen_s)
        offset = self._offset
        return NodeView(
            name=self.name,
            state=state,
            last_seen_s=last_seen_s,
            problem=problem,
            host=self._hello.host if self._hello else "",
            version=self.version,
            summary=self._summaries.summary() if self._has_summary else None,
            clock_offset_s=offset.offset_s if offset else None,
            clock_error_s=offset.error_at_s(self._clock()) if offset else None,
            received_bytes=self._received_bytes,
            check=self._launch.check,
        )

    def full_summary(self) -> Summary | None:
        """Its state as one message, once it has sent one."""
        return self._summaries.full() if self._has_summary else None

    # --- start and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the launcher."""
        self.kill()
        self._reset()
        self._state, self.problem = "starting", ""
        try:
            self._process = self._launch.start()
        except OSError as error:
            self._fail(f"{self._launch.command[0]} cannot be started: {error.strerror}.")
            return
        except CannotLaunch as error:
            self._fail(str(error), "ended" if self._heard_s is not None else "failed")
            return
        for stream in (self._process.stdout, self._process.stderr, self._process.stdin):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        for stream in (self._process.stdout, self._process.stderr):
            self._selector.register(stream, selectors.EVENT_READ, (self, stream))  # type: ignore[arg-type]

    def hang_up(self) -> None:
        """Close the agent's input, at which it ends."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the launcher; its exit status stays available."""
        end_s = time.monotonic() + seconds
        while self._process is not None and not self._process.has_ended():
            if time.monotonic() >= end_s:
                return
            time.sleep(_POLL_S)

    def kill(self) -> int | None:
        """Kill the launcher; its exit code, `None` if there was none.

        A launcher without an agent is killed with all that it has started. One with an agent is
        killed alone: the agent ends with its input, and py-spy, which the agent may have started,
        must not be killed while it has stopped a process.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.has_ended():
                pass
            elif self.is_starting:
                process.kill_all()
            else:
                process.kill()
        code = process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(stream)
                with contextlib.suppress(OSError):
                    stream.close()
        return code

    def look_after(self) -> None:
        """Send what is due, and give up on a node that does not start."""
        if self._process is None:
            return
        now_s = self._clock()
        if self.is_starting and now_s - self._started_s > self.start_s:
            self.kill()
            told = self._told_words()
            self._fail(f"It did not answer within {self.start_s:.0f} s{told and f': {told}'}.")
        elif self._state == "live" and now_s - self._pinged_s >= PING_S:
            self._pinged_s = now_s
            self.send(Ping(now_s))
        self._flush()

    def _fail(self, problem: str, state: NodeState = "failed") -> None:
        self._state, self.problem = state, problem
        self._again_s = self._clock() + min(RESTART_MOST_S, RESTART_S * 2**self._failures)
        self._failures += 1

    # --- what is sent and received ---------------------------------------------------------------

    def send(self, message: FromHead) -> bool:
        """Send a message when the node accepts it; whether that may happen."""
        if self._state != "live" or len(self._unsent) > UNSENT_BYTES_LIMIT:
            return False
        self._unsent += head_frame(message)
        self._flush()
        return True

    def _flush(self) -> None:
        stream = self._process.stdin if self._process is not None else None
        if not self._unsent or stream is None:
            return
        try:
            del self._unsent[: os.write(stream.fileno(), self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()

    def receive(self, stream: object) -> None:
        """Read what has arrived on one stream of the launcher."""
        process = self._process
        if process is None or process.stdout is None or process.stderr is None:
            return
        is_output = stream is process.stdout
        descriptor = (process.stdout if is_output else process.stderr).fileno()
        try:
            data = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(process.stdout if is_output else process.stderr)
            if is_output:
                self._output_ended()
        elif is_output:
            self._received_bytes += len(data)
            self._serve(self._frames.feed(data))
        else:
            self._told = (self._told + data)[-_TOLD_BYTES:]

    def take_answers(self) -> list[Answer]:
        """The answers received since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def take_parts(self) -> list[Part | Refusal]:
        """What was received about opened jobs since the last call."""
        parts, self._parts = self._parts, []
        return parts

    def _serve(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if self._process is None:
                return
            if frame.protocol != PROTOCOL:
                self._refuse(frame.body, frame.protocol)
                return
            try:
                self._serve_one(frame.body)
            except (NotAMessage, MalformedSummary) as error:
                self.kill()
                self._fail(f"It sent a message that is not understood: {clean(str(error))}.")

    def _serve_one(self, body: bytes) -> None:
        message = message_of_node(body)
        self._heard_s = self._clock()
        if isinstance(message, Hello):
            self._hello, self._state, self._failures = message, "live", 0
            self.greetings += 1
            self._pinged_s = self._heard_s
            self._offset = None  # the machine may have been started again
            self.send(Ping(self._heard_s))
            self._kept(message)
        elif isinstance(message, Pong):
            self._set_clock(message)
        elif isinstance(message, Answer):
            self._answers = [*self._answers, message][-8:]
        elif isinstance(message, Part | Refusal):
            self._parts.append(message)
        elif self._summaries.apply(message):
            self._has_summary = True
            self._kept(message)
        else:
            self.send(Resend())

    def _kept(self, message: FromNode) -> None:
        if self._keep is not None:
            self._keep(self.name, message)

    def _set_clock(self, pong: Pong) -> None:
        """Estimate the clock of the node from one round trip, and keep the better estimate."""
        now_s = self._clock()
        error_s = (now_s - pong.sent_s) / 2
        if error_s >= 0:
            found = _ClockOffset(pong.wall_s - (time.time() - error_s), error_s, now_s)
            if self._offset is None or not self._offset.is_better(found):
                self._offset = found

    def _refuse(self, body: bytes, protocol: int) -> None:
        """Give up on an agent of another protocol; its greeting says which version it is."""
        self.kill()
        try:
            hello = message_of_node(body)
            version = hello.mpwatch if isinstance(hello, Hello) else "of another version"
        except NotAMessage:
            version = "of another version"
        self._fail(
            f"Its mpwatch {version} speaks protocol {protocol}, and mpwatch {__version__} here "
            f"speaks protocol {PROTOCOL}: use the same version on both."
        )

    def _output_ended(self) -> None:
        """The agent, or the way to it, has ended."""
        process = self._process
        if process is not None:
            self.wait(EXIT_S)
            if process.stderr is not None:
                with contextlib.suppress(OSError):
                    self._told += os.read(process.stderr.fileno(), _TOLD_BYTES) or b""
        was_live = self._state == "live"
        code = self.kill()
        told_text = self._told.decode("utf-8", "replace")
        if self._heard_s is None and self._is_refused(told_text):
            return
        explain = self._launch.explain
        why = explain(told_text) if explain is not None else ""
        if why:
            self._fail(why, "failed" if self._heard_s is None else "ended")
            return
        program = os.path.basename(self._launch.command[0])
        told = self._told_words()
        if code is None:
            sentence = f"{told or f'{program} has ended the way to the agent'}."
        else:
            how = f"signal {-code}" if code < 0 else f"status {code}"
            sentence = f"{program} ended with {how}{told and f': {told}'}."
        self._fail(sentence.replace("..", "."), "ended" if was_live else "failed")

    def _is_refused(self, told: str) -> bool:
        """Whether the way was refused for the moment only; then it is waited for once more."""
        is_refused = self._launch.is_refused
        if is_refused is None or self._refusals >= REFUSALS_LIMIT or not is_refused(told):
            return False
        self._state = "waiting"
        self._again_s = self._clock() + REFUSED_S * 2**self._refusals
        self._refusals += 1
        return True

    def _told_words(self) -> str:
        """The last line of the launcher's standard error, or of its output if that was no frame."""
        for raw in (bytes(self._told).decode("utf-8", "replace"), self._frames.text):
            lines = [line for line in raw.splitlines() if line.strip()]
            if lines:
                return clean(lines[-1].strip())
        return ""


def _raise_descriptor_limit() -> None:
    """Three descriptors a node: a thousand nodes need more than the usual 1,024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
