"""The cost of a snapshot, counted in drawn lines instead of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from textual.strip import Strip
from textual.widget import Widget

from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.elements import styled_text
from mpwatch.tui.elements.styled_text import Row
from mpwatch.tui.pages import tree
from mpwatch.tui.screens.base import SnapshotArrived
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.live_table import LiveTable
from tests.builders.screen_job import worker_id
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, crowd, healthy_job

pytestmark = pytest.mark.slow

SIZE = (160, 48)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each widget drew a line."""
    drawn: Counter[str] = Counter()
    for kind in (LiveTable, LineView):
        original = kind.render_line

        def render(self: Widget, y: int, draw: object = original) -> Strip:
            drawn[" ".join(sorted(self.classes)) or str(self.id)] += 1
            return draw(self, y)  # type: ignore[operator,no-any-return]

        monkeypatch.setattr(kind, "render_line", render)
    yield drawn


async def test_a_tick_that_changes_one_visible_process_draws_one_line_of_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = ScriptedSource(crowd(1000))
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        with counted(monkeypatch) as drawn:
            source.push(crowd(1000, tick=5, changed=(3,)))
            await pilot.pause()

    assert drawn["rows"] == 1


async def test_a_change_off_screen_draws_no_line_of_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = ScriptedSource(crowd(1000))
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        with counted(monkeypatch) as drawn:
            source.push(crowd(1000, tick=5, changed=(900,)))
            await pilot.pause()

    assert drawn["rows"] == 0


async def test_moving_the_cursor_draws_two_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = MpwatchApp(ScriptedSource(crowd(1000)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        with counted(monkeypatch) as drawn:
            await pilot.press("down")
            await pilot.pause()

    assert drawn["rows"] == 2


async def test_hidden_pages_are_neither_drawn_nor_updated() -> None:
    source = ScriptedSource(crowd(100))
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("1")
        await pilot.press("0")
        await pilot.pause()
        threads = app.dashboard.page_views["1"].table.items
        source.push(crowd(50, tick=1))
        await pilot.pause()

        assert app.dashboard.page_views["1"].table.items is threads
        assert set(app.dashboard.page_views) == {"0", "1"}


async def test_rows_are_built_for_visible_lines_only() -> None:
    built: list[object] = []
    app = MpwatchApp(ScriptedSource(crowd(1000)))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        page_view = app.dashboard.overview
        original = page_view.page.row
        items = page_view.table.items

        def row(item: object) -> object:
            built.append(item)
            return original(item, app.view_state.view)  # type: ignore[arg-type]

        page_view.table.show(items, row)  # type: ignore[arg-type]

    assert 0 < len(built) < 40


async def test_queued_snapshots_are_replaced_by_the_newest() -> None:
    first, second = SnapshotArrived(healthy_job()), SnapshotArrived(healthy_job())

    assert second.can_replace(first)


async def test_ten_ticks_at_once_end_with_the_last_one_on_screen() -> None:
    source = ScriptedSource(crowd(200))
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        for tick in range(1, 11):
            source.push(crowd(200, tick=tick, changed=(0,)))
        await pilot.pause()
        view = app.view_state.view

    assert view is not None
    found = view.by_id[worker_id(0)]
    assert found.cpu_percent == 11.0


async def test_rows_are_built_again_only_for_changed_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    original = tree.new_row

    def make(node: tree.TreeRow, *more: Any) -> Row:
        made.append(node.process.pid)
        return original(node, *more)

    monkeypatch.setattr(tree, "new_row", make)
    before = crowd(100)
    source = ScriptedSource(before)
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        made.clear()
        moved = replace(before.processes[4], cpu_percent=93.0)
        processes = (*before.processes[:4], moved, *before.processes[5:])
        source.push(replace(before, at_s=before.at_s + 1, processes=processes))
        await pilot.pause()
        assert made == [moved.pid]
        assert " 93 " in screen_text(app)


async def test_a_trend_is_drawn_again_only_if_visible_values_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[int] = []
    original = styled_text.trend

    def draw(values: Any, width: int, **more: Any) -> str:
        drawn.append(width)
        return original(values, width, **more)

    monkeypatch.setattr("mpwatch.tui.elements.styled_text.trend", draw)
    old = styled_text.Trend((1.0, 5.0, 5.0), top=100.0)

    assert styled_text.looks_alike(old, styled_text.Trend((2.0, 3.0, 5.0, 5.0), top=100.0), 2)
    assert not drawn
    assert not styled_text.looks_alike(old, styled_text.Trend((5.0, 99.0), top=100.0), 2)
    assert styled_text.looks_alike(old, styled_text.Trend((5.0, 5.1), top=100.0), 2)


async def test_a_hidden_screen_is_painted_when_it_is_shown_again() -> None:
    source = ScriptedSource(crowd(20))
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await pilot.press("question_mark")
        await pilot.pause()
        source.push(crowd(20, tick=5, changed=(0, 1, 2)))
        await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()

        expected = MpwatchApp(ScriptedSource(crowd(20, tick=5, changed=(0, 1, 2))))
        shown = screen_text(app)
    async with expected.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert shown.splitlines()[:12] == screen_text(expected).splitlines()[:12]
