"""SPEC, the name of a job on several machines: `local:N`, `ssh:...`, `slurm:...`, `k8s:...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mpwatch.nodes.launchers import kubernetes, local, slurm, ssh
from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch, Launch

LAUNCHERS: Mapping[str, Callable[[str, AgentCommand], list[Launch]]] = MappingProxyType(
    {
        "local": local.launches,
        "ssh": ssh.launches,
        "slurm": slurm.launches,
        "k8s": kubernetes.launches,
    }
)
FORMS = "local:N, ssh:HOST,HOST, ssh:@HOSTFILE, slurm:JOBID or k8s:[NAMESPACE/]POD,POD"


def launches(spec: str, agent: AgentCommand) -> list[Launch]:
    """The nodes of a job, each with the command that starts its agent; nothing is started.

    Raises:
        CannotLaunch: SPEC is not as `FORMS` says, its engine is absent, or it names no node.
    """
    kind, colon, rest = spec.partition(":")
    launcher = LAUNCHERS.get(kind)
    if launcher is None or not colon:
        raise CannotLaunch(f"{spec!r} is not a job: a job is {FORMS}.", "mpwatch job --help")
    return launcher(rest, agent)
