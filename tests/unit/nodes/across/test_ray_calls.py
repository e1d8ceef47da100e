"""A Ray cluster in which nothing moves, and others that only look like it; rows are made up."""

from __future__ import annotations

import msgspec
import pytest

from mpwatch.model.findings import JobFinding
from mpwatch.nodes.across.judge import RAY_STUCK, job_findings
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.summary import (
    IN_RAY_GET,
    IN_RAY_TASK,
    IN_RAY_WAITING,
    NodeRow,
    NodeSummary,
    RankRow,
)

NOW_S = 500.0


def row(label: str, pid: int, place: str | None, quiet_s: float, *, worker: bool = True) -> RankRow:
    return RankRow(
        pid=pid,
        label=label,
        place=place,
        line="train.py:22 wait_for_the_simulator",
        quiet_at_s=NOW_S - quiet_s,
        cpu_percent=0,
        is_ray_worker=worker,
    )


DRIVER = row("main", 10, IN_RAY_GET, 40.0, worker=False)
STUCK = row("Trainer.step", 11, IN_RAY_TASK, 38.0)
IDLE = row("Trainer", 12, IN_RAY_WAITING, 3.0)


def judged(*rows: RankRow, state: str = "live") -> list[JobFinding]:
    head, node = (
        NodeView(
            name, "live", 0.1, summary=NodeSummary(NOW_S, NodeRow(state="watching"), tuple(each))
        )
        for name, each in (("head", rows[:1]), ("node7", rows[1:]))
    )
    if state != "live":
        node = NodeView("node7", "silent", 20.0, summary=node.summary)
    return [each for each in job_findings([head, node]) if each.rule == RAY_STUCK]


def test_the_only_call_that_does_not_return_is_named() -> None:
    (finding,) = judged(DRIVER, STUCK, IDLE)

    assert (finding.node, finding.pid) == ("node7", 11)
    assert "main (10) on head waits in ray.get" in finding.summary
    assert "Trainer.step (11) on node7" in finding.summary
    assert "train.py:22" in finding.summary
    assert "only candidate" in finding.cause


def test_several_calls_are_reported_as_several() -> None:
    (finding,) = judged(DRIVER, STUCK, row("Trainer.step", 13, IN_RAY_TASK, 60.0))

    assert "(13) on node7 and 1 other call" in finding.summary
    assert "only candidate" not in finding.cause


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((DRIVER, IDLE), id="no call"),
        pytest.param((STUCK, IDLE), id="no driver waits"),
        pytest.param((DRIVER, STUCK, row("load", 14, IN_RAY_TASK, 2.0)), id="another call moves"),
        pytest.param((DRIVER, STUCK, row("load", 14, None, 60.0)), id="one is unknown"),
        pytest.param((msgspec.structs.replace(DRIVER, quiet_at_s=NOW_S - 9), STUCK), id="recent"),
        pytest.param(
            (DRIVER, STUCK, msgspec.structs.replace(IDLE, cpu_percent=90)), id="a thread computes"
        ),
    ],
)
def test_nothing_is_said_while_the_job_may_work(rows: tuple[RankRow, ...]) -> None:
    assert judged(*rows) == []


def test_nothing_is_said_while_a_node_is_silent() -> None:
    assert judged(DRIVER, STUCK, state="silent") == []
