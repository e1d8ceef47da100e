"""A job that waits for a server is named by the thread or coroutine that has the connection."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Start
from tests.integration import on_demand
from tests.integration.observe.commands import of_this_job, watched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

WATCHED_S = 14.0
LOOP_S = 24.0
"""A wait for an event loop, which its timers wake up, is told later."""
STUCK = {
    "nested_slots": ("no-progress", "while it awaits `part = await self.part()`", "self.slots"),
    "unset_event": (
        "no-progress",
        "self.graded, matched by its name only, is woken up at `self.graded.set()`",
        " grade",
    ),
    "wrong_length": ("standing-still", "both wait to receive on one connection", "read_exactly"),
}
"""The rule, what it says, and a name that it quotes."""
HEALTHY = ("idle_connections", "subscribers")


def findings(pid: int, for_s: float) -> list[dict[str, Any]]:
    """The findings from outside within some seconds."""
    found: list[dict[str, Any]] = watched(pid, for_s, "--no-hook")["findings"]
    return of_this_job(found)


@pytest.mark.parametrize("case", on_demand.cases(STUCK, ("wrong_length",)))
def test_a_server_that_does_not_answer_is_named_with_its_line(start: Start, case: str) -> None:
    rule, words, name = STUCK[case]
    job = start("stuck_servers.py", case)
    job.wait_for("ready")

    found = findings(job.pid, LOOP_S if case == "nested_slots" else WATCHED_S)

    assert [each["rule"] for each in found[:1]] == [rule]
    first = found[0]
    text = " ".join([first["summary"], *first["evidence"], first["cause"], first["advice"]])
    assert words in text
    assert name in text
    assert "nothing to do" not in text


@pytest.mark.parametrize("case", on_demand.cases(HEALTHY, ("subscribers",)))
def test_a_server_whose_clients_wait_for_news_or_rest_is_clean(start: Start, case: str) -> None:
    job = start("stuck_servers.py", case)
    job.wait_for("ready")

    assert findings(job.pid, WATCHED_S) == []
