"""Keys and types of `dump --job SPEC --json` and `diagnose --job SPEC --json`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mpwatch.nodes.across.judge import job_findings
from mpwatch.nodes.agent.documents import (
    EMPTY_DIAGNOSIS,
    EMPTY_DUMP,
    Document,
    node_diagnosis,
    node_dump,
)
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.report import job_json
from mpwatch.report.json import text_of
from tests.builders.report_job import job
from tests.contract.test_json_schema import (
    BOOL,
    FINDING,
    INT,
    LIST,
    NULL,
    NUMBER,
    OBJECT,
    PROCESS,
    SEGMENT,
    STR,
    assert_shape,
)

TOP = {"schema": INT, "at": STR, "nodes": LIST, "findings": LIST}
NODE = {
    "name": STR,
    "state": STR,
    "last_seen_s": NUMBER + NULL,
    "host": OBJECT + NULL,
    "processes": LIST,
    "findings": LIST,
}
OF_ALL = {
    "problem": STR + NULL,
    "hostname": STR + NULL,
    "version": STR + NULL,
    "clock_offset_s": NUMBER + NULL,
    "clock_error_s": NUMBER + NULL,
    "clock_problem": STR + NULL,
    "unread": STR + NULL,
    "roots": LIST,
    "waits": OBJECT,
    "problems": LIST,
}
OF_DUMP = {"segments": LIST, "gpus": LIST, "flows": LIST, "loaders": LIST, "mode": STR + NULL}
OF_DIAGNOSIS = {
    "ended": LIST,
    "last_words": LIST,
    "together": LIST,
    "account": OBJECT + NULL,
    "progress": OBJECT + NULL,
}
JOB_FINDING = {**FINDING, "node": STR + NULL, "rank": INT + NULL}

NODES = (
    NodeView("node-1", "live", 0.5, host="machine", version="0.1", clock_offset_s=0.1),
    NodeView("node-2", "failed", None, "ssh ended with status 255: Permission denied."),
)


def document(answer: Document, empty: Document) -> dict[str, Any]:
    made = job_json(
        NODES,
        {"node-1": answer},
        job_findings(NODES),
        wall_s=1_800_000_000.0,
        problems={},
        empty=empty,
    )
    read: dict[str, Any] = json.loads(text_of(made))
    return read


@pytest.mark.parametrize(
    ("answer", "empty", "more"),
    [
        (node_dump([job(), job()], with_stacks=True), EMPTY_DUMP, OF_DUMP),
        (node_dump([], with_stacks=True), EMPTY_DUMP, OF_DUMP),
        (node_diagnosis([job(), job()]), EMPTY_DIAGNOSIS, OF_DIAGNOSIS),
    ],
)
def test_a_job_has_the_keys_of_the_contract_also_of_a_node_that_cannot_be_read(
    answer: Document, empty: Document, more: dict[str, tuple[type, ...]]
) -> None:
    read = document(answer, empty)

    assert_shape(read, TOP)
    assert read["schema"] == 1
    assert [node["name"] for node in read["nodes"]] == ["node-1", "node-2"]
    for node in read["nodes"]:
        assert_shape(node, NODE)
        for key, types in {**OF_ALL, **more}.items():
            assert type(node[key]) in types, key
        assert node.keys() == (NODE | OF_ALL | more).keys()
    for finding in read["findings"]:
        assert_shape(finding, JOB_FINDING)
    assert read["findings"]


def test_processes_and_findings_of_a_node_are_those_of_one_machine() -> None:
    (node, _) = document(node_dump([job(), job()], with_stacks=False), EMPTY_DUMP)["nodes"]

    assert len(node["roots"]) == 2
    for process in node["processes"]:
        assert_shape(process, PROCESS)
    for segment in node["segments"]:
        assert_shape(segment, SEGMENT)
    for finding in node["findings"]:
        assert_shape(finding, FINDING)
        assert type(finding["resolved"]) in BOOL
    assert node["host"]["hostname"] == "node7"


def test_a_segment_that_two_jobs_of_a_node_share_is_one() -> None:
    (node, _) = document(node_dump([job(), job()], with_stacks=False), EMPTY_DUMP)["nodes"]

    identities = [segment["id"] for segment in node["segments"]]
    assert len(identities) == len(set(identities)) == len(job().segments)


def test_a_process_that_two_jobs_of_a_node_have_is_one() -> None:
    # Of a job whose main process was killed, each worker may be a root with the others beside it.
    (node, _) = document(node_dump([job(), job()], with_stacks=False), EMPTY_DUMP)["nodes"]

    pids = [process["pid"] for process in node["processes"]]
    assert len(pids) == len(set(pids)) == len(job().processes)


def test_a_node_cannot_change_what_is_said_about_it() -> None:
    hostile = {"name": "node-2", "state": "live", "problem": "none", "processes": [1]}
    (node, _) = document(hostile, EMPTY_DUMP)["nodes"]

    assert (node["name"], node["state"], node["problem"]) == ("node-1", "live", None)
    assert node["findings"] == []
