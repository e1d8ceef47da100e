"""`dump --job` and `diagnose --job` with stand-ins for the launchers of a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from mpwatch.cli import main
from mpwatch.cli import nodes as commands
from mpwatch.nodes.head import head as head_module
from mpwatch.nodes.head import node as node_module
from mpwatch.nodes.launchers.launch import Launch

pytestmark = pytest.mark.slow

SERVES = """
import os, sys
from mpwatch.nodes.wire.messages import (
    HEAD_LIMIT_BYTES, Answer, Ask, FrameReader, Hello, Summary, message_of_head, node_frame)
from mpwatch.nodes.wire.summary import NodeRow, row_of
def say(message): os.write(1, node_frame(message))
say(Hello("9.9", "machine", os.getpid()))
say(Summary(0, 1.0, True, {"node": {"": row_of(NodeRow(state=sys.argv[1]))}}))
reader = FrameReader(HEAD_LIMIT_BYTES)
while data := os.read(0, 65536):
    for frame in reader.feed(data):
        message = message_of_head(frame.body)
        if isinstance(message, Ask): say(Answer(message.request, {"host": "machine"}))
"""
SERVES_RANKS = """
import os, sys
from mpwatch.nodes.wire.messages import (
    HEAD_LIMIT_BYTES, Answer, Ask, FrameReader, Hello, Summary, message_of_head, node_frame)
from mpwatch.nodes.wire.summary import NodeRow, RankRow, row_of
def say(message): os.write(1, node_frame(message))
def rank(number, **more):
    return row_of(RankRow(pid=5 + number, label="a rank", rank=number, world_size=2,
                          job="10.0.0.1:29500", quiet_at_s=20.0, **more))
say(Hello("9.9", "machine", os.getpid()))
inside = rank(0, has_stack=True, place="all_reduce", line="train.py:48 step")
say(Summary(0, 60.0, True, {"node": {"": row_of(NodeRow(state="watching"))},
                            "ranks": {"0": inside, "1": rank(1)}}))
reader = FrameReader(HEAD_LIMIT_BYTES)
while data := os.read(0, 65536):
    for frame in reader.feed(data):
        message = message_of_head(frame.body)
        if isinstance(message, Ask):
            say(Answer(message.request, {"host": "machine"}))
            if sys.argv[1] == "stacks":
                late = rank(1, has_stack=True, line="train.py:91 save")
                say(Summary(1, 61.0, False, {"ranks": {"1": late}}))
"""
"""One rank waits in a collective, and of the other one no stack is known before an answer."""
HUNG = ("sleep", "1000")


def serving(state: str = "watching") -> tuple[str, ...]:
    return (sys.executable, "-c", SERVES, state)


def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    launches: Sequence[Launch],
    *command: str,
) -> tuple[int, dict[str, Any]]:
    """The exit status of a command about a job of these nodes, and its document."""
    monkeypatch.setattr(commands, "job_launches", lambda _spec, _arguments: launches)
    monkeypatch.setattr(head_module, "GRACE_S", 0.2)
    status = main([*command, "--job", "local:2", "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_hosts_that_hang_do_not_leave_others_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(head_module, "STARTING_LIMIT", 2)
    monkeypatch.setattr(head_module, "HELD_UP_S", 1.0)
    monkeypatch.setattr(head_module, "HELD_UP_LEAST_S", 1.0)
    # The last of them is started after twice the time that one of them may take.
    hung = [Launch(f"hung-{n}", HUNG, start_s=1.5) for n in range(6)]
    fine = [Launch(f"fine-{n}", serving(), start_s=1000.0) for n in range(2)]
    monkeypatch.setattr(head_module.Head, "start_s", 1.5)

    status, document = run(monkeypatch, capsys, [*hung, *fine], "dump")

    assert status == 0
    by_state = {each["name"]: each["state"] for each in document["nodes"]}
    assert by_state == {f"hung-{n}": "failed" for n in range(6)} | {
        "fine-0": "live",
        "fine-1": "live",
    }
    assert all(each["host"] == "machine" for each in document["nodes"][6:])
    assert [each["rule"] for each in document["findings"]] == ["node-not-answering"]


def test_a_dump_waits_for_the_stack_of_a_rank_that_makes_no_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "STACKS_S", 1000.0)
    serves = (sys.executable, "-c", SERVES_RANKS, "stacks")

    _, document = run(monkeypatch, capsys, [Launch("a", serves)], "dump")

    (found,) = document["findings"]
    assert found["rank"] == 1
    assert "train.py:91 save" in found["summary"]


def test_a_dump_does_not_wait_for_a_stack_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "STACKS_S", 0.2)
    serves = (sys.executable, "-c", SERVES_RANKS, "none")

    status, document = run(monkeypatch, capsys, [Launch("a", serves)], "dump")

    assert (status, document["findings"]) == (0, [])


def test_a_dump_without_stacks_waits_for_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "STACKS_S", 1000.0)
    serves = (sys.executable, "-c", SERVES_RANKS, "none")

    status, document = run(monkeypatch, capsys, [Launch("a", serves)], "dump", "--no-stacks")

    assert (status, document["findings"]) == (0, [])


def test_nodes_that_are_not_known_at_the_end_have_a_problem_and_are_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(node_module, "SILENT_S", 1000.0)
    monkeypatch.setattr(commands, "STARTS_S", 8.0)
    monkeypatch.setattr(head_module, "STARTING_LIMIT", 1)
    monkeypatch.setattr(head_module.Head, "start_s", 4.0)
    names = {"fine": serving(), "reads": serving("starting"), "hung": HUNG, "later": HUNG}
    launches = [Launch(name, each, start_s=1000.0) for name, each in names.items()]
    monkeypatch.setattr(head_module, "HELD_UP_S", 1000.0)
    monkeypatch.setattr(head_module, "HELD_UP_LEAST_S", 1000.0)

    status, document = run(
        monkeypatch, capsys, launches, "diagnose", "--for", "0.1", "--fail-on", "warning"
    )

    assert [(each["state"], each["problem"]) for each in document["nodes"]] == [
        ("live", None),
        ("live", "It had not read its processes at the end of the watch."),
        ("starting", "Its agent had not answered at the end of the watch."),
        ("waiting", "Its agent was not started before the end of the watch."),
    ]
    assert status == 1
    assert {each["summary"] for each in document["findings"]} == {
        "reads has not read the processes there",
        "the agent on hung has not answered",
        "no agent was started on later",
    }


def test_many_hosts_that_hang_keep_others_waiting_for_seconds_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(head_module, "GRACE_S", 0.0)
    now_s = 0.0
    launches = [Launch(f"hung-{n}", HUNG) for n in range(160)]
    head = head_module.Head([*launches, Launch("last", HUNG)], clock=lambda: now_s)
    try:
        while head.views()[-1].state == "waiting":
            head.step(0.0)
            now_s += head_module.SPACING_S
            assert now_s < head_module.HELD_UP_S * 160 / head_module.STARTING_LIMIT / 2
    finally:
        head.close()
