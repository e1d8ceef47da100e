"""Many nodes reached through few: relays, what they leave, and what happens where they fail.

`ssh` is a stand-in that runs the command here, as sshd does by a login shell; `test_sshd.py` has
the real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpwatch.nodes.head import node as node_module
from mpwatch.nodes.head.head import Head
from mpwatch.nodes.launchers import relays
from mpwatch.nodes.launchers.engines import launches
from mpwatch.nodes.launchers.launch import AgentCommand
from mpwatch.nodes.wire.messages import Answer
from tests import procfs
from tests.integration.nodes.test_job import agents, until
from tests.integration.nodes.test_job import mark as mark

pytestmark = pytest.mark.slow
NODES = 6
BATCHES = 2
SPEC = f"ssh:{','.join(f'host-{number}' for number in range(NODES))}"
CLIENT = """\
#!/bin/sh
for last; do true; done
while [ "$1" != "--" ]; do shift; done
echo "Welcome to $2!"
if [ -e {folder}/down-$2 ]; then echo "connect to host $2: No route to host" >&2; exit 255; fi
if [ -n "$ON_NODE" ] && [ -e {folder}/no-onward ]; then
  echo "$2: Permission denied (publickey)." >&2; exit 255
fi
case $last in *--relay*) if [ -e {folder}/no-relay ]; then
  echo "mpwatch: error: unrecognized arguments: --relay" >&2; exit 2
