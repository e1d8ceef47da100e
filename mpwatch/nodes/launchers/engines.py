"""SPEC, the name of a job on several machines, and what starts its agents.

An engine starts a command on each node: this machine, OpenSSH, Slurm, kubectl or Ray. Each function
gets what follows `KIND:` in SPEC.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from mpwatch.model.sanitize import clean
from mpwatch.nodes.launchers import ray
from mpwatch.nodes.launchers.launch import (
    AgentCommand,
    CannotLaunch,
    ChangingNodes,
    Launch,
    RelayWay,
    engine,
    lines_of,
)
from mpwatch.nodes.launchers.relays import in_batches

FORMS = (
    "local:N, ssh:HOST,HOST, ssh:@HOSTFILE, slurm:JOBID, k8s:[NAMESPACE/]POD,POD, ray:auto or "
    "ray:HOST:PORT"
)
NODES_LIMIT = 256
CONNECT_S = 10
"""ssh gives up on a host after so long: connecting, its greeting and the exchange of keys
(ConnectTimeout in ssh_config(5), OpenSSH 9.2)."""
ALIVE_S = 15
"""Interval of the questions whether the host is still there; after eight without an answer ssh
ends."""
HOSTFILE_BYTES_LIMIT = 1 << 20
_REFUSED = re.compile(
    r"(?:kex_exchange_identification: (?:read: )?)?Connection (?:closed|reset) by .*"
)
"""Each line that ssh prints where the server, or that of a jump host, has ended the connection
before the exchange of keys, as sshd does at random while many are not authenticated yet
(MaxStartups in sshd_config(5), OpenSSH 9.2). Where more is printed, there is another reason."""
_NO_ADDRESS = " by UNKNOWN port 65535"
"""Of a connection that is no socket but the pipes of another client, to a jump host (ProxyJump in
ssh_config(5), OpenSSH 9.2)."""
_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%\[\]-]{0,252}")
_INSTALL_SLURM = "apt-get install slurm-client"
_SLURM_JOB = re.compile(r"([0-9]{1,18})(?:([_+])([0-9]{1,9}))?")
"""The number of a job; `123_4` is a task of an array, `123+1` one of the components of a job."""
_OF_SLURM = ("SLURM_", "SRUN_", "SQUEUE_")
_WHICH_CLUSTER = frozenset(("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"))
_CANCELLED = re.compile(r"\*\*\* STEP \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([^*\n]+?))? \*\*\*")
"""What slurmstepd prints about a step that ends with its job, whether the job has ended by itself,
by scancel(1) or at its time limit (seen with Slurm 22.05)."""
_EXPIRED = re.compile(r"Slurm job \S+ has expired|Invalid job id specified")
"""What srun prints where the job has ended before, and squeue once Slurm has forgotten it."""
_SLURM_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_INSTALL_KUBECTL = "apt-get install kubernetes-client"
_KUBERNETES_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_SELECTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*=[A-Za-z0-9._-]*")


def _on_this_machine(rest: str, agent: AgentCommand) -> list[Launch]:
    """`local:N`: N agents on this machine, each of which observes a part of its jobs.

    With the command of mpwatch in a container or in other namespaces, they observe the jobs there.

    Raises:
        CannotLaunch: It is not a number of agents.
    """
    count = int(rest) if rest.isascii() and rest.isdecimal() else 0
    if not 0 < count <= NODES_LIMIT:
        raise CannotLaunch(
            f"local:{rest} is not local:N with N from 1 to {NODES_LIMIT}.",
            "mpwatch dump --job local:2",
        )
    parts = [f"--part={index}/{count}" for index in range(count)]
    if not agent.program:
        return [Launch(f"local-{i}", agent.here(part)) for i, part in enumerate(parts)]
    return [
        Launch(f"local-{i}", ("sh", "-c", agent.shell_line(part)), agent.check)
        for i, part in enumerate(parts)
    ]


def _by_ssh(rest: str, agent: AgentCommand) -> list[Launch]:
    """`ssh:HOST,HOST` or `ssh:@HOSTFILE`: the user's own OpenSSH client, one process for each host.

    Raises:
        CannotLaunch: ssh is not installed, or a host is no host.
    """
    hosts = _hosts_of_file(rest[1:]) if rest.startswith("@") else rest.split(",")
    hosts = [host for host in dict.fromkeys(map(str.strip, hosts)) if host]
    if not hosts:
        raise CannotLaunch(f"ssh:{rest} names no host.", "mpwatch dump --job ssh:HOST,HOST")
    # A name that begins with a dash would be an option of ssh.
    wrong = next((host for host in hosts if not _HOST_NAME.fullmatch(host)), None)
    if wrong is not None:
        raise CannotLaunch(f"{wrong!r} is not a host.", "mpwatch dump --job ssh:HOST,HOST")
    program = engine("ssh", "apt-get install openssh-client")
    options = [
        "-T",
        "-oBatchMode=yes",
        f"-oConnectTimeout={CONNECT_S}",
        f"-oServerAliveInterval={ALIVE_S}",
        "-oServerAliveCountMax=8",
    ]

    def to(host: str, line: str) -> tuple[str, ...]:
        return (program, *options, "--", host, line)

    def relay(host: str, others: Sequence[str]) -> tuple[str, ...]:
        return to(host, agent.relay(f"ssh:{','.join(others)}"))

    return [
        Launch(
            host,
            to(host, agent.shell_line()),
            f"ssh {host} {shlex.quote(agent.check)}",
            explain=_why_not_through,
            is_refused=_is_refused,
            relay=RelayWay(host, "", partial(relay, host)),
        )
        for host in hosts
    ]


def _why_not_through(told: str) -> str:
    """What the client that was to reach the jump host has said; empty if no jump host failed."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    if not lines or not lines[-1].endswith(_NO_ADDRESS):
        return ""
    said = next((line for line in reversed(lines) if not _REFUSED.fullmatch(line)), "")
    return (
        f"ssh: {clean(said).removeprefix('ssh: ').rstrip('.')}; {clean(lines[-1])}." if said else ""
    )


