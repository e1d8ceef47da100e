"""The head and agents that are scripts: the message for each way to fail."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpwatch.nodes.head import head as head_module
from mpwatch.nodes.head import node as node_module
from mpwatch.nodes.head.head import Head
from mpwatch.nodes.head.node import BRING_IT, CLOCKS_APART, ClockOffset, NodeView
from mpwatch.nodes.launchers.launch import Launch
from tests import procfs

pytestmark = pytest.mark.slow

LIMIT_S = 30.0
AGENT = """
import os, sys, time
from mpwatch.nodes.wire.messages import Answer, Hello, Summary, encode, node_frame
from mpwatch.nodes.wire.summary import NodeRow, RankRow, row_of
def say(data): os.write(1, data)
hello = node_frame(Hello("9.9", "machine", os.getpid()))
rank = row_of(RankRow(pid=5, label="rank 0", rank=0))
full = node_frame(Summary(0, 1.0, True, {"node": {"": row_of(NodeRow(state="watching"))},
                                         "ranks": {"a": rank}}))
def later(number): return node_frame(Summary(number, 1.0 + number))
def until_eof():
    while os.read(0, 65536): pass
"""


def agent(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", AGENT + script)


@pytest.fixture
def agents_are_killed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for agents that hang; those of other tests end by themselves."""
    monkeypatch.setattr(head_module, "GRACE_S", 0.2)


@contextmanager
def job(**scripts: str | tuple[str, ...]) -> Iterator[Head]:
    commands = {
        name: agent(each) if isinstance(each, str) else each for name, each in scripts.items()
    }
    head = Head([Launch(name, command) for name, command in commands.items()])
    try:
        yield head
    finally:
        head.close()


def until(head: Head, is_done: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not is_done():
        assert time.monotonic() < end_s, head.views()
        head.step(0.05)


def settled(head: Head) -> dict[str, NodeView]:
    until(head, lambda: head.is_settled)
    return {view.name: view for view in head.views()}


def test_a_node_behind_a_banner_is_read() -> None:
    with job(a="say(b'Welcome!\\n\\xab\\n' + hello + b'motd' + full); until_eof()") as head:
        view = settled(head)["a"]

    assert (view.state, view.host, view.version, view.problem) == ("live", "machine", "9.9", "")
    assert view.summary is not None
    assert [rank.label for rank in view.summary.ranks] == ["rank 0"]


def test_each_way_to_fail_is_one_sentence() -> None:
    with job(
        absent=("/nowhere/ssh", "x"),
        refused=("sh", "-c", "echo banner; echo 'Permission denied (publickey).' >&2; exit 255"),
        silent=("sh", "-c", "echo 'bash: mpwatch: command not found'; exit 127"),
        other=("sh", "-c", "echo 'mpwatch: It cannot run.\n  try: that' >&2; exit 2"),
        asks=("sh", "-c", "echo 'refused - is it the right host?' >&2; exit 1"),
        newer="say(encode(hello[13:], 1000, protocol=2)); until_eof()",
        nonsense="say(hello + encode(b'nonsense', 1000)); until_eof()",
        latin="say(hello + encode(b'\\x82\\xa4type\\xa6answer"
        "\\xa7problem\\xa1\\xff', 1000)); until_eof()",
        fine="say(hello + full); until_eof()",
    ) as head:
        views = settled(head)

    assert {name: view.state for name, view in views.items()} == {
        **dict.fromkeys(
            ("absent", "refused", "silent", "other", "asks", "newer", "nonsense", "latin"), "failed"
        ),
        "fine": "live",
    }
    assert views["absent"].problem == "/nowhere/ssh cannot be started: No such file or directory."
    assert views["refused"].problem == "sh ended with status 255: Permission denied (publickey)."
    assert views["silent"].problem == (
        "sh ended with status 127: bash: mpwatch: command not found."
    )
    assert views["other"].problem == "sh ended with status 2: mpwatch: It cannot run."
    assert views["asks"].problem == "sh ended with status 1: refused - is it the right host?"
    assert "mpwatch 9.9 speaks protocol 2, and mpwatch" in views["newer"].problem
    assert "not understood" in views["nonsense"].problem
    assert "not understood" in views["latin"].problem


@pytest.mark.usefixtures("agents_are_killed_soon")
def test_a_host_that_does_not_answer_has_failed_after_the_limit_of_its_engine() -> None:
    hung = ("sh", "-c", "echo Authorised use only. >&2; sleep 1000 & wait")
    head = Head([Launch("a", hung, start_s=2.0), Launch("b", hung, start_s=100.0)])
    try:
        until(head, lambda: head.views()[0].state == "failed")
        view, other = head.views()
        assert head.start_s == 100.0
    finally:
        head.close()

    assert other.state == "starting"

    assert view.problem.startswith("It did not answer within")
    assert view.problem.endswith(": Authorised use only.")


@pytest.mark.usefixtures("agents_are_killed_soon")
def test_hosts_that_hang_do_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "HELD_UP_S", 0.2)
    monkeypatch.setattr(head_module, "STARTING_LIMIT", 2)
    hung = [Launch(f"hung-{n}", ("sleep", "1000"), start_s=1000.0) for n in range(6)]
    fine = [Launch(f"fine-{n}", agent("say(hello + full); until_eof()")) for n in range(3)]
    before = set(_children())
    head = Head([*hung, *fine])
    try:
        until(head, lambda: [view.state for view in head.views()[6:]] == ["live"] * 3)
        states = [view.state for view in head.views()[:6]]
    finally:
        head.close()

    assert states == ["starting"] * 6
    assert set(_children()) == before


