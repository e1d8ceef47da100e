"""All findings of a job as a whole at one moment; those about nodes and Ray calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mpwatch.describe.processes import NAMES_SHOWN, names_text
from mpwatch.diagnose.analysis.distributed.flight_recorder import MISMATCH, STUCK
from mpwatch.model.findings import JobFinding, Severity
from mpwatch.model.units import numbers_text, seconds_text
from mpwatch.nodes.across.collectives import (
    may_have_slow_ranks,
    of_collectives,
    slowest,
    unread,
)
from mpwatch.nodes.across.ranks import (
    EVIDENCE_SHOWN,
    JobRanks,
    NodeRanks,
    PlacedRank,
    RankCache,
    RankSet,
    jobs_of,
)
from mpwatch.nodes.head.node import BRING_IT, SILENT_S, NodeView
from mpwatch.nodes.wire.summary import IN_RAY_GET, IN_RAY_TASK, IN_RAY_WAITING, MIXED, NOT_SET

RAY_STUCK = "ray-call-stuck"
RAY_STUCK_S = 30.0
"""A Ray job in which nothing has moved for so long makes no progress."""
CALLS_SHOWN = 3
STANDSTILLS = frozenset((STUCK, MISMATCH, RAY_STUCK))
"""Rules that say why a job makes no progress."""
NOT_ANSWERING = "node-not-answering"
_OUT_OF_DATE = (
    "Check whether the machine answers, for instance by ssh. The values shown for it are those "
    "received last."
)
_WITHOUT_THEM = "Run the command again without the hosts that do not answer."
_CAUSE_AND_FIX: Mapping[str, tuple[str, str]] = {
    "silent": (
        "The machine, its network or the agent is stopped or overloaded; its processes may still "
        "run.",
        _OUT_OF_DATE,
    ),
    "again": (
        "The agent, the connection to it or the machine has ended, and the connection is tried "
        "again.",
        _OUT_OF_DATE,
    ),
    "ended": (
        "The agent was killed, or the connection to it has ended: the network, the allocation or "
        "the machine.",
        _OUT_OF_DATE,
    ),
    "failed": (
        "No agent could be started there, so nothing is known of its processes.",
        "mpwatch has to be installed there, or be one file that the node can read: --agent "
        "'python3 /shared/mpwatch.pyz'.",
    ),
    "waiting": (
        "Agents are started in batches, and hosts before this one were slow to answer or hung.",
        _WITHOUT_THEM,
    ),
    "starting": (
        "The machine, the connection to it or the start of the agent hangs or is slow.",
        "Check whether the machine answers, for instance by ssh.",
    ),
    "live": (
        "The agent answers, but has not read all processes of its node: the machine is overloaded.",
        "Watch for longer: mpwatch diagnose --for 120.",
    ),
}
"""Cause and fix by state."""
_FOLLOWS = (
    "Ranks on other nodes of the job have failed as well: if the machine or its network is lost, "
    "their errors follow from that."
)
_NO_DESCRIPTORS = (
    "Each node takes some descriptors in this process, and its hard limit is reached.",
    "Raise the limit of this shell as root (prlimit --nofile, or LimitNOFILE and limits.conf for "
    "all), or name fewer nodes.",
)
_UNFINISHED = frozenset(("waiting", "starting", "live"))
"""States with which nothing is wrong before the end of a watch, where those nodes that are not
known have a problem (`mpwatch.nodes.head.node.unfinished`)."""
NODES_DIFFER = "nodes-differ"
LINGER_S = 5.0
"""Nodes take a new stack of a rank that works every few seconds."""
_IMPORTANT = frozenset(("torch", "python", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
"""Differences that break jobs, rather than slow them down or break them later."""


def job_findings(views: Sequence[NodeView]) -> list[JobFinding]:
    """All findings, most urgent first.

    Args:
        views: All nodes of the job.
    """
    return JobJudge().findings(views)


def may_be_slow(views: Sequence[NodeView]) -> bool:
    """Whether more steps of a job may show that few of its ranks are slow."""
    return any(may_have_slow_ranks(ranks) for ranks in jobs_of(RankCache().nodes(views)))


def may_know_more(views: Sequence[NodeView]) -> bool:
    """Whether torch's recorders of ranks that make no progress are still to be read."""
    return any(unread(ranks) for ranks in jobs_of(RankCache().nodes(views)))


