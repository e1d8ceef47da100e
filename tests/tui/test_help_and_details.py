"""Help, and the details below a table."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.model.snapshot import LogEntry, Snapshot
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.elements.page import Page
from mpwatch.tui.elements.styled_text import width_of
from mpwatch.tui.screens.dashboard import PAGES, PROCESS_PAGES
from mpwatch.tui.screens.texts import EVERYWHERE, FindingScreen
from mpwatch.tui.widgets.line_view import LineView
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, loader_job


def dashboard() -> MpwatchApp:
    return MpwatchApp(ScriptedSource(loader_job()), title="train.py")


async def test_tab_skips_details_that_are_fully_visible() -> None:
    app = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        await pilot.press("tab")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, FindingScreen)


async def test_help_needs_no_horizontal_scrolling() -> None:
    app = dashboard()
    async with app.run_test(size=(64, 50)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        assert max(width_of(content) for content in app.screen.query_one(LineView).lines) <= 64
        assert "E hides and shows processes that have ended" in " ".join(screen_text(app).split())
        await pilot.resize_terminal(120, 50)
        await pilot.pause()
        assert max(width_of(content) for content in app.screen.query_one(LineView).lines) > 64


@pytest.mark.parametrize("page", [*PAGES, *PROCESS_PAGES], ids=lambda page: page.title)
def test_help_is_paragraphs_that_no_page_breaks_into_lines(page: Page[Any]) -> None:
    assert page.help[-1].endswith(".")
    for text in (*page.help, *EVERYWHERE):
        assert text[0] != " "
        assert not text.endswith((",", " the", " and", " is", " one", " always"))


async def test_the_sorted_column_is_marked_even_if_its_name_fills_the_column() -> None:
    app = dashboard()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("P")
        await pilot.pause()
        assert " PRIVATEv " in screen_text(app)
        await pilot.press("r")
        await pilot.pause()
        assert " PRIVATE^ " in screen_text(app)


async def test_a_cursor_on_the_newest_event_moves_to_newer_ones_and_stays_elsewhere() -> None:
    job = loader_job()
    source = ScriptedSource(job)
    app = MpwatchApp(source, title="train.py")

    def told(count: int) -> Snapshot:
        new = [
            LogEntry(1000 + n, job.at_s + n, job.wall_s + n, "exception", None, f"news {n}")
            for n in range(count)
        ]
        return replace(job, log=(*job.log, *new))

    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("8")
        await pilot.pause()
        table = app.dashboard.page_view.table
        for count in (1, 50):
            source.push(told(count))
            await pilot.pause()
            assert table.cursor_key == 999 + count
            assert f"news {count - 1}" in screen_text(app)
        await pilot.press("down")
        source.push(told(60))
        await pilot.pause()
        assert table.cursor_key == 1048
