"""The dashboard of a node of a job: opened, all pages, closed; silent, lost, too old."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from mpwatch.model.ids import ProcessId
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.job_source import JobState
from mpwatch.nodes.wire.messages import Close, Do, Refusal, SnapshotPart
from mpwatch.nodes.wire.summary import FindingRow, NodeRow, NodeSummary
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.job_app import JobApp
from tests.builders.screen_job import MAIN, NOW_S
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, loader_job, without_hook
from tests.tui.test_job import ScriptedJob, ScriptedNode, stuck_job, until
from tests.unit.nodes.across.test_across import row

pytestmark = pytest.mark.slow

WIDE = (120, 36)


def one_node(**more: object) -> JobState:
    """A job on two nodes, each with a rank in a call of its own: equal nodes are one row."""
    nodes = tuple(
        NodeView(
            name,
            "live",
            0.4,
            host=name,
            version="0.1.0",
            summary=NodeSummary(
                5000.0, NodeRow(state="watching"), (row(rank, root=41823, place=place),)
            ),
        )
        for rank, (name, place) in enumerate((("node-1", "all_reduce"), ("node-2", "barrier")))
    )
    return JobState("slurm:4711", (replace(nodes[0], **more), nodes[1]))


async def opened(source: ScriptedJob, pilot: Pilot[int]) -> ScriptedNode:
    await pilot.pause()
    await pilot.press("enter")
    await pilot.pause()
    return source.nodes[-1]


async def test_enter_on_a_node_opens_the_ordinary_dashboard_with_all_its_pages() -> None:
    job = loader_job()
    source = ScriptedJob(one_node())
    app = JobApp(source, "slurm:4711")
    shown = {}
    async with app.run_test(size=WIDE) as pilot:
        there = await opened(source, pilot)
        there.send(job)
        await until(pilot, lambda: "train.py" in screen_text(app))
        for digit in "123456789":
            await pilot.press(digit)
            await pilot.pause()
            shown[digit] = screen_text(app)
        await pilot.press("escape", "escape")
        await pilot.pause()
        after = screen_text(app)
    alone = MpwatchApp(ScriptedSource(job), readonly=True)
    expected = {}
    async with alone.run_test(size=WIDE) as pilot:
        await pilot.pause()
        for digit in "123456789":
            await pilot.press(digit)
            await pilot.pause()
            expected[digit] = screen_text(alone)

    # All but the top line, which names the node, and the bottom line, which has another key.
    assert {digit: body(text) for digit, text in shown.items()} == {
        digit: body(text) for digit, text in expected.items()
    }
    assert all("on node-1" in text.splitlines()[0] for text in shown.values())
    assert " 1 nodes " in after
    assert isinstance(there.told[-1], Close)


def body(text: str) -> list[str]:
    return text.splitlines()[1:-1]


async def test_enter_on_a_rank_opens_its_process() -> None:
    source = ScriptedJob(one_node())
    app = JobApp(source, "slurm:4711")
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await pilot.press("2", "enter")
        await pilot.pause()
        there = source.nodes[0]
        job = loader_job()
        pid = there.source.pid
        main = replace(job.processes[0], process=ProcessId(pid, 900))
        there.send(replace(job, root=main.process, processes=(main, *job.processes[1:])))
        await until(pilot, lambda: "fds 642" in screen_text(app))
        process = screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        dashboard = screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        ranks = screen_text(app)

    assert "1 Threads" in process
    assert "0 Job" in dashboard
    assert " 2 ranks " in ranks
    assert "rank 1" in ranks


async def test_what_is_looked_at_is_asked_for_and_nothing_after_closing() -> None:
    source = ScriptedJob(one_node())
    app = JobApp(source, "slurm:4711")
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        there = await opened(source, pilot)
        there.send(loader_job())
        await until(pilot, lambda: bool(there.told))
        await pilot.press("1")
        await pilot.pause()
        there.send(replace(loader_job(), at_s=NOW_S + 1))
        await until(pilot, lambda: asked(there, "follow") == [(MAIN,)])
        await pilot.press("s", "i", "x")
        await until(pilot, lambda: asked(there, "stacks") == [()])
        refused = screen_text(app)
        await pilot.press("escape", "escape")
        await pilot.pause()
        count = len(there.told)
        there.send(loader_job())
        await pilot.pause(0.2)

    assert f"on node-1, run mpwatch attach {MAIN.pid}" in " ".join(
        refused.replace("▌", " ").split()
    )
    assert isinstance(there.told[-1], Close)
    assert len(there.told) == count
    assert not any(isinstance(each, Do) and each.what not in KNOWN for each in there.told)


KNOWN = ("stacks", "follow", "focus", "allocators")


def asked(there: ScriptedNode, what: str) -> list[tuple[ProcessId, ...]]:
    return [each.processes for each in there.told if isinstance(each, Do) and each.what == what]


def top(app: JobApp) -> str:
    return screen_text(app).splitlines()[0]


async def test_a_node_that_dies_is_named_and_comes_back() -> None:
    source = ScriptedJob(one_node())
    app = JobApp(source, "slurm:4711")
    async with app.run_test(size=WIDE) as pilot:
        there = await opened(source, pilot)
        there.send(loader_job())
        await until(pilot, lambda: "LIVE" in screen_text(app))
        assert source.deliver is not None
        source.deliver(one_node(state="ended", problem="python ended with signal 9."))
        await until(pilot, lambda: "LOST" in top(app))
        lost = screen_text(app)
        await pilot.press("9")
        await pilot.pause()
        page = screen_text(app)
        source.deliver(one_node())
        there.restart()
        there.send(loader_job(), skipped=7)
        # Live again as soon as the agent is, before its next snapshot was decoded.
        await until(pilot, lambda: "LIVE" in top(app) and "skipped 7" in screen_text(app))
        again = screen_text(app)

    assert "node-1: python ended with signal 9. It is being tried again." in lost
    assert "LOST last state kept" in page
    assert "train.py" in lost
    assert "signal 9" not in again
    assert "skipped 7" in again


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"state": "silent", "last_seen_s": 14.0}, "node-1 has sent nothing for 14 s."),
        ({"state": "starting"}, "node-1: its agent is being started again."),
    ],
)
async def test_a_silent_node_is_said_to_be_silent(state: dict[str, object], words: str) -> None:
    source = ScriptedJob(one_node())
    app = JobApp(source, "slurm:4711")
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(source, pilot)
        waiting = screen_text(app)
        assert source.deliver is not None
        source.deliver(one_node(**state))
        await until(pilot, lambda: words in screen_text(app))

    assert "node-1   asking for its processes" in waiting


async def test_a_node_that_cannot_show_its_job_says_why_and_escape_goes_back() -> None:
    source = ScriptedJob(one_node())
    app = JobApp(source, "slurm:4711")
    words = "The mpwatch 0.0.9 of node-1 cannot show its dashboard to this one"
    async with app.run_test(size=(80, 24)) as pilot:
        there = await opened(source, pilot)
        there.receive(Refusal(7, words, is_over=True))
        await until(pilot, lambda: bool(there.source.problem))
        assert source.deliver is not None
        source.deliver(one_node())
        await until(pilot, lambda: words in screen_text(app))
        refused = top(app)
        await pilot.press("escape")
        await pilot.pause()
        after = screen_text(app)

    assert "nothing was received" in refused
    assert " 1 nodes " in after


async def test_what_is_no_snapshot_is_said_in_one_sentence() -> None:
    source = ScriptedJob(one_node())
    app = JobApp(source, "slurm:4711")
    async with app.run_test(size=(120, 24)) as pilot:
        there = await opened(source, pilot)
        there.receive(SnapshotPart(7, 0, True, True, b"rm -rf /"))
        await until(pilot, lambda: bool(there.source.problem))
        assert source.deliver is not None
        source.deliver(one_node())
        await until(pilot, lambda: "node-1 sent a snapshot that is not under" in screen_text(app))

    assert isinstance(there.told[-1], Close)


async def test_a_node_with_several_jobs_offers_their_ranks() -> None:
    state = one_node()
    summary = state.nodes[0].summary
    assert summary is not None
    ranks = (row(0, root=100), row(1, root=101))
    several = replace(state.nodes[0], summary=replace(summary, ranks=ranks))
    source = ScriptedJob(replace(state, nodes=(several, state.nodes[1])))
    app = JobApp(source, "slurm:4711")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        text = screen_text(app)
        await pilot.press("down", "enter")
        await pilot.pause()

    assert "2 ranks of node-1" in text
    assert [(each.source.node, each.source.pid) for each in source.nodes] == [("node-1", 101)]


async def test_keys_of_a_dashboard_do_nothing_while_no_node_is_open() -> None:
    app = JobApp(ScriptedJob(one_node()), "slurm:4711")
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        before = screen_text(app)
        for key in ("s", "n", "v", "w", "m", "b", "d", "y", "e", "x", "a", "i", "t", "full_stop"):
            await pilot.press(key)
        await pilot.pause()
        after = screen_text(app)
        await pilot.press("question_mark")
        await pilot.pause()
        help_text = screen_text(app)

    assert after == before
    assert "mpwatch: a job on several machines" in help_text


async def test_a_finding_leads_to_the_process_that_it_names_and_back() -> None:
    state = stuck_job()
    source = ScriptedJob(state)
    app = JobApp(source, "slurm:4711")
    job = loader_job()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await pilot.press("f")
        await pilot.pause()
        findings = screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        there = source.nodes[0]
        named = ProcessId(there.source.pid, 900)
        main = replace(job.processes[0], process=named)
        there.send(replace(job, root=named, processes=(main, *job.processes[1:])))
        await until(pilot, lambda: "fds 642" in screen_text(app))
        await pilot.press("escape")
        await pilot.pause()
        dashboard = screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        back = screen_text(app)
        await pilot.press("question_mark")
        await pilot.pause()
        help_text = screen_text(app)

    assert "fix      Find out what rank 4 waits for there" in findings
    assert "enter opens node-2 at the process it names" in findings
    assert (there.source.node, there.source.pid) == ("node-2", 104)
    assert isinstance(there.told[-1], Close)
    assert "C the job: 7 ranks wait in all_reduce for rank 4 on node-2" in dashboard
    assert back == findings
    assert "mpwatch: findings of a job on several machines" in help_text


async def test_a_finding_of_a_node_leads_to_that_finding_there() -> None:
    job = loader_job()
    finding = job.findings[0]
    assert finding.process is not None
    state = one_node()
    summary = state.nodes[0].summary
    assert summary is not None
    rows = tuple(
        FindingRow(finding.rule, "critical", f"queue {number}", pid=finding.process.pid)
        for number in range(2)
    )
    first = replace(state.nodes[0], summary=replace(summary, findings=rows))
    source = ScriptedJob(replace(state, nodes=(first, state.nodes[1])))
    app = JobApp(source, "slurm:4711")
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await pilot.press("f")
        await pilot.pause()
        listed = screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        source.nodes[0].send(job)
        await until(pilot, lambda: finding.advice[:30] in screen_text(app))

    assert "queue 0" in listed
    assert "queue 1" in listed


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (("no-job", "no-job"), "There is no torch job on any node. New jobs are looked for"),
        (("no-job",), "There is no torch job on node-0. New jobs are looked for"),
        (("failed", "failed"), "No node can be read. node-0: ssh ended with status 255."),
        (("failed", "no-job"), "There is no torch job on node-1."),
        (("starting",), ""),
        (("watching", "failed"), ""),
    ],
)
async def test_a_job_without_processes_says_why(nodes: tuple[str, ...], words: str) -> None:
    app = JobApp(ScriptedJob(JobState("ssh:@hosts", tuple(map(bare, range(9), nodes)))), "x")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        text = " ".join(screen_text(app).split())
        await pilot.press("2")
        await pilot.pause()
        ranks = " ".join(screen_text(app).split())

    assert words in text
    assert words in ranks
    assert ("There is no" in text, "No node can" in text) == (
        words.startswith("There"),
        words.startswith("No"),
    )
    assert ("ssh node-0 mpwatch --version" in text) == words.startswith("No")


def bare(number: int, state: str) -> NodeView:
    """A node without processes in one of the states of nodes."""
    name = f"node-{number}"
    if state == "failed":
        problem = "ssh ended with status 255."
        return NodeView(name, "failed", None, problem, check=f"ssh {name} mpwatch --version")
    ranks = (row(number),) if state == "watching" else ()
    return NodeView(name, "live", 0.1, summary=NodeSummary(1.0, NodeRow(state=state), ranks))


async def test_pages_that_need_the_hook_name_the_command_for_the_node() -> None:
    source = ScriptedJob(one_node())
    app = JobApp(source, "slurm:4711")
    shown = {}
    async with app.run_test(size=WIDE) as pilot:
        there = await opened(source, pilot)
        there.send(without_hook())
        await until(pilot, lambda: "train.py" in screen_text(app))
        for digit in "459":
            await pilot.press(digit)
            await pilot.pause()
            shown[digit] = screen_text(app)

    assert {
        digit: f"on node-1, run mpwatch attach {MAIN.pid}" in shown[digit] for digit in shown
    } == {
        "4": True,
        "5": True,
        "9": True,
    }
    assert not any("attach without" in text for text in shown.values())
