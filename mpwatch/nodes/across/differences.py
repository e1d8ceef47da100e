"""Nodes of one job that are set up differently."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from mpwatch.model.findings import Severity
from mpwatch.nodes.across.finding import EVIDENCE_SHOWN, JobFinding, names_text
from mpwatch.nodes.across.ranks import JobRanks

RULE = "nodes-differ"
_IMPORTANT = frozenset(("torch", "python", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
"""Differences that break jobs, rather than slow them down or break them later."""


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
        rule=RULE,
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
