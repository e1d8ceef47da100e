"""One node: the state of the way to its agent, and what the agent has sent."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from mpwatch import __version__
from mpwatch.model.sanitize import clean
from mpwatch.nodes.head.link import Link, last_line
from mpwatch.nodes.head.view import NodeState, NodeView, with_silence
from mpwatch.nodes.launchers.launch import CannotLaunch, Launch
from mpwatch.nodes.wire.framing import NODE_LIMIT_BYTES, PROTOCOL, Frame, FrameReader
from mpwatch.nodes.wire.messages import (
    Answer,
    FromHead,
    FromNode,
    Hello,
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
from mpwatch.nodes.wire.summary import MalformedSummary, SummaryReader

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
HELD_UP_S = 5.0
"""A node that has not answered after so long is waited for beside the others: hosts that hang keep
no other host from being started."""

Keep: TypeAlias = Callable[[str, FromNode], None]
"""Is called with the name of a node and a message that it has sent."""


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
        self._launch = launch
        self._clock = clock
        self._keep = keep
        self._link = Link(launch, selector, self)
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
            self._link.start()
        except OSError as error:
            self._fail(f"{self._launch.command[0]} cannot be started: {error.strerror}.")
        except CannotLaunch as error:
            self._fail(str(error), "ended" if self._heard_s is not None else "failed")

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
        if self.is_starting and now_s - self._started_s > self.start_s:
            self.kill()
            told = last_line(self._link.told_text, self._frames.text)
            self._fail(f"It did not answer within {self.start_s:.0f} s{told and f': {told}'}.")
        elif self._state == "live" and now_s - self._pinged_s >= PING_S:
            self._pinged_s = now_s
            self.send(Ping(now_s))
        self._link.flush()

    def _fail(self, problem: str, state: NodeState = "failed") -> None:
        self._state, self.problem = state, problem
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
            self._output_ended()

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
        """The agent, or the way to it, has ended."""
        self._link.read_last_words()
        was_live = self._state == "live"
        code = self.kill()
        told_text = self._link.told_text
        if self._heard_s is None and self._is_refused(told_text):
            return
        explain = self._launch.explain
        why = explain(told_text) if explain is not None else ""
        if why:
            self._fail(why, "failed" if self._heard_s is None else "ended")
            return
        program = os.path.basename(self._launch.command[0])
        told = last_line(told_text, self._frames.text)
        if code is None:
            sentence = f"{told or f'{program} has ended the way to the agent'}."
        else:
            how = f"signal {-code}" if code < 0 else f"status {code}"
            sentence = f"{program} ended with {how}{told and f': {told}'}."
        self._fail(sentence, "ended" if was_live else "failed")

    def _is_refused(self, told: str) -> bool:
        """Whether the way was refused for the moment only; then it is waited for once more."""
        is_refused = self._launch.is_refused
        if is_refused is None or self._refusals >= REFUSALS_LIMIT or not is_refused(told):
            return False
        self._state = "waiting"
        self._again_s = self._clock() + REFUSED_S * 2**self._refusals
        self._refusals += 1
        return True
