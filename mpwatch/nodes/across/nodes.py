"""Findings about the nodes of a job: some do not answer, some are set up differently."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from mpwatch.model.findings import Severity
from mpwatch.model.units import seconds_text
from mpwatch.nodes.across.finding import EVIDENCE_SHOWN, JobFinding, names_text
from mpwatch.nodes.across.ranks import JobRanks
from mpwatch.nodes.head.node import NodeView

NOT_ANSWERING = "node-not-answering"
_OUT_OF_DATE = (
    "Check whether the machine answers, for instance by ssh. The values shown for it are those "
    "received last."
)
_CAUSE_AND_FIX: Mapping[str, tuple[str, str]] = {
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
NODES_DIFFER = "nodes-differ"
_IMPORTANT = frozenset(("torch", "python", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
"""Differences that break jobs, rather than slow them down or break them later."""


def not_answering(views: Sequence[NodeView]) -> Iterator[JobFinding]:
    """One finding for each reason; a thousand hosts may all refuse for the same one."""
    groups: defaultdict[tuple[str, str], list[NodeView]] = defaultdict(list)
    for view in views:
        if view.state in _CAUSE_AND_FIX:
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
        cause, fix = _CAUSE_AND_FIX[state]
        yield JobFinding(
            rule=NOT_ANSWERING,
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


def differences(ranks: JobRanks) -> Iterator[JobFinding]:
    """What is not the same on all nodes of one job; only of ranks known to be of one job."""
    if not ranks.job:
        return
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for view, each in ranks.parts:
        if not each.alive or view.summary is None:
            continue
        for fact, value in view.summary.node.facts.items():
            values[fact][view.name] = value
    differing = {
        fact: by_node for fact, by_node in values.items() if len(set(by_node.values())) > 1
    }
    if not differing:
        return
    is_important = not _IMPORTANT.isdisjoint(differing)
    shown = sorted(differing, key=lambda fact: (fact not in _IMPORTANT, fact))
    yield JobFinding(
        rule=NODES_DIFFER,
        severity=Severity.WARNING if is_important else Severity.INFO,
        summary=f"nodes of one job differ in {names_text(shown)}",
        evidence=tuple(_words(fact, differing[fact]) for fact in shown[:EVIDENCE_SHOWN]),
        cause=(
            "The nodes were set up or started differently. That may be harmless; other versions of "
            "torch, limits or variables of a library on some nodes are a usual cause of failures "
            "that show on these nodes only."
        ),
        advice="Set them to the same value on all nodes where that is not meant to be so.",
        node=_minority(differing[shown[0]]),
    )


def _words(fact: str, by_node: Mapping[str, str]) -> str:
    """`torch: 2.9.1 on node-1, node-2; 2.6.0 on node-3`."""
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for node, value in by_node.items():
        nodes[value].append(node)
    parts = sorted(nodes.items(), key=lambda item: -len(item[1]))
    return f"{fact}: " + "; ".join(f"{value} on {names_text(names)}" for value, names in parts[:4])


def _minority(by_node: Mapping[str, str]) -> str:
    """A node with the rarest value."""
    counts = Counter(by_node.values())
    return min(by_node, key=lambda node: counts[by_node[node]])
