"""Process actions: choosing, confirming, showing the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from mpwatch.attach.process_actions import ProcessActions
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from mpwatch.observe.sources.source import StartRecording, StopInjecting
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.screens.process_actions import ConfirmScreen, ProcessActionsScreen
from tests.builders.screen_job import MAIN, worker_id
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, loader_job, without_hook

pytestmark = pytest.mark.slow

SIZE = (120, 36)


def front(app: MpwatchApp) -> Screen[Any]:
    return app.screen


class Recorder:
    """Process actions that only record their calls."""

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
        return f"Detached from {len(processes)} processes."

    def process_actions(self) -> ProcessActions:
        return ProcessActions(send=self.send, raise_limit=self.raise_limit, detach=self.detach)


async def choose(pilot: Pilot[int], app: MpwatchApp, key: tuple[str, int]) -> None:
    await pilot.press("x")
    await pilot.pause()
    screen = front(app)
    assert isinstance(screen, ProcessActionsScreen)
    assert screen.choose(key)
    await pilot.press("enter")
    await pilot.pause()


async def test_a_signal_is_sent_only_after_y() -> None:
    recorder = Recorder()
    app = MpwatchApp(ScriptedSource(loader_job()), process_actions=recorder.process_actions())
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
    app = MpwatchApp(ScriptedSource(loader_job()), process_actions=recorder.process_actions())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("signal", 9))
        await pilot.press(key)
        await pilot.pause()

    assert recorder.sent == []


async def test_a_refused_action_is_explained_in_one_sentence() -> None:
    recorder = Recorder(PermissionError)
    app = MpwatchApp(ScriptedSource(loader_job()), process_actions=recorder.process_actions())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("signal", 15))
        await pilot.press("y")
        await pilot.pause()

        assert "41823 belongs to another user" in screen_text(app)


async def test_the_limit_of_descriptors_can_be_raised() -> None:
    recorder = Recorder()
    app = MpwatchApp(ScriptedSource(loader_job()), process_actions=recorder.process_actions())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("limit", 0))
        await pilot.press("y")
        await pilot.pause()

    assert recorder.raised == [MAIN]


async def test_detaching_covers_the_whole_tree_and_its_result_is_shown() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source, process_actions=Recorder().process_actions())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("detach", 0))
        assert StopInjecting() not in source.asked
        await pilot.press("y")
        await app.workers.wait_for_complete()
        await pilot.pause()

        assert "Detached from 6 processes." in screen_text(app)
    assert StopInjecting() in source.asked


async def test_detaching_is_not_offered_without_a_hook() -> None:
    app = MpwatchApp(ScriptedSource(without_hook()), process_actions=Recorder().process_actions())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("x")
        await pilot.pause()
        screen = front(app)
        assert isinstance(screen, ProcessActionsScreen)

        assert not screen.choose(("detach", 0))


async def test_stacks_are_written_to_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = MpwatchApp(ScriptedSource(loader_job()))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("stacks", 0))

    (written,) = tmp_path.glob("mpwatch-stacks-41823-*.txt")
    assert "data.py:31 decode" in written.read_text()


async def test_a_started_recording_is_shown_in_the_status_line() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await choose(pilot, app, ("record", 0))
        await pilot.press("escape")
        await pilot.pause()
        text = screen_text(app)

    (command,) = source.asked_for(StartRecording)
    assert isinstance(command, StartRecording)
    assert command.path is not None
    assert "REC" in text


async def test_a_read_only_dashboard_offers_no_action() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()), readonly=True)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("x")
        await pilot.pause()

        assert front(app) is app.dashboard
        assert "read-only" in screen_text(app)
