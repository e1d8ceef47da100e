"""`k8s:[NAMESPACE/]POD,POD[:CONTAINER]` or `k8s:[NAMESPACE/]LABEL=VALUE[:CONTAINER]`.

One `kubectl exec` for each pod, in the container that is named or in its default one.
"""

from __future__ import annotations

import re

from mpwatch.nodes.launchers.launch import (
    AgentCommand,
    CannotLaunch,
    Launch,
    engine,
    lines_of,
)

INSTALL = "https://kubernetes.io/docs/tasks/tools/"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_SELECTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*=[A-Za-z0-9._-]*")


def launches(rest: str, agent: AgentCommand) -> list[Launch]:
    """One `kubectl exec` for each pod; `rest` is what follows `k8s:`.

    Raises:
        CannotLaunch: kubectl is not installed, or there is no such pod.
    """
    namespace, slash, pods = rest.partition("/")
    if not slash or "=" in namespace:
        namespace, pods = "", rest
    if namespace and not _NAME.fullmatch(namespace):
        raise CannotLaunch(f"{namespace!r} is not a namespace.", "kubectl get namespaces")
    pods, colon, container = pods.partition(":")
    if colon and not _NAME.fullmatch(container):
        raise CannotLaunch(f"{container!r} is no name of a container.", "kubectl describe pod POD")
    chosen = ["-c", container] if colon else []
    kubectl = engine("kubectl", INSTALL)
    where = ["-n", namespace] if namespace else []
    if "=" in pods:
        names = _selected(kubectl, where, pods)
    else:
        names = [name for name in dict.fromkeys(map(str.strip, pods.split(","))) if name]
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
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
