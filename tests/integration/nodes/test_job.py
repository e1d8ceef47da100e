"""Jobs over several agents on this machine: real agents, real ranks, real kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpwatch.model.findings import JobFinding
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.across.collectives import STRAGGLER, waits_across
from mpwatch.nodes.across.judge import job_findings
from mpwatch.nodes.across.ranks import PlacedRank
from mpwatch.nodes.head import node as node_module
from mpwatch.nodes.head.head import Head
from mpwatch.nodes.job_source import JobState, LiveJobSource
from mpwatch.nodes.launchers.engines import launches
from mpwatch.nodes.launchers.launch import AgentCommand, Launch
from mpwatch.nodes.wire.summary import RankRow
from mpwatch.observe.sources.source import Follow
from mpwatch.tui.pages.job import node_groups, ranks_of
from tests import procfs
from tests.conftest import PROGRAMS, Program, Start, free_port
from tests.integration.on_demand import ON_DEMAND

pytestmark = pytest.mark.slow
LIMIT_S = 90.0


@pytest.fixture
def mark() -> str:
    """A value of a variable that only the processes of one test have."""
    return f"nodes-{uuid.uuid4().hex}"


def command(*arguments: str, mark: str) -> list[str]:
    return [sys.executable, "-m", "mpwatch", *arguments, "--match", f"MPWATCH_TEST_JOB={mark}"]


def run(*arguments: str, mark: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, mark=mark), capture_output=True, text=True, timeout=120, check=False
    )


def agents(mark: str) -> list[int]:
    """The agents for a job, whatever started them."""
    return [pid for pid, line in _cmdlines() if mark in line and " --stdio " in line]


def _observes(agent: int) -> bool:
    """Whether an agent has started observing: it has further threads then."""
    return len(procfs.threads(agent)) > 2


def _cmdlines() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            yield int(name), procfs.text(int(name), "cmdline").replace("\0", " ")


def until(is_done: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    end_s = time.monotonic() + limit_s
    while not is_done():
        assert time.monotonic() < end_s
        time.sleep(0.1)


def started_apart(start: Start, *command: str, env: dict[str, str]) -> tuple[Program, int]:
    """A program whose parent has ended, and its pid.

    The process of the tests may itself be a torch job, with all its children.
    """
    shell = ["sh", "-c", '"$@" & echo "pid $!"', "sh", sys.executable, *command]
    program = start(shell, env=env)
    return program, int(program.wait_for("pid").split()[1])


def two_ranks(
    start: Start, mark: str, number: str = "RANK", count: str = "WORLD_SIZE", **differs: str
) -> list[int]:
    """The pids of two gloo ranks without a common launcher, once they are ready.

    Args:
        start: Starts a program of the test.
        mark: The job.
        number: The variable with the number of each.
        count: The variable with their count.
        differs: Variables of both that say which rank does something else.
    """
    shared = {
        count: "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "MPWATCH_TEST_JOB": mark,
        **differs,
    }
    path = str(PROGRAMS / "rank_of_job.py")
    ranks = [started_apart(start, path, env={**shared, number: str(rank)}) for rank in range(2)]
    for program, _ in ranks:
        program.wait_for("ready")
    return [pid for _, pid in ranks]


@pytest.fixture
def stuck_ranks(start: Start, mark: str) -> list[int]:
    """Two ranks of which rank 1 does not call what rank 0 waits in."""
    return two_ranks(start, mark, STUCK="1")


@pytest.fixture
def sleepers(start: Start, mark: str) -> list[int]:
    """Two processes with the environment of ranks that never load torch."""
    shared = {"WORLD_SIZE": "2", "MPWATCH_TEST_JOB": mark}
    waits = ("-c", "import time; time.sleep(600)")
    return [started_apart(start, *waits, env={**shared, "RANK": str(rank)})[1] for rank in range(2)]


def test_a_stuck_rank_is_named_with_its_node_and_its_line(
    stuck_ranks: list[int], mark: str
) -> None:
    done = run("diagnose", "--job", "local:2", "--json", "--fail-on", "warning", mark=mark)

    assert done.returncode == 1, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    (finding,) = document["findings"]
    by_pid = {pid: node["name"] for node in document["nodes"] for pid in node["roots"]}
    assert finding["rule"] == "rank-stuck-in-collective"
    assert (finding["rank"], finding["pid"]) == (1, stuck_ranks[1])
    assert finding["node"] == by_pid[stuck_ranks[1]]
    assert "waits in all_reduce for rank 1" in finding["summary"]
    assert "save_checkpoint" in finding["summary"]
    assert agents(mark) == []


def test_a_stuck_rank_that_has_its_number_from_nobody_but_itself_is_named(
    start: Start, mark: str
) -> None:
    """As of Lightning on two nodes of one device each: the launcher's environment has no number."""
    pids = two_ranks(start, mark, "NODE_RANK", "NODES", STUCK="1")
    done = run("diagnose", "--job", "local:2", "--json", mark=mark)

    assert done.returncode == 0, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["rank"], finding["pid"]) == (1, pids[1])
    assert "waits in all_reduce for rank 1" in finding["summary"]


