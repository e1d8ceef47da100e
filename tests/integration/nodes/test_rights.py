"""An agent without rights to the processes of its node says so, with what mends it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from mpwatch.nodes.agent.jobs_of_node import JobsOfNode, Selection, find_roots
from mpwatch.nodes.agent.rows import Rows
from tests.integration.demo.refusals import refuse_tracing
from tests.integration.nodes.test_job import mark as mark
from tests.integration.nodes.test_job import sleepers as sleepers

pytestmark = pytest.mark.slow
NOBODY = 65534
LIMIT_S = 60.0


def node_row_after(change: Callable[[], None], mark: str) -> dict[str, Any]:
    """The row of this node by an agent in another process, once it says what it may not read.

    The agent is a fork: another user may not read the interpreter of this test.

    Args:
        change: Takes rights from the process of the agent.
        mark: The job.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            change()
            jobs = JobsOfNode(lambda: find_roots(Selection(environment={"MPWATCH_TEST_JOB": mark})))
            jobs.refresh()
            row: dict[str, Any] = {}
            end_s = time.monotonic() + LIMIT_S
            while not row.get("unread") and time.monotonic() < end_s:
                time.sleep(0.1)
                row = Rows().sections(jobs.snapshots(), {}, jobs.problem)["node"][""]
            os.write(writes, json.dumps(row).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads, "rb") as output:
        data = output.read()
    os.waitpid(child, 0)
    return dict(json.loads(data))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_an_agent_of_another_user_says_whose_processes_are_hidden(
    sleepers: list[int], mark: str
) -> None:
    def become_nobody() -> None:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)

    row = node_row_after(become_nobody, mark)

    assert (row["state"], row["processes"]) == ("no-job", 0)
    assert "of uid 0" in row["unread"]
    assert f"mpwatch runs as uid {NOBODY} without CAP_SYS_PTRACE" in row["unread"]


def test_an_agent_that_may_not_trace_says_so_and_shows_the_rest(
    sleepers: list[int], mark: str
) -> None:
    row = node_row_after(refuse_tracing, mark)

    assert (row["state"], row["processes"]) == ("watching", len(sleepers))
    assert row["rss_bytes"] is not None
    assert row["unread"].startswith("No stacks of ")
    assert "a seccomp filter forbids the ptrace system call here" in row["unread"]
