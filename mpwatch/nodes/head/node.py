"""One node as the head knows it: its launcher, and what its agent has sent."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mpwatch import __version__
from mpwatch.model.sanitize import clean
from mpwatch.nodes.launchers.launch import (
    CannotLaunch,
    Launch,
    LaunchCause,
    Pipes,
    not_started,
)
from mpwatch.nodes.wire.messages import (
    CHUNK_BYTES,
    NODE_LIMIT_BYTES,
    PROTOCOL,
    Answer,
    FrameReader,
    FromHead,
    FromNode,
    Hello,
    NotAMessage,
    Ping,
    Pong,
    ReceivedFrame,
    Refusal,
    Resend,
    SnapshotPart,
    Summary,
    head_frame,
    message_of_node,
)
from mpwatch.nodes.wire.summary import MalformedSummary, NodeSummary, SummaryReader

SILENT_S = 10.0
"""A node that has sent nothing for so long is silent; it sends something each second, but where ten
processes ran for each cpu there were once more than five seconds between two."""
CLOCKS_APART = 1e-3
"""Seconds by which two clocks may move apart in a second: Linux lets a time server change the rate
of a clock by 500 parts in a million (MAXFREQ in include/linux/timex.h, Linux 6.12)."""
PING_S = 5.0
RESTART_S = 10.0
"""Shortest time until a node that has failed is tried again; each time twice as long."""
RESTART_MOST_S = 120.0
REFUSALS_LIMIT = 5
REFUSED_S = 1.0
"""Time until a node that was refused for the moment is tried again; each time twice as long."""
EXIT_S = 1.0
"""How long the exit status of a launcher whose output has ended is waited for; meanwhile the others
are read."""
UNSENT_BYTES_LIMIT = 1 << 16
_POLL_S = 0.01
_TOLD_BYTES = 4096

BRING_IT = "mpwatch job SPEC --agent 'python3 /shared/mpwatch.pyz'"
_NOT_INSTALLED = re.compile(
    r"\b(?:mpwatch|python[0-9.]*)\W{1,3}(?:command |executable file )?not found"
    r"|\b(?:mpwatch|python[0-9.]*)\W{1,3}(?:cannot execute: )?No such file"
    r"|not found: (?:mpwatch|\S*python[0-9.]*)\b"
    r"|No module named '?mpwatch\b"
)
"""What shells say of a command that is not there (dash and bash, busybox, and zsh), env, slurmstepd
and runtimes of containers; and what a Python says that has no mpwatch."""
_ONLY_STATUS = re.compile(r"\b(?:exited|terminated) with exit code [0-9]+\.?$", re.IGNORECASE)
"""How a line of srun (Slurm 22.05) or kubectl (1.32) ends that is printed after what the command on
the node has said."""

NodeState: TypeAlias = Literal["waiting", "starting", "live", "silent", "ended", "failed"]
"""`waiting` to be started; `failed`: no agent was ever reached, or it is not understood; `ended`:
the agent or the connection to it has ended, and no other one was reached since."""
Keep: TypeAlias = Callable[[str, FromNode], None]
"""Is called with the name of a node and a message that it has sent."""


class NodeView(Struct, frozen=True):
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
    cause: LaunchCause = ""
    """Why it was not started, as a value."""
    launch_fix: str = ""
    """A command that helps where it was not started; empty if none is known."""

    @property
    def reason(self) -> str:
        """Why it is not live, in words that are the same for all nodes with the same trouble."""
        return "" if self.state == "silent" else self.problem.replace(self.name, "HOST")

    @property
    def fix(self) -> str:
        """A command that helps where it cannot be read."""
        if self.launch_fix:
            return self.launch_fix
        is_brought = ".pyz" in self.check
        is_missing = _NOT_INSTALLED.search(self.problem) is not None
        return BRING_IT if is_missing and not is_brought else self.check

    @property
    def clock_problem(self) -> str:
        """Why the offset of its clock is unknown, in a few words; empty if it is known."""
        if self.clock_offset_s is not None:
            return ""
        if self.last_seen_s is None:
            return "its agent has not answered"
        if self.state in ("live", "silent"):
            return "no ping answered"
        return "its agent ended before it answered a ping"


def unfinished(view: NodeView) -> NodeView:
    """A node at the end of a watch: one that is not known by then has a problem that says so."""
    if view.problem:
        return view
    if view.state == "waiting":
        return replace(view, problem="Its agent was not started before the end of the watch.")
    if view.state == "starting":
        return replace(view, problem="Its agent had not answered at the end of the watch.")
    has_read = view.summary is not None and view.summary.node.state != "starting"
    if view.state == "live" and not has_read:
        return replace(view, problem="It had not read its processes at the end of the watch.")
    return view


def with_silence(
    state: NodeState, problem: str, last_seen_s: float | None
) -> tuple[NodeState, str]:
    """State and problem of a node, of a live one by the time since its last message."""
    if state == "live" and last_seen_s is not None and last_seen_s > SILENT_S:
        return "silent", f"Nothing was received for {last_seen_s:.0f} s."
    return state, problem


class NodeLauncher:
    """The launcher of one node, which may be started several times.

    Attributes:
        told: What the launcher has printed to standard error last.
    """

    def __init__(self, launch: Launch, selector: selectors.BaseSelector, owner: object) -> None:
        """Make it, with nothing started.

        Args:
            launch: The node.
            selector: Where the pipes are registered, with `(owner, stream)` as their data.
            owner: Reads the pipes.
        """
        self.told = bytearray()
        self._launch = launch
        self._selector = selector
        self._owner = owner
        self._process: Pipes | None = None
        self._unsent = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether the launcher was started and not killed since."""
        return self._process is not None

    def start(self) -> None:
        """Start the launcher.

        Raises:
            OSError: Its program cannot be started.
            CannotLaunch: The node is gone.
        """
        self.told, self._unsent = bytearray(), bytearray()
        self._process = process = self._launch.start()
        for stream in (process.stdout, process.stderr, process.stdin):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        for stream in (process.stdout, process.stderr):
            self._selector.register(stream, selectors.EVENT_READ, (self._owner, stream))  # type: ignore[arg-type]

    def hang_up(self) -> None:
        """Close the agent's input, at which it ends."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    @property
    def has_ended(self) -> bool:
        """Whether the launcher has ended, or none was started."""
        return self._process is None or self._process.has_ended()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the launcher; its exit status stays available."""
        end_s = time.monotonic() + seconds
        while not self.has_ended:
            if time.monotonic() >= end_s:
                return
            time.sleep(_POLL_S)

    def kill(self, *, has_agent: bool) -> int | None:
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
            elif has_agent:
                process.kill()
            else:
                process.kill_all()
        code = process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(stream)
                with contextlib.suppress(OSError):
                    stream.close()
        return code

    def send(self, frame: bytes) -> bool:
        """Send a frame as soon as the agent accepts it; whether that may happen."""
        if len(self._unsent) > UNSENT_BYTES_LIMIT:
            return False
        self._unsent += frame
        self.flush()
        return True

    def flush(self) -> None:
        """Send what the agent accepts now."""
        stream = self._process.stdin if self._process is not None else None
        if not self._unsent or stream is None:
            return
        try:
            del self._unsent[: os.write(stream.fileno(), self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()

    def read(self, stream: object) -> bytes | None:
        """What has arrived on a stream, if that is the output of the agent.

        Returns:
            Empty at the end of the output; `None` if nothing has arrived there.
        """
        process = self._process
        if process is None or process.stdout is None or process.stderr is None:
            return None
        is_output = stream is process.stdout
        source = process.stdout if is_output else process.stderr
        try:
            data = os.read(source.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(source)
        if is_output:
            return data
        self.told = (self.told + data)[-_TOLD_BYTES:]
        return None

    def read_last_words(self) -> None:
        """Read what the launcher has told before its end."""
        if self._process is not None and self._process.stderr is not None:
            with contextlib.suppress(OSError):
                self.told += os.read(self._process.stderr.fileno(), _TOLD_BYTES) or b""

    @property
    def told_text(self) -> str:
        """What the launcher has printed to standard error, not sanitized."""
        return self.told.decode("utf-8", "replace")


def last_line(*texts: str) -> str:
    """The last line of the first text that has one, sanitized, without a full stop.

    The command that mpwatch on the node suggests is left out: the sentence above it says why. So is
    what an engine adds about the exit code.
    """
    for text in texts:
        lines = [line for line in text.splitlines() if line.strip()]
        while len(lines) > 1 and (
            lines[-1].startswith("  try: ") or _ONLY_STATUS.search(lines[-1].rstrip())
        ):
            del lines[-1]
        if lines:
            return clean(lines[-1].strip()).rstrip(".")
    return ""


class ClockOffset(NamedTuple):
    """The offset as estimated from one round trip."""

    offset_s: float
    error_s: float
    """Half of the round trip."""
    at_s: float
    """When it was estimated, by the monotonic clock of the head."""

    def error_at_s(self, now_s: float) -> float:
        """How far the offset may be wrong by now: the clocks move apart meanwhile."""
        return self.error_s + CLOCKS_APART * max(0.0, now_s - self.at_s)

    def is_better(self, newer: ClockOffset) -> bool:
        """Whether this says more than a newer estimate, and agrees with it.

        Two estimates that exclude each other mean that one of the clocks was set.
        """
        error_s = self.error_at_s(newer.at_s)
        agrees = abs(self.offset_s - newer.offset_s) <= error_s + newer.error_s
        return agrees and error_s <= newer.error_s


class Node:
    """One node of a job."""

    def __init__(
        self,
        launch: Launch,
        selector: selectors.BaseSelector,
        clock: Callable[[], float],
        keep: Keep | None,
    ) -> None:
        self.name = launch.name
        self.problem = ""
        self._cause: LaunchCause = ""
        self._launch_fix = ""
        self._launch = launch
        self._clock = clock
        self._keep = keep
        self._link = NodeLauncher(launch, selector, self)
        self._state: NodeState = "waiting"
        self._again_s = float("-inf")
        self._failures = 0
        self._refusals = 0
        self._heard_s: float | None = None
        self.greetings = 0
        """How often an agent has said hello."""
        self._hello: Hello | None = None
        self._received_bytes = 0
        self._summaries = SummaryReader()
        self._has_summary = False
        self._offset: ClockOffset | None = None
        self._reset()

    def _reset(self) -> None:
        self._started_s = self._pinged_s = self._clock()
        self._frames = FrameReader(NODE_LIMIT_BYTES)
        self._answers: list[Answer] = []
        self._parts: list[SnapshotPart | Refusal] = []
        self._output_ended_s: float | None = None

    # --- state -----------------------------------------------------------------------------------

    @property
    def start_s(self) -> float:
        """How long its first message may take from the start of its launcher."""
        return self._launch.start_s

    @property
    def descriptors(self) -> int:
        """How many descriptors its pipes take."""
        return self._launch.descriptors

    @property
    def is_starting(self) -> bool:
        """Whether its launcher runs and its agent has said nothing."""
        return self._state == "starting"

    @property
    def starting_s(self) -> float | None:
        """How long ago its launcher was started, if its agent has said nothing since."""
        return self._clock() - self._started_s if self.is_starting else None

    @property
    def is_waiting(self) -> bool:
        """Whether it is still to be started."""
        return self._state == "waiting"

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
            cause=self._cause,
            launch_fix=self._launch_fix,
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
        self._cause, self._launch_fix = "", ""
        try:
            self._link.start()
        except OSError as error:
            self._lose(not_started(self._launch.command, error))
        except CannotLaunch as error:
            self._lose(str(error))
            self._cause, self._launch_fix = error.cause, error.fix

    def hang_up(self) -> None:
        """Close the agent's input, at which it ends."""
        self._link.hang_up()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the launcher."""
        self._link.wait(seconds)

    def kill(self) -> int | None:
        """Kill the launcher; its exit code, `None` if there was none."""
        return self._link.kill(has_agent=not self.is_starting)

    def look_after(self) -> None:
        """Send what is due, and give up on a node that does not start."""
        if not self._link.is_open:
            return
        now_s = self._clock()
        if self._output_ended_s is not None:
            if self._link.has_ended or now_s - self._output_ended_s >= EXIT_S:
                self._output_ended()
            return
        if self.is_starting and now_s - self._started_s > self.start_s:
            self.kill()
            told = last_line(self._link.told_text, self._frames.text)
            self._lose(f"It did not answer within {self.start_s:.0f} s{told and f': {told}'}.")
        elif self._state == "live" and now_s - self._pinged_s >= PING_S:
            self._pinged_s = now_s
            self.send(Ping(now_s))
        self._link.flush()

    def _lose(self, problem: str) -> None:
        """Note why no agent is reached; of a node that had one, that it has ended."""
        self._fail(problem, "failed" if self._heard_s is None else "ended")

    def _fail(self, problem: str, state: NodeState = "failed") -> None:
        is_closed = problem.endswith(("?.", "!."))  # what a launcher has said may be a question
        self._state, self.problem = state, problem[:-1] if is_closed else problem
        self._again_s = self._clock() + min(RESTART_MOST_S, RESTART_S * 2**self._failures)
        self._failures += 1

    # --- what is sent and received ---------------------------------------------------------------

    def send(self, message: FromHead) -> bool:
        """Send a message when the node accepts it; whether that may happen."""
        return self._state == "live" and self._link.send(head_frame(message))

    def receive(self, stream: object) -> None:
        """Read what has arrived on one stream of the launcher."""
        data = self._link.read(stream)
        if data:
            self._received_bytes += len(data)
            self._serve(self._frames.feed(data))
        elif data is not None:
            self._output_ended_s = self._clock()

    def take_answers(self) -> list[Answer]:
        """The answers received since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def take_parts(self) -> list[SnapshotPart | Refusal]:
        """What was received about opened jobs since the last call."""
        parts, self._parts = self._parts, []
        return parts

    def _serve(self, frames: Sequence[ReceivedFrame]) -> None:
        for frame in frames:
            if not self._link.is_open:
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
        elif isinstance(message, SnapshotPart | Refusal):
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
            found = ClockOffset(pong.wall_s - (time.time() - error_s), error_s, now_s)
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
        """The agent, or the connection to it, has ended."""
        self._link.read_last_words()
        code = self.kill()
        told_text = self._link.told_text
        if self._heard_s is None and self._is_refused(told_text):
            return
        explain = self._launch.explain
        why = explain(told_text) if explain is not None else ""
        if why:
            self._lose(why)
            return
        program = os.path.basename(self._launch.command[0])
        told = last_line(told_text, self._frames.text)
        if code is None:
            sentence = f"{told or f'{program} has ended the connection to the agent'}."
        else:
            how = f"signal {-code}" if code < 0 else f"status {code}"
            sentence = f"{program} ended with {how}{told and f': {told}'}."
        self._lose(sentence)

    def _is_refused(self, told: str) -> bool:
        """Whether the way was refused for the moment only; then it is waited for once more."""
        is_refused = self._launch.is_refused
        if is_refused is None or self._refusals >= REFUSALS_LIMIT or not is_refused(told):
            return False
        self._state = "waiting"
        self._again_s = self._clock() + REFUSED_S * 2**self._refusals
        self._refusals += 1
        return True
