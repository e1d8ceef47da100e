"""A job over a real sshd on the loopback address, by the real OpenSSH client."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests import procfs
from tests.conftest import Start
from tests.integration.nodes.test_job import agents, command, free_port, run, until
from tests.integration.nodes.test_job import mark as mark
from tests.integration.nodes.test_job import sleepers as sleepers

pytestmark = pytest.mark.slow


@pytest.fixture
def server(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """An sshd that prints a banner; `ssh` on PATH knows it as `node7` and `node8`."""
    sshd = os.environ.get("MPWATCH_SSHD") or shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
    client = shutil.which("ssh")
    if sshd is None or client is None:
        pytest.skip("needs sshd: apt install openssh-server")
    port = free_port()
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True
        )
    (tmp_path / "banner").write_text("Authorised use only.\n")
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nPidFile none\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nStrictModes no\nUsePAM no\n"
        f"PermitRootLogin yes\nBanner {tmp_path}/banner\n"
    )
    (tmp_path / "ssh_config").write_text(
        f"Host node7 node8\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {tmp_path}/user\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {tmp_path}/known\n"
        "  StrictHostKeyChecking accept-new\n"
        f"Host stranger\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile none\n"
        f"  UserKnownHostsFile {tmp_path}/known2\n  StrictHostKeyChecking accept-new\n"
    )
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {client} -F {tmp_path}/ssh_config "$@"\n')
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    program = start([sshd, "-D", "-e", "-f", str(tmp_path / "sshd_config")])
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


def _remote_agents(mark: str) -> list[int]:
    """The agents themselves, not the clients and shells that have their command line as well."""
    return [pid for pid in agents(mark) if "python" in procfs.executable(pid)]


def _connections(root: int, name: str) -> list[int]:
    """The processes of a program below another process."""
    return [pid for pid in procfs.descendants(root) if procfs.executable(pid) == name]
