"""A job of a real Slurm: one slurmctld and four slurmd, each with its own pid namespace.

MPWATCH_SLURM names a directory into which Debian's packages slurmctld, slurmd, slurm-client,
slurm-wlm-basic-plugins, libmunge2 and libhwloc15 were unpacked (`dpkg -x`); nothing is installed.
Tried with Slurm 22.05.8.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpwatch import nodes as mpwatch_nodes
from mpwatch.nodes.head.head import Head
from mpwatch.nodes.head.node import BRING_IT
from mpwatch.nodes.launchers import relays
from mpwatch.nodes.launchers.engines import launches
from mpwatch.nodes.launchers.launch import AgentCommand
from tests import procfs
from tests.conftest import PROGRAMS, Start, free_port
from tests.integration.nodes.test_job import agents, opened, until
from tests.integration.nodes.test_single_file import archive as archive
from tests.integration.on_demand import ON_DEMAND

pytestmark = pytest.mark.slow
NODES = ("n1", "n2", "n3", "n4")
RANKS = 2 * len(NODES)
NODE_MB = 1000
"""Memory of each node; a job that does not say how much it needs has all of it."""
COMMANDS = ("salloc", "sbatch", "sbcast", "srun", "squeue", "scontrol", "scancel", "sinfo")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
PluginDir={plugins}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=fake
ReturnToService=2
SlurmdParameters=config_overrides
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def slurm(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A running Slurm whose commands are on PATH."""
    unpacked = os.environ.get("MPWATCH_SLURM")
    if unpacked is None:
        pytest.skip("needs MPWATCH_SLURM=DIR with Slurm's packages")
    if os.geteuid() != 0:
        pytest.skip("needs root, for namespaces of each slurmd")
    host = socket.gethostname()
    libraries = next(Path(unpacked).glob("usr/lib/*-linux-gnu"))
    plugins = libraries / "slurm-wlm"
    lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 "
        f"RealMemory={NODE_MB}"
        for name in NODES
    ]
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (tmp_path / name).mkdir()
    configuration = tmp_path / "slurm.conf"
    head, _, partition = CONFIGURATION.rstrip("\n").rpartition("\n")
    text = "\n".join((head, *lines, partition, ""))
    configuration.write_text(
        text.format(host=host, port=free_port(), folder=tmp_path, plugins=plugins)
    )
    environment = {
        **os.environ,
        "SLURM_CONF": str(configuration),
        "LD_LIBRARY_PATH": f"{libraries}:{plugins}",
    }
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in COMMANDS:
        script = folder / name
        script.write_text(
            f"#!/bin/sh\nexport SLURM_CONF={configuration} LD_LIBRARY_PATH={libraries}:{plugins}\n"
            f'exec {unpacked}/usr/bin/{name} "$@"\n'
        )
        script.chmod(0o755)
    programs = f"{unpacked}/usr/sbin"
    start([f"{programs}/slurmctld-wlm", "-D"], env=environment)
    for node in NODES:
        slurmd = [f"{programs}/slurmd-wlm", "-D", "-N", node, "-d", f"{programs}/slurmstepd-wlm"]
        # Without --kill-child, the end of unshare would leave slurmd and what it runs.
        start(["unshare", "-pf", "--kill-child", "--mount-proc", *slurmd], env=environment)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    until(lambda: _output("sinfo", "-h", "-t", "idle", "-o", "%D") == "4")
    # Slurm 22.05 ignores `Gres=` of a node whose slurmd runs under another name than its host.
    _output("scontrol", "update", f"NodeName={','.join(NODES)}", "Gres=fake:1")
    return tmp_path


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip()


@pytest.fixture
def rank_script(slurm: Path) -> Path:
    """What starts one of eight gloo ranks, of which rank 5 is stuck."""
    script = slurm / "rank.sh"
    script.write_text(
        f"#!/bin/sh\nexport RANK=$SLURM_PROCID WORLD_SIZE={RANKS} STUCK=5 MASTER_ADDR=127.0.0.1 "
        f"MASTER_PORT={free_port()}\nexec {sys.executable} {PROGRAMS / 'rank_of_job.py'}\n"
    )
    script.chmod(0o755)
    return script