fi;; esac
ON_NODE=yes; export ON_NODE
if [ -e {folder}/hangs-$2 ]; then echo $$ > {folder}/hangs-$2; exec sleep 600; fi
sh -c "$last"
exit $?
"""


@pytest.fixture(autouse=True)
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for ssh; batches of three nodes."""
    (tmp_path / "ssh").write_text(CLIENT.format(folder=tmp_path))
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(relays, "DIRECT_NODES", BATCHES)
    monkeypatch.setattr(relays, "BATCH_NODES", NODES // BATCHES)
    monkeypatch.setattr(node_module, "RESTART_S", 0.5)


@contextmanager
def connected(mark: str, *, restarts: bool = False) -> Iterator[Head]:
    agent = AgentCommand({"MPWATCH_TEST_JOB": mark})
    head = Head(launches(SPEC, agent), restarts=restarts)
    try:
        yield head
    finally:
        head.close()
        until(lambda: agents(mark) == [])


def step_until(head: Head, is_done: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    end_s = time.monotonic() + 120
    while True:
        head.step()
        states = {view.name: str(view.state) for view in head.views()}
        if is_done(states):
            return states
        assert time.monotonic() < end_s, {view.name: view.problem for view in head.views()}


def all_live(states: dict[str, str]) -> bool:
    return set(states.values()) == {"live"}


def _words(pid: int) -> str:
    return procfs.text(pid, "cmdline").replace("\0", " ")


def _is_relay(pid: int) -> bool:
    program, *arguments = procfs.text(pid, "cmdline").split("\0")
    return "python" in os.path.basename(program) and "--relay" in arguments


def own_clients(mark: str) -> list[int]:
    return [pid for pid in procfs.children(os.getpid()) if mark in _words(pid)]


def test_the_head_has_a_client_for_each_batch_and_answers_of_each_node(mark: str) -> None:
    with connected(mark) as head:
        step_until(head, all_live)
        clients = own_clients(mark)
        requests = {view.name: head.ask(view.name, "dump") for view in head.views()}
        answers: dict[str, Answer] = {}
        while len(answers) < NODES:
            head.step()
            for name, request in requests.items():
                answer = head.answer(request)
                if answer is not None:
                    answers[name] = answer
        clocks = [view.clock_offset_s for view in head.views()]

    assert len(clients) == BATCHES
    assert all(answer.document is not None for answer in answers.values())
    # The bytes that a node is sent arrive there, too.
    assert None not in clocks


def test_nodes_that_may_not_connect_to_each_other_are_reached_directly(
    mark: str, tmp_path: Path
) -> None:
    (tmp_path / "no-onward").touch()
    with connected(mark) as head:
        step_until(head, all_live)
        clients = own_clients(mark)

    # The nodes of the relays go on behind these.
    assert len(clients) == NODES


def test_an_older_mpwatch_on_the_nodes_is_no_relay_but_an_agent(mark: str, tmp_path: Path) -> None:
    (tmp_path / "no-relay").touch()
    with connected(mark) as head:
        step_until(head, all_live)

        assert len(own_clients(mark)) == NODES


def test_another_node_is_the_relay_where_the_first_one_is_down(mark: str, tmp_path: Path) -> None:
    (tmp_path / "down-host-0").touch()
    with connected(mark) as head:
        states = step_until(
            head,
            lambda states: "failed" in states.values() and list(states.values()).count("live") == 5,
        )
        problem = next(view.problem for view in head.views() if view.name == "host-0")
        clients = own_clients(mark)

    assert states["host-0"] == "failed"
    assert problem == "ssh ended with status 255: connect to host host-0: No route to host."
    assert len(clients) == BATCHES


def test_a_relay_that_hangs_at_its_start_holds_up_no_node(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "RELAY_START_S", 4.0)
    (tmp_path / "hangs-host-0").touch()
    with connected(mark) as head:
        states = step_until(head, lambda states: list(states.values()).count("live") == 5)

    assert states["host-0"] != "live"
    assert (tmp_path / "hangs-host-0").read_text().strip()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_another_node_takes_over_from_a_relay_that_is_killed_or_hangs(
    mark: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "RELAY_SILENT_S", 5.0)
    with connected(mark, restarts=True) as head:
        step_until(head, all_live)
        relay, *_ = [pid for pid in agents(mark) if _is_relay(pid)]
        os.kill(relay, number)
        lost = step_until(head, lambda states: list(states.values()).count("live") == 3)
        step_until(head, all_live)
        clients = own_clients(mark)

    assert len(lost) == NODES
    assert len(clients) == BATCHES


def test_an_agent_that_ends_is_started_again_through_its_relay(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a relay takes longer than usual; then its nodes are reached directly.
    monkeypatch.setattr(relays, "RELAY_START_S", 100.0)
    with connected(mark, restarts=True) as head:
        step_until(head, all_live)
        agent, *_ = [pid for pid in agents(mark) if "--relay" not in _words(pid)][-1:]
        os.kill(agent, signal.SIGKILL)
        step_until(head, lambda states: not all_live(states))
        problem = next(view.problem for view in head.views() if view.state != "live")
        step_until(head, all_live)

        assert len(own_clients(mark)) == BATCHES
    assert "ssh ended with status 137" in problem or "ended with signal 9" in problem


HEAD = """
import sys
from mpwatch.nodes.head.head import Head
from mpwatch.nodes.launchers import relays
from mpwatch.nodes.launchers.engines import launches
from mpwatch.nodes.launchers.launch import AgentCommand
relays.DIRECT_NODES, relays.BATCH_NODES = 2, 3
head = Head(launches(sys.argv[1], AgentCommand({"MPWATCH_TEST_JOB": sys.argv[2]})))
while not all(view.state == "live" for view in head.views()):
    head.step()
print("live", flush=True)
while True:
    head.step()
"""


@pytest.mark.parametrize("victim", ["head", "relay"])
def test_nothing_outlives_a_killed_head_or_relay(mark: str, victim: str) -> None:
    head = subprocess.Popen([sys.executable, "-c", HEAD, SPEC, mark], stdout=subprocess.PIPE)
    try:
        assert head.stdout is not None
        assert head.stdout.readline() == b"live\n"
        relays = [pid for pid in agents(mark) if _is_relay(pid)]
        if victim == "relay":
            for pid in relays:
                os.kill(pid, signal.SIGKILL)
            until(lambda: agents(mark) == [])
    finally:
        head.kill()
        head.communicate()

    assert len(relays) == BATCHES
    until(lambda: agents(mark) == [])
