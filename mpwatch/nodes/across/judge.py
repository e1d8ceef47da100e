"""All findings of a job as a whole, at one moment or over time; those about its nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from mpwatch.diagnose.analysis.distributed.flight_recorder import MISMATCH, STUCK
from mpwatch.model.findings import Severity
from mpwatch.model.units import seconds_text
from mpwatch.nodes.across import ray_calls
from mpwatch.nodes.across.collectives import Pace, of_collectives
from mpwatch.nodes.across.finding import EVIDENCE_SHOWN, JobFinding, names_text
from mpwatch.nodes.across.ranks import JobRanks, NodeRanks, RankCache, jobs_of
from mpwatch.nodes.head.node import NodeView

STANDSTILLS = frozenset((STUCK, MISMATCH, ray_calls.RULE))
"""Rules that say why a job makes no progress."""
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


def job_findings(views: Sequence[NodeView]) -> list[JobFinding]:
    """All findings that show at one moment, most urgent first.

    Args:
        views: All nodes of the job.
    """
    return _by_urgency(_at_one_moment(views, RankCache().nodes(views)))


class JobJudge:
    """The findings of a job that is watched: also those that show only over time."""

    def __init__(self) -> None:
        self._cache = RankCache()
        self._pace = Pace()

    def see(self, views: Sequence[NodeView]) -> None:
        """Count the stacks that have arrived; to be called about once a second."""
        self._pace.see(self._cache.nodes(views))

    def findings(self, views: Sequence[NodeView]) -> list[JobFinding]:
        """All findings as they are now, most urgent first."""
        nodes = self._cache.nodes(views)
        found = _at_one_moment(views, nodes)
        for ranks in jobs_of(nodes):
            found += self._pace.slowest(ranks)
        return _by_urgency(found)


def _at_one_moment(
    views: Sequence[NodeView], nodes: Sequence[tuple[NodeView, NodeRanks]]
) -> list[JobFinding]:
    found = list(_not_answering(views))
    for ranks in jobs_of(nodes):
        found += of_collectives(ranks, views)
        found += _differences(ranks)
    found += ray_calls.stuck_calls(views, nodes)
    return found


def _by_urgency(found: Sequence[JobFinding]) -> list[JobFinding]:
    return sorted(found, key=lambda each: -each.severity)


def _not_answering(views: Sequence[NodeView]) -> Iterator[JobFinding]:
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


def _differences(ranks: JobRanks) -> Iterator[JobFinding]:
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
        evidence=tuple(_difference_words(fact, differing[fact]) for fact in shown[:EVIDENCE_SHOWN]),
        cause=(
            "The nodes were set up or started differently. That may be harmless; other versions of "
            "torch, limits or variables of a library on some nodes are a usual cause of failures "
            "that show on these nodes only."
        ),
        advice="Set them to the same value on all nodes where that is not meant to be so.",
        node=_minority(differing[shown[0]]),
    )


def _difference_words(fact: str, by_node: Mapping[str, str]) -> str:
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