def test_a_way_that_is_refused_for_the_moment_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(node_module, "REFUSED_S", 0.05)
    reset = f"echo x >> {tmp_path}/a; echo 'Connection reset by 10.0.0.1' >&2; exit 255"
    twice = f"[ $(wc -l < {tmp_path}/b) -ge 2 ]"
    second = f"echo x >> {tmp_path}/b; if ! {twice}; then echo reset >&2; exit 255; fi; exec "
    serves = shlex.join(agent("say(hello + full); until_eof()"))
    head = Head(
        [
            Launch("a", ("sh", "-c", reset), is_refused=lambda told: "reset" in told),
            Launch("b", ("sh", "-c", second + serves), is_refused=lambda told: "reset" in told),
            Launch("c", ("sh", "-c", "exit 3"), is_refused=lambda told: "reset" in told),
        ]
    )
    try:
        views = settled(head)
    finally:
        head.close()

    assert {name: view.state for name, view in views.items()} == {
        "a": "failed",
        "b": "live",
        "c": "failed",
    }
    assert (tmp_path / "a").read_text().count("x") == node_module.REFUSALS_LIMIT + 1


def test_no_more_agents_are_started_at_a_time_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(head_module, "STARTING_LIMIT", 2)
    slow = "import select; select.select([0], [], [], 0.3); say(hello + full); until_eof()"
    with job(**{f"n{number}": slow for number in range(5)}) as head:
        most = 0

        def is_live() -> bool:
            nonlocal most
            states = [view.state for view in head.views()]
            most = max(most, states.count("starting"))
            return states == ["live"] * 5

        until(head, is_live)

    assert most == 2


def test_an_engine_may_explain_what_it_has_printed() -> None:
    printed = "say(hello + full); os.write(2, b'STEP 5.1 CANCELLED\\nTerminated\\n')"
    head = Head(
        [
            Launch("a", agent(printed), explain=lambda told: f"Explained: {told.splitlines()}."),
            Launch("b", agent(printed), explain=lambda _told: ""),
        ]
    )
    try:
        until(head, lambda: [view.state for view in head.views()] == ["ended", "ended"])
        explained, unexplained = head.views()
    finally:
        head.close()

    assert explained.problem == "Explained: ['STEP 5.1 CANCELLED', 'Terminated']."
    assert unexplained.problem.endswith("ended with status 0: Terminated.")


