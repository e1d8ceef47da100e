"""The nodes of a Ray cluster as the head sees them; what the helper says is made up."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from mpwatch.nodes.launchers import ray as launcher
from mpwatch.nodes.launchers import ray_helper
from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch
from mpwatch.nodes.launchers.ray import RayNodes
from tests import procfs

HOST = {"host": "node7", "alive": True}


class Helper:
    """Says what it was told to say."""

    said: list[dict[str, Any]] = []  # noqa: RUF012 - set by each test
    has_been_ended = False

    def __init__(self, *_: object) -> None:
        pass

    def news(self) -> list[Any]:
        lines, Helper.said = Helper.said, []
        return [launcher.NEWS_DECODER.decode(msgspec.json.encode(line)) for line in lines]

    first_news = news

    def has_ended(self) -> bool:
        return False

    def end(self) -> None:
        Helper.has_been_ended = True

    def open(self, identity: str) -> str:
        return f"pipes to {identity}"


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_Helper", Helper)


def say(*nodes: dict[str, Any]) -> None:
    Helper.said = [{"nodes": list(nodes)}]


def names(nodes: RayNodes) -> Sequence[str]:
    return [launch.name for launch in nodes.launches()]


def test_the_head_of_the_cluster_comes_first_and_names_stay() -> None:
    say({"id": "aa1", **HOST}, {"id": "bb2", "host": "head", "alive": True, "is_head": True})
    nodes = RayNodes("auto", AgentCommand())
    assert names(nodes) == ["head", "node7"]

    say({"id": "bb2", "host": "head", "alive": True}, {"id": "aa1", **HOST}, {"id": "cc3", **HOST})
    assert names(nodes) == ["head", "node7", "node7-cc3"]


def test_a_node_that_is_lost_is_kept_and_one_that_was_removed_is_not() -> None:
    say(*({"id": each, "host": f"host-{each}", "alive": True} for each in "abc"))
    nodes = RayNodes("auto", AgentCommand())
    started = [launch.start() for launch in nodes.launches()]
    assert len(started) == 3

    gone = {"alive": False, "told": "health check failed\nand more"}
    say(
        {"id": "a", "host": "host-a", **gone, "reason": "2"},
        {"id": "b", "host": "host-b", **gone, "reason": "1"},
        {"id": "c", "host": "host-c", "alive": True},
    )
    assert names(nodes) == ["host-a", "host-c"]
    with pytest.raises(CannotLaunch, match=r"lost this node: health check failed$"):
        nodes.launches()[0].start()


def test_nodes_that_had_died_before_are_not_shown() -> None:
    say(
        {"id": "a", "host": "old", "alive": False, "reason": "2"},
        {"id": "b", "host": "new", "alive": True},
    )
    assert names(RayNodes("auto", AgentCommand())) == ["new"]


def test_the_helper_ends_with_the_head() -> None:
    say({"id": "a", **HOST})
    nodes = RayNodes("auto", AgentCommand())
    nodes.close()
    assert Helper.has_been_ended


class SlowCluster:
    """A cluster whose actors do not start."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    async def begin(self, _node: str) -> object:
        return await asyncio.sleep(1000.0, b"")

    def forget(self, node: str) -> None:
        self.forgotten.append(node)


def test_an_actor_that_does_not_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_helper, "BEGIN_S", 0.05)
    cluster, pipes = SlowCluster(), [os.pipe() for _ in range(3)]
    descriptors = (pipes[0][0], pipes[1][1], pipes[2][1])

    asyncio.run(ray_helper.carry(cluster, "a", descriptors))  # type: ignore[arg-type]

    assert os.read(pipes[2][0], 4096) == b"Ray has not started an actor on this node within 0 s."
    assert cluster.forgotten == ["a"]
    for descriptor in (pipes[0][1], pipes[1][0], pipes[2][0]):
        os.close(descriptor)


class Hostile:
    """What an attacker on a node may have Ray unpickle; whatever is done with it fails."""

    def __bool__(self) -> bool:
        raise AssertionError("looked at")

    __len__ = __iter__ = __bytes__ = __str__ = __bool__  # type: ignore[assignment]

    def encode(self, *_: object) -> bytes:
        return b"said by the node"

    decode = encode


class HostileBytes(bytes):
    def decode(self, *_: object) -> str:
        raise AssertionError("called")


class Method:
    """A method of an actor that answers always the same."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def remote(self, *given: object) -> object:
        assert all(type(each) is bytes for each in given)
        return self._answer


class HostileCluster(SlowCluster):
    """A cluster with a node that answers what it likes."""

    def __init__(self, begins: object, reads: object) -> None:
        super().__init__()
        self._begins = begins
        self.read, self.write, self.end = Method(reads), Method(None), Method(Hostile())

    async def begin(self, _node: str) -> object:
        return self._begins

    def actor(self, _node: str) -> HostileCluster:
        return self


@pytest.mark.parametrize(
    ("begins", "reads", "told"),
    [
        (Hostile(), b"", ray_helper.NO_BYTES),
        (HostileBytes(b""), b"", ray_helper.NO_BYTES),
        ([], b"", ray_helper.NO_BYTES),
        ("", b"", ray_helper.NO_BYTES),
        (None, b"", ray_helper.NO_BYTES),
        (b"No agent here.\xff", b"", "No agent here.\N{REPLACEMENT CHARACTER}"),
        (b"", Hostile(), ray_helper.NO_BYTES),
        (b"", HostileBytes(b"eIt ends."), ray_helper.NO_BYTES),
        (b"", b"eIt ends.", "It ends."),
    ],
    ids=range(9),
)
def test_a_reply_that_is_no_bytes_is_not_used(begins: object, reads: object, told: str) -> None:
    pipes = [os.pipe() for _ in range(3)]
    descriptors = (pipes[0][0], pipes[1][1], pipes[2][1])
    cluster: Any = HostileCluster(begins, reads)

    asyncio.run(ray_helper.carry(cluster, "a", descriptors))

    assert os.read(pipes[2][0], 4096).decode() == told
    assert os.read(pipes[1][0], 4096) == b""
    for descriptor in (pipes[0][1], pipes[1][0], pipes[2][0]):
        os.close(descriptor)


def test_the_head_waits_longer_for_a_node_than_its_helper_for_the_actor() -> None:
    # Otherwise the head would give up before the reason is known.
    say({"id": "a", **HOST})
    (launch,) = RayNodes("auto", AgentCommand()).launches()

    assert launch.start_s > ray_helper.BEGIN_S


ACTOR = """
import json, time
from mpwatch.nodes.launchers import ray_actor
ray_actor.RAYLET_S = 0.05
ray_actor.READ_S = 60.0
node = ray_actor.MpwatchNode(b"", b"")
request = {"arguments": [], "command": "sh -c 'echo $$; exec cat'"}
assert node.begin(json.dumps(request).encode()) == b""
print(node.read()[1:].decode(), flush=True)
time.sleep(60.0)
"""


def test_an_actor_and_its_agent_end_with_a_raylet_that_no_process_reaps() -> None:
    raylet = subprocess.Popen(["sleep", "1000"])
    actor = subprocess.Popen(
        [sys.executable, "-c", ACTOR],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "RAY_RAYLET_PID": str(raylet.pid)},
    )
    try:
        assert actor.stdout is not None
        agent = int(actor.stdout.readline())
        assert procfs.executable(agent)

        os.kill(raylet.pid, signal.SIGKILL)  # a zombie until `wait` below
        assert actor.wait(30.0) == 1
        assert not procfs.executable(agent)
    finally:
        actor.kill()
        actor.communicate()
        raylet.kill()
        raylet.wait()