_RAY = ("ray", "")


class _Standstill(NamedTuple):
    """Why a job made no progress, and when that was said."""

    at_s: float
    findings: Sequence[JobFinding]


class JobJudge:
    """The findings of a job that is watched: what has not changed is not read again."""

    def __init__(self) -> None:
        self._cache = RankCache()
        self._standstills: dict[tuple[str, str], _Standstill] = {}
        """By job."""

    def findings(self, views: Sequence[NodeView], now_s: float = float("inf")) -> list[JobFinding]:
        """All findings as they are now, most urgent first.

        Args:
            views: All nodes.
            now_s: Seconds. Why a job makes no progress is kept for `LINGER_S`, unless most of its
                ranks make some: for a moment the last stack of a rank may be too old.
        """
        nodes = self._cache.nodes(views)
        jobs = jobs_of(nodes)
        found = list(_not_answering(views, jobs))
        before, self._standstills = self._standstills, {}
        for ranks in jobs:
            job, of_job = (ranks.job, ranks.host), list(of_collectives(ranks, views))
            found += of_job
            found += _differences(ranks)
            found += slowest(ranks)
            if not self._note(job, of_job, now_s) and job in before and ranks.has_gone_on:
                del before[job]
        calls = list(_stuck_calls(views, nodes))
        found += calls
        self._note(_RAY, calls, now_s)
        for job, last in before.items():
            if job not in self._standstills and 0.0 <= now_s - last.at_s < LINGER_S:
                self._standstills[job] = last
                found += last.findings
        return sorted(found, key=lambda each: (-each.severity, not _names_a_rank(each)))

    def _note(self, job: tuple[str, str], findings: Sequence[JobFinding], now_s: float) -> bool:
        """Note why a job makes no progress; whether a finding says so."""
        found = [each for each in findings if each.rule in STANDSTILLS]
        if found:
            self._standstills[job] = _Standstill(now_s, found)
        return bool(found)


def _names_a_rank(finding: JobFinding) -> bool:
    """Whether it says why a job makes no progress, and where: that is more urgent than others."""
    return finding.rule in STANDSTILLS and finding.pid is not None


class _Lost(NamedTuple):
    """The ranks of a job that are on nodes which do not answer."""

    numbers: frozenset[int] = frozenset()
    failed: tuple[PlacedRank, ...] = ()
    """Those of the same job that have failed on nodes which answer."""

    @property
    def words(self) -> str:
        """To be added to a sentence about the nodes; empty without ranks."""
        if not self.numbers:
            return ""
        are = "s" if len(self.numbers) > 1 else "", "are" if len(self.numbers) > 1 else "is"
        there = f"; rank{are[0]} {numbers_text(self.numbers)} {are[1]} there"
        count = len(self.failed)
        ranks = f"{count} ranks on other nodes have" if count > 1 else "a rank on another node has"
        return f"{there}, and {ranks} failed" if count else there


