"""A job on a real Ray cluster: several raylets on this machine, that join, leave and are killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mpwatch.nodes.head import node as node_module
from mpwatch.nodes.head.head import Head
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.launchers.engines import launches
from mpwatch.nodes.launchers.launch import AgentCommand
from mpwatch.nodes.launchers.ray_actor import FOLDER
from tests.conftest import PROGRAMS, Program
from tests.integration.nodes.test_job import opened, until
from tests.integration.on_demand import ON_DEMAND

_RAY = importlib.util.find_spec("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        _RAY is None or _RAY.origin is None, reason="needs pip install 'mpwatch[ray]'"
    ),
    pytest.mark.xdist_group("ray"),
]
LIMIT_S = 150.0
START_S = 150.0


class Cluster:
    """A cluster of two nodes with an actor on each, to which tests add nodes of their own."""

    def __init__(self, folder: Path) -> None:
        self._told = 0
        self._folder = folder
        self.program = _started(str(PROGRAMS / "ray_cluster.py"), "2", folder=folder)
        self.address = ""
        self.driver: Program | None = None

    def begin(self) -> None:
        """Wait for the cluster, and start its actors."""
        self.address = self.program.wait_for("ready", START_S).split()[1]
        self.driver = _started(str(PROGRAMS / "ray_actors.py"), self.address, folder=self._folder)
        self.driver.wait_for("ready", START_S)
        self.actors = {
            line.split()[1]: int(line.split()[2])
            for line in self.driver.lines
            if line.startswith("actor")
        }

    @property
    def spec(self) -> str:
        return f"ray:{self.address}"

    def raylets(self) -> list[tuple[int, str]]:
        """Pids and numbers of all nodes that were started, the head first."""
        lines = [line.split() for line in self.program.lines if line.startswith("raylet")]
        return [(int(pid), number) for _, pid, number in lines]

    def tell(self, line: str) -> None:
        """Have the program do one thing, and wait until it is done."""
        stream = self.program.process.stdin
        assert stream is not None
        stream.write(line.encode() + b"\n")
        stream.flush()
        self._told += 1
        self.program.wait_for(f"done {self._told} ")

    def end(self) -> None:
        for each in (self.driver, self.program):
            if each is None:
                continue
            each.end()
            if each.process.stdin is not None:
                each.process.stdin.close()


def _started(*command: str, folder: Path) -> Program:
    return Program(
        subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("ray"))
    try:
        made.begin()
        yield made
    finally:
        made.end()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mpwatch", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def ours() -> list[int]:
    """The actors, agents and helpers of mpwatch on this machine."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if b"ray::MpwatchNode" in line or b"--raylet=" in line or b"ray_helper" in line:
            found.append(int(name))
    return found


def agents() -> list[int]:
    """The agents themselves, without the processes that wait for their end."""
    running = {pid for pid in ours() if b"--raylet=" in _cmdline(pid)}
    return [pid for pid in running if _parent(pid) in running]


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def nothing_is_left() -> None:
    """Wait until all processes of mpwatch have ended."""
    end_s = time.monotonic() + LIMIT_S
    while left := ours():
        assert time.monotonic() < end_s, [
            (pid, _parent(pid), _cmdline(pid)[:2000], Path(f"/proc/{pid}/status").read_text()[:200])
            for pid in left
        ]
        time.sleep(0.1)


def folders() -> list[str]:
    return [name for name in os.listdir("/tmp") if name.startswith(FOLDER)]


@contextmanager
def connected(spec: str, *, restarts: bool = False) -> Iterator[Head]:
    head = Head(launches(spec, AgentCommand()), restarts=restarts)
    try:
        yield head
    finally:
        head.close()


def step_until(head: Head, is_done: Callable[[dict[str, NodeView]], bool]) -> dict[str, NodeView]:
    end_s = time.monotonic() + LIMIT_S
    while not is_done(views := {view.name: view for view in head.views()}):
        assert time.monotonic() < end_s, views
        head.step(0.1)
    return views


STATE = """
import json, sys
import ray
from ray._private.state import actors
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
ours = [each for each in actors().values() if each["ActorClassName"] == "MpwatchNode"]
alive = [each["ActorID"] for each in ours if each["State"] == "ALIVE"]
cpus = [found()["CPU"] for found in (ray.cluster_resources, ray.available_resources)]
print(json.dumps([alive, *cpus]))
"""


def ray_state(cluster: Cluster) -> tuple[set[str], float, float]:
    """The numbers of the living actors of mpwatch; all cpus of the cluster and the free ones."""
    done = subprocess.run(
        [sys.executable, "-c", STATE, cluster.address],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=True,
    )
    alive, cpus, free = json.loads(done.stdout.splitlines()[-1])
    return set(alive), cpus, free


def states(views: dict[str, NodeView]) -> list[str]:
    return [view.state for view in views.values()]


def live_count(views: dict[str, NodeView]) -> int:
    """The number of nodes that are read.

    The others may be those that an earlier test has killed: Ray takes a while to lose them.
    """
    return states(views).count("live")


