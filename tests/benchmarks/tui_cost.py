"""What a tick of the dashboard costs with very many processes, against a DataTable doing the same.

Run it by hand: `python -m tests.benchmarks.tui_cost [PROCESSES] [TICKS]`. Both programs run in one
process one after the other, so their ratio means something on any machine; nothing is asserted.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import DataTable

from mpwatch.model.snapshot import Snapshot
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.elements.page import Order, SnapshotView
from mpwatch.tui.elements.styled_text import drawn, text_of
from mpwatch.tui.pages import tree
from tests.tui.scripted import ScriptedSource, crowd

SIZE = (160, 48)
CHANGED = 0.05
"""Share of the processes that differ from tick to tick."""


class TableApp(App[None]):
    """The same tree in Textual's DataTable: only changed cells are updated."""

    def compose(self) -> ComposeResult:
        yield DataTable()

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for index, column in enumerate(tree.COLUMNS):
            table.add_column(column.name, key=str(index), width=column.width)
        self.shown: dict[str, tuple[str, ...]] = {}

    def show(self, snapshot: Snapshot) -> None:
        table = self.query_one(DataTable)
        view = SnapshotView(snapshot)
        for node in tree.nodes(view, Order()):
            row = tree.PAGE.row(node, view)
            cells = tuple(text_of(drawn(content, 8)) for content in row.cells)
            key = str(row.key)
            before = self.shown.get(key)
            if before is None:
                table.add_row(*cells, key=key)
            else:
                for index, (old, new) in enumerate(zip(before, cells, strict=True)):
                    if old != new:
                        table.update_cell(key, str(index), new)
            self.shown[key] = cells


def ticks(processes: int, count: int) -> list[Snapshot]:
    step = max(1, int(1 / CHANGED))
    return [
        crowd(processes, tick=n, changed=range(n % step, processes, step))
        for n in range(1, count + 1)
    ]


async def cpu_ms(
    pilot: Pilot[Any], inputs: Sequence[Any], show: Callable[[Any], None]
) -> list[float]:
    """CPU milliseconds of each tick, less those of the idle program."""
    idle = []
    for _ in range(3):
        began = time.process_time()
        await pilot.pause()
        idle.append(time.process_time() - began)
    spent = []
    for each_input in inputs:
        began = time.process_time()
        show(each_input)
        await pilot.pause()
        spent.append(time.process_time() - began)
    return [max(0.0, each - median(idle)) * 1000 for each in spent]


async def ours(processes: int, count: int) -> tuple[list[float], list[float]]:
    source = ScriptedSource(crowd(processes))
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        tick = await cpu_ms(pilot, ticks(processes, count), source.push)
        keys = await cpu_ms(
            pilot, ["down"] * count, lambda _: app.dashboard.overview.table.action_move(1)
        )
    return tick, keys


async def theirs(processes: int, count: int) -> list[float]:
    app = TableApp()
    async with app.run_test(size=SIZE) as pilot:
        app.show(crowd(processes))
        await pilot.pause()
        return await cpu_ms(pilot, ticks(processes, count), app.show)


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    tick, keys = asyncio.run(ours(processes, count))
    table = asyncio.run(theirs(processes, count))
    print(
        f"{processes} processes, {CHANGED:.0%} changed a tick, {SIZE[0]}x{SIZE[1]}, cpu ms (median)"
    )
    print(f"  tick, mpwatch    {median(tick):7.1f}   worst {max(tick):.1f}")
    print(f"  tick, DataTable  {median(table):7.1f}   worst {max(table):.1f}")
    print(f"  ratio            {median(table) / max(0.1, median(tick)):7.1f}")
    print(f"  key to paint     {median(keys):7.1f}   worst {max(keys):.1f}")


if __name__ == "__main__":
    main()
