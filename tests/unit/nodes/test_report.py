"""A job on several machines as text."""

from __future__ import annotations

from mpwatch.nodes.across.judge import job_findings
from mpwatch.nodes.head.view import NodeView
from mpwatch.nodes.report import job_text
from mpwatch.nodes.wire.summary import FindingRow, NodeRow, NodeSummary
from mpwatch.report.table import TextStyle
from tests.unit.nodes.across.test_across import NOW_S, elsewhere, node, row

STYLE = TextStyle(width=90, has_colour=False)


def test_findings_come_first_then_each_node_with_its_ranks() -> None:
    views = [
        node("node-1", row(0, world=2, doing="waits in all_reduce")),
        node(
            "node-2",
            elsewhere(1, world=2, quiet_s=212.0),
            findings=(FindingRow("shm-full-enospc", "warning", "/dev/shm is full", label="main"),),
        ),
        NodeView("node-3", "failed", None, "ssh ended with status 255: Permission denied."),
    ]

    text = job_text(views, job_findings(views), style=STYLE)

    lines = text.splitlines()
    assert lines[0].startswith("CRITICAL rank 0 on node-1 waits in all_reduce for rank 1 on node-2")
    assert "    rank 0 (100)  waiting: waits in all_reduce, no progress for 90 s" in lines
    assert "    warning  main: /dev/shm is full" in lines
    assert lines[-1] == "node-3  failed  ssh ended with status 255: Permission denied."
    assert all(len(line) <= 90 for line in lines)


def test_a_node_without_a_job_says_so() -> None:
    idle = NodeSummary(NOW_S, NodeRow(state="no-job"))
    reading = NodeSummary(NOW_S, NodeRow(state="starting"))
    views = [
        NodeView("node-1", "live", 0.1, summary=idle, clock_offset_s=-0.25, clock_error_s=0.002),
        NodeView("node-2", "live", 0.1, summary=reading),
    ]

    assert job_text(views, [], style=STYLE).splitlines() == [
        "No findings about the job as a whole.",
        "",
        "node-1  live  no torch process of the job  clock -0.250 s (± 0.002)",
        "node-2  live  reading its processes  clock unknown: no ping answered",
    ]
