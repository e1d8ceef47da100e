"""One node as the head knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mpwatch.nodes.wire.summary import NodeSummary

SILENT_S = 10.0
"""A node that has sent nothing for so long is silent; it sends something each second, but where ten
processes ran for each cpu there were once more than five seconds between two."""

NodeState: TypeAlias = Literal["waiting", "starting", "live", "silent", "ended", "failed"]
"""`waiting` to be started; `failed`: no agent could be reached, or it is not understood; `ended`:
the agent or the way to it has ended."""


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


def with_silence(
    state: NodeState, problem: str, last_seen_s: float | None
) -> tuple[NodeState, str]:
    """State and problem of a node, of a live one by the time since it was last heard of."""
    if state == "live" and last_seen_s is not None and last_seen_s > SILENT_S:
        return "silent", f"Nothing was received for {last_seen_s:.0f} s."
    return state, problem