def _is_refused(told: str) -> bool:
    """Whether the connection was refused for the moment only."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return bool(lines) and all(_REFUSED.fullmatch(line) for line in lines)


def _hosts_of_file(path: str) -> list[str]:
    """The first word of each line; `#` begins a comment, as in hostfiles of MPI and DeepSpeed."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(HOSTFILE_BYTES_LIMIT)
    except OSError as error:
        raise CannotLaunch(
            f"The hostfile {path} cannot be read: {error.strerror}.", f"ls -l {shlex.quote(path)}"
        ) from None
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [words[0] for words in lines if words]


class _SlurmJob(NamedTuple):
    """One job of Slurm, one running task of an array, or one component of a heterogeneous job."""

    shown: str
    """`123`, `123_4` or `123+1`."""
    number: str
    """As srun takes it and as all processes have it in SLURM_JOB_ID: of a task its own number, of a
    component that of the first one (seen with Slurm 22.05)."""
    component: str
    """The number of the component; empty if the job is not heterogeneous."""
    nodes: str
    """`node[7-8]`."""


def _by_slurm(rest: str, agent: AgentCommand) -> list[Launch]:
    """`slurm:JOBID`: one step in the job's own allocation for each node, beside the running ones.

    Inside an allocation the number may be left out. All running tasks of an array and all
    components of a heterogeneous job are read; `123_4` and `123+1` name one of them.

    `--overlap` shares the cpus of the running steps (Slurm 20.11 and later; memory and generic
    resources from 22.05 on), `--gres=none` and `--mem=0` ask for nothing that they hold. Only
    processes of this job are observed.

    Raises:
        CannotLaunch: Slurm is not installed, or does not know the job.
    """
    asked = rest or os.environ.get("SLURM_JOB_ID", "")
    number, at, nodes = asked.partition("@")
    if at:
        return _slurm_steps_on(number, nodes.split(","), agent)
    if not _SLURM_JOB.fullmatch(asked):
        words = "No number of a Slurm job is given, and this is not inside an allocation."
        raise CannotLaunch(
            f"{asked!r} is not the number of a Slurm job." if asked else words,
            "squeue --me; mpwatch job slurm:JOBID",
        )
    srun = engine("srun", _INSTALL_SLURM)
    jobs = _slurm_jobs(asked)
    if not rest:  # the last task of an array has the number of the array
        jobs = [job for job in jobs if job.number == asked]
    if not jobs:
        raise CannotLaunch(f"Slurm has no running job {asked}.", "squeue --me")
    hosts = {nodes: _slurm_hosts(nodes) for nodes in {job.nodes for job in jobs}}
    # Two components on one node have their processes under one number: one agent reads them.
    steps: dict[tuple[str, str], _SlurmJob] = {}
    for job in jobs:
        for host in hosts[job.nodes]:
            steps.setdefault((job.number, host), job)
    has_several = len({job.number for job in jobs}) > 1
    return [
        _slurm_step(srun, job, host, f"{host}-{job.shown}" if has_several else host, agent)
        for (_, host), job in steps.items()
    ]


