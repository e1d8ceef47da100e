"""What every source of snapshots promises: a running job, a recording, a test's own script."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.collect.process.identify import identify
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.recording.file import RecordingWriter
from mpwatch.observe.sources.live import LiveOptions, LiveSource
from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for
from mpwatch.observe.sources.replay import ReplaySource, replay_to_end
from mpwatch.observe.sources.source import Follow, Pause, Seek, SetSpeed, Source, Step
from mpwatch.observe.state.fold import Fold
from mpwatch.report.json import snapshot_json
from tests.builders.samples import MAIN, START_S, small_job
from tests.conftest import Start
from tests.tui.scripted import ScriptedSource

DEADLINE_S = 60.0
SLEEPER = "import signal; print('ready'); signal.pause()"


def recorded(path: Path) -> str:
    writer = RecordingWriter(str(path), MAIN, clock=lambda: START_S, wall_clock=lambda: 1.8e9)
    for second in range(30):
        writer.write(small_job(START_S + second))
    writer.close()
    return str(path)


def scripted() -> ScriptedSource:
    fold = Fold()
    fold.apply(small_job(START_S))
    return ScriptedSource(fold.snapshot(), fold.snapshot())


@pytest.fixture(
    params=[pytest.param("live", marks=pytest.mark.slow), "replay", "scripted"],
)
def source(request: pytest.FixtureRequest, tmp_path: Path, start: Start) -> Iterator[Source]:
    made: Source
    if request.param == "live":
        program = start([sys.executable, "-c", SLEEPER])
        program.wait_for("ready")
        made = LiveSource(identify(program.pid), LiveOptions(refresh_hz=10.0, stacks=False))
    elif request.param == "replay":
        made = ReplaySource(recorded(tmp_path / "job.mpw"), speed=20.0)
    else:
        made = scripted()
    yield made
    made.stop()


class Screen:
    """Receives snapshots."""

    def __init__(self) -> None:
        self.shown: list[Snapshot] = []
        self._arrived = threading.Condition()

    def show(self, snapshot: Snapshot) -> None:
        with self._arrived:
            self.shown.append(snapshot)
            self._arrived.notify_all()

    def wait(self, expected: Callable[[list[Snapshot]], bool]) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: expected(self.shown), DEADLINE_S)


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_snapshots_come_one_after_another_and_never_go_back(source: Source, screen: Screen) -> None:
    source.start(screen.show)
    screen.wait(lambda shown: len(shown) >= 2)

    moments = [snapshot.at_s for snapshot in list(screen.shown)]
    assert moments == sorted(moments)


def test_every_snapshot_is_whole(source: Source, screen: Screen) -> None:
    source.start(screen.show)
    screen.wait(lambda shown: len(shown) >= 1)

    snapshot = screen.shown[0]
    root = snapshot.get(snapshot.root)
    assert root is not None
    assert snapshot.processes[0] is root
    parents = {process.process for process in snapshot.processes} | {None}
    assert all(process.parent in parents for process in snapshot.processes)
    assert snapshot_json(snapshot, with_stacks=True)["schema"] == 1


def test_snapshots_cannot_be_changed(source: Source, screen: Screen) -> None:
    source.start(screen.show)
    screen.wait(lambda shown: len(shown) >= 1)

    with pytest.raises(AttributeError):
        screen.shown[0].at_s = 0.0  # type: ignore[misc]


def test_after_stop_nothing_is_delivered(source: Source, screen: Screen) -> None:
    source.start(screen.show)
    screen.wait(lambda shown: len(shown) >= 1)
    source.stop()
    count = len(screen.shown)

    assert threading.Event().wait(0.3) is False
    assert len(screen.shown) == count


def test_stopping_twice_is_harmless(source: Source, screen: Screen) -> None:
    source.start(screen.show)
    source.stop()
    source.stop()


def test_no_thread_is_left_behind(source: Source, screen: Screen) -> None:
    source.start(screen.show)
    screen.wait(lambda shown: len(shown) >= 1)
    source.stop()

    for thread in threading.enumerate():
        if thread.name.startswith("mpwatch"):
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("command", [Seek(3.0), SetSpeed(2.0), Pause(paused=True), Follow(None)])
def test_an_answer_is_none_or_a_sentence(
    source: Source, screen: Screen, command: Seek | SetSpeed | Pause | Follow
) -> None:
    source.start(screen.show)
    answer = source.ask(command)

    assert answer is None or answer.endswith(".")


@pytest.mark.parametrize("command", [Seek(3.0), SetSpeed(2.0), Step(1)])
def test_only_what_is_not_live_can_be_sought(
    source: Source, command: Seek | SetSpeed | Step
) -> None:
    if isinstance(source, ScriptedSource):
        assert source.ask(command) is None
    else:
        assert (source.ask(command) is None) is not source.is_live


@pytest.mark.slow
def test_the_last_snapshot_of_a_replay_is_the_last_one_of_the_watch(
    start: Start, tmp_path: Path
) -> None:
    program = start("loader.py", "2", "--hook")
    program.wait_for("ready")
    process = identify(program.pid)
    writer = RecordingWriter(str(tmp_path / "job.mpw"), process)
    watched = watch_for(process, 3.0, OneShotOptions(), keep=writer.write)
    writer.close()

    replayed = replay_to_end(str(tmp_path / "job.mpw"))

    assert watched is not None
    assert len(watched.processes) >= 3
    assert writer.problem is None
    assert comparable(replayed) == comparable(watched)


def comparable(snapshot: Snapshot) -> dict[str, object]:
    """A snapshot without rates, which depend on how often snapshots were made."""
    findings = tuple(replace(finding, first_seen_s=None) for finding in snapshot.findings)
    flows = tuple(replace(flow, tensors_per_s=None, bytes_per_s=None) for flow in snapshot.flows)
    plain = replace(snapshot, mode="live", playback=None, findings=findings, flows=flows)
    return snapshot_json(plain, with_stacks=True)
