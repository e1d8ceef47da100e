"""The dashboard of a job on several machines, from made-up states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from mpwatch.model.snapshot import Playback, Snapshot
from mpwatch.nodes.across.judge import STANDSTILLS, job_findings
from mpwatch.nodes.head.head import Receive
from mpwatch.nodes.head.node import BRING_IT, NodeView
from mpwatch.nodes.job_source import Deliver, JobState, NodeSource, ReplayJobSource
from mpwatch.nodes.wire.messages import Close, Do, Next, Refusal, SnapshotPart
from mpwatch.nodes.wire.summary import FindingRow, NodeRow, NodeSummary
from mpwatch.nodes.wire.view_codec import SnapshotEncoder
from mpwatch.observe.sources.source import Pause, Seek, SetSpeed
from mpwatch.tui.job_app import JobApp, StateArrived
from mpwatch.tui.pages.job import lines_above
from tests.tui.golden_text import check_golden
from tests.tui.screen_text import screen_text
from tests.unit.nodes.across.test_across import NOW_S, elsewhere, row
from tests.unit.nodes.test_recording import recorded

pytestmark = pytest.mark.slow

SIZES = ((80, 24), (120, 36))
Size = tuple[int, int]


class ScriptedJob:
    """A source that delivers one state, and the states given to `show` later."""

    def __init__(self, *states: JobState) -> None:
        self.states = states
        self.nodes: list[ScriptedNode] = []
        self.is_stopped = False
        self.deliver: Deliver | None = None

    def start(self, deliver: Deliver) -> None:
        self.deliver = deliver
        for state in self.states:
            deliver(state)

    def open(self, node: str, pid: int) -> NodeSource:
        self.nodes.append(ScriptedNode(node, pid))
        return self.nodes[-1].source

    def control(self, command: Seek | Pause | SetSpeed) -> None:
        raise AssertionError("a running job has no position")

    def stop(self) -> None:
        self.is_stopped = True


class ScriptedNode:
    """A node whose job is opened: a head for the source that sends what a test gives to `send`."""

    def __init__(self, node: str, pid: int) -> None:
        self.source = NodeSource(7, node, pid, lambda function: function(self))
        self.told: list[Next | Do | Close] = []
        self._receive: Receive | None = None
        self._encoder = SnapshotEncoder()
        self._is_whole = True

    def open(self, view: int, name: str, pid: int, receive: Receive) -> None:
        self._receive = receive

    def tell(self, message: Next | Do | Close) -> None:
        self.told.append(message)

    def send(self, snapshot: Snapshot, skipped: int = 0) -> None:
        data = self._encoder.change(snapshot)
        self.receive(SnapshotPart(7, 0, True, self._is_whole, data, skipped))
        self._is_whole = False

    def restart(self) -> None:
        """Begin again, as a new agent does."""
        self._encoder, self._is_whole = SnapshotEncoder(), True

    def receive(self, message: SnapshotPart | Refusal) -> None:
        assert self._receive is not None
        self._receive(message)


def node(name: str, *ranks: int, stuck: int | None = None, **more: Any) -> NodeView:
    rows = tuple(
        elsewhere(rank, world=8, quiet_s=212.0)
        if rank == stuck
        else row(rank, world=8, doing="waits in all_reduce", cpu_percent=0)
        for rank in ranks
    )
    facts = NodeRow(
        state="watching",
        processes=len(ranks) * 3,
        counts={"rank": len(ranks), "loader-worker": 2 * len(ranks)},
        cpu_percent=40,
        rss_bytes=6 << 30,
        memory_percent=64,
        shm_percent=12,
        fds_percent=31,
        maps_percent=2,
        stacks=(f"ranks: {len(ranks)} of {len(ranks)} in all_reduce",),
    )
    findings = (FindingRow("shm-full-enospc", "warning", "/dev/shm is 97% full", eta_s=40),)
    summary = NodeSummary(NOW_S, facts, rows, findings if stuck is not None else ())
    return NodeView(name, "live", 0.4, host=name, version="0.1.0", summary=summary, **more)


def stuck_job() -> JobState:
    nodes = (
        node("node-1", 0, 1, 2, clock_offset_s=0.012, clock_error_s=0.002),
        node("node-2", 3, 4, stuck=4),
        node("node-3", 5, 6, 7),
        NodeView("node-4", "failed", None, "ssh ended with status 255: Permission denied."),
    )
    return JobState("slurm:4711", nodes, tuple(job_findings(nodes)))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_pages_match_their_golden_text(size: Size) -> None:
    source = ScriptedJob(stuck_job())
    app = JobApp(source, "slurm:4711")
    name = f"{size[0]}x{size[1]}"
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        check_golden(f"job_nodes-{name}", screen_text(app))
        await pilot.press("2")
        await pilot.pause()
        check_golden(f"job_ranks-{name}", screen_text(app))
        await pilot.press("f")
        await pilot.pause()
        check_golden(f"job_findings-{name}", screen_text(app))

    assert source.is_stopped


async def test_the_ranks_of_one_node_are_shown_and_escape_goes_back() -> None:
    app = JobApp(ScriptedJob(stuck_job()), "slurm:4711")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        await pilot.press("r")
        await pilot.pause()
        ranks = screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        nodes = screen_text(app)

    assert "rank 4" in ranks
    assert "rank 7" not in ranks
    assert "node-1 +1" in nodes


async def test_a_newer_state_replaces_the_shown_one() -> None:
    source = ScriptedJob(JobState("local:1"))
    app = JobApp(source, "local:1")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        before = screen_text(app)
        assert source.deliver is not None
        source.deliver(stuck_job())
        await pilot.pause()
        after = screen_text(app)

    assert "node-1" not in before
    assert "node-1" in after


async def test_a_state_that_arrives_while_the_app_ends_is_ignored() -> None:
    app = JobApp(ScriptedJob(), "local:1")
    async with app.run_test(size=(100, 24)):
        pass

    app.on_state_arrived(StateArrived(stuck_job()))

    assert app.state.nodes == ()


async def test_nodes_that_do_the_same_are_one_row() -> None:
    nodes = (*(node(f"node-{n}", n) for n in range(40)), node("odd", 40, stuck=40))
    state = JobState("slurm:1", nodes, tuple(job_findings(nodes)))
    app = JobApp(ScriptedJob(state), "slurm:1")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        text = screen_text(app)

    assert "node-0 +39" in text
    assert "node-17" not in text
    lines = text.splitlines()
    assert next(n for n, each in enumerate(lines) if "odd" in each and "live" in each) < next(
        n for n, each in enumerate(lines) if "node-0 +" in each
    )


async def test_nodes_that_work_share_a_row_whatever_line_each_is_at() -> None:
    def at(line: str, place: str | None = None) -> JobState:
        lines = (line, "train.py:9 load", "train.py:7 forward")
        nodes = []
        for number in range(12):
            said = row(number, place=place, line=lines[number % 3], quiet_s=None, has_stack=True)
            still = row(number, quiet_s=9.0)
            summary = NodeSummary(NOW_S, NodeRow("watching"), (still if number == 5 else said,))
            nodes.append(NodeView(f"node-{number}", "live", 0.4, summary=summary))
        return JobState("slurm:1", tuple(nodes))

    job = ScriptedJob(at("train.py:3 step"))
    app = JobApp(job, "slurm:1")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        first = rows_with("live", app)
        assert job.deliver is not None
        job.deliver(at("train.py:4 backward", "all_reduce"))
        await pilot.pause()
        second, text = rows_with("live", app), screen_text(app)

    assert [each.split()[-2:] for each in first] == [["1", "working"], ["in", "all_reduce"]]
    assert "node-0 +10" in first[0]
    assert "each: 1 working" in first[0]
    assert "11 nodes  node-0, node-1, node-2" in text
    assert "node-5 " in first[1]
    assert first == second


@pytest.mark.parametrize(("quiet_s", "usual_s"), [(6.0, None), (50.0, 45)])
async def test_nodes_whose_ranks_are_quiet_no_longer_than_usual_share_a_row(
    quiet_s: float, usual_s: int | None
) -> None:
    """The clocks and the steps of nodes differ a little; one after the other shows a wait."""
    said = (
        row(0, quiet_s=None, usual_s=usual_s),
        row(1, quiet_s=quiet_s, usual_s=usual_s),
        elsewhere(2, quiet_s=quiet_s),
    )
    summaries = [NodeSummary(NOW_S, NodeRow("watching"), (each,)) for each in said]
    nodes = [NodeView(f"node-{n}", "live", 0.4, summary=each) for n, each in enumerate(summaries)]
    app = JobApp(ScriptedJob(JobState("slurm:1", tuple(nodes))), "slurm:1")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        rows = rows_with("live", app)

    assert [each.split()[:2] for each in rows] == [["node-0", "+2"]]
    assert rows[0].endswith("each: 1 working")


async def test_two_nodes_of_which_one_waits_for_longer_than_usual_are_two_rows() -> None:
    said = (row(0, quiet_s=None, usual_s=5), row(1, quiet_s=12.0, usual_s=5))
    summaries = [NodeSummary(NOW_S, NodeRow("watching"), (each,)) for each in said]
    nodes = [NodeView(f"node-{n}", "live", 0.4, summary=each) for n, each in enumerate(summaries)]
    app = JobApp(ScriptedJob(JobState("slurm:1", tuple(nodes))), "slurm:1")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        rows = rows_with("live", app)

    assert [each.split()[0] for each in rows] == ["node-0", "node-1"]


async def test_ranks_that_are_known_to_stand_still_do_not_work_however_long_they_usually_wait() -> (
    None
):
    said = (*(row(n, quiet_s=40.0, usual_s=30) for n in range(3)), elsewhere(3, quiet_s=40.0))
    summaries = [NodeSummary(NOW_S, NodeRow("watching"), (each,)) for each in said]
    nodes = [NodeView(f"node-{n}", "live", 0.4, summary=each) for n, each in enumerate(summaries)]
    state = JobState("slurm:1", tuple(nodes), tuple(job_findings(nodes)))
    app = JobApp(ScriptedJob(state), "slurm:1")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        rows = rows_with("live", app)

    assert [each.split()[0].removeprefix("w>") for each in rows] == ["node-3", "node-0"]
    assert rows[0].endswith("1 at save.py:9 save")
    assert rows[1].endswith("each: 1 in all_reduce")


async def test_nodes_that_cannot_be_read_for_one_reason_share_a_row() -> None:
    told = ("node-{}: Permission denied.", "node-{}: No route to host.")
    nodes = [NodeView(f"node-{n}", "failed", problem=told[n > 7].format(n)) for n in range(10)]
    app = JobApp(ScriptedJob(JobState("ssh:@hosts", tuple(nodes))), "ssh:@hosts")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        denied, unreached = rows_with("failed", app)[-2:]

    assert "node-0 +7" in denied
    assert "Permission deni" in denied
    assert "node-8 +1" in unreached
    assert "No route to ho" in unreached


async def test_a_node_without_mpwatch_has_the_option_that_brings_it_and_opens_nothing() -> None:
    problem = "ssh ended with status 127: sh: 1: exec: mpwatch: not found."
    nodes = (NodeView("bare", "failed", problem=problem, check="ssh bare 'mpwatch --version'"),)
    state = JobState("ssh:bare", nodes, tuple(job_findings(nodes)))
    app = JobApp(ScriptedJob(state), "ssh:bare")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        first = screen_text(app)
        await pilot.press("f")
        findings = screen_text(app)

    assert f"Try: {BRING_IT}" in first
    assert "Nothing of bare can be opened." in findings


def ended_job() -> JobState:
    """A node whose rank has failed, beside one that was lost with a finding of its own."""
    failed = FindingRow("worker-exited-unexpectedly", "critical", "rank 0 ended: exit code 1", 100)
    stale = FindingRow("x", "critical", "a finding that was sent before")
    first, second = node("node-1", 0, 1), node("node-2", 2, 3)
    assert first.summary is not None
    assert second.summary is not None
    nodes = (
        replace(first, summary=replace(first.summary, findings=(failed,))),
        replace(
            second,
            summary=replace(second.summary, findings=(stale,)),
            state="ended",
            last_seen_s=40.0,
            problem="ssh ended with status 255.",
        ),
    )
    return JobState("ssh:node-1,node-2", nodes, tuple(job_findings(nodes)))


async def test_what_a_node_has_found_to_be_critical_is_above_the_nodes() -> None:
    app = JobApp(ScriptedJob(ended_job()), "ssh:node-1,node-2")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        first = screen_text(app).splitlines()[1]

    assert first.strip() == "C node-1: rank 0 ended: exit code 1"


async def test_findings_are_listed_by_severity_and_those_of_lost_nodes_last() -> None:
    app = JobApp(ScriptedJob(ended_job()), "ssh:node-1,node-2")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        await pilot.press("f", "end")
        await pilot.pause()
        shown = screen_text(app)

    order = [line for line in shown.splitlines() if line[:1] in "Cwi" and "node-" in line]
    assert "rank 0 ended" in order[0]
    assert "a finding that was sent before" in order[-1]
    assert "as last received: the node does not answer" in shown


async def test_ranks_that_are_in_no_collective_come_first_in_the_row_of_their_node() -> None:
    late = node("node-1", 0, 1, 2, stuck=2)
    app = JobApp(ScriptedJob(JobState("ssh:node-1", (late,))), "ssh:node-1")
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.pause()
        (shown,) = rows_with("live", app)

    assert "1 at save.py:9 save, 2 in all_re" in shown


def rows_with(word: str, app: JobApp) -> list[str]:
    """The lines of the screen below the first one that have a word, without the cursor."""
    lines = screen_text(app).splitlines()[1:]
    return [each.strip("> ") for each in lines if f" {word} " in each]


async def test_a_recording_of_several_nodes_is_played_and_moved_through(tmp_path: Path) -> None:
    path = tmp_path / "job.mpw"
    recorded(path, 40)
    source = ReplayJobSource(str(path))
    app = JobApp(source, source.spec)
    async with app.run_test(size=SIZES[1], notifications=True) as pilot:
        await until(pilot, lambda: app.state.playback is not None)
        await pilot.press("space")
        await until(pilot, lambda: paused(app) is not None)
        began_s = paused(app) or 0.0
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: (paused(app) or 0.0) >= began_s + 10.0)
        shown = screen_text(app)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: paused(app) == began_s)
        await pilot.press("2", "enter")
        await until(pilot, lambda: "A recording of several nodes has" in screen_text(app))

    assert "replay 0:1" in shown
    assert "paused" in shown
    assert "a" in {view.name for view in app.state.nodes}


async def test_each_key_of_a_quick_hand_moves_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "job.mpw"
    recorded(path, 60)
    source = ReplayJobSource(str(path))
    app = JobApp(source, source.spec)
    async with app.run_test(size=SIZES[1]) as pilot:
        await until(pilot, lambda: app.state.playback is not None)
        await pilot.press("space")
        await until(pilot, lambda: paused(app) is not None)
        began_s = paused(app) or 0.0
        await pilot.press(*["right_square_bracket"] * 3)
        await pilot.pause(1.0)

        assert paused(app) == began_s + 30.0


class SlowReplay(ScriptedJob):
    """A recording at one position, which has not done yet what it was told."""

    def __init__(self) -> None:
        super().__init__(replace(stuck_job(), playback=Playback(15.0, 60.0)))
        self.told: list[Seek | Pause | SetSpeed] = []

    def control(self, command: Seek | Pause | SetSpeed) -> None:
        self.told.append(command)


async def test_a_key_counts_from_the_key_before_while_a_recording_has_not_moved_yet() -> None:
    source = SlowReplay()
    app = JobApp(source, "ssh:node-1")
    async with app.run_test(size=SIZES[1]) as pilot:
        await until(pilot, lambda: app.state.playback is not None)
        await pilot.press(*["right_square_bracket"] * 5, "left_square_bracket")
        await pilot.press("plus", "plus", "minus", "space", "space")

    positions = [each.at_s for each in source.told if isinstance(each, Seek)]
    assert positions == [25.0, 35.0, 45.0, 55.0, 60.0, 50.0]
    assert [each.factor for each in source.told if isinstance(each, SetSpeed)] == [2.0, 4.0, 2.0]
    assert [each.paused for each in source.told if isinstance(each, Pause)] == [True, False]


async def test_a_state_that_was_on_its_way_takes_no_key_back() -> None:
    source = SlowReplay()
    (before,) = source.states
    app = JobApp(source, "ssh:node-1")
    async with app.run_test(size=SIZES[1]) as pilot:
        await until(pilot, lambda: app.state.playback is not None)
        await pilot.press("right_square_bracket")
        app.post_message(StateArrived(before))
        await pilot.pause()
        await pilot.press("right_square_bracket")
        reached = replace(before, playback=Playback(36.0, 60.0, followed=2))
        app.post_message(StateArrived(reached))
        await pilot.pause()
        await pilot.press("right_square_bracket")

    assert source.told == [Seek(25.0), Seek(35.0), Seek(46.0)]


def paused(app: JobApp) -> float | None:
    """The position of a replay that is paused."""
    playback = app.state.playback
    return playback.at_s if playback is not None and playback.is_paused else None


async def until(pilot: Pilot[int], is_done: Callable[[], bool]) -> None:
    for _ in range(1200):
        if is_done():
            return
        await pilot.pause(0.05)
    raise AssertionError("it did not happen")


def test_why_the_job_stands_still_is_said_above_every_opened_node() -> None:
    state = stuck_job()
    stuck = next(each for each in state.findings if each.rule in STANDSTILLS)
    slow = replace(stuck, rule="nodes-differ", summary="nodes of one job differ in torch")
    names = [view.name for view in state.nodes]
    other = next(name for name in names if name != stuck.node)

    def above(node: str) -> str:
        found = lines_above("", [stuck, slow], node, 200)
        return " ".join(part.text for line in found for part in line)

    assert stuck.summary in above(other)
    assert slow.summary not in above(other)
    assert stuck.node is not None
    assert slow.summary in above(stuck.node)
