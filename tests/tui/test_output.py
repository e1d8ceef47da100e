"""What the job prints: the screen that `o` opens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mpwatch.collect.process.output import Output, OutputReads
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import Line, text_of
from mpwatch.tui.screens.output import OutputArrived, OutputScreen, headings_of, output_lines
from mpwatch.tui.widgets.line_view import ScrollingLines
from tests.builders.screen_job import MAIN, worker_id
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, loader_job


def shown(*outputs: Output) -> list[str]:
    view = SnapshotView(loader_job())
    lines = output_lines(OutputArrived(outputs), headings_of(outputs, view), 80)
    return [text_of(each) for each in lines]


def log(*lines: str, writers: tuple[ProcessId, ...] = (MAIN,), is_cut: bool = False) -> Output:
    return Output("/tmp/a.log", "file", writers, 100, lines, is_cut)


def test_a_file_is_shown_with_its_writers() -> None:
    assert shown(log("step 1", "step 2", writers=(MAIN, worker_id(0)), is_cut=True)) == [
        " main, worker 0 write to /tmp/a.log (100B)",
        " (earlier lines are not shown)",
        " step 1",
        " step 2",
    ]


def test_what_cannot_be_read_is_named_above_what_can() -> None:
    lines = shown(log("step 1"), Output("/dev/pts/3", "device", (worker_id(0),)))

    assert lines[0].startswith(" worker 0 writes to /dev/pts/3: what was written there cannot be")
    assert lines[-1] == " step 1"


def test_an_empty_file_says_so() -> None:
    assert shown(log())[-1] == " nothing is written there yet"


async def test_o_opens_the_output_at_its_end_and_closes_it() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()), title="train.py")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("o")
        await pilot.pause()
        app.screen.post_message(OutputArrived((log(*(f"step {n}" for n in range(100))),)))
        await pilot.pause()
        assert "step 99" in screen_text(app)
        assert "step 1 " not in screen_text(app)
        await pilot.press("o")
        await pilot.pause()
        assert "step 99" not in screen_text(app)


class NoReads(OutputReads):
    """Reads nothing: what has arrived is posted by the test."""

    def start(self, snapshot: Snapshot) -> None: ...


async def test_the_text_is_drawn_again_only_if_something_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = MpwatchApp(ScriptedSource(loader_job()), title="train.py")
    drawn: list[int] = []
    really = ScrollingLines.show

    def noted(self: ScrollingLines, lines: Sequence[Line], **more: bool) -> None:
        if self.screen is app.screen:
            drawn.append(len(lines))
        really(self, lines, **more)

    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(OutputScreen(app.view_state, NoReads))
        await pilot.pause()
        monkeypatch.setattr(ScrollingLines, "show", noted)
        for lines in (["step 1"], ["step 1"], ["step 1", "step 2"]):
            app.screen.post_message(OutputArrived((log(*lines),)))
            await pilot.pause()
        assert drawn == [2, 3]
        assert "step 2" in screen_text(app)
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert drawn == [2, 3, 3]
