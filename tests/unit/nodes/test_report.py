"""A job on several machines as text and as metrics."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.flight_recorder import STUCK
from mpwatch.nodes.across.judge import job_findings
from mpwatch.nodes.agent.documents import node_metrics
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.report import (
    RESOLVED_SHOWN,
    job_html,
    job_metrics,
    job_stack_lines,
    job_text,
)
from mpwatch.nodes.wire.summary import FindingRow, NodeRow, NodeSummary
from mpwatch.report.prometheus import exposition_of
from mpwatch.report.table import TextStyle
from tests.unit.nodes.across.test_across import NOW_S, elsewhere, node, row
from tests.unit.nodes.jobs import rank, snapshot

STYLE = TextStyle(width=90, has_colour=False)


def test_findings_come_first_then_each_node_with_its_ranks() -> None:
    views = [
        node("node-1", row(0, world=2, doing="waits in all_reduce")),
        node(
            "node-2",
            elsewhere(1, world=2, quiet_s=212.0),
            findings=(
                FindingRow("shm-full-enospc", "warning", "/dev/shm fills", label="main", eta_s=120),
            ),
        ),
        NodeView("node-3", "failed", None, "ssh ended with status 255: Permission denied."),
    ]

    text = job_text(views, job_findings(views), style=STYLE)

    lines = text.splitlines()
    assert lines[0].startswith("CRITICAL rank 0 on node-1 waits in all_reduce for rank 1 on node-2")
    assert "    rank 0 (100)  waiting: waits in all_reduce, no progress for 90 s" in lines
    assert "    warning  main: /dev/shm fills, forecast 2 min" in lines
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


VIEWS = (NodeView("a", "live", 0.5), NodeView("b", "ended", 70.0), NodeView("c", "failed"))


def metric_lines(documents: dict[str, Any]) -> list[str]:
    return exposition_of(job_metrics(VIEWS, documents)).splitlines()


def test_of_very_many_findings_that_no_longer_hold_the_number_left_out_is_said() -> None:
    views = [node("node-1", row(0, world=2)), node("node-2", elsewhere(1, world=2))]
    (found,) = job_findings(views)
    resolved = [
        replace(found, resolved_s=9.0, summary=f"finding {number}.")
        for number in range(RESOLVED_SHOWN + 3)
    ]

    for shown in (job_text(views, resolved, style=STYLE), job_html("ssh:a", (), views, resolved)):
        assert f"finding {RESOLVED_SHOWN - 1}." in shown
        assert f"finding {RESOLVED_SHOWN}." not in shown
        assert "and 3 more" in shown
    assert " more" not in job_text(views, resolved[:RESOLVED_SHOWN], style=STYLE)


def test_each_series_has_the_label_of_its_node() -> None:
    found = metric_lines(
        {"a": node_metrics([snapshot([rank(0)])]), "b": node_metrics([snapshot([rank(1)])])}
    )

    fds = [line for line in found if line.startswith("mpwatch_process_open_fds{")]
    assert fds == [
        'mpwatch_process_open_fds{node="a",pid="1000",role="rank",process="rank 0"} 60.0',
        'mpwatch_process_open_fds{node="b",pid="1001",role="rank",process="rank 1"} 61.0',
    ]
    types = [line for line in found if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_nodes_that_do_not_answer_are_reported() -> None:
    found = metric_lines({})

    assert 'mpwatch_node_up{node="a"} 1.0' in found
    assert 'mpwatch_node_up{node="b"} 0.0' in found
    assert 'mpwatch_node_last_seen_seconds{node="b"} 70.0' in found
    assert 'mpwatch_job_findings{severity="warning"} 2.0' in found


def test_two_jobs_of_a_node_are_added_and_their_host_is_counted_once() -> None:
    found = metric_lines({"a": node_metrics([snapshot([rank(0)]), snapshot([rank(1)])])})

    assert 'mpwatch_processes{node="a"} 2.0' in found
    assert f'mpwatch_shm_size_bytes{{node="a"}} {float(64 << 30)}' in found


def dumped(pid: int, *threads: dict[str, Any], label: str = "rank") -> dict[str, Any]:
    return {"pid": pid, "label": label, "threads": list(threads)}


def thread(*lines: int, function: str = "step", **more: Any) -> dict[str, Any]:
    stack = [{"function": function, "file": "/a/train.py", "line": line} for line in lines]
    return {"tid": 1, "name": "MainThread", "stack": stack, **more}


def test_equal_stacks_of_all_nodes_are_one_entry_and_the_most_common_comes_first() -> None:
    documents: dict[str, Any] = {
        "node-1": {"processes": [dumped(7, thread(4, 9)), dumped(8, thread(), label="idle")]},
        "node-2": {
            "processes": [
                dumped(7, thread(5, stack_source="py-spy"), label="rank 1"),
                dumped(9, thread(4, 9), label="worker 0"),
            ]
        },
    }

    assert job_stack_lines(documents, STYLE) == [
        "2 threads: rank (7) on node-1 MainThread, worker 0 (9) on node-2 MainThread",
        "    step                              /a/train.py:4",
        "    step                              /a/train.py:9",
        "",
        "rank 1 (7) on node-2 MainThread",
        "    step                              /a/train.py:5",
    ]


def test_local_variables_that_were_asked_for_are_shown() -> None:
    one = thread(4)
    one["stack"][0]["locals"] = {"batch": "3"}

    assert "      batch = 3" in job_stack_lines({"a": {"processes": [dumped(7, one)]}}, STYLE)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metrics": 7},
        {"metrics": [{"name": "evil\nname 1", "help": "h", "samples": [[[], 1.0]]}]},
        {"metrics": [{"name": "mpwatch_x", "help": "h", "samples": [[[["node", "b"]], 1.0]]}]},
        {"metrics": [{"name": "mpwatch_x", "help": "h", "samples": [[[["a b", "b"]], 1.0]]}]},
    ],
)
def test_an_answer_that_is_not_understood_is_left_out(document: dict[str, Any]) -> None:
    assert metric_lines({"a": document}) == metric_lines({})


def test_text_of_a_node_ends_no_line() -> None:
    metric = {"name": "mpwatch_x", "help": "a\nb", "samples": [[[["process", 'c"\n']], 1.0]]}

    found = metric_lines({"a": {"metrics": [metric]}})

    assert found[-3:] == [
        "# HELP mpwatch_x a\\nb",
        "# TYPE mpwatch_x gauge",
        'mpwatch_x{node="a",process="c\\"\\n"} 1.0',
    ]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"processes": 7},
        {"processes": [{"pid": "x"}]},
        {"processes": [dumped(7, {"stack": [{"function": None}]})]},
    ],
)
def test_stacks_that_are_not_understood_are_left_out(document: dict[str, Any]) -> None:
    fine: dict[str, Any] = {"processes": [dumped(7, thread(4))]}

    assert job_stack_lines({"a": document, "b": fine}, STYLE)[0] == "rank (7) on b MainThread"


def test_what_the_job_says_of_all_ranks_is_not_repeated_by_a_node() -> None:
    told = FindingRow(STUCK, "warning", "rank 2 (102) waits in all_reduce for rank 3 (103)")
    other = FindingRow("shm-full-enospc", "warning", "/dev/shm fills")
    views = [
        node("node-1", row(0), row(1)),
        node("node-2", row(2), elsewhere(3), findings=(told, other)),
    ]

    text = job_text(views, job_findings(views), style=STYLE)

    assert "/dev/shm fills" in text
    assert told.summary not in text
    assert told.summary in job_text(views, [], style=STYLE)


def test_what_a_node_says_of_the_ranks_of_another_job_is_not_hidden() -> None:
    """One torch job of the node is named by a finding of the whole; the other one is its own."""
    other = [msgspec.structs.replace(row(n), job="10.0.0.9:1", pid=900 + n) for n in range(2)]
    told = FindingRow(STUCK, "warning", "rank 2 waits in all_reduce for rank 3", pid=103)
    of_other = FindingRow(STUCK, "warning", "rank 0 waits in barrier for rank 1", pid=901)
    views = [
        node("node-1", row(0), row(1)),
        node("node-2", row(2), elsewhere(3), *other, findings=(told, of_other)),
    ]
    findings = [each for each in job_findings(views) if each.pid == 103]
    assert [each.rule for each in findings] == [STUCK]

    text = job_text(views, findings, style=STYLE)

    assert of_other.summary in text
    assert told.summary not in text
