"""What the job prints: the screen that `o` opens."""

from __future__ import annotations

from mpwatch.collect.process.output import Output
from mpwatch.model.ids import ProcessId
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import text_of
from mpwatch.tui.screens.output import OutputArrived, output_lines
from tests.builders.screen_job import MAIN, worker_id
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, loader_job


def shown(*outputs: Output) -> list[str]:
    view = SnapshotView(loader_job())
    return [text_of(each) for each in output_lines(outputs, view, 80)]


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
