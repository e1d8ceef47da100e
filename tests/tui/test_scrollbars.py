"""A scrollbar covers the last cells of its widget, so nothing is drawn there."""

from __future__ import annotations

import pytest
from textual.widget import Widget

from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.widgets.live_table import LiveTable
from tests.tui.scripted import ScriptedSource, crowd

pytestmark = pytest.mark.slow


def last_cells(widget: Widget) -> set[str]:
    """The cells of each visible line that the scrollbar covers."""
    return {widget.render_line(y).text[widget.size.width - 1 :] for y in range(widget.size.height)}


@pytest.mark.parametrize("key", ["0", "1", "3"])
@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_a_table_that_scrolls_has_nothing_below_its_scrollbar(
    key: str, size: tuple[int, int]
) -> None:
    app = MpwatchApp(ScriptedSource(crowd(200)))
    async with app.run_test(size=size) as pilot:
        await pilot.press(key)
        await pilot.pause()
        scrolling = [
            table
            for table in app.screen.query(LiveTable)
            if table.show_vertical_scrollbar and table.size.width
        ]
        assert scrolling
        for table in scrolling:
            assert last_cells(table) == {" "}
