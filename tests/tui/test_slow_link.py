"""Output over a slow link: changed cells only, and no new layout of the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from textual.geometry import Region

from mpwatch.model.snapshot import Snapshot
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.elements.styled_text import cell
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.live_table import LiveTable
from tests.tui.scripted import ScriptedSource, crowd

pytestmark = pytest.mark.slow

SIZE = (160, 48)


def painted(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> list[Region]:
    """The regions that widgets of a class refresh from now on."""
    found: list[Region] = []
    original = kind.refresh

    def refresh(self: Any, *regions: Region, **how: Any) -> Any:
        found.extend(regions or (self.region,))
        return original(self, *regions, **how)

    monkeypatch.setattr(kind, "refresh", refresh)
    return found


async def regions_of_a_tick(
    before: Snapshot, after: Snapshot, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> Sequence[Region]:
    source = ScriptedSource(before)
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        found = painted(kind, monkeypatch)
        source.push(after)
        await pilot.pause()
        return list(found)


async def test_a_changed_number_paints_its_own_cells_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = await regions_of_a_tick(
        crowd(64), crowd(64, tick=5, changed=(3,)), LiveTable, monkeypatch
    )

    assert [region.height for region in found] == [1]
    assert sum(region.width for region in found) < 10


async def test_a_changed_name_is_painted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = crowd(64)
    renamed = replace(before.processes[1], label="renamed")
    after = replace(before, processes=(before.processes[0], renamed, *before.processes[2:]))

    found = await regions_of_a_tick(before, after, LiveTable, monkeypatch)

    assert len(found) == 1
    assert found[0].width >= len("41826 renamed")


async def test_changed_cells_of_one_row_are_painted_as_one_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = crowd(64)
    busy = before.processes[4]
    after = replace(
        before,
        processes=(
            *before.processes[:4],
            replace(busy, cpu_percent=93.0, private_bytes=77_000_000),
            *before.processes[5:],
        ),
    )

    (found,) = await regions_of_a_tick(before, after, LiveTable, monkeypatch)

    assert found.height == 1
    assert 10 < found.width < SIZE[0] - found.x


async def test_rows_that_change_together_are_painted_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[int] = []
    original = LiveTable.refresh

    def refresh(self: LiveTable[Any], *regions: Region, **how: Any) -> Any:
        requests.append(len(regions))
        return original(self, *regions, **how)

    source = ScriptedSource(crowd(64))
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        monkeypatch.setattr(LiveTable, "refresh", refresh)
        source.push(crowd(64, tick=5, changed=(3, 5, 9)))
        await pilot.pause()

        assert requests == [3]


async def test_the_status_line_is_painted_from_where_it_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = crowd(64)
    after = replace(before, own=replace(before.own, cpu_percent=9.9))

    (found,) = await regions_of_a_tick(before, after, LineView, monkeypatch)

    assert found.x > SIZE[0] // 2


async def test_a_shorter_stack_causes_no_layout() -> None:
    app = MpwatchApp(ScriptedSource(crowd(64)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        details = app.dashboard.overview.details
        long = tuple(cell(f"frame {n}") for n in range(50))
        details.show(long, is_new=False)
        room = details.virtual_size
        details.show(long[:3], is_new=False)
        assert details.virtual_size == room
        details.show(long[:3], is_new=True)
        assert details.virtual_size.height == 3