@pytest.fixture
def job(rank_script: Path) -> Iterator[str]:
    """The number of a job of these ranks, two on each node."""
    ranks = subprocess.Popen(
        ["srun", "-N4", "--ntasks-per-node=2", "--gres=fake:1", "--unbuffered", str(rank_script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ranks.stdout is not None
    said = ""
    while said.count("ready") < RANKS:  # srun joins lines that arrive together
        line = ranks.stdout.readline()
        assert line
        said += line
    number = _output("squeue", "-h", "-o", "%A")
    yield number
    _output("scancel", number)
    ranks.wait(60)
    ranks.stdout.close()


def mpwatch(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mpwatch", *arguments]


def test_a_stuck_rank_of_a_slurm_job_is_named_and_no_fault_leaves_an_agent(
    job: str, slurm: Path
) -> None:
    # One test for everything: starting the cluster and its ranks takes half a minute.
    spec = f"slurm:{job}"
    done = subprocess.run(
        mpwatch("diagnose", "--job", spec, "--json"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [(node["name"], node["state"]) for node in document["nodes"]] == [
        (name, "live") for name in NODES
    ]
    (finding,) = document["findings"]
    assert (finding["rule"], finding["node"]) == ("rank-stuck-in-collective", "n3")
    assert finding["rank"] == 5
    assert finding["summary"].startswith("7 ranks wait in all_reduce for rank 5 on n3")
    assert "save_checkpoint" in finding["summary"]
    assert "ranks 0-4, 6-7 on 4 nodes" in finding["evidence"][0]

    snapshot = opened(spec, lambda row: row.rank == 5, "save_checkpoint", AgentCommand())
    assert [each.label for each in snapshot.processes] == ["rank 5"]
    until(lambda: _python_agents(job) == [])

    _check_a_file_that_was_sent(job, slurm)
    for fault in (_kill_head, _kill_launchers, _cancel):
        head = subprocess.Popen(
            mpwatch("diagnose", "--job", spec, "--for", "300"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            until(lambda: len(_python_agents(job)) == 4)
            until(lambda: len(_steps_of_agents(job)) == 4)
            _check_what_the_agents_take(job)
            time.sleep(1.0)
            fault(head, job)
            until(lambda: _python_agents(job) == [])
            until(lambda: _steps_of_agents(job) == [])
            said = head.communicate(timeout=60)[0]
        finally:
            head.kill()
            head.wait()
    # The last fault was the end of the allocation.
    assert f"Slurm cancelled the agent, as it does when job {job} ends." in said


def test_many_nodes_of_a_slurm_job_are_reached_through_steps_of_others(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "DIRECT_NODES", 2)
    monkeypatch.setattr(relays, "BATCH_NODES", 2)
    head = Head(launches(f"slurm:{job}", AgentCommand()))
    try:
        end_s, counts = time.monotonic() + 90, [0]
        # A node finds its two ranks one after the other.
        while counts != [2] * len(NODES) and time.monotonic() < end_s:
            head.step()
            views = head.views()
            counts = [len(view.summary.ranks) for view in views if view.summary]
        own = [
            pid for pid in procfs.children(os.getpid()) if "--relay" in procfs.text(pid, "cmdline")
        ]
    finally:
        head.close()

    assert [(view.name, view.state, view.problem) for view in views] == [
        (name, "live", "") for name in NODES
    ]
    assert counts == [2] * len(NODES)
    assert len(own) == 2
    until(lambda: _python_agents(job) == [])
    until(lambda: _steps_of_agents(job) == [])


@pytest.fixture
def starting_rank(slurm: Path) -> Path:
    """A batch script that becomes one process with the environment of a rank."""
    script = slurm / "starting.sh"
    script.write_text(
        "#!/bin/sh\nexport RANK=0 WORLD_SIZE=1\n"
        f"exec {sys.executable} -c 'import time; time.sleep(600)'\n"
    )
    script.chmod(0o755)
    return script


def test_all_of_an_array_and_of_a_heterogeneous_job_are_read(
    starting_rank: Path, slurm: Path
) -> None:
    few = ["-n1", "--mem=100", "--output=/dev/null"]
    array = _submitted("--array=0-1", "--nodelist=n1", *few, str(starting_rank))
    started = f"srun --het-group=0,1 {starting_rank}"
    both = _submitted(*few, "--nodelist=n3", ":", *few, "--nodelist=n4", f"--wrap={started}")
    until(lambda: _output("squeue", "-h", "-t", "RUNNING", "-o", "%A").count("\n") == 3)
    tasks, components = _read_once_started(array), _read_once_started(both)

    assert list(tasks) == [f"n1-{array}_0", f"n1-{array}_1"]
    assert list(components) == ["n3", "n4"]
    assert _read(f"{array}_1") == {"n1": tasks[f"n1-{array}_1"]}
    assert _read(f"{both}+1") == {"n4": components["n4"]}
    _check_nodes_without_mpwatch(f"{array}_1")
    # What Slurm sets inside of another allocation is not asked of this job.
    foreign = {
        "SLURM_HET_SIZE": "2",
        "SLURM_GRES": "fake:2",
        "SLURM_GPUS_PER_NODE": "1",
        "SLURM_MEM_PER_NODE": str(NODE_MB),
        "SLURM_LABELIO": "1",
        "SQUEUE_PARTITION": "other",
    }
    assert _read(array, **foreign) == tasks
    own = {"SLURM_JOB_ID": array, "SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": "1"}
    assert _read("", **own) == {"n1": tasks[f"n1-{array}_1"]}


WITHOUT_MPWATCH = (
    ("/nowhere/mpwatch", "mpwatch: not found", BRING_IT),
    (f"{sys.executable} -I -S -m mpwatch", "No module named mpwatch", BRING_IT),
    ("python3 /nowhere/mpwatch.pyz", "can't open file '/nowhere/mpwatch.pyz'", "srun --overlap "),
)
"""Commands of mpwatch that no node has, with what a node says and what is advised."""


def _check_nodes_without_mpwatch(job: str) -> None:
    """What the node has said is told, and not what srun adds to it."""
    for agent, told, fix in WITHOUT_MPWATCH:
        done = subprocess.run(
            mpwatch("dump", "--job", f"slurm:{job}", "--agent", agent),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3
        sentence, advice = done.stderr.splitlines()
        assert told in sentence
        assert "Exited with exit code" not in sentence
        assert advice.startswith(f"  try: {fix}")


def _submitted(*arguments: str) -> str:
    """The number of a batch job."""
    number = _output("sbatch", "--parsable", *arguments)
    assert number.isdecimal()
    return number


def _read_once_started(job: str) -> dict[str, list[int]]:
    """The same once each node has its process."""
    found: dict[str, list[int]] = {}

    def has_one_each() -> bool:
        found.update(_read(job))
        return {len(pids) for pids in found.values()} == {1}

    until(has_one_each)
    return found


def _read(job: str, **environment: str) -> dict[str, list[int]]:
    """The pids that are read of each node of a job."""
    done = subprocess.run(
        mpwatch("dump", "--job", f"slurm:{job}", "--json", "--no-stacks"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return {
        node["name"]: [process["pid"] for process in node["processes"]]
        for node in json.loads(done.stdout)["nodes"]
    }


def test_the_dashboard_inside_an_allocation_needs_no_spec(rank_script: Path) -> None:
    inside = f"srun {rank_script} > /dev/null & exec {shlex.join(mpwatch('job'))}"
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    allocation = subprocess.Popen(
        ["setsid", "--ctty", "salloc", "-N4", "--ntasks-per-node=2", "sh", "-c", inside],
        stdin=end,
        stdout=end,
        stderr=end,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(end)
    try:
        _shown(terminal, "ranks wait in all_reduce for rank 5 on n3")
        number = _output("squeue", "-h", "-o", "%A")
        assert len(_python_agents(number)) == 4
        os.write(terminal, b"q")
        _shown(terminal, "Relinquishing job allocation")
        allocation.wait(60)
        until(lambda: _python_agents(number) == [])
    finally:
        os.close(terminal)
        allocation.kill()
        allocation.wait()


def _shown(terminal: int, words: str) -> None:
    """Read what is written to a terminal until these words have been."""
    text, end_s = b"", time.monotonic() + 120
    while words.encode() not in _ESCAPES.sub(b"", text):
        assert time.monotonic() < end_s, _ESCAPES.sub(b"", text)[-4000:]
        if select.select([terminal], [], [], 1.0)[0]:
            try:
                text += os.read(terminal, 1 << 16)
            except OSError:
                pytest.fail(f"the command has ended: {_ESCAPES.sub(b'', text)[-4000:]!r}")


_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


@ON_DEMAND
def test_the_single_file_is_brought_to_the_nodes_as_readme_says(
    archive: str, job: str, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(mpwatch_nodes.__file__).parent / "README.md").read_text()
    recipe = [line for line in guide.splitlines() if "123456" in line and "/tmp/" in line]
    # A folder of this test in place of /tmp, and the dump in place of the dashboard.
    sends, opens = (
        line.replace("123456", job).replace("/tmp/", f"{slurm}/sent-") for line in recipe
    )
    # An interpreter without packages, and a home where the file is unpacked.
    bare, home = slurm / "bare", slurm / "home"
    venv.create(bare, with_pip=False)
    home.mkdir()
    monkeypatch.setenv("PATH", f"{bare / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    shutil.copy(archive, slurm / "mpwatch.pyz")

    sent = subprocess.run(sends, shell=True, cwd=slurm, capture_output=True, text=True, check=False)
    assert sent.returncode == 0, sent.stderr
    (slurm / "mpwatch.pyz").unlink()
    done = subprocess.run(
        opens.replace("mpwatch job", f"{sys.executable} -m mpwatch dump --json --job"),
        shell=True,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [(node["state"], node["problem"]) for node in document["nodes"]] == [("live", None)] * 4
    assert sorted(each["rank"] for node in document["nodes"] for each in _ranks(node)) == [
        *range(RANKS)
    ]
    stacks = {
        thread["stack_source"]
        for node in document["nodes"]
        for rank in _ranks(node)
        for thread in rank["threads"]
    }
    assert "py-spy" in stacks


def _check_a_file_that_was_sent(job: str, folder: Path) -> None:
    """The way of README: sbcast brings the program of the agent to the nodes."""
    program, sent = folder / "agent", folder / "sent"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mpwatch "$@"\n')
    # The four nodes of this test have one file system: the last one that writes has it.
    done = subprocess.run(
        ["sbcast", "--force", f"--jobid={job}", str(program), str(sent)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    program.unlink()
    document = json.loads(
        _output(*mpwatch("dump", "--job", f"slurm:{job}", "--json", "--agent", f"sh {sent}"))
    )
    assert [node["state"] for node in document["nodes"]] == ["live"] * 4
    assert sorted(each["rank"] for node in document["nodes"] for each in _ranks(node)) == [
        *range(8)
    ]


def _check_what_the_agents_take(job: str) -> None:
    """The ranks hold the one resource of each node; the steps of the agents ask for none."""
    steps, agents_of_job = _steps(job), _steps_of_agents(job)
    assert [step for step in steps if "gres:fake" in step and step not in agents_of_job]
    assert not [step for step in agents_of_job if "gres:fake" in step]


def _steps(job: str) -> list[str]:
    return _output("scontrol", "show", "step", job).split("\n\n")


def _steps_of_agents(job: str) -> list[str]:
    """The steps of agents that Slurm has; it has them for some seconds after their end."""
    return [step for step in _steps(job) if "Name=sh" in step]


def _ranks(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in node["processes"] if each["rank"] is not None]


def _python_agents(job: str) -> list[int]:
    return [pid for pid in agents(f"SLURM_JOB_ID={job}") if "python" in procfs.executable(pid)]


def _kill_head(head: subprocess.Popen[str], _job: str) -> None:
    head.kill()


def _kill_launchers(head: subprocess.Popen[str], _job: str) -> None:
    for pid in procfs.children(head.pid):
        os.kill(pid, signal.SIGKILL)


def _cancel(_head: subprocess.Popen[str], job: str) -> None:
    _output("scancel", job)
