"""Ranks of NCCL on two nodes: what each node has seen, sent as it would be, and judged together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.flight_recorder import STUCK
from mpwatch.model.collectives import NcclStatus
from mpwatch.model.findings import JobFinding
from mpwatch.model.snapshot import Thread
from mpwatch.nodes.across.judge import job_findings
from mpwatch.nodes.agent.rows import Rows
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.messages import (
    NODE_LIMIT_BYTES,
    FrameReader,
    Summary,
    message_of_node,
    node_frame,
)
from mpwatch.nodes.wire.summary import SummaryReader, SummaryWriter
from tests.builders.snapshots import NOW_S
from tests.unit.diagnose.test_waits_for_gpu import (
    BEHIND,
    COMPUTE,
    SYNCHRONIZE,
    asleep,
    polls,
    rank,
    readings,
    status,
)

ENVIRONMENT = {"WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def view(name: str, number: int, it: Thread, nccl: NcclStatus | None) -> NodeView:
    """A node with one rank, as the head knows it after a summary."""
    made = rank(number, it)
    process = replace(made, sample=replace(made.sample, environment=ENVIRONMENT))
    reader = SummaryReader()
    sections = Rows().sections([readings(process, status=nccl)])
    frame = node_frame(SummaryWriter().next(NOW_S, sections))
    (received,) = FrameReader(NODE_LIMIT_BYTES).feed(frame)
    message = message_of_node(received.body)
    assert isinstance(message, Summary)
    reader.apply(message)
    return NodeView(name, "live", 0.5, summary=reader.summary())


def found(late: Thread, nccl: NcclStatus | None) -> list[JobFinding]:
    waits = view("node-1", 0, polls(*SYNCHRONIZE), nccl)
    return [
        each for each in job_findings([waits, view("node-2", 1, late, nccl)]) if each.rule == STUCK
    ]


def test_the_rank_that_has_not_launched_the_collective_of_another_node_is_named() -> None:
    (finding,) = found(asleep(1), status(*BEHIND))

    assert (finding.node, finding.rank) == ("node-2", 1)
    assert finding.summary.startswith("rank 0 on node-1 waits in AllReduce 21 of NCCL for rank 1")
    assert "prepare" in finding.summary


@pytest.mark.parametrize("late", [polls(*COMPUTE, number=301), polls(*SYNCHRONIZE, number=301)])
def test_a_long_step_is_no_standstill_where_nccl_says_nothing(late: Thread) -> None:
    assert found(late, None) == []