def _slurm_steps_on(number: str, hosts: Sequence[str], agent: AgentCommand) -> list[Launch]:
    """`slurm:JOBID@NODE,NODE`, for relays: steps on nodes of which Slurm need not be asked again.

    Raises:
        CannotLaunch: Slurm is not installed, or it is not of this form.
    """
    found = _SLURM_JOB.fullmatch(number)
    if found is None or not all(map(_SLURM_NODE.fullmatch, hosts)):
        raise CannotLaunch(f"{number!r} on {hosts} is no job of Slurm.", "squeue --me")
    component = found.group(3) if found.group(2) == "+" else ""
    job = _SlurmJob(number, found.group(1), component or "", "")
    srun = engine("srun", _INSTALL_SLURM)
    return [_slurm_step(srun, job, host, host, agent) for host in hosts]


def _slurm_step(srun: str, job: _SlurmJob, host: str, name: str, agent: AgentCommand) -> Launch:
    """A step of one task on one node of a job."""
    own = replace(agent, environment={"SLURM_JOB_ID": job.number, **agent.environment})
    where = [f"--jobid={job.number}", *([f"--het-group={job.component}"] if job.component else [])]
    options = ("--overlap", *where, "-N1", "-n1", "--gres=none", "--mem=0", "--quiet")
    group = f"{job.number}+{job.component}" if job.component else job.number

    def step(line: str) -> tuple[str, ...]:
        return (srun, *options, "-w", host, "sh", "-c", line)

    def relay(others: Sequence[str]) -> tuple[str, ...]:
        return step(own.relay(f"slurm:{group}@{','.join(others)}"))

    return Launch(
        name,
        step(own.shell_line()),
        " ".join(["srun --overlap", *where, "-w", host, own.check]),
        explain=partial(_why_ended, job.shown),
        environment=_without_own_allocation(),
        relay=RelayWay(host, group, relay),
    )


def _slurm_jobs(asked: str) -> list[_SlurmJob]:
    """The running jobs that a number stands for.

    Raises:
        CannotLaunch: squeue is not installed, or fails.
    """
    command = [engine("squeue", _INSTALL_SLURM), "-h", "-j", asked, "-t", "RUNNING"]
    try:
        found = lines_of([*command, "-o", "%A %i %N"], _without_own_allocation())
    except CannotLaunch as error:
        if not _EXPIRED.search(str(error)):
            raise
        return []
    jobs: list[tuple[int, _SlurmJob]] = []
    for words in map(str.split, found):
        parts = _SLURM_JOB.fullmatch(words[1]) if len(words) == 3 else None
        if parts is None:
            continue
        first, kind, index = parts.groups("")
        number, component = (first, index) if kind == "+" else (words[0], "")
        jobs.append((int(index or 0), _SlurmJob(words[1], number, component, words[2])))
    jobs.sort(key=itemgetter(0))  # squeue begins with the task that was started last
    # Slurm 22.05 prints all components where one is named.
    return [job for _, job in jobs if "+" not in asked or job.shown == asked]


def _slurm_hosts(nodes: str) -> list[str]:
    """The names in `node[7-8]`.

    Raises:
        CannotLaunch: scontrol is not installed, fails, or prints something else.
    """
    names = [nodes]
    if not _SLURM_NODE.fullmatch(nodes):
        scontrol = engine("scontrol", _INSTALL_SLURM)
        names = lines_of([scontrol, "show", "hostnames", nodes], _without_own_allocation())
    wrong = next((name for name in names if not _SLURM_NODE.fullmatch(name)), None)
    if wrong is not None:
        raise CannotLaunch(f"Slurm named a node {wrong!r}, which is no name of a host.")
    return names


