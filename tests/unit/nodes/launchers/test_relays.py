"""How nodes are divided into batches, and how the nodes of a batch are named to their relay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mpwatch.nodes.launchers.engines import launches, relayed
from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch, Launch, RelayWay
from mpwatch.nodes.launchers.relays import BATCH_NODES, DIRECT_NODES, RelayedNodes, in_batches

AGENT = AgentCommand({"MARK": "it's"}, program="python3 /shared/mpwatch.pyz")


@pytest.fixture(autouse=True)
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ssh", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def nodes(count: int, group: str = "") -> list[Launch]:
    return [
        Launch(
            f"{group}n{number}",
            ("reach", f"n{number}"),
            relay=RelayWay(f"n{number}", group, lambda others: ("relay", *others)),
        )
        for number in range(count)
    ]


def test_some_dozens_of_nodes_are_reached_directly() -> None:
    few = nodes(DIRECT_NODES)

    assert in_batches(few) is few


def test_very_many_nodes_keep_their_names_order_and_checks() -> None:
    many = nodes(1000)
    found = in_batches(many)

    assert isinstance(found, RelayedNodes)
    assert [each.name for each in found.launches()] == [each.name for each in many]
    assert all(each.open is not None for each in found.launches())
    assert found.launches() is found.launches()
    found.close()


def test_what_cannot_reach_others_stays_direct() -> None:
    alone = [each._replace(name=f"alone-{each.name}", relay=None) for each in nodes(3)]
    found = in_batches([*alone, *nodes(BATCH_NODES * 3)])

    assert isinstance(found, RelayedNodes)
    assert found.launches()[:3] == tuple(alone)


def test_the_relay_of_hosts_is_told_their_names() -> None:
    found = launches("ssh:me@a,b,c", AGENT)
    assert isinstance(found, Sequence)
    way = found[0].relay
    assert way is not None
    command = way.command(["b", "c"])

    # Up to its command line, it is reached as its agent is.
    assert command[:-1] == found[0].command[:-1]
    assert "--relay ssh:b,c" in command[-1]
    assert "--match=" in command[-1]
    # The relay has to know how to start the agents behind it.
    assert "--agent" in command[-1]


def test_a_relay_starts_its_own_agent_and_those_of_the_hosts_that_it_was_told() -> None:
    own, *others = relayed("ssh:b,c", AGENT)

    assert own.command[:2] == ("sh", "-c")
    assert [each.name for each in others] == ["b", "c"]
    assert others[0].command[-2:-1] == ("b",)
    assert "/shared/mpwatch.pyz node --stdio" in others[0].command[-1]


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("slurm:12@n1,n2", ["--jobid=12"]),
        ("slurm:12+1@n1,n2", ["--jobid=12", "--het-group=1"]),
    ],
)
def test_a_relay_in_a_job_of_slurm_does_not_ask_slurm_for_the_nodes(
    spec: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_GPUS", "0")
    _, first, second = relayed(spec, AGENT)

    assert (first.name, second.name) == ("n1", "n2")
    assert set(options) < set(first.command)
    assert first.command[first.command.index("-w") + 1] == "n1"
    assert "SLURM_JOB_ID=12" in first.command[-1]
    assert "SLURM_JOB_GPUS" not in (first.environment or {})


@pytest.mark.parametrize(
    "spec",
    ["local:2", "k8s:a", "ray:auto", "ssh:", "ssh:-oProxyCommand=true", "slurm:1@-w", "slurm:a@n1"],
)
def test_a_relay_reaches_nothing_but_nodes(spec: str) -> None:
    with pytest.raises(CannotLaunch):
        relayed(spec, AGENT)
