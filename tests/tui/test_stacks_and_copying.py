"""Stacks on request, comparison of snapshots, copying, and jumping by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.screen import Screen

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.source import Focus, Follow, TakeStacks
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.screens.dashboard import CompareScreen, MergedScreen
from tests.builders.screen_job import MAIN, MIB, NOW_S, worker_id
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, loader_job

pytestmark = pytest.mark.slow

SIZE = (120, 36)


def front(app: MpwatchApp) -> Screen[Any]:
    return app.screen


async def later(pilot: Pilot[int], source: ScriptedSource, seconds: float = 1.0) -> Snapshot:
    snapshot = replace(loader_job(), at_s=NOW_S + seconds)
    source.push(snapshot)
    await pilot.pause()
    return snapshot


async def test_the_threads_page_follows_the_process_under_the_cursor_until_it_is_left() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("1")
        await later(pilot, source)
        await pilot.press("0")
        await later(pilot, source, 2)

    assert source.asked_for(Follow) == [Follow(MAIN), Follow(None)]


@pytest.mark.parametrize(
    ("row", "words"),
    [("", "41823 main  waiting 31%  started at "), ("j", "fork of main (41823) at ")],
)
async def test_a_process_shows_when_and_by_which_parent_it_was_started(
    row: str, words: str
) -> None:
    app = MpwatchApp(ScriptedSource(loader_job()))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press(*row, "enter")
        await pilot.pause()

        assert words in screen_text(app).splitlines()[1]


async def test_no_line_is_shown_of_a_file_that_is_not_the_one_that_runs(tmp_path: Path) -> None:
    """An edited file, or one of another mount namespace, has other lines at the same numbers."""
    file = tmp_path / "edited.py"
    file.write_text("edited_since = True\n")
    job = loader_job()
    main = job.processes[0]
    stack = (Frame("step", str(file), 1),)
    threads = tuple(replace(each, stack=stack) for each in main.threads)
    changed = replace(job, processes=(replace(main, threads=threads), *job.processes[1:]))
    app = MpwatchApp(ScriptedSource(changed))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("1")
        await pilot.pause()

        assert "edited.py:1" in screen_text(app)
        assert "edited_since" not in screen_text(app)


async def test_following_can_be_switched_off() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("1")
        await later(pilot, source)
        await pilot.press("f")
        await later(pilot, source, 2)

    assert source.asked_for(Follow) == [Follow(MAIN), Follow(None)]


async def test_the_source_receives_the_process_under_the_cursor() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await later(pilot, source, 1)
        await pilot.press("down")
        await later(pilot, source, 2)
        await pilot.press("p")
        await later(pilot, source, 3)
        await pilot.press("p", "1")
        await later(pilot, source, 4)

    focused = [each.process for each in source.asked_for(Focus) if isinstance(each, Focus)]
    assert focused[:2] == [MAIN, worker_id(3)]
    assert focused[-1] is None


async def test_stacks_of_all_processes_are_taken_on_request_and_a_refusal_is_shown() -> None:
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


async def test_merged_stacks_show_the_majority_and_its_exceptions() -> None:
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
        await pilot.press("down", "enter", "7")
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


async def test_a_saved_snapshot_is_compared_with_the_current_one() -> None:
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
    assert "no longer" in text
    assert "processes started 0, ended 1" in text


async def test_comparing_without_a_saved_snapshot_names_the_key() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("d")
        await pilot.pause()

        assert "No snapshot is saved" in screen_text(app)
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


async def test_the_palette_jumps_to_a_process() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("5")
        app.jump_to(worker_id(2))
        await app.workers.wait_for_complete()
        await pilot.pause()

        assert app.dashboard.page_view.page.name == "overview"
        assert app.dashboard.current_process == worker_id(2)