def test_each_node_has_the_processes_below_its_raylet(cluster: Cluster) -> None:
    done = run("dump", "--job", cluster.spec, "--json")

    assert done.returncode == 0, done.stderr
    nodes: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
    assert [node["state"] for node in nodes] == ["live", "live"]
    pids = [{process["pid"] for process in node["processes"]} for node in nodes]
    raylets = [pid for pid, _ in cluster.raylets()]
    assert [raylets[index] in pids[index] for index in range(2)] == [True, True]
    assert not pids[0] & pids[1]
    for _, number in cluster.raylets()[:2]:
        assert sum(cluster.actors[number] in each for each in pids) == 1
    assert cluster.driver is not None
    assert cluster.driver.pid in pids[0]
    assert not set(ours()) & (pids[0] | pids[1])
    nothing_is_left()
    until(lambda: not folders())


def test_the_agent_is_sent_by_ray_and_not_installed_on_the_node(cluster: Cluster) -> None:
    with connected(cluster.spec) as head:
        step_until(head, lambda views: states(views) == ["live", "live"])
        for pid in agents():
            assert FOLDER in Path(f"/proc/{pid}/maps").read_text()
        actors, cpus, free = ray_state(cluster)
        assert len(actors) == 2
        assert free == cpus
    nothing_is_left()
    until(lambda: not folders())


def test_a_node_is_opened_through_its_actor(cluster: Cluster) -> None:
    hangs = cluster.actors[cluster.raylets()[1][1]]
    function = "wait_for_the_simulator"
    snapshot = opened(cluster.spec, lambda row: row.pid == hangs, function, AgentCommand())

    assert snapshot.root.pid == cluster.raylets()[1][0]
    assert hangs in [each.pid for each in snapshot.processes]
    nothing_is_left()


@ON_DEMAND
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("pyarrow", "pydantic"))),
    reason="needs pip install 'ray[train]'",
)
def test_a_stuck_rank_of_ray_train_is_named(cluster: Cluster, tmp_path: Path) -> None:
    program = _started(
        str(PROGRAMS / "ray_train.py"), cluster.address, str(tmp_path), folder=tmp_path
    )
    try:
        started = [tmp_path / f"started-{number}" for number in range(2)]
        until(lambda: _has_ended(program) or all(each.exists() for each in started), 2 * START_S)
        assert not _has_ended(program)
        done = run("diagnose", "--job", cluster.spec, "--json")
    finally:
        program.end()
        if program.process.stdin is not None:
            program.process.stdin.close()

    assert done.returncode == 0, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["rule"], finding["rank"]) == ("rank-stuck-in-collective", 1)
    assert finding["summary"].startswith("rank 0 on ")
    assert "save_checkpoint" in finding["summary"]


def _has_ended(program: Program) -> bool:
    return program.process.poll() is not None


def test_nodes_that_join_leave_and_die_are_followed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(cluster.spec, restarts=True) as head:
        first = step_until(head, lambda views: states(views) == ["live", "live"])
        cluster.tell("add")
        cluster.tell("add")
        step_until(head, lambda views: states(views) == ["live"] * 4)
        leaving, dying = len(cluster.raylets()) - 2, len(cluster.raylets()) - 1

        cluster.tell(f"remove {leaving}")
        left = step_until(head, lambda views: len(views) == 3)
        assert states(left) == ["live"] * 3

        cluster.tell(f"kill {dying}")
        views = step_until(head, lambda views: "ended" in states(views))
        (lost,) = (view for view in views.values() if view.state == "ended")
        assert lost.name not in first
        assert lost.problem
    nothing_is_left()


def test_an_actor_that_is_killed_is_started_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "RESTART_S", 0.5)
    with connected(cluster.spec, restarts=True) as head:
        step_until(head, lambda views: live_count(views) == 2)
        before, (actors, _, _) = set(agents()), ray_state(cluster)
        actor = next(pid for pid in ours() if b"MpwatchNode" in _cmdline(pid))
        os.kill(actor, signal.SIGKILL)
        # Not merely silent, as all are that were not listened to meanwhile.
        step_until(head, lambda views: live_count(views) == 1 and "silent" not in states(views))
        step_until(head, lambda views: live_count(views) == 2)
        assert len(set(agents()) - before) == 1
        assert ray_state(cluster)[0] == actors
    nothing_is_left()


@pytest.mark.parametrize("victim", ["head", "helper"])
def test_nothing_outlives_a_killed_head(cluster: Cluster, victim: str) -> None:
    head = subprocess.Popen(
        [sys.executable, "-m", "mpwatch", "diagnose", "--job", cluster.spec, "--for", "600"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: len(agents()) >= 2)
        if victim == "head":
            head.kill()
        else:
            helper = next(pid for pid in ours() if b"ray_helper" in _cmdline(pid))
            os.kill(helper, signal.SIGKILL)
        nothing_is_left()
    finally:
        head.kill()
        head.wait()


def test_a_cluster_that_is_not_there_is_one_sentence() -> None:
    done = run("dump", "--job", "ray:127.0.0.1:1")

    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("mpwatch: ")
    assert "Traceback" not in done.stderr
    assert not ours()