class _LostRanks:
    """The ranks on nodes that do not answer.

    What is known of a job is computed once: each of a thousand nodes may be lost for a reason of
    its own.
    """

    def __init__(self, jobs: Sequence[JobRanks]) -> None:
        self._jobs = jobs
        self._parts: defaultdict[str, list[tuple[int, RankSet]]] = defaultdict(list)
        """By node: its ranks of each job, which is named by its place."""
        for place, job in enumerate(jobs):
            for view, ranks in job.parts:
                if ranks.alive:
                    self._parts[view.name].append((place, ranks))
        self._elsewhere: dict[int, tuple[frozenset[int | None], tuple[PlacedRank, ...]]] = {}

    def of(self, nodes: Sequence[NodeView]) -> _Lost:
        """Those on some nodes; none if these are of several jobs, or were started elsewhere."""
        parts = [part for view in nodes for part in self._parts.get(view.name, ())]
        places = {place for place, _ in parts}
        if len(places) != 1:
            return _Lost()
        alive, failed = self._on_live_nodes(*places)
        numbers = {row.rank for _, ranks in parts for row in ranks.alive} - alive
        lost = frozenset(number for number in numbers if number is not None)
        return _Lost(lost, failed) if lost else _Lost()

    def _on_live_nodes(self, place: int) -> tuple[frozenset[int | None], tuple[PlacedRank, ...]]:
        """The numbers of the living ranks of a job on nodes that answer, and its failed ranks."""
        if place not in self._elsewhere:
            live = self._jobs[place].live
            self._elsewhere[place] = (
                frozenset(row.rank for row in live.rows("alive")),
                tuple(each for each in live.gone if each.row.has_failed),
            )
        return self._elsewhere[place]


def _not_answering(views: Sequence[NodeView], jobs: Sequence[JobRanks]) -> Iterator[JobFinding]:
    """One finding for each reason; a thousand hosts may all refuse for the same one."""
    groups: defaultdict[tuple[str, str], list[NodeView]] = defaultdict(list)
    for view in views:
        if view.problem or view.state not in _UNFINISHED:
            groups[view.state, view.reason].append(view)
        elif view.state == "starting" and (view.last_seen_s or 0.0) > SILENT_S:
            groups["again", ""].append(view)
    lost_ranks = _LostRanks(jobs)
    for (state, _), nodes in groups.items():
        names = names_text(view.name for view in nodes)
        times = [view.last_seen_s for view in nodes if view.last_seen_s is not None]
        since = f"nothing was received for {seconds_text(max(times))}" if times else ""
        have = "has" if len(nodes) == 1 else "have"
        silent = f"{names} {have} sent nothing" + (
            f" for {seconds_text(max(times))}" if times else ""
        )
        words = {
            "silent": silent,
            "again": f"{silent}, and {'its agent is' if len(nodes) == 1 else 'their agents are'} "
            "being started again",
            "ended": f"the agent on {names} has ended{since and f': {since}'}",
            "failed": f"{names} cannot be read: {_reason(nodes)}",
            "waiting": f"no agent was started on {names}",
            "starting": f"the agent on {names} has not answered",
            "live": f"{names} {have} not read the processes there",
        }[state]
        lost = lost_ranks.of(nodes)
        cause, fix = _CAUSE_AND_FIX[state]
        if lost.failed:
            cause = f"{cause} {_FOLLOWS}"
        if nodes[0].cause == "no-descriptor":
            cause, fix = _NO_DESCRIPTORS
        elif state == "failed" and nodes[0].fix != BRING_IT:
            # A recording does not have the command.
            by_hand = f"Try by hand what starts mpwatch there: {nodes[0].fix}"
            fix = by_hand if nodes[0].fix else "Start mpwatch there by hand, as the agent was."
        evidence = [
            f"{view.name}: {view.problem or _last_received(view)}"
            for view in nodes[:EVIDENCE_SHOWN]
        ]
        failed = lost.failed[:NAMES_SHOWN]
        evidence += [f"{each.called} has ended: {each.row.ended}" for each in failed]
        yield JobFinding(
            rule=NOT_ANSWERING,
            severity=Severity.CRITICAL if lost.failed else Severity.WARNING,
            summary=f"{words}{lost.words}",
            evidence=tuple(evidence),
            cause=cause,
            advice=fix,
            node=nodes[0].name,
        )


def _reason(nodes: Sequence[NodeView]) -> str:
    """Why nodes cannot be read, to end a sentence with."""
    first = nodes[0]
    return (first.problem if len(nodes) == 1 else first.reason).rstrip(".") or "no reason known"


