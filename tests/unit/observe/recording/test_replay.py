"""A recording as a source: pace, pause, seek, step; the test sets the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Condition

import pytest

from mpwatch.model.snapshot import Playback, Snapshot
from mpwatch.observe.recording.file import NotARecording
from mpwatch.observe.recording.timeline import Timeline
from mpwatch.observe.sources.replay import ReplaySource
from mpwatch.observe.sources.source import (
    Follow,
    Pause,
    Seek,
    SetRefresh,
    SetSpeed,
    StartRecording,
    Step,
    TakeStacks,
)
from tests.builders.samples import START_S
from tests.unit.observe.recording.conftest import Recorded
from tests.unit.observe.recording.test_timeline import job

DEADLINE_S = 60.0


class Screen:
    """Receives snapshots; a test waits for the one it expects."""

    def __init__(self) -> None:
        self._arrived = Condition()
        self.shown: list[Snapshot] = []

    def show(self, snapshot: Snapshot) -> None:
        with self._arrived:
            self.shown.append(snapshot)
            self._arrived.notify_all()

    def wait(self, expected: Callable[[Playback], bool]) -> Snapshot:
        with self._arrived:
            assert self._arrived.wait_for(
                lambda: bool(self.shown) and expected(self.position()), DEADLINE_S
            ), self.position()
            return self.shown[-1]

    def wait_for_problem(self, words: str) -> Snapshot:
        with self._arrived:
            assert self._arrived.wait_for(
                lambda: bool(self.shown) and any(words in each for each in self.shown[-1].problems),
                DEADLINE_S,
            ), self.shown[-1].problems
            return self.shown[-1]

    def position(self) -> Playback:
        position = self.shown[-1].playback
        assert position is not None
        return position


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def paused(recorded: Recorded, screen: Screen) -> Iterator[ReplaySource]:
    source = ReplaySource(recorded(job(120)), is_paused=True)
    source.start(screen.show)
    yield source
    source.stop()


def test_a_replay_shows_the_first_reading_at_once(paused: ReplaySource, screen: Screen) -> None:
    shown = screen.wait(lambda position: position.is_paused)

    assert shown.mode == "replay"
    assert shown.at_s == START_S
    assert screen.position().at_s == 0.0
    assert screen.position().length_s == pytest.approx(119.3)


def test_seeking_works_forwards_and_backwards(paused: ReplaySource, screen: Screen) -> None:
    assert paused.ask(Seek(100.0)) is None
    assert screen.wait(lambda position: position.at_s == 100.0).at_s == START_S + 100
    assert paused.ask(Seek(20.5)) is None
    assert screen.wait(lambda position: position.at_s == 20.5).at_s == START_S + 20.3
    assert paused.ask(Seek(-5.0)) is None
    assert screen.wait(lambda position: position.at_s == 0.0).at_s == START_S


def test_a_replay_says_how_many_commands_it_has_followed(
    paused: ReplaySource, screen: Screen
) -> None:
    screen.wait(lambda position: position.followed == 0)
    for command in (Seek(100.0), SetSpeed(2.0), Seek(20.5)):
        paused.ask(command)

    screen.wait(lambda position: position.followed == 3)
    assert (screen.position().at_s, screen.position().speed) == (20.5, 2.0)


def test_seeking_beyond_the_end_stops_at_the_end(paused: ReplaySource, screen: Screen) -> None:
    paused.ask(Seek(1e9))

    shown = screen.wait(lambda position: position.at_s >= position.length_s)
    assert shown.at_s == START_S + 119.3


def test_stepping_pauses_and_moves_by_readings(recorded: Recorded, screen: Screen) -> None:
    source = ReplaySource(recorded(job(60)), speed=0.01)
    source.start(screen.show)
    try:
        source.ask(Step(5))
        assert screen.wait(lambda position: position.at_s >= 5.0).at_s == START_S + 5
        assert screen.position().is_paused
        source.ask(Step(-2))
        screen.wait(lambda position: position.at_s == 3.0)
    finally:
        source.stop()


def test_a_replay_plays_to_the_end_and_pauses_there(recorded: Recorded, screen: Screen) -> None:
    source = ReplaySource(recorded(job(60)), speed=1000.0)
    source.start(screen.show)
    try:
        screen.wait(lambda position: position.is_paused)
        assert screen.position().at_s == pytest.approx(59.3)
    finally:
        source.stop()


def test_playing_on_at_the_end_begins_anew(paused: ReplaySource, screen: Screen) -> None:
    paused.ask(Seek(1e9))
    screen.wait(lambda position: position.at_s >= position.length_s)
    paused.ask(SetSpeed(0.01))
    paused.ask(Pause(paused=False))

    screen.wait(lambda position: position.at_s < 1.0 and not position.is_paused)


def test_the_speed_is_limited(paused: ReplaySource, screen: Screen) -> None:
    paused.ask(SetSpeed(0.0))
    screen.wait(lambda position: position.speed == 0.01)
    paused.ask(SetSpeed(1e12))
    screen.wait(lambda position: position.speed == 10_000.0)


def test_the_pace_is_that_of_the_clock(recorded: Recorded, screen: Screen) -> None:
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += 0.1
        return now_s

    source = ReplaySource(recorded(job(60)), speed=2.0, clock=clock)
    source.start(screen.show)
    try:
        screen.wait(lambda position: position.at_s > 20.0)
    finally:
        source.stop()
    steps = [
        after.playback.at_s - before.playback.at_s
        for before, after in zip(screen.shown, screen.shown[1:], strict=False)
        if after.playback and before.playback
    ]
    assert all(step >= 0 for step in steps)
    assert max(steps) < 5.0


@pytest.mark.parametrize("command", [TakeStacks(), SetRefresh(5.0), StartRecording("x.mpw")])
def test_commands_that_a_replay_refuses_have_a_reason(
    paused: ReplaySource, command: TakeStacks | SetRefresh | StartRecording
) -> None:
    answer = paused.ask(command)

    assert answer is not None
    assert answer.endswith(".")


def test_following_a_process_is_no_error(paused: ReplaySource) -> None:
    assert paused.ask(Follow(None)) is None


def test_another_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")

    with pytest.raises(NotARecording):
        ReplaySource(str(tmp_path / "notes.txt"))


def test_a_source_that_never_started_can_be_stopped(recorded: Recorded) -> None:
    ReplaySource(recorded(job(2))).stop()


def test_an_error_while_seeking_is_shown_and_seeking_still_works(
    paused: ReplaySource, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Timeline.approach

    def failing(timeline: Timeline, to_s: float) -> None:
        if to_s == 20.0:
            raise TypeError("no such state")
        original(timeline, to_s)

    monkeypatch.setattr(Timeline, "approach", failing)
    paused.ask(Pause(False))
    paused.ask(Seek(20.0))

    failed = screen.wait_for_problem("Replaying failed near 20.0 s: TypeError: no such state")
    assert failed.playback is not None
    assert failed.playback.is_paused

    paused.ask(Seek(10.0))
    shown = screen.wait(lambda position: position.at_s == 10.0)
    assert not any("Replaying failed" in problem for problem in shown.problems)


def test_after_stop_nothing_is_shown(paused: ReplaySource, screen: Screen) -> None:
    screen.wait(lambda position: position.is_paused)
    paused.stop()
    count = len(screen.shown)
    paused.ask(Seek(50.0))

    assert len(screen.shown) == count
