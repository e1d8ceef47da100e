"""A Ray job that makes no progress: its driver waits, and so does every call that is running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.model.findings import Severity
from mpwatch.model.units import seconds_text
from mpwatch.nodes.across.finding import JobFinding
from mpwatch.nodes.across.ranks import NodeRanks, PlacedRank
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.summary import IN_RAY_GET, IN_RAY_TASK, IN_RAY_WAITING

RULE = "ray-call-stuck"
STUCK_S = 30.0
"""A job in which nothing has moved for so long makes no progress."""
NAMED = 3


def stuck_calls(
    views: Sequence[NodeView], nodes: Sequence[tuple[NodeView, NodeRanks]]
) -> Iterator[JobFinding]:
    """At most one finding: calls of tasks and actors that do not return while drivers wait.

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
    if any(_may_work(each) for each in rows) or any(each.quiet_s < STUCK_S for each in drivers):
        return
    calls.sort(key=lambda each: -each.quiet_s)
    first, driver = calls[0], drivers[0]
    more = len(calls) - 1
    others = f" and {more} other call{'s' if more > 1 else ''}" if more else ""
    at = f": {first.row.line}" if first.row.line else ""
    yield JobFinding(
        rule=RULE,
        severity=Severity.WARNING,
        summary=(
            f"{driver.called} waits in ray.get, and all that runs in the cluster is "
            f"{first.called}{others}, which has not moved for {seconds_text(first.quiet_s)}{at}"
        ),
        evidence=tuple(
            f"{each.called}: {each.row.line or each.row.doing}, no progress for "
            f"{seconds_text(each.quiet_s)}"
            for each in (*calls[:NAMED], *drivers[:NAMED])
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
        return each.quiet_s < STUCK_S
    return row.place not in (IN_RAY_GET, IN_RAY_WAITING)