@pytest.mark.parametrize(
    ("told", "sentence", "is_to_be_brought"),
    [
        (
            "sh: 1: exec: mpwatch: not found\nsrun: error: n1: task 0: Exited with exit code 127",
            "sh: 1: exec: mpwatch: not found",
            True,
        ),
        (
            "sh: 1: exec: mpwatch: not found\ncommand terminated with exit code 127",
            "sh: 1: exec: mpwatch: not found",
            True,
        ),
        (
            'exec failed: exec: "mpwatch": executable file not found in $PATH: unknown',
            'exec failed: exec: "mpwatch": executable file not found in $PATH: unknown',
            True,
        ),
        (
            "python3: can't open file '/x.pyz': [Errno 2] No such file or directory\n"
            "srun: error: n1: task 0: Exited with exit code 2",
            "python3: can't open file '/x.pyz': [Errno 2] No such file or directory",
            False,
        ),
        ("/usr/bin/python3: No module named mpwatch", None, True),
        ("sh: 1: exec: /opt/own/bin/python3.11: not found", None, True),
        ("sh: line 1: /opt/own/bin/python3: No such file or directory", None, True),
        (
            "srun: error: n1: task 0: Exited with exit code 1",
            "srun: error: n1: task 0: Exited with exit code 1",
            False,
        ),
        ("srun: error: n1: task 0: Out Of Memory", None, False),
    ],
)
def test_what_the_node_has_said_is_reported_and_not_what_the_engine_adds(
    told: str, sentence: str | None, is_to_be_brought: bool
) -> None:
    with job(n1=("sh", "-c", f"printf '%s\\n' {shlex.quote(told)} >&2; exit 127")) as head:
        until(head, lambda: head.is_over)
        (view,) = head.views()

    assert view.problem == f"sh ended with status 127: {sentence or told}."
    assert (view.fix == BRING_IT) == is_to_be_brought


def test_a_single_file_is_not_replaced_by_itself() -> None:
    told = "echo 'sh: 1: exec: python3: not found' >&2; exit 127"
    check = "ssh a 'python3 /shared/mpwatch.pyz --version'"
    head = Head([Launch("a", ("sh", "-c", told), check)])
    try:
        until(head, lambda: head.is_over)
        (view,) = head.views()
    finally:
        head.close()

    assert view.fix == check


def test_a_launcher_that_stays_after_its_output_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, agents_are_killed_soon: None
) -> None:
    monkeypatch.setattr(node_module, "EXIT_S", 3 * LIMIT_S)
    stays = ("sh", "-c", "echo 'out of quota' >&2; exec >&- 2>&-; sleep 600")
    with job(stays=stays, serves="time.sleep(1.0); say(hello + full); until_eof()") as head:
        until(head, lambda: head.views()[1].state == "live")
        assert head.views()[0].state == "starting"

        monkeypatch.setattr(node_module, "EXIT_S", 0.0)
        until(head, lambda: head.views()[0].state == "failed")
        assert head.views()[0].problem == "sh ended with signal 9: out of quota."


def test_a_node_whose_agent_exits_has_ended_and_one_that_stops_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_module, "SILENT_S", 0.3)
    with job(
        gone="say(hello + full); os.read(0, 1); os.kill(os.getpid(), 9)",
        stopped="say(hello + full); until_eof()",
    ) as head:
        until(head, lambda: [view.state for view in head.views()] == ["ended", "silent"])
        gone, stopped = head.views()

    assert "signal 9" in gone.problem
    assert stopped.problem.startswith("Nothing was received for")
    assert stopped.summary is not None


def test_an_answer_is_returned_and_a_node_that_ends_meanwhile_has_none() -> None:
    asked = (
        "say(hello + full)\n"
        "received = b''\n"
        "while b'dump' not in received: received += os.read(0, 65536)\n"
    )
    with job(
        fine=f"{asked}say(node_frame(Answer(1, {{'host': 'x'}}))); until_eof()", gone=asked
    ) as head:
        settled(head)
        requests = [head.ask(name, "dump") for name in ("fine", "gone")]
        found = {}

        def answered() -> bool:
            for request in requests:
                answer = head.answer(request)
                if answer is not None:
                    found[request] = answer
            return len(found) == 2

        until(head, answered)

    assert found[1].document == {"host": "x"}
    assert found[2].document is None
    assert "ended" in found[2].problem


