"""Stacks on request, comparing, copying, acting and replaying."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from mpwatch.model.commands import (
    Command,
    Follow,
    Seek,
    SetSpeed,
    StartRecording,
    Step,
    TakeStacks,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, ProcSample
from mpwatch.model.snapshot import Playback, Snapshot
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.deeds import Deeds
from mpwatch.tui.screens.acting import ActingScreen, ConfirmScreen
from mpwatch.tui.screens.tools import CompareScreen, MergedScreen
from tests.tui.screen_text import screen_text
from tests.tui.scripted import MAIN, MIB, NOW_S, ScriptedSource, loader_job, without_hook, worker_id

SIZE = (120, 36)


def front(app: MpwatchApp) -> Screen[Any]:
    return app.screen


def asked(source: ScriptedSource, kind: type[Command]) -> list[Command]:
    return [command for command in source.asked if isinstance(command, kind)]


async def later(pilot: Pilot[int], source: ScriptedSource, seconds: float = 1.0) -> Snapshot:
    snapshot = replace(loader_job(), at_s=NOW_S + seconds)
    source.push(snapshot)
    await pilot.pause()
    return snapshot


async def test_opening_threads_follows_the_process_under_the_cursor_and_leaving_stops_it() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("1")
        await later(pilot, source)
        await pilot.press("0")
        await later(pilot, source, 2)

    assert asked(source, Follow) == [Follow(MAIN), Follow(None)]


async def test_following_can_be_switched_off() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("1")
        await later(pilot, source)
        await pilot.press("f")
        await later(pilot, source, 2)

    assert asked(source, Follow) == [Follow(MAIN), Follow(None)]


async def test_the_cursor_must_rest_on_a_process_before_its_stack_is_taken() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("down")
        await later(pilot, source, 1)
        moved = asked(source, TakeStacks)
        await later(pilot, source, 2)
        rested = asked(source, TakeStacks)

    assert TakeStacks(worker_id(3)) not in moved
    assert TakeStacks(worker_id(3)) in rested


async def test_stacks_of_everything_are_taken_on_request_and_a_refusal_is_told() -> None:
    source = ScriptedSource(loader_job(), refuses="A recording takes no stacks.")
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("s")
        await pilot.pause()

        assert TakeStacks() in source.asked
        assert "A recording takes no stacks." in screen_text(app)


async def test_native_frames_and_locals_are_asked_for_one_process() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("down", "n", "v")

    assert TakeStacks(worker_id(3), native=True) in source.asked
    assert TakeStacks(worker_id(3), locals=True) in source.asked


async def test_merged_stacks_say_what_most_do_and_who_does_not() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("m")
        await pilot.pause()
        assert isinstance(front(app), MergedScreen)
        text = screen_text(app)

    assert "wait for work in Queue.get" in text
    assert "data.py:31 decode" in text


async def test_the_flame_page_fills_while_a_process_is_followed() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("down", "enter", "9")
        await pilot.pause()
        before = screen_text(app)
        for tick in range(1, 5):
            source.push(_with_stack(worker_id(3), tick))
            await pilot.pause()
        after = screen_text(app)

    assert "No samples yet" in before
    assert "4 samples of its main thread" in after
    assert "decode 100%" in after


def _with_stack(process: ProcessId, tick: int) -> Snapshot:
    job = replace(loader_job(), at_s=NOW_S + tick)
    found = job.get(process)
    assert found is not None
    first = found.threads[0]
    frames = (Frame("convert", "/site-packages/PIL/Image.py", 804), *first.stack)
    thread = replace(first, stack=frames, stack_at_s=NOW_S + tick)
    changed = replace(found, threads=(thread, *found.threads[1:]))
    return replace(
        job, processes=tuple(changed if p.process == process else p for p in job.processes)
    )


async def test_a_kept_moment_is_compared_with_now() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("b")
        job = replace(loader_job(), at_s=NOW_S + 60)
        grown = replace(job.processes[0], private_bytes=(job.processes[0].private_bytes or 0) + MIB)
        kept = tuple(p for p in job.processes[1:] if p.process != worker_id(2))
        source.push(replace(job, processes=(grown, *kept)))
        await pilot.press("d")
        await pilot.pause()
        assert isinstance(front(app), CompareScreen)
        text = screen_text(app)

    assert "now against 60 s earlier" in text
    assert "+1.0M" in text
    assert "gone" in text
    assert "processes came 0, went 1" in text


async def test_comparing_without_a_kept_moment_says_what_to_press() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("d")
        await pilot.pause()

        assert "No moment is kept" in screen_text(app)
        assert front(app) is app.dashboard


async def test_the_row_under_the_cursor_is_copied_whole() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "y")
        await pilot.pause()

    assert "data.py:31 decode -> PIL/Image.py:804" in app.clipboard
    assert "41829 worker 3" in app.clipboard


async def test_a_page_is_written_whole_to_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = MpwatchApp(ScriptedSource(loader_job()))
    app.wall_clock = lambda: 0.0
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3", "e")
        await pilot.pause()

    written = tmp_path / "mpwatch-files-41823-19700101-000000.tsv"
    assert written.read_text().splitlines()[1].startswith("main\t642\t1024")
    assert os.stat(written).st_mode & 0o777 == 0o600


class Recorder:
    """Deeds that only note what would have been done."""

    def __init__(self, refusal: type[OSError] | None = None) -> None:
        self.sent: list[tuple[ProcessId, int]] = []
        self.raised: list[ProcessId] = []
        self._refusal = refusal

    def send(self, process: ProcessId, number: int) -> None:
        if self._refusal:
            raise self._refusal
        self.sent.append((process, number))

    def raise_limit(self, process: ProcessId) -> int:
        self.raised.append(process)
        return 1_048_576

    def detach(self, processes: Sequence[ProcSample]) -> str:
        return f"Taken out of {len(processes)}."

    def deeds(self) -> Deeds:
        return Deeds(send=self.send, raise_limit=self.raise_limit, detach=self.detach)


async def choose(pilot: Pilot[int], app: MpwatchApp, key: tuple[str, int]) -> None:
    await pilot.press("x")
    await pilot.pause()
    screen = front(app)
    assert isinstance(screen, ActingScreen)
    assert screen.choose(key)
    await pilot.press("enter")
    await pilot.pause()


async def test_a_signal_is_sent_only_after_y() -> None:
    recorder = Recorder()
    app = MpwatchApp(ScriptedSource(loader_job()), deeds=recorder.deeds())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("down")
        await choose(pilot, app, ("signal", 15))
        assert isinstance(front(app), ConfirmScreen)
        assert "Send SIGTERM: worker 3, pid 41829?" in screen_text(app)
        assert recorder.sent == []
        await pilot.press("y")
        await pilot.pause()

        assert recorder.sent == [(worker_id(3), 15)]
        assert "SIGTERM was sent to 41829." in screen_text(app)


@pytest.mark.parametrize("key", ["n", "escape", "enter"])
async def test_any_other_answer_sends_nothing(key: str) -> None:
    recorder = Recorder()
    app = MpwatchApp(ScriptedSource(loader_job()), deeds=recorder.deeds())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("signal", 9))
        await pilot.press(key)
        await pilot.pause()

    assert recorder.sent == []


async def test_a_deed_the_system_refuses_is_told_in_one_sentence() -> None:
    recorder = Recorder(PermissionError)
    app = MpwatchApp(ScriptedSource(loader_job()), deeds=recorder.deeds())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("signal", 15))
        await pilot.press("y")
        await pilot.pause()

        assert "41823 belongs to somebody else" in screen_text(app)


async def test_the_limit_of_descriptors_can_be_raised() -> None:
    recorder = Recorder()
    app = MpwatchApp(ScriptedSource(loader_job()), deeds=recorder.deeds())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("limit", 0))
        await pilot.press("y")
        await pilot.pause()

    assert recorder.raised == [MAIN]


async def test_detaching_is_done_on_the_whole_tree_and_its_outcome_is_told() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()), deeds=Recorder().deeds())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("detach", 0))
        await pilot.press("y")
        await app.workers.wait_for_complete()
        await pilot.pause()

        assert "Taken out of 6." in screen_text(app)


async def test_detaching_is_not_offered_where_no_hook_is_in() -> None:
    app = MpwatchApp(ScriptedSource(without_hook()), deeds=Recorder().deeds())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("x")
        await pilot.pause()
        screen = front(app)
        assert isinstance(screen, ActingScreen)

        assert not screen.choose(("detach", 0))


async def test_stacks_are_written_to_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = MpwatchApp(ScriptedSource(loader_job()))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("stacks", 0))

    (written,) = tmp_path.glob("mpwatch-stacks-41823-*.txt")
    assert "decode train/data.py:31" in written.read_text()


async def test_recording_is_started_and_said_in_the_status_line() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("record", 0))
        await pilot.press("escape")
        await pilot.pause()
        text = screen_text(app)

    (command,) = asked(source, StartRecording)
    assert isinstance(command, StartRecording)
    assert command.path is not None
    assert "REC" in text


async def test_a_read_only_dashboard_acts_on_nothing() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()), readonly=True)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("x")
        await pilot.pause()

        assert front(app) is app.dashboard
        assert "read-only" in screen_text(app)


def replayed() -> Snapshot:
    at = Playback(at_s=62.0, length_s=600.0, speed=2.0)
    return replace(loader_job(), mode="replay", playback=at)


async def test_a_replay_is_stepped_sought_and_sped_up() -> None:
    source = ScriptedSource(replayed(), is_live=False)
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("full_stop", "comma", "right_square_bracket", "left_square_bracket")
        await pilot.press("plus", "minus")

    wanted = [Step(1), Step(-1), Seek(72.0), Seek(52.0), SetSpeed(4.0), SetSpeed(1.0)]
    assert source.asked == wanted


async def test_a_replay_goes_to_where_a_finding_began() -> None:
    source = ScriptedSource(replayed(), is_live=False)
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        app.dashboard.overview.brief.focus()
        await pilot.press("enter", "t")
        await pilot.pause()

    assert source.asked == [Seek(22.0)]


async def test_keys_of_a_replay_do_nothing_on_a_running_job() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("full_stop", "right_square_bracket", "plus")

    assert not [c for c in source.asked if isinstance(c, (Step, Seek, SetSpeed))]


async def test_the_palette_jumps_to_a_process() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("5")
        app.jump_to(worker_id(2))
        await app.workers.wait_for_complete()
        await pilot.pause()

        assert app.dashboard.view.page.name == "overview"
        assert app.dashboard.current_process == worker_id(2)
