"""The commands for each SPEC of a job; only stand-ins of engines are started."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from mpwatch.nodes.launchers import engines
from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch, Launch

AGENT = AgentCommand()


def launches(job: str, agent: AgentCommand) -> Sequence[Launch]:
    """The commands of a job whose nodes are known from the start."""
    found = engines.launches(job, agent)
    assert isinstance(found, Sequence)
    return found


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def stand_in(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_local_agents_divide_the_jobs_of_this_machine() -> None:
    found = launches("local:3", AgentCommand({"RUN": "a b"}))

    assert [each.name for each in found] == ["local-0", "local-1", "local-2"]
    assert found[1].command == (
        *(sys.executable, "-m", "mpwatch", "node", "--stdio"),
        *("--match=RUN=a b", "--part=1/3"),
    )


def test_local_agents_are_started_by_the_command_that_was_given() -> None:
    program = "docker exec -i train mpwatch"
    first, second = launches("local:2", AgentCommand({"RUN": "a b"}, program))

    assert shlex.split(shlex.split(second.command[-1])[-1]) == [
        *("exec", *program.split(), "node", "--stdio", "--match=RUN=a b", "--part=1/2"),
    ]
    assert (first.command[0], first.check) == ("sh", f"{program} --version")


def test_ssh_is_the_users_own_client_without_questions(programs: Path) -> None:
    stand_in(programs, "ssh", "exit 0")

    first, second = launches("ssh:node7,ada@node8", AGENT)

    assert (first.name, second.name) == ("node7", "ada@node8")
    assert first.command[0] == str(programs / "ssh")
    assert "-oBatchMode=yes" in first.command
    assert first.command[-3:-1] == ("--", "node7")
    assert "node --stdio" in first.command[-1]


@pytest.mark.parametrize(
    ("told", "is_refused"),
    [
        (
            "kex_exchange_identification: read: Connection reset by peer\r\n"
            "Connection reset by 10.0.0.7 port 22\r\n",
            True,
        ),
        ("Connection closed by UNKNOWN port 65535\n", True),
        ("Connection to node7 closed by remote host.\n", False),
        ("Access denied by pam_slurm_adopt\nConnection closed by 10.0.0.7 port 22\n", False),
        ("ada@node7: Permission denied (publickey).\n", False),
        ("", False),
    ],
)
def test_a_host_that_sshd_refuses_at_random_is_tried_again(
    programs: Path, told: str, is_refused: bool
) -> None:
    stand_in(programs, "ssh", "exit 0")
    (launch,) = launches("ssh:node7", AGENT)

    assert launch.is_refused is not None
    assert launch.is_refused(told) == is_refused


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (
            "ada@door: Permission denied (publickey).\r\nConnection closed by UNKNOWN port 65535\n",
            "ssh: ada@door: Permission denied (publickey); "
            "Connection closed by UNKNOWN port 65535.",
        ),
        (
            "ssh: connect to host door port 22: No route to host\r\n"
            "kex_exchange_identification: Connection closed by remote host\r\n"
            "Connection closed by UNKNOWN port 65535\r\n",
            "ssh: connect to host door port 22: No route to host; "
            "Connection closed by UNKNOWN port 65535.",
        ),
        ("Connection closed by UNKNOWN port 65535\n", ""),
        ("Access denied by pam_slurm_adopt\nConnection closed by 10.0.0.7 port 22\n", ""),
        ("ada@node7: Permission denied (publickey).\n", ""),
        ("", ""),
    ],
)
def test_the_reason_why_a_jump_host_was_not_reached_is_reported(
    programs: Path, told: str, sentence: str
) -> None:
    stand_in(programs, "ssh", "exit 0")
    (launch,) = launches("ssh:node7", AGENT)

    assert launch.explain is not None
    assert launch.explain(told) == sentence


def test_hosts_come_from_a_hostfile(programs: Path, tmp_path: Path) -> None:
    stand_in(programs, "ssh", "exit 0")
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# ours\nnode7 slots=8\n\nnode8 # the other\nnode7\n")

    assert [each.name for each in launches(f"ssh:@{hostfile}", AGENT)] == ["node7", "node8"]


def test_the_command_on_another_machine_can_be_given() -> None:
    agent = AgentCommand({"SLURM_JOB_ID": "7; rm -rf /"}, "python3 /shared/mpwatch.pyz")

    words = shlex.split(agent.shell_line())

    assert words[:3] == ["exec", "sh", "-c"]
    assert shlex.split(words[3]) == [
        *("exec", "python3", "/shared/mpwatch.pyz", "node", "--stdio"),
        "--match=SLURM_JOB_ID=7; rm -rf /",
    ]


def started(environment: dict[str, str], folder: Path) -> bytes:
    """What the shell of another machine prints when it is given the command of an agent."""
    done = subprocess.run(
        ["sh", "-c", AgentCommand().shell_line()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=folder,
        check=False,
    )
    return done.stdout


def test_this_python_is_used_where_it_has_mpwatch(programs: Path, tmp_path: Path) -> None:
    stand_in(programs, "mpwatch", "echo from PATH")

    assert started({**os.environ}, tmp_path).startswith(b"\xabMPW")


def test_this_python_is_left_alone_where_it_has_no_mpwatch(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(programs, "mpwatch", 'echo "mpwatch $*"')
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}

    assert started(environment, tmp_path) == b"mpwatch node --stdio\n"
    (programs / "mpwatch").unlink()
    assert b"mpwatch: not found" in started(environment, tmp_path)


def test_a_single_file_is_run_by_any_python_where_this_one_is_not(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "mpwatch.pyz"
    archive.touch()
    here = tmp_path / "here"
    here.mkdir()
    for folder, name in ((here, "here"), (programs, "python3")):
        stand_in(folder, "python3", f'echo "{name} $*"')
    stand_in(programs, "mpwatch", 'echo "mpwatch $*"')
    monkeypatch.setattr(sys, "executable", str(here / "python3"))
    monkeypatch.setattr(sys, "argv", [str(archive)])
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    line = AgentCommand().shell_line()

    assert started(environment, tmp_path) == f"here {archive} node --stdio\n".encode()
    (here / "python3").unlink()
    assert started(environment, tmp_path) == f"python3 {archive} node --stdio\n".encode()
    archive.unlink()
    left = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, check=True)
    assert left.stdout == b"mpwatch node --stdio\n"


def test_a_slurm_job_is_one_step_for_each_of_its_nodes(programs: Path) -> None:
    stand_in(programs, "srun", "exit 0")
    stand_in(programs, "squeue", 'echo "4711 4711 node[7-8]"')
    stand_in(programs, "scontrol", 'test "$3" = "node[7-8]" && echo node7 && echo node8')

    first, second = launches("slurm:4711", AGENT)

    assert (first.name, second.name) == ("node7", "node8")
    assert {"--overlap", "--jobid=4711", "-N1", "-n1"} <= set(first.command)
    assert {"--gres=none", "--mem=0"} <= set(first.command)
    assert second.command[second.command.index("-w") + 1] == "node8"
    assert "--match=SLURM_JOB_ID=4711" in first.command[-1]


# What squeue of Slurm 22.05 prints of an array, and of a heterogeneous job, by `%A %i %N`.
ARRAY = ("4 4_1 n2", "5 4_0 n[1-2]")
HETEROGENEOUS = ("2 2+0 n1", "3 2+1 n2")


@pytest.mark.parametrize(
    ("spec", "lines", "nodes"),
    [
        (
            "slurm:4",
            ARRAY,
            {
                "n2-4_1": ("4", "", "n2", "4"),
                "n1-4_0": ("5", "", "n1", "5"),
                "n2-4_0": ("5", "", "n2", "5"),
            },
        ),
        ("slurm:4_0", ARRAY[1:], {"n1": ("5", "", "n1", "5"), "n2": ("5", "", "n2", "5")}),
        ("slurm:", ARRAY, {"n2": ("4", "", "n2", "4")}),
        ("slurm:2", HETEROGENEOUS, {"n1": ("2", "0", "n1", "2"), "n2": ("2", "1", "n2", "2")}),
        ("slurm:2+1", HETEROGENEOUS, {"n2": ("2", "1", "n2", "2")}),
        ("slurm:3", HETEROGENEOUS[1:], {"n2": ("2", "1", "n2", "2")}),
        ("slurm:2", ("2 2+0 n1", "3 2+1 n1"), {"n1": ("2", "0", "n1", "2")}),
    ],
)
def test_all_tasks_of_an_array_and_all_components_of_a_job_are_read(
    spec: str,
    lines: Sequence[str],
    nodes: dict[str, tuple[str, str, str, str]],
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(programs, "srun", "exit 0")
    stand_in(programs, "squeue", "\n".join(f"echo '{line}'" for line in lines))
    stand_in(programs, "scontrol", 'test "$3" = "n[1-2]" && echo n1 && echo n2')
    monkeypatch.setenv("SLURM_JOB_ID", "4")  # of the task 1 of the array, as its processes have it

    def said(launch: Launch) -> tuple[str, str, str, str]:
        """Job and component of the step, its node, and the job of the processes to observe."""
        words = {each.partition("=")[0]: each.partition("=")[2] for each in launch.command}
        (matched, *_) = re.findall(r"--match=SLURM_JOB_ID=([0-9]+)", launch.command[-1])
        node = launch.command[launch.command.index("-w") + 1]
        return words["--jobid"], words.get("--het-group", ""), node, matched

    assert {each.name: said(each) for each in launches(spec, AGENT)} == nodes


def test_a_step_is_not_made_by_the_variables_of_another_allocation(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(programs, "squeue", 'env > "$0.env"; echo "7 7 n1"')
    stand_in(programs, "srun", 'env > "$0.env"')
    foreign = {"SLURM_GPUS": "8", "SLURM_HET_SIZE": "2", "SRUN_CPUS_PER_TASK": "4"}
    kept = {"SLURM_CONF": str(tmp_path), "SLURM_CLUSTERS": "c", "HOME": str(tmp_path)}
    for name, value in {**foreign, **kept, "SQUEUE_PARTITION": "p"}.items():
        monkeypatch.setenv(name, value)

    (launch,) = launches("slurm:7", AGENT)
    pipes = launch.start()
    pipes.wait()
    for stream in (pipes.stdin, pipes.stdout, pipes.stderr):
        assert stream is not None
        stream.close()

    for name in ("squeue", "srun"):
        lines = (programs / f"{name}.env").read_text().splitlines()
        variables = dict(line.partition("=")[::2] for line in lines)
        assert not {*foreign, "SQUEUE_PARTITION"} & variables.keys()
        assert variables.items() >= kept.items()


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (
            "slurmstepd-n1: error: *** STEP 4711.2 ON n1 CANCELLED AT 2026-11-23T18:37:14 ***\n"
            "srun: error: n1: task 0: Terminated",
            "Slurm cancelled the agent, as it does when job 4711 ends.",
        ),
        (
            "slurmstepd: error: *** STEP 4711.1 ON n1 CANCELLED AT 2026-11-23T18:38:28 "
            "DUE TO TIME LIMIT ***\nsrun: error: n1: task 0: Terminated",
            "Slurm cancelled the agent: job 4711 has reached its time limit.",
        ),
        (
            "slurmstepd: error: *** STEP 4711.1 ON n1 CANCELLED AT 2026-11-23T18:38:28 "
            "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
            "Slurm cancelled the agent: node failure, see slurmctld log for details.",
        ),
        ("srun: error: Slurm job 4711 has expired", "Slurm job 4711 has ended."),
        (
            "srun: error: Unable to confirm allocation for job 4711: Invalid job id specified",
            "Slurm job 4711 has ended.",
        ),
        ("srun: error: n1: task 0: Killed", ""),
    ],
)
def test_the_end_of_an_allocation_is_one_sentence(programs: Path, told: str, sentence: str) -> None:
    stand_in(programs, "srun", "exit 0")
    stand_in(programs, "squeue", 'echo "4711 4711 node7"')
    stand_in(programs, "scontrol", "echo node7")
    (launch,) = launches("slurm:4711", AGENT)

    assert launch.explain is not None
    assert launch.explain(told) == sentence


def test_inside_an_allocation_the_job_need_not_be_named(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(programs, "srun", "exit 0")
    stand_in(programs, "squeue", 'echo "$3 $3 n1"')
    stand_in(programs, "scontrol", "echo n1")
    monkeypatch.setenv("SLURM_JOB_ID", "12")

    assert "--jobid=12" in launches("slurm:", AGENT)[0].command


def test_pods_are_named_or_chosen_by_a_label(programs: Path) -> None:
    stand_in(programs, "kubectl", "echo pod/train-0; echo pod/train-1")

    named = launches("k8s:ml/train-0,train-1", AGENT)
    chosen = launches("k8s:ml/app=train", AGENT)

    assert [each.name for each in named] == ["train-0", "train-1"]
    assert named == chosen
    assert named[0].command[1:6] == ("exec", "-i", "-n", "ml", "train-0")
    for named_one in ("k8s:ml/train-0,train-1:debug", "k8s:ml/app=train:debug"):
        (of_container, _) = launches(named_one, AGENT)
        assert of_container.command[1:8] == ("exec", "-i", "-n", "ml", "-c", "debug", "train-0")
        assert "-n ml -c debug train-0" in of_container.check


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("mars:1", "is not a job"),
        ("local", "is not a job"),
        ("local:0", "local:N"),
        ("ssh:", "names no host"),
        ("ssh:-oProxyCommand=reboot", "is not a host"),
        ("ssh:@/nowhere/hosts", "cannot be read"),
        ("slurm:../x", "is not the number of a Slurm job"),
        ("slurm:", "No number of a Slurm job is given, and this is not inside an allocation"),
        ("k8s:ml/", "names no pod"),
        ("k8s:--kubeconfig=x", "is not LABEL=VALUE"),
        ("k8s:ml/pod:", "is no name of a container"),
        ("k8s:ml/pod:-it", "is no name of a container"),
        ("k8s:-x/pod", "is not a namespace"),
        ("ray:", "names no cluster"),
    ],
)
def test_a_spec_that_names_no_job_is_refused_in_one_sentence(
    spec: str, words: str, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for name in ("ssh", "kubectl", "srun"):
        stand_in(programs, name, "exit 0")

    with pytest.raises(CannotLaunch, match=words):
        launches(spec, AGENT)


@pytest.mark.parametrize(
    ("spec", "program"), [("ssh:a", "ssh"), ("slurm:1", "srun"), ("k8s:a", "kubectl")]
)
def test_an_absent_engine_is_named_with_the_command_that_installs_it(
    spec: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(CannotLaunch, match=f"{program} is not installed") as caught:
        launches(spec, AGENT)

    assert caught.value.fix.startswith("apt-get install ")


def test_an_engine_that_fails_is_reported_with_its_error(programs: Path) -> None:
    stand_in(programs, "srun", "exit 0")
    stand_in(programs, "squeue", 'echo "slurm_load_jobs error: Invalid job id" >&2; exit 1')

    with pytest.raises(CannotLaunch, match="squeue failed: slurm_load_jobs error: Invalid job id"):
        launches("slurm:99", AGENT)


def test_the_log_of_an_engine_does_not_hide_its_message(programs: Path) -> None:
    log = 'E1128 01:36:08.650267   18814 memcache.go:265] "Unhandled Error" err="dial tcp"'
    refused = "The connection to the server localhost:8080 was refused"
    stand_in(
        programs, "kubectl", f"echo '{log}' >&2; echo '{log}' >&2; echo '{refused}' >&2; exit 1"
    )

    with pytest.raises(CannotLaunch) as caught:
        launches("k8s:ml/app=train", AGENT)
    stand_in(programs, "kubectl", f"echo '{log}' >&2; exit 1")
    with pytest.raises(CannotLaunch, match="kubectl failed: E1128 01:36:08"):
        launches("k8s:ml/app=train", AGENT)

    assert str(caught.value) == f"kubectl failed: {refused}"


@pytest.mark.parametrize(
    "squeue",
    ["exit 0", 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'],
    ids=["a while ago", "long ago"],
)
def test_a_slurm_job_that_has_ended_is_reported(squeue: str, programs: Path) -> None:
    for name in ("srun", "scontrol"):
        stand_in(programs, name, "exit 0")
    stand_in(programs, "squeue", squeue)

    with pytest.raises(CannotLaunch, match="no running job 99") as caught:
        launches("slurm:99", AGENT)

    assert caught.value.fix == "squeue --me"


def test_ray_is_not_imported_to_say_that_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(CannotLaunch, match="Ray is not installed") as caught:
        launches("ray:auto", AGENT)

    # No index of packages has mpwatch.
    assert caught.value.fix == f"{sys.executable} -m pip install ray"
    assert "ray" not in sys.modules