def test_a_lost_summary_makes_the_head_ask_for_all_of_it() -> None:
    script = (
        "say(hello + full + later(5))\n"
        "received = b''\n"
        "while b'resend' not in received: received += os.read(0, 65536)\n"
        "say(node_frame(Answer(77)))\n"
        "say(node_frame(Summary(9, 3.0, True, {'ranks': {'b': rank, 'c': rank}})))\n"
        "until_eof()\n"
    )
    with job(a=script) as head:
        settled(head)
        until(head, lambda: len((head.views()[0].summary or pytest.fail("no summary")).ranks) == 2)


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0, -7.5])
def test_the_clock_of_a_node_is_known_to_half_of_a_round_trip(ahead_s: float) -> None:
    script = f"""
from mpwatch.nodes.wire.messages import HEAD_LIMIT_BYTES, FrameReader, Ping, Pong, message_of_head
reader = FrameReader(HEAD_LIMIT_BYTES)
say(hello + full)
while data := os.read(0, 65536):
    for frame in reader.feed(data):
        message = message_of_head(frame.body)
        if isinstance(message, Ping):
            time.sleep(0.02)
            say(node_frame(Pong(message.sent_s, time.time() + {ahead_s})))
"""
    with job(a=script, deaf="say(hello + full); until_eof()") as head:
        until(head, lambda: head.views()[0].clock_offset_s is not None)
        known, unknown = head.views()

    assert known.clock_offset_s is not None
    assert known.clock_error_s is not None
    assert known.clock_error_s >= 0.01
    assert abs(known.clock_offset_s - ahead_s) <= known.clock_error_s + 0.002
    assert (unknown.clock_offset_s, unknown.clock_error_s) == (None, None)


ANSWERS = """
from mpwatch.nodes.wire.messages import HEAD_LIMIT_BYTES, FrameReader, Ping, Pong, message_of_head
reader = FrameReader(HEAD_LIMIT_BYTES)
say(hello + full)
walls = [time.time(), time.time() + 3600.0]
while data := os.read(0, 65536):
    for frame in reader.feed(data):
        message = message_of_head(frame.body)
        if isinstance(message, Ping) and walls:
            say(node_frame(Pong(message.sent_s, walls.pop(0))))
"""
"""Answers two pings; before the second one its clock is set an hour ahead."""


def test_the_offset_of_a_clock_is_known_less_and_less_until_it_is_estimated_again() -> None:
    now_s = 1000.0
    head = Head([Launch("a", agent(ANSWERS))], clock=lambda: now_s)
    try:
        until(head, lambda: head.views()[0].clock_offset_s is not None)
        first = head.views()[0]
        assert first.clock_error_s == 0.0

        now_s += 4.0
        assert head.views()[0].clock_offset_s == first.clock_offset_s
        assert head.views()[0].clock_error_s == pytest.approx(4 * CLOCKS_APART)

        now_s += 1.0
        until(head, lambda: head.views()[0].clock_offset_s != first.clock_offset_s)
        assert head.views()[0].clock_offset_s == pytest.approx(3600.0, abs=60.0)
        assert head.views()[0].clock_error_s == 0.0

        now_s += 100.0
        assert head.views()[0].state == "silent"
        assert head.views()[0].clock_error_s == pytest.approx(100 * CLOCKS_APART)
    finally:
        head.close()


@pytest.mark.parametrize(
    ("newer", "is_kept"),
    [
        pytest.param((0.25, 0.010, 105.0), True, id="a longer round trip soon after"),
        pytest.param((0.25, 0.010, 120.0), False, id="a longer round trip much later"),
        pytest.param((0.25, 0.001, 105.0), False, id="a shorter round trip"),
        pytest.param((9.25, 0.010, 105.0), False, id="a clock that was set"),
    ],
)
def test_the_better_estimate_of_a_clock_is_kept(
    newer: tuple[float, float, float], is_kept: bool
) -> None:
    assert ClockOffset(0.251, 0.002, 100.0).is_better(ClockOffset(*newer)) is is_kept


@pytest.mark.usefixtures("agents_are_killed_soon")
def test_closing_leaves_no_agent_behind() -> None:
    hung, before = "say(hello + full)\nwhile True: time.sleep(1)\n", set(_children())
    with job(ends="say(hello + full); until_eof()", hung=hung) as head:
        settled(head)
        pids = set(_children()) - before
        assert len(pids) >= 2

    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []


def _children() -> list[int]:
    return procfs.children(os.getpid())


def test_a_node_that_has_ended_is_started_again_if_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_module, "RESTART_S", 0.1)
    head = Head([Launch("a", agent("say(hello + full)"))], restarts=True)
    try:
        before = 0
        until(head, lambda: head.views()[0].received_bytes > 0)
        before = head.views()[0].received_bytes
        until(head, lambda: head.views()[0].received_bytes > before)
    finally:
        head.close()