def test_a_stuck_rank_with_a_hook_is_named_with_the_number_of_the_collective(
    start: Start, mark: str
) -> None:
    """The number of a rank that only torch was told is known by its flight recorder."""
    pids = two_ranks(start, mark, "NUMBER", "COUNT", STUCK="1", HOOKED="1")
    done = run("diagnose", "--job", "local:2", "--json", mark=mark)

    assert done.returncode == 0, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["rank"], finding["pid"]) == (1, pids[1])
    assert re.search(r"waits in all_reduce #\d+ for rank 1\b", finding["summary"])


def test_ranks_in_different_collectives_are_named_with_their_nodes_and_lines(
    start: Start, mark: str
) -> None:
    pids = two_ranks(start, mark, APART="1")
    done = run("diagnose", "--job", "local:2", "--json", mark=mark)

    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    (finding,) = document["findings"]
    node_of = {pid: node["name"] for node in document["nodes"] for pid in node["roots"]}
    assert sorted(node_of.values()) == ["local-0", "local-1"]
    assert (finding["rule"], finding["severity"]) == ("collective-mismatch", "critical")
    assert "1 in all_reduce, 1 in broadcast" in finding["summary"]
    for rank, place, line in ((0, "all_reduce", "main"), (1, "broadcast", "send_weights")):
        (said,) = (each for each in finding["evidence"] if f"in {place} for" in each)
        assert said.startswith(f"rank {rank} on {node_of[pids[rank]]} in {place}")
        assert "rank_of_job.py:" in said
        assert said.endswith(f" {line}")


@pytest.mark.parametrize(
    ("way", "rule", "words"),
    [
        pytest.param(
            "order",
            "collective-mismatch",
            ("groups 1, 4, 2, 3", "rank 0 on ", " for rank 1 on ", "(ranks 2-3) for rank 2 on "),
            marks=ON_DEMAND,
        ),
        (
            "count",
            "collective-mismatch",
            ("all_reduce #4 of group 4 (ranks 1, 3) for rank 3 on ", "barrier #1 of group 0"),
        ),
        pytest.param(
            "operation",
            "collective-mismatch",
            ("of group 3 ", "all_reduce on rank 0 on ", "broadcast on rank 2 on "),
            marks=ON_DEMAND,
        ),
        ("late", "rank-stuck-in-collective", ("for rank 3 on ", "ranks_of_groups.py:")),
    ],
)
def test_ranks_of_several_groups_are_joined_over_the_nodes(
    start: Start, mark: str, way: str, rule: str, words: tuple[str, ...]
) -> None:
    shared = {
        "WAY": way,
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "MPWATCH_TEST_JOB": mark,
    }
    path = str(PROGRAMS / "ranks_of_groups.py")
    ranks = [started_apart(start, path, env={**shared, "RANK": str(n)}) for n in range(4)]
    for program, _ in ranks:
        program.wait_for("ready")
    done = run("diagnose", "--job", "local:2", "--json", mark=mark)

    assert done.returncode == 0, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["rule"] == rule
    assert all(each in finding["summary"] for each in words), finding["summary"]
    assert f" on {finding['node']}" in finding["summary"]


