"""A job over a real sshd by the real OpenSSH client; also over a network that is cut."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mpwatch.nodes.across.judge import job_findings
from mpwatch.nodes.head import node as node_module
from mpwatch.nodes.head.head import STARTING_LIMIT, Head
from mpwatch.nodes.head.node import SILENT_S
from mpwatch.nodes.launchers import relays
from mpwatch.nodes.launchers.engines import launches
from mpwatch.nodes.launchers.launch import AgentCommand
from mpwatch.nodes.launchers.relays import DIRECT_NODES
from mpwatch.nodes.wire.messages import SILENCE_S
from mpwatch.nodes.wire.summary import BYTES_PER_S
from tests import procfs
from tests.conftest import Start, free_port
from tests.integration.nodes.test_job import agents, command, opened, run, until
from tests.integration.nodes.test_job import mark as mark
from tests.integration.nodes.test_job import sleepers as sleepers
from tests.integration.nodes.test_job import stuck_ranks as stuck_ranks
from tests.integration.on_demand import ON_DEMAND

pytestmark = pytest.mark.slow


@pytest.fixture
def server(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """An sshd on the loopback address that prints a banner."""
    return sshd(start, tmp_path, monkeypatch)


def sshd(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str = "127.0.0.1",
    prefix: Sequence[str] = (),
    more: str = "",
) -> int:
    """Start an sshd, which `ssh` on PATH knows as `node7` and `node8`; its pid.

    Args:
        start: Starts a program of the test.
        tmp_path: For its keys.
        monkeypatch: Changes PATH.
        address: Of the server for the client.
        prefix: Words before the command of the server.
        more: Further lines of its configuration.
    """
    sshd = os.environ.get("MPWATCH_SSHD") or shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
    client = shutil.which("ssh")
    if sshd is None or client is None:
        pytest.skip("needs sshd: apt install openssh-server")
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # what the unit of Debian's package makes
    port = free_port()
    listen = "0.0.0.0" if prefix else address
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True
        )
    (tmp_path / "banner").write_text("Authorised use only.\n")
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress {listen}\nHostKey {tmp_path}/host\nPidFile none\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nStrictModes no\nUsePAM no\n"
        f"PermitRootLogin yes\nBanner {tmp_path}/banner\n{more}"
    )
    (tmp_path / "ssh_config").write_text(
        f"Host node7 node8 many-*\n  HostName {address}\n  Port {port}\n"
        f"  IdentityFile {tmp_path}/user\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {tmp_path}/known\n"
        "  StrictHostKeyChecking accept-new\n"
        f"Host stranger\n  HostName {address}\n  Port {port}\n  IdentityFile none\n"
        f"  UserKnownHostsFile {tmp_path}/known2\n  StrictHostKeyChecking accept-new\n"
    )
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {client} -F {tmp_path}/ssh_config "$@"\n')
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    program = start([*prefix, sshd, "-D", "-e", "-f", str(tmp_path / "sshd_config")])
    program.wait_for("Server listening")
    return program.pid


def test_two_hosts_are_read_and_a_third_refuses(
    server: int, sleepers: list[int], mark: str
) -> None:
    done = run("dump", "--job", "ssh:node7,node8,stranger", "--json", mark=mark)

    assert done.returncode == 0, done.stderr
    first, second, stranger = json.loads(done.stdout)["nodes"]
    for node in (first, second):
        assert node["state"] == "live"
        assert sorted(p["pid"] for p in node["processes"]) == sorted(sleepers)
    assert stranger["state"] == "failed"
    assert "Permission denied" in stranger["problem"]
    until(lambda: agents(mark) == [])


def test_a_node_is_opened_over_the_connection(
    server: int, stuck_ranks: list[int], mark: str
) -> None:
    match = AgentCommand({"MPWATCH_TEST_JOB": mark})
    snapshot = opened("ssh:node7", lambda row: row.rank == 1, "save_checkpoint", match)

    assert [each.pid for each in snapshot.processes] == [stuck_ranks[1]]
    assert {each.hook.state for each in snapshot.processes} == {"absent"}
    until(lambda: agents(mark) == [])


@ON_DEMAND
@pytest.mark.timeout(600)
def test_many_hosts_are_read_although_others_accept_and_say_nothing(
    server: int, sleepers: list[int], mark: str, tmp_path: Path
) -> None:
    silent = socket.create_server(("127.0.0.1", 0), backlog=64)
    with (tmp_path / "ssh_config").open("a") as file:
        port = silent.getsockname()[1]
        file.write(f"Host hung-*\n  HostName 127.0.0.1\n  Port {port}\n")
    hung = [f"hung-{number}" for number in range(2 * STARTING_LIMIT)]
    many = [f"many-{number}" for number in range(DIRECT_NODES - len(hung))]
    match = AgentCommand({"MPWATCH_TEST_JOB": mark})
    found = launches(f"ssh:{','.join([*hung, *many])}", match)
    assert isinstance(found, Sequence)
    # Dozens of agents start on the cores of this machine; those that hang are given up by ssh.
    head = Head([each._replace(start_s=120.0) for each in found])
    try:
        step_until(head, lambda: head.is_settled, limit_s=500.0)
        views = head.views()
    finally:
        head.close()
        silent.close()

    assert {(view.state, view.problem) for view in views[len(hung) :]} == {("live", "")}
    assert {view.state for view in views[: len(hung)]} == {"failed"}
    assert {"timed out" in view.problem for view in views[: len(hung)]} == {True}
    until(lambda: agents(mark) == [])


@pytest.mark.timeout(600)
def test_many_hosts_are_read_through_few_connections_of_the_head(
    start: Start, sleepers: list[int], mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of these hosts have one server, and the command of ssh that the head has.
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    sshd(start, tmp_path, monkeypatch, more=f"MaxStartups 100\nSetEnv PATH={path}\n")
    monkeypatch.setattr(relays, "DIRECT_NODES", 4)
    monkeypatch.setattr(relays, "BATCH_NODES", 4)
    monkeypatch.setattr(node_module, "RESTART_S", 0.5)
    spec = f"ssh:{','.join(f'many-{number}' for number in range(12))}"
    head = Head(launches(spec, AgentCommand({"MPWATCH_TEST_JOB": mark})), restarts=True)

    def states() -> list[str]:
        return [view.state for view in head.views()]

    def clients() -> list[int]:
        return [p for p in procfs.children(os.getpid()) if mark in procfs.text(p, "cmdline")]

    try:
        step_until(head, lambda: states() == ["live"] * 12, limit_s=300.0)
        before = clients()
        os.kill(before[0], signal.SIGKILL)
        step_until(head, lambda: states() != ["live"] * 12)
        step_until(head, lambda: states() == ["live"] * 12 and head.is_settled, limit_s=300.0)
        after = clients()
        views = head.views()
    finally:
        head.close()

    assert (len(before), len(after)) == (3, 3)
    assert {view.summary.node.processes for view in views if view.summary} == {len(sleepers)}
    until(lambda: agents(mark) == [])


@ON_DEMAND
def test_a_host_behind_another_one_is_reached_by_a_key_that_only_the_users_agent_has(
    server: int,
    start: Start,
    sleepers: list[int],
    mark: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    sshd(start, inner, monkeypatch)
    shutil.copy(inner / "user.pub", tmp_path)  # both servers let in whoever has this key
    door_port, inner_port = (
        (folder / "sshd_config").read_text().split()[1] for folder in (tmp_path, inner)
    )
    (inner / "ssh_config").write_text(
        f"Host door\n  Port {door_port}\nHost inner\n  Port {inner_port}\n  ProxyJump door\n"
        "Host *\n  HostName 127.0.0.1\n  IdentityFile none\n"
        f"  UserKnownHostsFile {inner}/known\n  StrictHostKeyChecking accept-new\n"
    )

    def dumped() -> subprocess.CompletedProcess[str]:
        return run("dump", "--job", "ssh:inner", "--json", mark=mark)

    monkeypatch.setenv("SSH_AUTH_SOCK", str(inner / "agent"))
    start(["ssh-agent", "-D", "-a", str(inner / "agent")]).wait_for("SSH_AUTH_SOCK")
    without_key = dumped()
    subprocess.run(["ssh-add", "-q", str(inner / "user")], check=True)
    (inner / "user").unlink()
    done = dumped()
    os.kill(server, signal.SIGTERM)
    until(lambda: not procfs.is_alive(server))
    without_door = dumped()

    assert without_key.returncode == 3
    assert "Permission denied (publickey" in without_key.stderr
    assert done.returncode == 0, done.stderr
    (node,) = json.loads(done.stdout)["nodes"]
    assert (node["name"], node["state"]) == ("inner", "live")
    assert sorted(p["pid"] for p in node["processes"]) == sorted(sleepers)
    assert without_door.returncode == 3
    assert f"port {door_port}: Connection refused" in without_door.stderr
    until(lambda: agents(mark) == [])


@pytest.mark.parametrize("victim", ["head", "ssh", "sshd"])
def test_no_agent_outlives_the_head_or_the_connection(
    victim: str, server: int, sleepers: list[int], mark: str
) -> None:
    head = subprocess.Popen(
        command("diagnose", "--job", "ssh:node7,node8", "--for", "600", mark=mark),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: len(_remote_agents(mark)) == 2)
        if victim == "head":
            head.kill()
        else:
            victims = _connections(head.pid if victim == "ssh" else server, victim)
            assert len(victims) >= 2
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
        until(lambda: _remote_agents(mark) == [])
    finally:
        head.kill()
        head.wait()
    until(lambda: agents(mark) == [])


CUT_S = 30.0
HEAD_ADDRESS, NODE_ADDRESS = "198.18.77.1", "198.18.77.2"
"""Of the block for tests of devices (RFC 2544)."""


class Link:
    """A network between this namespace and another one; it can drop all packets."""

    def __init__(self, holder: int) -> None:
        self._inside = ("nsenter", "-t", str(holder), "-n")
        self.name = f"mpw{os.getpid()}"
        other = f"{self.name}n"
        self._do("ip", "link", "add", self.name, "type", "veth", "peer", "name", other)
        self._do("ip", "link", "set", other, "netns", str(holder))
        self._ends = (((), self.name, NODE_ADDRESS), (self._inside, other, HEAD_ADDRESS))
        for (prefix, device, _), address in zip(
            self._ends, (HEAD_ADDRESS, NODE_ADDRESS), strict=True
        ):
            self._do(*prefix, "ip", "address", "add", f"{address}/30", "dev", device)
            self._do(*prefix, "ip", "link", "set", device, "up")

    def cut(self) -> None:
        """Drop all packets: they are sent to an address that no device has."""
        for prefix, device, other in self._ends:
            words = (*prefix, "ip", "neighbour", "replace", other, "dev", device)
            self._do(*words, "lladdr", "02:00:00:00:00:99", "nud", "permanent")

    def mend(self) -> None:
        """Let packets through again."""
        for prefix, device, other in self._ends:
            self._do(*prefix, "ip", "neighbour", "del", other, "dev", device)

    def remove(self) -> None:
        """Remove both ends."""
        self._do("ip", "link", "del", self.name)

    def _do(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=30)


@pytest.fixture
def link(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    """A network to `node7`, whose sshd is in a network namespace of its own."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
        pytest.skip("needs root, ip and nsenter, for network namespaces")
    holder = start(["unshare", "-n", "sh", "-c", "echo made; exec sleep 600"])
    holder.wait_for("made")
    try:
        made = Link(holder.pid)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no virtual network can be made here: {error.stderr.decode().strip()}")
    try:
        inside = ("nsenter", "-t", str(holder.pid), "-n")
        sshd(start, tmp_path, monkeypatch, NODE_ADDRESS, inside)
        yield made
    finally:
        made.remove()