def test_a_node_that_cannot_be_reached_again_has_ended_and_not_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it has sent before is still shown."""
    monkeypatch.setattr(node_module, "RESTART_S", 0.1)
    first = f"[ -e {tmp_path}/a ] && exit 3; touch {tmp_path}/a; exec "
    serves = shlex.join(agent("say(hello + full)"))
    head = Head([Launch("a", ("sh", "-c", first + serves))], restarts=True)
    try:
        until(head, lambda: "status 3" in head.views()[0].problem)
        (view,) = head.views()
    finally:
        head.close()

    assert view.state == "ended"
    assert view.summary is not None


def test_ctrl_c_does_not_reach_the_agents() -> None:
    before = set(_children())
    with job(a="say(hello + full); until_eof()") as head:
        settled(head)
        groups = [os.getpgid(pid) for pid in set(_children()) - before]

    assert groups
    assert os.getpgid(0) not in groups


def test_a_job_is_over_when_no_node_is_left_and_none_is_started_again() -> None:
    with job(gone="say(hello + full)", fine="say(hello + full); os.read(0, 65536)") as head:
        until(head, lambda: head.is_settled and head.views()[0].state == "ended")
        assert head.is_over == (head.views()[1].state == "ended")
        until(head, lambda: head.is_over)

    head = Head([Launch("a", ("sh", "-c", "exit 3"))], restarts=True)
    try:
        until(head, lambda: head.views()[0].state == "failed")
        assert not head.is_over
    finally:
        head.close()


def with_descriptors(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let the process have so many descriptors for nodes."""
    used = len(os.listdir("/proc/self/fd")) + head_module.RESERVED_DESCRIPTORS
    monkeypatch.setattr("resource.getrlimit", lambda _: (used + count, used + count))


def test_nodes_for_which_no_descriptor_is_left_are_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_descriptors(monkeypatch, 8)
    with job(**dict.fromkeys("abc", "say(hello + full); until_eof()")) as head:
        views = settled(head)

    assert {name: view.state for name, view in views.items()} == {
        "a": "live", "b": "live", "c": "failed",
    }  # fmt: skip
    assert views["c"].problem.startswith("No descriptor is left for it: ")
    assert views["c"].cause == "no-descriptor"
    assert views["c"].fix.startswith("sudo prlimit --pid $$ --nofile=")


class JoiningNodes:
    """Nodes that a test adds and removes."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    def launches(self) -> list[Launch]:
        command = agent("say(hello + full); until_eof()")
        return [Launch(name, command) for name in self.names]

    def close(self) -> None:
        pass


def test_a_node_that_had_no_descriptors_is_started_once_another_one_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_descriptors(monkeypatch, 8)
    monkeypatch.setattr(head_module, "FOLLOW_S", 0.0)
    nodes = JoiningNodes("a", "b", "c", "d")
    head = Head(nodes)
    try:
        before = {name: view.state for name, view in settled(head).items()}
        nodes.names.remove("d")  # it had none, so that nothing is free for the others
        until(head, lambda: len(head.views()) == 3)
        still = {name: view.state for name, view in settled(head).items()}
        nodes.names.remove("a")
        until(head, lambda: len(head.views()) == 2)
        after = {name: view.state for name, view in settled(head).items()}
        nodes.names.append("e")
        until(head, lambda: len(head.views()) == 3)
        last = {name: view.state for name, view in settled(head).items()}
    finally:
        head.close()

    assert before == {"a": "live", "b": "live", "c": "failed", "d": "failed"}
    assert still == {"a": "live", "b": "live", "c": "failed"}
    assert after == {"b": "live", "c": "live"}
    assert last == {"b": "live", "c": "live", "e": "failed"}


def test_how_many_nodes_fit_is_said_with_the_command_that_raises_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [Launch(f"n{number}", ("true",)) for number in range(1000)]
    relayed = [each._replace(descriptors=6) for each in nodes]
    with_descriptors(monkeypatch, 3000)

    found = head_module.shortage(relayed)
    assert found is not None
    assert "1000 nodes take 6000 descriptors" in found.sentence
    assert "only the first 500 nodes are read" in found.sentence
    assert found.fix == "sudo prlimit --pid $$ --nofile=6144:6144"
    assert head_module.shortage(nodes) is None