def test_a_dump_has_the_processes_of_all_nodes(sleepers: list[int], mark: str) -> None:
    done = run("dump", "--job", "local:3", "--json", mark=mark)

    assert done.returncode == 0, done.stderr
    nodes = json.loads(done.stdout)["nodes"]
    assert [node["name"] for node in nodes] == ["local-0", "local-1", "local-2"]
    assert {node["state"] for node in nodes} == {"live"}
    assert sorted(p["pid"] for node in nodes for p in node["processes"]) == sorted(sleepers)
    assert [len(node["processes"]) for node in nodes] == [1, 1, 0]


def test_a_dump_as_text_has_the_stacks_of_all_nodes(sleepers: list[int], mark: str) -> None:
    done = run("dump", "--job", "local:2", mark=mark)

    assert done.returncode == 0, done.stderr
    assert "in one look; mpwatch diagnose --job local:2 watches it" in done.stdout
    _, _, stacks = done.stdout.partition("\nSTACKS")
    threads, frame, *_ = stacks.splitlines()[1:]
    assert threads.startswith("2 threads: ")
    assert all(f"({pid}) on local-" in threads for pid in sleepers)
    assert "<module>" in frame


def test_two_nodes_that_do_the_same_are_one_row_and_the_ranks_of_both(
    sleepers: list[int], mark: str
) -> None:
    source = LiveJobSource("local:2", launches("local:2", AgentCommand({"MPWATCH_TEST_JOB": mark})))
    states: list[JobState] = []
    source.start(states.append)
    try:
        until(lambda: bool(states) and set(sleepers) <= ranks_of_nodes(states[-1]).keys())
        until(lambda: len(node_groups(states[-1])) == 1)
    finally:
        source.stop()

    (group,) = node_groups(states[-1])
    assert group.name == "local-0 +1"
    assert {each.row.pid for each in ranks_of(states[-1], group.names)} == set(sleepers)


def test_a_node_is_opened_in_place_and_again_when_its_agent_was_killed(
    sleepers: list[int], mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "RESTART_S", 0.5)
    agent = AgentCommand({"MPWATCH_TEST_JOB": mark})
    source = LiveJobSource("local:2", launches("local:2", agent))
    states: list[JobState] = []
    snapshots: list[Snapshot] = []
    source.start(states.append)
    try:
        until(lambda: bool(states) and sleepers[0] in ranks_of_nodes(states[-1]))
        name = ranks_of_nodes(states[-1])[sleepers[0]]
        opened = source.open(name, sleepers[0])
        opened.start(snapshots.append)
        until(lambda: bool(snapshots))
        root = snapshots[-1].root
        opened.ask(Follow(root))
        until(lambda: "<module>" in functions_of(snapshots[-1]))
        victim = next(pid for pid in agents(mark) if f"--part={name[-1]}/2" in cmdline(pid))
        os.kill(victim, signal.SIGKILL)
        until(lambda: {view.name: view.state for view in states[-1].nodes}[name] != "live")
        count = len(snapshots)
        until(lambda: len(snapshots) > count + 2)
        opened.stop()
    finally:
        source.stop()

    assert root.pid == sleepers[0]
    assert [each.pid for each in snapshots[-1].processes] == [sleepers[0]]
    assert opened.problem == ""
    assert "mpwatch" not in procfs.text(sleepers[0], "maps")
    assert {each.hook.state for each in snapshots[-1].processes} == {"absent"}
    assert agents(mark) == []


FAR_AWAY = """
import os, queue, subprocess, sys, threading, time

def carry(source, target):
    chunks = queue.SimpleQueue()
    def send():
        while True:
            due_s, data = chunks.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            if not data:
                os.close(target)
                return
            while data:
                data = data[os.write(target, data):]
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    data = b"-"
    while data:
        data = os.read(source, 65536)
        chunks.put((time.monotonic() + 1.0, data))
    sender.join()

pipe = subprocess.PIPE
agent = subprocess.Popen(sys.argv[1:], stdin=pipe, stdout=pipe, bufsize=0)
threading.Thread(target=carry, args=(0, agent.stdin.fileno()), daemon=True).start()
carry(agent.stdout.fileno(), 1)
agent.wait()
"""
"""A way on which bytes take a second in each direction."""