def _last_received(view: NodeView) -> str:
    """What is known of a node without a problem of its own."""
    if view.last_seen_s is None:
        return "no reason known"
    return f"{view.state}; nothing was received for {seconds_text(view.last_seen_s)}"


def _differences(ranks: JobRanks) -> Iterator[JobFinding]:
    """What is not the same on all ranks of one job; only of ranks known to be of one job."""
    if not ranks.job:
        return
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    variables: dict[str, Mapping[str, str]] = {}
    for view, each in ranks.parts:
        if not each.alive or view.summary is None:
            continue
        for fact, value in view.summary.node.facts.items():
            values[fact][view.name] = value
        if view.summary.node.environment is not None:
            variables[view.name] = view.summary.node.environment
    for name in {name for each in variables.values() for name in each}:
        values[name] = {node: each.get(name, NOT_SET) for node, each in variables.items()}
    differing = {fact: by_node for fact, by_node in values.items() if _is_different(by_node)}
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


def _is_different(by_node: Mapping[str, str]) -> bool:
    """Whether nodes differ, and the ranks of one node agree: else each is meant to have its own."""
    is_mixed_everywhere = all(value.startswith(MIXED) for value in by_node.values())
    return len(set(by_node.values())) > 1 and not is_mixed_everywhere


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


def _stuck_calls(
    views: Sequence[NodeView], nodes: Sequence[tuple[NodeView, NodeRanks]]
) -> Iterator[JobFinding]:
    """At most one finding: calls of Ray tasks and actors that do not return while drivers wait.

    Which call a driver waits for is not known from outside. So nothing is said while any process of
    the cluster works, or while it is unknown what one does.

    Args:
        views: All nodes.
        nodes: Those that have sent a summary, with their rows.
    """
    if not any(ranks.has_ray_driver for _, ranks in nodes):
        return
    rows = [PlacedRank(view, row) for view, ranks in nodes for row in ranks.living]
    drivers = [each for each in rows if each.row.place == IN_RAY_GET and not each.row.is_ray_worker]
    calls = [each for each in rows if each.row.place == IN_RAY_TASK]
    if not drivers or not calls or any(view.state != "live" for view in views):
        return
    if any(_may_work(each) for each in rows) or any(each.quiet_s < RAY_STUCK_S for each in drivers):
        return
    calls.sort(key=lambda each: -each.quiet_s)
    first, driver = calls[0], drivers[0]
    more = len(calls) - 1
    others = f" and {more} other call{'s' if more > 1 else ''}" if more else ""
    at = f": {first.row.line}" if first.row.line else ""
    yield JobFinding(
        rule=RAY_STUCK,
        severity=Severity.WARNING,
        summary=(
            f"{driver.called} waits in ray.get, and all that runs in the cluster is "
            f"{first.called}{others}, which has not moved for {seconds_text(first.quiet_s)}{at}"
        ),
        evidence=tuple(
            f"{each.called}: {each.row.line or each.row.doing}, no progress for "
            f"{seconds_text(each.quiet_s)}"
            for each in (*calls[:CALLS_SHOWN], *drivers[:CALLS_SHOWN])
        ),
        cause=(
            "The call does not return, and no other process of the cluster works. Which call the "
            "driver waits for is not known from outside, but this is the only candidate."
            if not more
            else "None of these calls returns, and no other process of the cluster works."
        ),
        advice=(
            "See what the line waits for. ray.get(..., timeout=SECONDS) makes an error of a wait "
            "that does not end."
        ),
        node=first.view.name,
        pid=first.row.pid,
    )


def _may_work(each: PlacedRank) -> bool:
    """Whether a process computes, or may do what is not known."""
    row = each.row
    if (row.cpu_percent or 0) > 0:
        return True
    if row.place == IN_RAY_TASK:
        return each.quiet_s < RAY_STUCK_S
    return row.place not in (IN_RAY_GET, IN_RAY_WAITING)
