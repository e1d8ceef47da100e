"""`ray:ADDRESS` or `ray:auto`: one actor on each node of a running Ray cluster.

Ray is imported by another process only (`mpwatch.nodes.launchers.ray_helper`), which hands the
bytes of each agent through a pair of pipes, as other engines' programs do.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from mpwatch.collect.process import procfs
from mpwatch.model.sanitize import clean
from mpwatch.nodes.agent.jobs_of_node import RAYLET
from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch, CarriedPipes, Launch

INSTALL = f"{sys.executable} -m pip install ray"
CONNECT_S = 45.0
"""How long the connection to a cluster may take; on an idle machine it takes three seconds."""
START_S = 100.0
"""How long a node may take to its first message: longer than its helper waits for the actor
(`mpwatch.nodes.launchers.ray_helper.BEGIN_S`), which then says what is wrong."""
ANSWER_S = 5.0
END_S = 5.0
"""How long the helper may take to end its actors and itself."""
LOST_KEPT = 32
"""So many nodes that Ray has lost are shown."""
NODES_LIMIT = 10_000
NEWS_BYTES_LIMIT = 16 << 20
CHECK = "ray status"
NO_CLUSTER = "No Ray cluster runs on this machine."
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from mpwatch.nodes.launchers.ray_helper import main; "
    "sys.exit(main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]))"
)
_PLANNED = ("1", "4")
"""Why a node is no more, where that is no failure: it was told to end, or was idle
(`NodeDeathInfo.Reason` in Ray's common.proto, 2.60; 2 is unexpected, 3 preempted)."""


class _Node(msgspec.Struct):
    """A node as the helper describes it."""

    id: str
    alive: bool
    host: str
    is_head: bool = False
    reason: str = ""
    told: str = ""


class _News(msgspec.Struct):
    """A line of the helper."""

    nodes: list[_Node] | None = None
    problem: str = ""


NEWS_DECODER = msgspec.json.Decoder(_News)


class RayNodes:
    """The nodes of a Ray cluster; see `mpwatch.nodes.launchers.launch.ChangingNodes`."""

    def __init__(self, address: str, agent: AgentCommand) -> None:
        """Connect to a cluster.

        Raises:
            CannotLaunch: There is no such cluster, or it cannot be reached.
        """
        self._address = address
        self._agent = agent
        self._names: dict[str, str] = {}
        self._nodes: dict[str, _Node] = {}
        self._started: set[str] = set()
        self._helper: _Helper | None = None
        self._connect()

    def launches(self) -> Sequence[Launch]:
        """The nodes as they are now: the head of the cluster, then as they were first seen."""
        if self._helper is not None:
            self._take(self._helper.news())
        return [
            Launch(
                name,
                ("ray", "actor", identity),
                CHECK,
                partial(self._open, identity),
                START_S,
            )
            for identity, name in self._shown()
        ]

    def close(self) -> None:
        """End all actors, and the helper."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.end()

    def _connect(self) -> None:
        """Start the helper and wait for the nodes."""
        helper = _Helper(self._address, self._agent)
        try:
            self._take(helper.first_news())
        except BaseException:
            helper.end()
            raise
        self._helper = helper

    def _take(self, news: Sequence[_News]) -> None:
        for each in news:
            if each.nodes is None:
                continue
            self._nodes = {node.id: node for node in each.nodes[:NODES_LIMIT]}
            for node in sorted(each.nodes[:NODES_LIMIT], key=lambda node: not node.is_head):
                if node.id not in self._names and node.alive:
                    self._names[node.id] = self._new_name(node)
            self._names = {key: name for key, name in self._names.items() if key in self._nodes}

    def _new_name(self, node: _Node) -> str:
        """The host; with the beginning of the node's number where a host runs several nodes."""
        host = clean(node.host, 80) or "node"
        hosts = Counter(each.host for each in self._nodes.values() if each.alive)
        if hosts[node.host] == 1 and host not in self._names.values():
            return host
        length = 6
        while (name := f"{host}-{clean(node.id, 64)[:length]}") in self._names.values():
            length += 2
        return name

    def _shown(self) -> list[tuple[str, str]]:
        """Numbers and names of the nodes that are there, and of those that were lost."""
        there = [key for key in self._names if self._nodes[key].alive]
        lost = [
            key
            for key in self._names
            if not self._nodes[key].alive and not self._has_left(self._nodes[key])
        ]
        kept = {*there, *(key for key in lost[-LOST_KEPT:] if key in self._started)}
        return [(key, name) for key, name in self._names.items() if key in kept]

    @staticmethod
    def _has_left(node: _Node) -> bool:
        """Whether a node was ended on purpose."""
        return node.reason in _PLANNED

    def _open(self, identity: str) -> CarriedPipes:
        """Pipes to the agent of a node."""
        node = self._nodes.get(identity)
        if node is None or not node.alive:
            told = clean(node.told.split("\n")[0]) if node is not None else ""
            raise CannotLaunch(f"Ray has lost this node{told and f': {told}'}")
        if self._helper is None or self._helper.has_ended():
            self.close()
            self._connect()
        self._started.add(identity)
        assert self._helper is not None
        return self._helper.open(identity)


def nodes(rest: str, agent: AgentCommand) -> RayNodes:
    """The nodes of a cluster; `rest` is what follows `ray:`, the address or `auto`.

    Raises:
        CannotLaunch: Ray is not installed, or there is no such cluster.
    """
    if not rest or not rest.isprintable() or " " in rest:
        raise CannotLaunch(
            f"ray:{rest} names no cluster.", "mpwatch dump --job ray:auto; ray:HOST:6379"
        )
    _require_ray()
    if rest == "auto" and not os.environ.get("RAY_ADDRESS"):
        _require_raylet()
    else:
        _require_answer(os.environ["RAY_ADDRESS"] if rest == "auto" else rest)
    return RayNodes(rest, agent)


def _require_raylet() -> None:
    """Ray itself tries for a minute to reach a cluster that ran here before."""
    stats = (procfs.read_stat("/proc", pid) for pid in procfs.pids("/proc"))
    if not any(stat is not None and stat.name == RAYLET and not stat.has_ended for stat in stats):
        raise CannotLaunch(NO_CLUSTER, CHECK)


def _require_answer(address: str) -> None:
    """Ray itself tries for a minute to reach an address where nothing listens."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotLaunch(
            f"No Ray cluster answers at {clean(address)}: {reason}.", CHECK
        ) from None


def _require_ray() -> None:
    spec = importlib.util.find_spec("ray")
    # A folder that happens to be called so has no origin.
    if spec is None or spec.origin is None:
        raise CannotLaunch("Ray is not installed in the Python that runs mpwatch.", INSTALL)


class _Helper:
    """The process that is connected to Ray."""

    def __init__(self, address: str, agent: AgentCommand) -> None:
        ours, theirs = socket.socketpair()
        self._channel = ours
        self._text = bytearray()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        command = [sys.executable, "-c", _START, json.dumps(sys.path), str(theirs.fileno())]
        command += [address, json.dumps(agent.arguments()), agent.program]
        # Ray must neither report this use of the user's cluster nor print hints about it.
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,
            )
        finally:
            theirs.close()
        ours.setblocking(False)

    def has_ended(self) -> bool:
        """Whether the process has ended: Ray ends it when the cluster has gone."""
        return self._process.poll() is not None

    def first_news(self) -> list[_News]:
        """Wait for the nodes.

        Raises:
            CannotLaunch: There is no such cluster, or it cannot be reached.
        """
        end_s = time.monotonic() + CONNECT_S
        while time.monotonic() < end_s:
            select.select([self._channel], [], [], 0.2)
            news = self.news()
            problem = next((each.problem for each in news if each.problem), "")
            if problem:
                raise CannotLaunch(_in_plain_words(problem), CHECK)
            if news:
                return news
            if self.has_ended():
                raise CannotLaunch(f"Ray ended: {self._last_line()}", CHECK)
        raise CannotLaunch(f"Ray did not answer within {CONNECT_S:.0f} s.", CHECK)

    def news(self) -> list[_News]:
        """What the helper has said since the last call."""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self._channel.recv(1 << 16):
                self._text += data
                if len(self._text) > NEWS_BYTES_LIMIT:
                    self._text.clear()
        *lines, rest = self._text.split(b"\n")
        self._text = rest
        return [NEWS_DECODER.decode(line) for line in lines]

    def open(self, identity: str) -> CarriedPipes:
        """Pipes to the agent of a node.

        Raises:
            OSError: The helper has ended, or takes no requests.
        """
        input_read, input_write = os.pipe()
        output_read, output_write = os.pipe()
        error_read, error_write = os.pipe()
        theirs = (input_read, output_write, error_write)
        pipes = CarriedPipes(input_write, output_read, error_read)
        request: dict[str, Any] = {"open": identity}
        try:
            socket.send_fds(self._channel, [json.dumps(request).encode() + b"\n"], theirs)
        except OSError:
            pipes.kill()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        return pipes

    def end(self) -> None:
        """End the actors and the helper."""
        self._channel.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _last_line(self) -> str:
        self._errors.seek(0)
        lines = [line for line in self._errors.read()[-4096:].split(b"\n") if line.strip()]
        return clean(lines[-1]) if lines else f"status {self._process.returncode}"


def _in_plain_words(problem: str) -> str:
    """A sentence of Ray as one of ours."""
    if problem.startswith("Could not find any running Ray instance"):
        return NO_CLUSTER
    return f"Ray: {clean(problem)}"
