"""Nodes that do not answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from mpwatch.model.findings import Severity
from mpwatch.model.units import seconds_text
from mpwatch.nodes.across.finding import EVIDENCE_SHOWN, JobFinding, names_text
from mpwatch.nodes.head.view import NodeView

RULE = "node-not-answering"
_OUT_OF_DATE = (
    "Check whether the machine answers, for instance by ssh. The values shown for it are those "
    "received last."
)
_WORDS: Mapping[str, tuple[str, str]] = {
    "silent": (
        "The machine, its network or the agent is stopped or overloaded; its processes may still "
        "run.",
        _OUT_OF_DATE,
    ),
    "ended": (
        "The agent was killed, or the way to it has ended: the connection, the allocation or the "
        "machine.",
        _OUT_OF_DATE,
    ),
    "failed": (
        "No agent could be started there, so nothing is known of its processes.",
        "mpwatch has to be installed there, or be one file that the node can read: --agent "
        "'python3 /shared/mpwatch.pyz'.",
    ),
}
"""Cause and fix by state."""


def not_answering(views: Sequence[NodeView]) -> Iterator[JobFinding]:
    """One finding for each reason; a thousand hosts may all refuse for the same one."""
    groups: defaultdict[tuple[str, str], list[NodeView]] = defaultdict(list)
    for view in views:
        if view.state in _WORDS:
            reason = "" if view.state == "silent" else view.problem.replace(view.name, "HOST")
            groups[view.state, reason].append(view)
    for (state, _), nodes in groups.items():
        names = names_text(view.name for view in nodes)
        times = [view.last_seen_s for view in nodes if view.last_seen_s is not None]
        since = f" for {seconds_text(max(times))}" if times else ""
        words = {
            "silent": f"{names} {'has' if len(nodes) == 1 else 'have'} sent nothing{since}",
            "ended": f"the agent on {names} has ended",
            "failed": f"{names} cannot be read",
        }[state]
        cause, fix = _WORDS[state]
        yield JobFinding(
            rule=RULE,
            severity=Severity.WARNING,
            summary=words,
            evidence=tuple(
                f"{view.name}: {view.problem or 'no reason known'}"
                for view in nodes[:EVIDENCE_SHOWN]
            ),
            cause=cause,
            advice=fix,
            node=nodes[0].name,
        )
