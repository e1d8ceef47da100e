"""Many rounds of killing heads, agents, links and nodes: nothing is left on any node."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.nodes.test_job import agents, until
from tests.integration.nodes.test_job import mark as mark
from tests.integration.nodes.test_job import sleepers as sleepers
from tests.integration.on_demand import ON_DEMAND

pytestmark = pytest.mark.slow
ROUNDS = int(os.environ.get("MPWATCH_ROUNDS", "100"))
SEED = 16
HEAD = """
import sys
from mpwatch.nodes.head.head import Head
from mpwatch.nodes.launchers.launch import AgentCommand, Launch
agent = AgentCommand({"MPWATCH_TEST_JOB": sys.argv[1]})
link = ("sh", "-c", '"$@"; exit $?', "link")
head = Head(
    [
        Launch("local-0", agent.here("--part=0/2")),
        Launch("linked-1", (*link, *agent.here("--part=1/2"))),
    ],
    restarts=True,
)
is_said = False
while True:
    head.step(0.05)
    if not is_said and all(view.state == "live" for view in head.views()):
        is_said = True
        print("live", flush=True)
"""
"""The head of a job on two nodes of this machine, one of them behind a shell as its link."""


class Round:
    """One head with its agents."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.is_live = False
        self.head = subprocess.Popen(
            [sys.executable, "-c", HEAD, mark],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MPWATCH_TEST_ROUND": mark},
        )

    def wait_until_live(self) -> None:
        assert self.head.stdout is not None
        assert self.head.stdout.readline() == b"live\n"
        self.is_live = True

    def kill_head(self) -> None:
        self.head.kill()

    def end_head(self) -> None:
        self.head.terminate()

    def kill_agents(self) -> None:
        for pid in self._found("--stdio"):
            _signal(pid, signal.SIGKILL)

    def kill_links(self) -> None:
        for pid in self._found("link"):
            _signal(pid, signal.SIGKILL)

    def stop_agents(self) -> None:
        """Stop the agents, kill the head meanwhile, and let the agents go on."""
        stopped = self._found("--stdio")
        for pid in stopped:
            _signal(pid, signal.SIGSTOP)
        self.head.kill()
        self.head.wait()
        for pid in stopped:
            _signal(pid, signal.SIGCONT)

    def kill_node(self) -> None:
        """Kill all that runs on the node behind the link."""
        for pid in self._found("--part=1/2"):
            _signal(pid, signal.SIGKILL)

    def finish(self) -> None:
        self.head.kill()
        self.head.communicate()

    def _found(self, word: str) -> list[int]:
        found = [pid for pid in agents(self.mark) if word in _words(pid)]
        assert found or not self.is_live
        return found

    def is_gone(self) -> bool:
        """Whether nothing is left that the head or its agents have started, whatever it is now."""
        for name in os.listdir("/proc"):
            try:
                environment = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if f"MPWATCH_TEST_ROUND={self.mark}".encode() in environment:
                return False
        return True


FAULTS: tuple[Callable[[Round], None], ...] = (
    Round.kill_head,
    Round.end_head,
    Round.kill_agents,
    Round.kill_links,
    Round.stop_agents,
    Round.kill_node,
)


def _words(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode("utf-8", "replace").split("\0")


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


@ON_DEMAND
@pytest.mark.timeout(30 * ROUNDS)
def test_no_round_of_kills_leaves_a_process_on_a_node(sleepers: list[int], mark: str) -> None:
    chance = random.Random(SEED)
    done: Counter[str] = Counter()
    longest_s = 0.0
    for number in range(ROUNDS):
        fault = FAULTS[number % len(FAULTS)]
        each = Round(mark)
        try:
            if chance.random() < 0.7:
                each.wait_until_live()
            else:
                time.sleep(chance.random())
            fault(each)
            time.sleep(chance.random() * 0.5)
        finally:
            each.finish()
        began_s = time.monotonic()
        until(each.is_gone)
        longest_s = max(longest_s, time.monotonic() - began_s)
        done[fault.__name__] += 1
    assert sum(done.values()) == ROUNDS
    print(f"{dict(done)}: no process left, the last one {longest_s:.1f} s after the head")
