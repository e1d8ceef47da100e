"""The widget of a page: lines above, a table, and details of the row under the cursor."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget

from mpwatch.model.ids import ProcessId
from mpwatch.tui.elements.page import Order, Page, SnapshotView, filtered, in_shown_order, ordered
from mpwatch.tui.elements.styled_text import Line, cell, filled, wrapped
from mpwatch.tui.widgets.line_view import LineView, ScrollingLines
from mpwatch.tui.widgets.live_table import LiveTable

T = TypeVar("T")
HOLD_S = 1.5
"""Seconds after a key or click in which the order of rows does not change."""
ROWS_TO_SPARE = 4
"""The details grow only when the table has lost this many rows: each change of height costs a
layout."""


class PageView(Vertical, Generic[T]):
    """Draws a page for each snapshot passed to `show`; does nothing while hidden."""

    DEFAULT_CSS = """
    PageView { height: 1fr; }
    PageView > .above { height: auto; }
    PageView > .empty { height: 1fr; display: none; padding: 1 2; }
    PageView.-empty > .empty { display: block; }
    PageView.-empty > LiveTable.rows { display: none; }
    PageView.-empty > .details { display: none; }
    """

    class Opened(Message):
        """A row was opened.

        Attributes:
            process: The process of the row, or `None`.
        """

        def __init__(self, process: ProcessId | None, item: object) -> None:
            super().__init__()
            self.process = process
            self.item = item

    def __init__(
        self,
        page: Page[T],
        *,
        clock: Callable[[], float] = time.monotonic,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.page = page
        self.order = Order()
        self.above = LineView(classes="above")
        self.table: LiveTable[T] = LiveTable(page.columns, page.key, clock=clock, classes="rows")
        self.empty = ScrollingLines(classes="empty")
        self.details = ScrollingLines(classes="details")
        self._clock = clock
        self._view: SnapshotView | None = None
        self._filter = ""
        self._wanted: ProcessId | None = None
        self._goes_to_top = False
        self._room = 0
        self._details_height = 0

    def compose(self) -> ComposeResult:
        """Lines above, table, text for an empty table, details."""
        yield self.above
        yield self.table
        yield self.empty
        yield self.details

    def on_resize(self) -> None:
        """Set the height of the details and draw again, since lines depend on the width."""
        self._room = 0
        self._draw()

    def details_height(self, height: int, spare: int) -> int:
        """Lines for the details.

        Args:
            height: Lines of the page.
            spare: Those that nothing else on the page needs.
        """
        least = max(2, round(self.page.details_share * height))
        if self.page.details_share:
            return max(least, spare)
        return max(least, min(spare, len(filled(self._detail_lines(), self._details_width, spare))))

    def other_lines(self) -> int:
        """Lines of the page above and below its table and details."""
        return len(self.above.lines)

    def _fit_details(self) -> None:
        """Give the details the lines that the table does not need."""
        height = self.size.height
        spare = height - self.other_lines() - 1 - self._room
        found = self.details_height(height, spare)
        if found != self._details_height:
            self._details_height = found
            self.details.styles.height = found

    @property
    def current(self) -> T | None:
        """The item under the cursor."""
        return self.table.current

    @property
    def current_process(self) -> ProcessId | None:
        """The process the item under the cursor belongs to."""
        item = self.table.current
        return None if item is None else self.page.process(item)

    @property
    def main(self) -> Widget:
        """The widget to focus when the page is shown."""
        return self.empty if self.has_class("-empty") else self.table

    def show(self, view: SnapshotView, wanted: str = "") -> None:
        """Draw a snapshot.

        Args:
            view: The snapshot to draw.
            wanted: Words the rows must contain; see `mpwatch.tui.elements.page.filtered`.
        """
        if wanted != self._filter:
            self.table.last_input_s = float("-inf")  # rows that were hidden have no place to keep
        self._view, self._filter = view, wanted
        self._draw()

    def _draw(self) -> None:
        view = self._view
        if view is None or not self.size.width:
            return
        page = self.page
        items = self._arranged(view)
        self.set_class(not items, "-empty")
        self.above.show(page.above(view, self.size.width))
        if not items:
            self.empty.show(self._why_empty(view))
        self.table.show_sorting(self.order.column, self.order.is_reversed)
        is_on_newest = page.goes_on and self.order == Order() and self.table.cursor_index == 0
        self.table.show(items, lambda item: page.row(item, view))
        if is_on_newest and items:
            self.table.move_to(page.key(items[0]))
        self._go_to_wanted(items)
        if not self._room - ROWS_TO_SPARE < len(items) <= self._room:
            self._room = len(items)
        self._draw_around(view)
        self._fit_details()
        self._draw_details(is_new=False)

    def _draw_around(self, view: SnapshotView) -> None:
        """Draw what a subclass has above and below the table."""

    def _arranged(self, view: SnapshotView) -> list[T]:
        """The items to show, top to bottom."""
        page = self.page
        if page.arrange is not None:
            items = page.arrange(view, self.order)
        else:
            items = ordered(page, page.items(view), self.order)
        items = filtered(page, items, view, self._filter)
        if self.table.items and self._clock() - self.table.last_input_s < HOLD_S:
            return in_shown_order(page, items, self.table.keys)
        return items

    def _why_empty(self, view: SnapshotView) -> tuple[Line, ...]:
        if self._filter and self.page.items(view):
            words = f"Nothing on this page matches the filter `{self._filter}`; esc clears it."
            return (cell(words, "title"),)
        width = max(20, self.size.width - 5)
        first, *rest = self.page.empty(view)
        return (
            *wrapped(first, width, "title"),
            *(content for words in rest for content in wrapped(words, width, "dim")),
        )

    def _draw_details(self, *, is_new: bool) -> None:
        lines = filled(self._detail_lines(), self._details_width, self._details_height)
        self.details.show(lines, is_new=is_new)

    @property
    def _details_width(self) -> int:
        """Cells of a line of the details, beside the scrollbar."""
        return (self.details.size.width or 80) - 1

    def _detail_lines(self) -> tuple[Line, ...]:
        """The details of the item under the cursor."""
        item = self.table.current
        if self._view is None or item is None:
            return ()
        return self.page.details(item, self._view, self._details_width)

    def redraw(self) -> None:
        """Draw again in the order of the page, even directly after a key or click."""
        self.table.last_input_s = float("-inf")
        self._draw()

    def select_process(self, process: ProcessId | None) -> None:
        """Put the cursor on a row of this process as soon as there are rows."""
        self._wanted = process

    def select_first(self) -> None:
        """Put the cursor on the first row as soon as there are rows."""
        self._goes_to_top = True

    def _go_to_wanted(self, items: list[T]) -> None:
        if items and self._goes_to_top:
            self._goes_to_top = False
            self.table.move_to(self.page.key(items[0]))
        wanted, self._wanted = self._wanted, None
        if wanted is None or self.current_process == wanted:
            return
        found = next((item for item in items if self.page.process(item) == wanted), None)
        if found is not None:
            self.table.move_to(self.page.key(found))

    def move_to(self, key: Hashable) -> bool:
        """Put the cursor on a row, if there is one with this key."""
        return self.table.move_to(key)

    def on_live_table_moved(self, event: LiveTable.Moved) -> None:
        """Show the details of the row under the cursor."""
        event.stop()
        self.details.scroll_home(animate=False)
        self._fit_details()
        self._draw_details(is_new=True)

    def on_live_table_chosen(self, event: LiveTable.Chosen) -> None:
        """Post `Opened` for the row."""
        event.stop()
        item = self.table.current
        if item is not None:
            self.post_message(self.Opened(self.page.process(item), item))

    def on_live_table_sort_requested(self, event: LiveTable.SortRequested) -> None:
        """Sort by the column, if it is sortable."""
        event.stop()
        if event.column in self.page.sorts:
            self.order = self.order.clicked(event.column)
            self.redraw()

    def sort_next(self, step: int) -> None:
        """Sort by the next or previous sortable column."""
        shown = self.table.shown_columns
        names: list[str | None] = [None, *(name for name in self.page.sorts if name in shown)]
        at = names.index(self.order.column) if self.order.column in names else 0
        self.order = Order(names[(at + step) % len(names)])
        self.redraw()

    def reverse(self) -> None:
        """Reverse the order."""
        self.order = Order(self.order.column, not self.order.is_reversed)
        self.redraw()