def _without_own_allocation() -> dict[str, str]:
    """The environment without the variables that are options of Slurm's commands.

    Inside an allocation they describe that one, and a step in another would ask for its GPUs, its
    memory or its components, or put a label before each line.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in _WHICH_CLUSTER or not name.startswith(_OF_SLURM)
    }


def _why_ended(job: str, told: str) -> str:
    """What slurmstepd and srun have printed, in one sentence; empty if the job may still run."""
    cancelled = _CANCELLED.search(told)
    if cancelled is None:
        return f"Slurm job {job} has ended." if _EXPIRED.search(told) else ""
    reason = cancelled.group(1)
    if reason is None:
        return f"Slurm cancelled the agent, as it does when job {job} ends."
    if reason == "TIME LIMIT":
        return f"Slurm cancelled the agent: job {job} has reached its time limit."
    return f"Slurm cancelled the agent: {clean(reason).lower()}."


def _by_kubectl(rest: str, agent: AgentCommand) -> list[Launch]:
    """`k8s:[NAMESPACE/]POD,POD[:CONTAINER]`, or a label in place of pods: `LABEL=VALUE`.

    One `kubectl exec` for each pod, in the container that is named or in its default one.

    Raises:
        CannotLaunch: kubectl is not installed, or there is no such pod.
    """
    namespace, slash, pods = rest.partition("/")
    if not slash or "=" in namespace:
        namespace, pods = "", rest
    if namespace and not _KUBERNETES_NAME.fullmatch(namespace):
        raise CannotLaunch(f"{namespace!r} is not a namespace.", "kubectl get namespaces")
    pods, colon, container = pods.partition(":")
    if colon and not _KUBERNETES_NAME.fullmatch(container):
        raise CannotLaunch(f"{container!r} is no name of a container.", "kubectl describe pod POD")
    chosen = ["-c", container] if colon else []
    kubectl = engine("kubectl", _INSTALL_KUBECTL)
    where = ["-n", namespace] if namespace else []
    if "=" in pods:
        names = _selected(kubectl, where, pods)
    else:
        names = [name for name in dict.fromkeys(map(str.strip, pods.split(","))) if name]
    wrong = next((name for name in names if not _KUBERNETES_NAME.fullmatch(name)), None)
    if wrong is not None or not names:
        raise CannotLaunch(f"k8s:{rest} names no pod.", "kubectl get pods")
    return [
        Launch(
            name,
            (kubectl, "exec", "-i", *where, *chosen, name, "--", "sh", "-c", agent.shell_line()),
            " ".join(["kubectl exec", *where, *chosen, name, "--", agent.check]),
        )
        for name in names
    ]


def _selected(kubectl: str, where: list[str], selector: str) -> list[str]:
    """The running pods with a label."""
    if not all(_SELECTOR.fullmatch(part) for part in selector.split(",")):
        raise CannotLaunch(f"{selector!r} is not LABEL=VALUE.", "kubectl get pods --show-labels")
    fields = ["--field-selector=status.phase=Running", "-o", "name"]
    lines = lines_of([kubectl, "get", "pods", *where, "-l", selector, *fields])
    return [line.removeprefix("pod/") for line in lines]


_BETWEEN_NODES: Mapping[str, Callable[[str, AgentCommand], list[Launch]]] = MappingProxyType(
    {"ssh": _by_ssh, "slurm": _by_slurm}
)
"""Those by which a node reaches others of its job."""
LAUNCHERS: Mapping[str, Callable[[str, AgentCommand], Sequence[Launch] | ChangingNodes]] = (
    MappingProxyType(
        {
            **_BETWEEN_NODES,
            "local": _on_this_machine,
            "k8s": _by_kubectl,
            "ray": ray.nodes,
        }
    )
)


def launches(spec: str, agent: AgentCommand) -> Sequence[Launch] | ChangingNodes:
    """The nodes of a job, each with the command that starts its agent; no agent is started.

    Nodes that change are to be closed; `mpwatch.nodes.head.head.Head` does that for those it
    is given.

    Raises:
        CannotLaunch: SPEC is not as `FORMS` says, its engine is absent, or it names no node.
    """
    kind, colon, rest = spec.partition(":")
    launcher = LAUNCHERS.get(kind)
    if launcher is None or not colon:
        raise CannotLaunch(f"{spec!r} is not a job: a job is {FORMS}.", "mpwatch job --help")
    found = launcher(rest, agent)
    return in_batches(found) if isinstance(found, Sequence) else found


def relayed(spec: str, agent: AgentCommand) -> list[Launch]:
    """What a relay starts: the agent of its own node, then those of the nodes of SPEC.

    Raises:
        CannotLaunch: SPEC is no list of nodes, or its engine is absent.
    """
    kind, _, rest = spec.partition(":")
    launcher = _BETWEEN_NODES.get(kind)
    if launcher is None:
        raise CannotLaunch(f"{spec!r} is nothing that a relay can reach.")
    own = agent.here() if not agent.program else ("sh", "-c", agent.shell_line())
    return [Launch("here", own), *launcher(rest, agent)]
