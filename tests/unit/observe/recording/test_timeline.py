"""A position in a recording, moved forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.engine import Engine
from mpwatch.model.events import Input
from mpwatch.model.samples import Ended, TreeSample
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.recording.file import NotARecording, Recording
from mpwatch.observe.recording.timeline import Timeline
from mpwatch.observe.sources.replay import replay_to_end
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, START_S, WORKER_0, shared_batches, small_job
from tests.unit.observe.recording.conftest import Recorded


def job(seconds: int) -> list[Input]:
    inputs: list[Input] = []
    for second in range(seconds):
        at_s = START_S + second
        inputs += [small_job(at_s, cpu_ticks=7 * second), shared_batches(at_s + 0.3)]
    return inputs


def live(inputs: list[Input]) -> Snapshot:
    fold, engine = Fold(), Engine()
    for each in inputs:
        fold.apply(each)
        if isinstance(each, TreeSample):
            engine.diagnosed(fold.snapshot(), fold.history())
    return engine.preview(fold.snapshot(), fold.history())


@contextmanager
def tape_of(path: str, *, keeps: bool = True) -> Iterator[Timeline]:
    with Recording(path) as recording:
        yield Timeline(recording, keeps=keeps)


def test_a_timeline_begins_at_the_first_reading(recorded: Recorded) -> None:
    with tape_of(recorded([shared_batches(START_S), *job(3)])) as timeline:
        assert timeline.at_s == 0.0
        assert timeline.snapshot().at_s == START_S
        assert timeline.length_s == pytest.approx(2.3)


def test_a_recording_without_a_reading_is_refused(recorded: Recorded) -> None:
    path = recorded([shared_batches(START_S)])

    with pytest.raises(NotARecording, match="ends before the job was read once"), tape_of(path):
        pass


def test_at_each_time_a_timeline_shows_what_live_showed(recorded: Recorded) -> None:
    inputs = job(90)
    with tape_of(recorded(inputs)) as timeline:
        for moment_s in (0.0, 0.3, 1.0, 17.4, 59.0, 200.0):
            timeline.advance(moment_s)
            until_s = START_S + moment_s
            seen = [one for one in inputs if one.at_s <= until_s]  # type: ignore[union-attr]
            assert timeline.snapshot() == live(seen), moment_s


def test_going_back_shows_the_same_as_going_forward(recorded: Recorded) -> None:
    path, shown = recorded(job(90)), {}
    with tape_of(path) as forward, tape_of(path) as back:
        for moment_s in (0.0, 5.3, 29.9, 31.0, 64.2, 88.0):
            forward.advance(moment_s)
            shown[moment_s] = forward.at_s, forward.snapshot()
        back.advance(1e9)
        for moment_s in (64.2, 5.3, 88.0, 0.0, 31.0, 29.9):
            back.approach(moment_s)
            back.advance(moment_s)
            assert (back.at_s, back.snapshot()) == shown[moment_s], moment_s


def test_a_recording_without_a_hook_is_sought_backwards(recorded: Recorded) -> None:
    path = recorded([small_job(START_S + second, cpu_ticks=second) for second in range(90)])
    with tape_of(path) as forward, tape_of(path) as back:
        forward.advance(70.0)
        back.advance(1e9)
        back.snapshot()
        back.approach(70.0)
        back.advance(70.0)

        assert back.snapshot() == forward.snapshot()


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[Input]:
    """All inputs that any fold applies from now on."""
    inputs: list[Input] = []
    original = Fold.apply

    def counting(fold: Fold, each: Input) -> None:
        inputs.append(each)
        original(fold, each)

    monkeypatch.setattr(Fold, "apply", counting)
    return inputs


@pytest.mark.parametrize("before_s", [150.0, 10.0])
def test_seeking_within_the_part_already_read_folds_a_bounded_number_of_inputs_again(
    recorded: Recorded, applied: list[Input], before_s: float
) -> None:
    with tape_of(recorded(job(150))) as timeline:
        timeline.advance(1e9)
        timeline.approach(before_s)
        timeline.advance(before_s)
        applied.clear()
        timeline.approach(140.0)
        timeline.advance(140.0)
        there = timeline.snapshot()

    assert 0 < len(applied) < 150
    assert there.at_s == pytest.approx(START_S + 140.0)


@pytest.mark.slow
def test_kept_folds_are_thinned_when_they_take_too_much(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, applied: list[Input]
) -> None:
    path = recorded(job(300))
    with tape_of(path) as roomy:
        roomy.advance(1e9)
        monkeypatch.setattr("mpwatch.observe.recording.timeline.KEPT_BYTES_LIMIT", 20_000)
        with tape_of(path) as tight:
            tight.advance(1e9)
            folded = []
            for timeline in (tight, roomy):
                applied.clear()
                timeline.approach(200.0)
                timeline.advance(200.0)
                folded.append(len(applied))

            assert folded[0] > folded[1]
            assert tight.snapshot() == roomy.snapshot()


def test_a_timeline_stops_early_on_request_and_continues_from_there(recorded: Recorded) -> None:
    with tape_of(recorded(job(50))) as timeline:
        assert not timeline.advance(40.0, lambda: True)
        assert timeline.at_s < 2.0
        assert timeline.advance(40.0)
        assert timeline.at_s == 40.0


def test_a_timeline_steps_from_reading_to_reading(recorded: Recorded) -> None:
    with tape_of(recorded(job(90))) as timeline:
        timeline.step(3)
        assert timeline.at_s == 3.0
        timeline.step(-1)
        assert timeline.at_s == 2.0
        timeline.advance(70.5)
        timeline.step(-1)
        assert timeline.at_s == 70.0
        timeline.step(-100)
        assert timeline.at_s == 0.0
        timeline.step(1000)
        assert timeline.is_at_end
        assert timeline.at_s == pytest.approx(timeline.length_s)


def test_stepping_back_shows_the_reading_itself(recorded: Recorded) -> None:
    with tape_of(recorded(job(60))) as timeline:
        timeline.step(40)
        before = timeline.snapshot()
        timeline.step(10)
        timeline.step(-10)

        assert timeline.snapshot() == before


def test_an_input_that_the_fold_rejects_is_reported_and_the_rest_is_played(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Fold.apply

    def picky(fold: Fold, each: Input) -> None:
        if isinstance(each, Ended):
            raise ValueError("no such thing")
        original(fold, each)

    monkeypatch.setattr(Fold, "apply", picky)
    path = recorded([small_job(START_S), Ended(WORKER_0, START_S + 0.5, 1), small_job(START_S + 1)])

    end = replay_to_end(path)

    assert end.at_s == START_S + 1
    assert "A part of the recording was left out: ValueError: no such thing" in end.problems


def test_the_end_of_a_recording_shows_what_live_showed_last(recorded: Recorded) -> None:
    inputs = [
        *job(40),
        Ended(WORKER_0, START_S + 40, signal=9),
        small_job(START_S + 41, processes=(MAIN,)),
    ]
    end = replay_to_end(recorded(inputs))

    assert end.mode == "replay"
    assert end.playback is not None
    assert end.playback.at_s == end.playback.length_s == 41.0
    assert replace(end, mode="live", playback=None) == live(inputs)