@ON_DEMAND
def test_a_network_that_is_cut_for_half_a_minute_is_shown_and_the_node_comes_back(
    link: Link, sleepers: list[int], mark: str
) -> None:
    match = AgentCommand({"MPWATCH_TEST_JOB": mark})
    head = Head(launches("ssh:node7", match), restarts=True)
    try:
        step_until(head, lambda: head.views()[0].state == "live" and head.is_settled)
        (agent,) = _remote_agents(mark)
        rss_before = _rss_bytes(agent)
        received_before = head.views()[0].received_bytes
        link.cut()
        cut_s = time.monotonic()
        step_until(head, lambda: head.views()[0].state == "silent")
        step_until(head, lambda: time.monotonic() - cut_s >= CUT_S)
        (silent,) = head.views()
        (finding,) = job_findings(head.views())
        link.mend()
        step_until(head, lambda: head.views()[0].state == "live")
        came_back_s = time.monotonic() - cut_s - CUT_S
        (back,) = head.views()

        assert _remote_agents(mark) == [agent]
        assert (silent.state, finding.rule) == ("silent", "node-not-answering")
        assert (silent.last_seen_s or 0.0) > SILENT_S
        assert silent.problem == f"Nothing was received for {silent.last_seen_s:.0f} s."
        # TCP sends again what was lost; the summaries of the time between are small or not made.
        received = back.received_bytes - received_before
        assert received < (CUT_S + came_back_s + 10.0) * BYTES_PER_S
        assert _rss_bytes(agent) - rss_before < 16 << 20
        print(f"back {came_back_s:.1f} s after the cut of {CUT_S:.0f} s, {received} bytes")
    finally:
        head.close()
    until(lambda: agents(mark) == [])


@ON_DEMAND
def test_an_agent_behind_a_cut_network_ends_by_itself_once_its_head_is_gone(
    link: Link, sleepers: list[int], mark: str
) -> None:
    head = Head(launches("ssh:node7", AgentCommand({"MPWATCH_TEST_JOB": mark})))
    step_until(head, lambda: head.views()[0].state == "live")
    link.cut()
    head.close()

    # The agent hears nothing of the end; it ends after its own time, without the network.
    until(lambda: _remote_agents(mark) == [], limit_s=SILENCE_S + 30.0)


def step_until(head: Head, is_done: Callable[[], bool], limit_s: float = 120.0) -> None:
    end_s = time.monotonic() + limit_s
    while not is_done():
        assert time.monotonic() < end_s, head.views()
        head.step(0.1)


def _rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _remote_agents(mark: str) -> list[int]:
    """The agents themselves, not the clients and shells that have their command line as well."""
    return [pid for pid in agents(mark) if "python" in procfs.executable(pid)]


def _connections(root: int, name: str) -> list[int]:
    """The processes of a program below another process."""
    return [pid for pid in procfs.descendants(root) if procfs.executable(pid) == name]