def test_a_node_that_is_opened_over_a_long_way_skips_no_reading(
    sleepers: list[int], mark: str
) -> None:
    agent = AgentCommand({"MPWATCH_TEST_JOB": mark})
    far = Launch("far", (sys.executable, "-c", FAR_AWAY, *agent.here()))
    source = LiveJobSource("one node", [far])
    states: list[JobState] = []
    snapshots: list[Snapshot] = []
    source.start(states.append)
    try:
        until(lambda: bool(states) and sleepers[0] in ranks_of_nodes(states[-1]))
        job = source.open("far", sleepers[0])
        job.start(snapshots.append)
        until(lambda: len(snapshots) >= 8)
        job.stop()
    finally:
        source.stop()

    assert job.skipped == 0
    assert agents(mark) == []


def opened(
    spec: str, is_wanted: Callable[[RankRow], bool], function: str, match: AgentCommand
) -> Snapshot:
    """The job of a rank, opened on its node, once a stack of it has a function.

    Args:
        spec: The name of the job.
        is_wanted: Whether a rank is the one to be opened.
        function: It is waited for.
        match: What the agents look for.
    """
    source = LiveJobSource(spec, launches(spec, match))
    states: list[JobState] = []
    snapshots: list[Snapshot] = []

    def place() -> tuple[str, int] | None:
        views = states[-1].nodes if states else ()
        rows = [(view.name, row) for view in views if view.summary for row in view.summary.ranks]
        return next(((name, row.pid) for name, row in rows if is_wanted(row)), None)

    source.start(states.append)
    try:
        until(lambda: place() is not None)
        name, pid = place() or ("", 0)
        job = source.open(name, pid)
        job.start(snapshots.append)
        until(lambda: bool(snapshots))
        job.ask(Follow(next(p.process for p in snapshots[-1].processes if p.pid == pid)))
        until(lambda: function in functions_of(snapshots[-1]))
        count = len(snapshots)
        until(lambda: len(snapshots) > count + 2)
        job.stop()
        assert job.problem == ""
    finally:
        source.stop()
    return snapshots[-1]


def ranks_of_nodes(state: JobState) -> dict[int, str]:
    """The names of nodes by the pids of their ranks."""
    return {
        row.pid: view.name
        for view in state.nodes
        if view.summary is not None
        for row in view.summary.ranks
    }


def functions_of(snapshot: Snapshot) -> set[str]:
    return {
        frame.function
        for process in snapshot.processes
        for thread in process.threads
        for frame in thread.stack
    }


def cmdline(pid: int) -> str:
    return procfs.text(pid, "cmdline").replace("\0", " ")


def test_a_connection_between_two_nodes_is_joined_by_both_ends(start: Start, mark: str) -> None:
    serves = (
        "import socket, time\ns = socket.create_server(('127.0.0.1', 0))\n"
        "print('port', s.getsockname()[1], flush=True)\nc = s.accept()[0]\ntime.sleep(600)"
    )
    reads = "import socket, sys\nsocket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
    shared = {"WORLD_SIZE": "2", "MPWATCH_TEST_JOB": mark}
    program, _ = started_apart(start, "-c", serves, env={**shared, "RANK": "0"})
    port = program.wait_for("port").split()[1]
    _, client = started_apart(start, "-c", reads, port, env={**shared, "RANK": "1"})
    head = Head(launches("local:2", AgentCommand({"MPWATCH_TEST_JOB": mark})))

    def waiting() -> PlacedRank | None:
        for view in head.views():
            for row in view.summary.ranks if view.summary is not None else ():
                if row.pid == client:
                    return PlacedRank(view, row)
        return None

    def words() -> str:
        head.step(0.1)
        found = waiting()
        return "" if found is None else " ".join(waits_across(found, head.views()))

    try:
        until(lambda: "at its other end" in words())
        found = waiting()
        said = words()
        (other,) = {view.name for view in head.views()} - {found.view.name if found else ""}
    finally:
        head.close()

    assert f"rank 1 on {found.view.name if found else ''} waits to read" in said
    assert f" > 127.0.0.1:{port}" in said
    assert f"at its other end is rank 0 on {other}" in said


