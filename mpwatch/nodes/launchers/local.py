"""`local:N`: N agents on this machine, each of which observes a part of its jobs."""

from __future__ import annotations

from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch, Launch

NODES_LIMIT = 256


def launches(rest: str, agent: AgentCommand) -> list[Launch]:
    """The agents; `rest` is what follows `local:`.

    Raises:
        CannotLaunch: It is not a number of agents.
    """
    count = int(rest) if rest.isascii() and rest.isdecimal() else 0
    if not 0 < count <= NODES_LIMIT:
        raise CannotLaunch(
            f"local:{rest} is not local:N with N from 1 to {NODES_LIMIT}.",
            "mpwatch dump --job local:2",
        )
    return [
        Launch(f"local-{index}", agent.here(f"--part={index}/{count}")) for index in range(count)
    ]
