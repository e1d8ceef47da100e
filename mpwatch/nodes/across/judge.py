"""All findings of a job as a whole, at one moment or over time."""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.diagnose.analysis.distributed.collectives import MISMATCH, STUCK
from mpwatch.nodes.across import ray_calls
from mpwatch.nodes.across.collectives import Pace, of_collectives
from mpwatch.nodes.across.finding import JobFinding
from mpwatch.nodes.across.nodes import differences, not_answering
from mpwatch.nodes.across.ranks import NodeRanks, RankCache, jobs_of
from mpwatch.nodes.head.node import NodeView

STANDSTILLS = frozenset((STUCK, MISMATCH, ray_calls.RULE))
"""Rules that say why a job makes no progress."""


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
    found = list(not_answering(views))
    for ranks in jobs_of(nodes):
        found += of_collectives(ranks, views)
        found += differences(ranks)
    found += ray_calls.stuck_calls(views, nodes)
    return found


def _by_urgency(found: Sequence[JobFinding]) -> list[JobFinding]:
    return sorted(found, key=lambda each: -each.severity)
