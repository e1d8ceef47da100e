"""SPEC, the name of a job on several machines: `ray:...`, `slurm:...`, `ssh:...`, and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from mpwatch.nodes.launchers import kubernetes, local, ray, slurm, ssh
from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch, ChangingNodes, Launch

LAUNCHERS: Mapping[str, Callable[[str, AgentCommand], Sequence[Launch] | ChangingNodes]] = (
    MappingProxyType(
        {
            "local": local.launches,
            "ssh": ssh.launches,
            "slurm": slurm.launches,
            "k8s": kubernetes.launches,
            "ray": ray.nodes,
        }
    )
)
FORMS = (
    "local:N, ssh:HOST,HOST, ssh:@HOSTFILE, slurm:JOBID, k8s:[NAMESPACE/]POD,POD, ray:auto or "
    "ray:HOST:PORT"
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
    return launcher(rest, agent)