def stragglers(
    start: Start, mark: str, slow: str, seconds: float, program: str = "", **more: str
) -> tuple[list[JobFinding], list[int]]:
    """What is found about slow ranks of a training of four on two nodes.

    Args:
        start: Starts a program of the test.
        mark: The job.
        slow: The numbers of the slow ranks.
        seconds: How long to watch at most; until something is found.
        program: The command of mpwatch for the agents.
        more: Variables of the ranks.

    Returns:
        Findings; the pids of the ranks.
    """
    path = str(PROGRAMS / "slow_rank.py")
    shared = {
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "SLOW": slow,
        **more,
    }
    # Each of the two agents takes the ranks of its own mark.
    marks = [f"{mark}-{node}" for node in range(2)]
    ranks = [
        started_apart(
            start, path, env={**shared, "RANK": str(n), "MPWATCH_TEST_JOB": marks[n // 2]}
        )
        for n in range(4)
    ]
    for each, _ in ranks:
        each.wait_for("ready")
    ways: list[Launch] = []
    for number, one in enumerate(marks):
        found_here = launches("local:1", AgentCommand({"MPWATCH_TEST_JOB": one}, program))
        assert isinstance(found_here, list)
        ways.append(found_here[0]._replace(name=f"n{number}"))
    head = Head(ways)
    found: list[JobFinding] = []
    end_s = time.monotonic() + seconds
    try:
        while not found and time.monotonic() < end_s:
            head.step(0.5)
            found = [each for each in job_findings(head.views()) if each.rule == STRAGGLER]
        rows = [row for view in head.views() if view.summary for row in view.summary.ranks]
    finally:
        head.close()
    assert all(row.waits_percent is not None for row in rows), rows
    return found, [pid for _, pid in ranks]


def test_the_rank_for_which_the_others_wait_in_each_step_is_named(start: Start, mark: str) -> None:
    (found,), pids = stragglers(start, mark, "2", 200.0)

    assert (found.node, found.rank, found.pid) == ("n1", 2, pids[2])
    assert "slow_input" in found.summary


@ON_DEMAND
def test_a_slow_rank_is_named_with_the_time_of_its_step_by_the_hook(
    start: Start, mark: str
) -> None:
    (found,), _ = stragglers(start, mark, "1", 200.0, HOOKED="1")

    assert (found.node, found.rank) == ("n0", 1)
    assert "each batch takes" in found.evidence[1]


@ON_DEMAND
def test_a_slow_node_is_named_without_a_stack_and_equal_ranks_are_not(
    start: Start, mark: str, tmp_path: Path
) -> None:
    # An interpreter that has no py-spy beside it.
    bare = tmp_path / "python"
    bare.symlink_to(os.path.realpath(sys.executable))
    modules = os.pathsep.join(each for each in sys.path if each)
    program = f"env PATH=/usr/bin:/bin PYTHONPATH={modules} {bare} -m mpwatch"
    (found,), _ = stragglers(start, mark, "2,3", 200.0, program)

    assert found.node == "n1"
    assert found.summary.startswith("ranks 2-3 on n1 are the slowest: the 2 others wait")
    assert "All ranks there are slow" in found.cause

    assert stragglers(start, f"{mark}-equal", "", 120.0, program)[0] == []


def test_a_report_of_a_job_has_its_ranks(sleepers: list[int], mark: str, tmp_path: Path) -> None:
    page = tmp_path / "job.html"
    done = run("report", "--job", "local:2", "--for", "1", "-o", str(page), mark=mark)

    assert (done.returncode, done.stderr) == (0, "")
    text = page.read_text()
    assert "<h1>mpwatch: local:2</h1>" in text
    assert "read from" in text
    assert all(f">{pid}<" in text for pid in sleepers)
    assert agents(mark) == []


def test_a_killed_head_leaves_no_agent(sleepers: list[int], mark: str) -> None:
    head = subprocess.Popen(
        command("diagnose", "--job", "local:2", "--for", "600", mark=mark),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: len(agents(mark)) == 2 and all(map(_observes, agents(mark))))
    head.kill()
    head.wait()
    until(lambda: agents(mark) == [])


def test_two_heads_at_once_have_an_agent_each_and_do_not_disturb_each_other(
    sleepers: list[int], mark: str
) -> None:
    heads = [
        subprocess.Popen(
            command("diagnose", "--job", "local:1", "--for", "600", mark=mark),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    until(lambda: len(agents(mark)) == 2)
    heads[0].kill()
    heads[0].wait()
    until(lambda: len(agents(mark)) == 1)
    assert heads[1].poll() is None
    heads[1].kill()
    heads[1].wait()
    until(lambda: agents(mark) == [])


def test_a_killed_agent_is_named_and_the_others_are_read(sleepers: list[int], mark: str) -> None:
    head = subprocess.Popen(
        command("diagnose", "--job", "local:2", "--for", "4", "--json", mark=mark),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: len(agents(mark)) == 2 and all(map(_observes, agents(mark))))
    victim = next(pid for pid, line in _cmdlines() if mark in line and "--part=1/2" in line)
    os.kill(victim, signal.SIGKILL)
    output, _ = head.communicate(timeout=LIMIT_S)

    document = json.loads(output)
    assert [node["state"] for node in document["nodes"]] == ["live", "ended"]
    assert [each["rule"] for each in document["findings"]] == ["node-not-answering"]
    assert "signal 9" in document["nodes"][1]["problem"]
    assert agents(mark) == []


def test_an_agent_ends_with_its_input_and_prints_nothing_but_frames(
    sleepers: list[int], mark: str
) -> None:
    agent = subprocess.Popen(
        command("node", "--stdio", mark=mark),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert agent.stdout is not None
    first = os.read(agent.stdout.fileno(), 65536)
    until(lambda: _observes(agent.pid))
    ports = bound_ports(agent.pid)
    _, errors = agent.communicate(timeout=LIMIT_S)

    assert first.startswith(b"\xabMPW")
    assert ports == []
    assert errors == b""
    assert agent.returncode == 0


def test_an_agent_refuses_a_configuration_that_it_cannot_read(tmp_path: Path, mark: str) -> None:
    (tmp_path / "mpwatch").mkdir()
    (tmp_path / "mpwatch" / "config.toml").write_text("[values]\nread = maybe\n")

    done = subprocess.run(
        ["env", f"XDG_CONFIG_HOME={tmp_path}", *command("node", "--stdio", mark=mark)],
        input=b"",
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert done.stdout == b""
    assert b"is malformed" in done.stderr
    assert done.returncode != 0


def bound_ports(pid: int) -> list[str]:
    """The lines of the TCP and UDP sockets of a process, whether they listen or are connected."""
    own = {each.strip("socket:[]") for each in procfs.links(pid) if each.startswith("socket:")}
    lines = [
        line
        for table in ("tcp", "tcp6", "udp", "udp6")
        for line in procfs.text(pid, f"net/{table}").splitlines()[1:]
    ]
    return [line for line in lines if line.split()[9] in own]


def test_ssh_reaches_the_node_through_banners(
    sleepers: list[int], mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stand-in client that does with the command what sshd does: gives it to the login shell.
    client = tmp_path / "ssh"
    client.write_text(
        "#!/bin/sh\n"
        'for last; do true; done\nwhile [ "$1" != "--" ]; do shift; done\n'
        'echo "Welcome to $2! Your quota is 93 % full."\n'
        'if [ "$2" = closed ]; then echo "$2: Permission denied (publickey)." >&2; exit 255; fi\n'
        'exec sh -c "$last"\n'
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    done = run("dump", "--job", "ssh:node7,closed", "--json", mark=mark)

    assert done.returncode == 0, done.stderr
    open_node, closed = json.loads(done.stdout)["nodes"]
    assert (open_node["name"], open_node["state"]) == ("node7", "live")
    assert sorted(p["pid"] for p in open_node["processes"]) == sorted(sleepers)
    assert closed["problem"] == "ssh ended with status 255: closed: Permission denied (publickey)."


def test_kubectl_reaches_the_pods_that_have_a_label(
    sleepers: list[int], mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stand-in for kubectl: lists one pod, and runs here what it is asked to run there.
    client = tmp_path / "kubectl"
    client.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = get ]; then echo pod/train-0; exit; fi\n'
        'echo "Defaulted container \\"train\\" out of: train, sidecar" >&2\n'
        'while [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n'
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    done = run("dump", "--job", "k8s:ml/app=train", "--json", mark=mark)

    assert done.returncode == 0, done.stderr
    (node,) = json.loads(done.stdout)["nodes"]
    assert (node["name"], node["state"]) == ("train-0", "live")
    assert sorted(p["pid"] for p in node["processes"]) == sorted(sleepers)


KUBECTL = """#!/bin/sh
verb=$1; shift
pod= name= target= namespace=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        --container=*) name=${1#*=} ;;
        --target=*) target=${1#*=} ;;
        -c) name=$2; shift ;;
        -n) namespace=$2; shift ;;
        -i | --image=* | --profile=*) ;;
        -*) echo "error: unknown flag: $1" >&2; exit 1 ;;
        *) pod=$1 ;;
    esac
    shift
done
shift
case $verb in
    debug) [ "$target" = train ] && echo "$*" > "$0.$namespace.$pod.$name" ;;
    exec)
        if ! [ -e "$0.$namespace.$pod.$name" ]; then
            echo "error: container $name is not valid for pod $pod" >&2; exit 1
        fi
        exec "$@" ;;
esac
"""
"""A stand-in: a container that was added to a pod exists from then on, and runs commands here."""


def test_the_documented_container_is_added_to_a_pod_and_has_its_agent(
    sleepers: list[int], mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = tmp_path / "kubectl"
    client.write_text(KUBECTL)
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (debug,) = documented("kubectl debug ")
    spec = next(line for line in documented("mpwatch job k8s:") if line.count(":") == 2).split()[2]

    before = run("dump", "--job", spec, "--json", mark=mark)
    subprocess.run(["sh", "-c", debug], check=True)
    after = run("dump", "--job", spec, "--json", mark=mark)

    assert before.returncode == 3
    assert "container mpwatch is not valid for pod train-0" in before.stderr
    assert [path.read_text() for path in tmp_path.glob("kubectl.*")] == ["sleep infinity\n"]
    assert after.returncode == 0, after.stderr
    (node,) = json.loads(after.stdout)["nodes"]
    assert (node["name"], node["state"]) == ("train-0", "live")
    assert sorted(p["pid"] for p in node["processes"]) == sorted(sleepers)


def documented(words: str) -> list[str]:
    """The lines of the page about jobs on several machines that begin with these words."""
    page = Path(node_module.__file__).parents[1] / "README.md"
    return [line for line in page.read_text().splitlines() if line.startswith(words)]


def test_a_recording_of_several_nodes_is_read_as_one_job(
    sleepers: list[int], mark: str, tmp_path: Path
) -> None:
    path, page = str(tmp_path / "job.mpw"), tmp_path / "job.html"
    done = run("record", "--job", "local:2", "-o", path, "--for", "5", mark=mark)
    assert done.returncode == 0
    assert re.fullmatch(
        rf"mpwatch: recorded .+ in {path} \(.+\)\. To see it: mpwatch replay {path}\n", done.stderr
    )

    found = mpwatch("diagnose", path, "--json")
    report = mpwatch("report", path, "-o", str(page))
    replay = mpwatch("replay", path)
    trace = mpwatch("trace", path, "-o", str(tmp_path / "trace.json"))

    assert (found.returncode, found.stderr) == (0, "")
    nodes = json.loads(found.stdout)["nodes"]
    assert [(node["name"], node["state"]) for node in nodes] == [
        ("local-0", "live"),
        ("local-1", "live"),
    ]
    assert sorted(pid for node in nodes for pid in node["roots"]) == sorted(sleepers)
    assert report.returncode == 0, report.stderr
    assert all(str(pid) in page.read_text() for pid in sleepers)
    assert replay.returncode == 2
    assert replay.stderr.endswith(
        f"needs a terminal, and there is none here.\n  try: mpwatch diagnose {path}\n"
    )
    assert trace.returncode == 2
    assert "a recording of a job on several machines" in trace.stderr
    assert agents(mark) == []


def mpwatch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mpwatch", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_metrics_of_all_nodes_are_served_with_the_name_of_the_node(
    sleepers: list[int], mark: str
) -> None:
    exporter = subprocess.Popen(
        command("export", "--job", "local:2", "--prometheus", "127.0.0.1:0", mark=mark),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert exporter.stdout is not None
        url = exporter.stdout.readline().split()[1]
        wanted = [
            f'mpwatch_process_open_fds{{node="local-{place}",pid="{pid}"'
            for place, pid in enumerate(sorted(sleepers))
        ]
        until(lambda: all(each in read(url) for each in wanted))
        assert 'mpwatch_node_up{node="local-1"} 1.0' in read(url)
    finally:
        exporter.terminate()
        exporter.communicate(timeout=LIMIT_S)
    assert agents(mark) == []


def read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            text: str = answer.read().decode()
    except urllib.error.HTTPError:
        return ""  # 503 until the nodes have answered
    return text


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("record", "-o", "x.mpw"), 2, "needs one of PID and --job SPEC"),
        (("record", "--job", "mars:1", "-o", "x.mpw"), 2, "is not a job"),
        (("export", "--prometheus", ":0"), 2, "needs one of PID and --job SPEC"),
        (("job", "mars:3"), 2, "is not a job"),
        (("job", "local"), 2, "is not a job"),
        (("job", "slurm:abc"), 2, "is not the number of a Slurm job"),
        (("job", "local:1"), 2, "needs a terminal"),
        (("dump",), 2, "needs one of PID and --job SPEC"),
        (("dump", "1", "--job", "local:1"), 2, "needs one of PID and --job SPEC"),
        (("dump", "--job", "mars:1"), 2, "is not a job"),
        (("report", "-o", "x.html"), 2, "needs one of FILE and --job SPEC"),
        (("report", "a.mpw", "--for", "3", "-o", "x.html"), 2, "--for is for a job"),
        (("dump", "--job", "local:1", "--hook"), 2, "Nothing is injected"),
    ],
)
def test_a_wrong_command_is_one_sentence(
    arguments: tuple[str, ...], code: int, words: str, mark: str
) -> None:
    done = run(*arguments, mark=mark)

    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_of_which_no_node_can_be_read_fails_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    client = tmp_path / "ssh"
    client.write_text("#!/bin/sh\necho 'no route to host' >&2; exit 255\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    done = run("dump", "--job", "ssh:a,b", mark=mark)

    assert done.returncode == 3
    assert done.stderr == (
        "mpwatch: No node of the job can be read; a: ssh ended with status 255: no route to host.\n"
        "  try: ssh a 'mpwatch --version'\n"
    )


@pytest.mark.parametrize(
    ("spec", "name", "added"),
    [
        ("ssh:a", "ssh", "true"),
        ("k8s:a", "kubectl", "echo command terminated with exit code $? >&2"),
    ],
)
def test_a_node_without_mpwatch_has_the_option_that_brings_it(
    spec: str,
    name: str,
    added: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
) -> None:
    client = tmp_path / name
    client.write_text(f"#!/bin/sh\nenv PATH=/nowhere /bin/sh -c 'exec mpwatch node'\n{added}\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    done = run("dump", "--job", spec, mark=mark)

    assert done.returncode == 3
    assert "mpwatch: not found" in done.stderr
    assert done.stderr.splitlines()[1:] == [f"  try: {node_module.BRING_IT}"]
