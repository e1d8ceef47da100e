"""Metrics of several nodes, each with a label of its node."""

from __future__ import annotations

from typing import Any

import pytest

from mpwatch.nodes.head.view import NodeView
from mpwatch.nodes.metrics import job_metrics, node_metrics
from mpwatch.report.prometheus import exposition_of
from tests.unit.nodes.jobs import rank, snapshot

VIEWS = (NodeView("a", "live", 0.5), NodeView("b", "ended", 70.0), NodeView("c", "failed"))


def lines(documents: dict[str, Any]) -> list[str]:
    return exposition_of(job_metrics(VIEWS, documents)).splitlines()


def test_each_series_has_the_label_of_its_node() -> None:
    found = lines(
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
    found = lines({})

    assert 'mpwatch_node_up{node="a"} 1.0' in found
    assert 'mpwatch_node_up{node="b"} 0.0' in found
    assert 'mpwatch_node_last_seen_seconds{node="b"} 70.0' in found
    assert 'mpwatch_job_findings{severity="warning"} 2.0' in found


def test_two_jobs_of_a_node_are_added_and_their_host_is_counted_once() -> None:
    found = lines({"a": node_metrics([snapshot([rank(0)]), snapshot([rank(1)])])})

    assert 'mpwatch_processes{node="a"} 2.0' in found
    assert f'mpwatch_shm_size_bytes{{node="a"}} {float(64 << 30)}' in found


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
    assert lines({"a": document}) == lines({})


def test_text_of_a_node_ends_no_line() -> None:
    metric = {"name": "mpwatch_x", "help": "a\nb", "samples": [[[["process", 'c"\n']], 1.0]]}

    found = lines({"a": {"metrics": [metric]}})

    assert found[-3:] == [
        "# HELP mpwatch_x a\\nb",
        "# TYPE mpwatch_x gauge",
        'mpwatch_x{node="a",process="c\\"\\n"} 1.0',
    ]
