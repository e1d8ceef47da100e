"""A table cheap enough to repaint on every snapshot.

Textual's DataTable renders every visible cell again whenever one changes. Here a line is drawn
again only if it has changed, rows are built for visible lines only, and the cursor belongs to a
key, so that it stays on its row after sorting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from mpwatch.tui.elements.styled_text import (
    PlacedColumn,
    Row,
    ScreenColumn,
    drawn,
    looks_alike,
    place,
)
from mpwatch.tui.widgets.line_view import LineCanvas, joined

T = TypeVar("T")

GUTTER = 2
"""Cells before the first column: the mark of the row and a space."""


class LiveTable(LineCanvas, Generic[T], can_focus=True):
    """Rows of fixed columns, drawn one line at a time, with the cursor on a key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="table.up"),
        Binding("down,j", "move(1)", "Down", show=False, id="table.down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="table.page_up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="table.page_down"),
        Binding("home,g", "edge(0)", "Top", show=False, id="table.top"),
        Binding("end,G", "edge(-1)", "End", show=False, id="table.end"),
        Binding("left,h", "shift(-1)", "Left", show=False, id="table.left"),
        Binding("right,l", "shift(1)", "Right", show=False, id="table.right"),
        Binding("enter", "choose", "Open", show=False, id="table.open"),
    ]

    DEFAULT_CSS = """
    LiveTable { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """

    cursor_key: reactive[Hashable | None] = reactive(None, repaint=False)
    """The key of the row under the cursor."""

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, table: Widget, key: Hashable | None) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> Widget:
            """The table."""
            return self.table

    class Chosen(Moved):
        """A row was opened: with enter or a second click."""

    class Shifted(Moved):
        """Left or right was pressed on a row.

        Attributes:
            step: -1 is left, 1 is right.
        """

        step: int = 0

    class SortRequested(Message):
        """A column was chosen to sort by: its header was clicked or its letter pressed."""

        def __init__(self, table: Widget, column: str) -> None:
            super().__init__()
            self.table = table
            self.column = column

        @property
        def control(self) -> Widget:
            """The table."""
            return self.table

    def __init__(
        self,
        columns: Sequence[ScreenColumn],
        key: Callable[[T], Hashable],
        *,
        has_header: bool = True,
        clock: Callable[[], float] = time.monotonic,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._columns = columns
        self._key = key
        self._head = 1 if has_header else 0
        self._clock = clock
        self.last_input_s = float("-inf")
        self._items: Sequence[T] = ()
        self._row: Callable[[T], Row] | None = None
        self._index: dict[Hashable, int] = {}
        self._painted: dict[int, Row | None] = {}
        self._placed: tuple[PlacedColumn, ...] = ()
        self._placed_for = -1
        self.sorted_by: str | None = None
        self.is_reversed = False

    # --- content ---------------------------------------------------------------------------------

    @property
    def items(self) -> Sequence[T]:
        """The items shown, top to bottom."""
        return self._items

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The keys of its rows, top to bottom."""
        return tuple(self._index)

    @property
    def shown_columns(self) -> frozenset[str]:
        """The names of the columns that fit on the screen."""
        return frozenset(self._columns[index].name for index, _ in self._places())

    @property
    def cursor_index(self) -> int | None:
        """Index of the row under the cursor, or `None` in an empty table."""
        return self._index.get(self.cursor_key)

    @property
    def current(self) -> T | None:
        """The item under the cursor."""
        index = self.cursor_index
        return None if index is None else self._items[index]

    def show(self, items: Sequence[T], row: Callable[[T], Row]) -> None:
        """Replace the rows; the cursor stays on its key.

        Args:
            items: Top to bottom, with distinct keys.
            row: Builds the row of an item; called for visible items only.
        """
        was_at = self.cursor_index
        was_visible = was_at is not None and self._is_visible(was_at)
        self._items, self._row = items, row
        self._index = {self._key(item): index for index, item in enumerate(items)}
        self._set_scroll_height()
        self._settle_cursor(was_at, was_visible)
        changed: list[Region] = []
        # Textual looks widget and screen up for each read of a size or an offset.
        seen, above, places = self.size, self.scroll_offset.y - self._head, self._places()
        for y in range(self._head, seen.height):
            before, after = self._painted.get(y), self._row_of(y + above)
            if before is not after and before != after:
                changed += _changed_cells(y, before, after, places, seen.width)
                self._painted[y] = after
        if changed:
            self.refresh(*changed)

    def _set_scroll_height(self) -> None:
        """Set the scrollable height; the visible height if all rows fit.

        Each change causes layout and output of the whole screen, so starts and exits must not.
        """
        needed = len(self._items) + self._head
        room = Size(0, max(needed, self.size.height) if self._head else needed)
        if room != self.virtual_size:
            self.virtual_size = room

    def on_resize(self) -> None:
        """Update the scrollable height."""
        self._set_scroll_height()

    def show_sorting(self, column: str | None, is_reversed: bool) -> None:
        """Mark the column the rows are sorted by in the header."""
        if (column, is_reversed) != (self.sorted_by, self.is_reversed):
            self.sorted_by, self.is_reversed = column, is_reversed
            self.refresh_line(self.scroll_offset.y)

    def _settle_cursor(self, was_at: int | None, was_visible: bool) -> None:
        if self.cursor_key in self._index:
            if was_visible and self.cursor_index != was_at:
                self._scroll_to_cursor()
            return
        if not self._items:
            self.cursor_key = None
            return
        # The row no longer exists: the cursor moves to its neighbour, not to the top.
        index = min(was_at or 0, len(self._items) - 1)
        self.cursor_key = self._key(self._items[index])

    def _row_of(self, index: int) -> Row | None:
        """The row of an item, by its place; `None` below the last one."""
        if self._row is None or not 0 <= index < len(self._items):
            return None
        return self._row(self._items[index])

    # --- drawing ---------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Draw one visible line; the header is line 0 and does not scroll."""
        if y < self._head:
            return self._header_strip()
        row = self._row_of(y - self._head + self.scroll_offset.y)
        self._painted[y] = row
        if row is None:
            return Strip.blank(self.size.width, self.base_style)
        is_current = row.key == self.cursor_key
        base = self.base_style + self.tone_style(row.tone)
        if is_current and self.has_focus:
            base += self.tone_style("cursor")
        elif is_current and self._head:  # without a header, it is a list above the table in use
            base += self.tone_style("cursor-blurred")
        mark = row.mark.text
        pointer = " "
        if is_current and self.has_focus:
            mark, pointer = (">", " ") if mark == " " else (mark, ">")
        segments = [Segment(mark + pointer, self.toned(base, row.mark.tone))]
        for n, (index, width) in enumerate(self._places()):
            if n:
                segments.append(Segment(" ", base))
            content = drawn(row.cells[index], width)
            segments += self.segments(content, width, self._columns[index].align, base)
        return joined(segments).crop_extend(0, self.size.width, base)

    def _header_strip(self) -> Strip:
        base = self.base_style + self.tone_style("header")
        segments = [Segment(" " * GUTTER, base)]
        for n, (index, width) in enumerate(self._places()):
            if n:
                segments.append(Segment(" ", base))
            column = self._columns[index]
            name, style = column.name, base
            if name and name == self.sorted_by:
                name += "^" if self.is_reversed else "v"
                style = base + self.tone_style("sorted")
            if n and len(name) == width + 1 and column.align == "right":
                segments.pop()  # the sort mark replaces the gap, so that the name is not cut
                width += 1
            segments += self._head_cell(name, width, column, style)
        return joined(segments).crop_extend(0, self.size.width, base)

    def _head_cell(
        self, name: str, width: int, column: ScreenColumn, style: Style
    ) -> list[Segment]:
        text = name[:width]
        return [Segment(text.ljust(width) if column.align == "left" else text.rjust(width), style)]

    def _places(self) -> tuple[PlacedColumn, ...]:
        width = (
            self.size.width - self.scrollbar_size_vertical
        )  # the scrollbar would cover the last column
        if self._placed_for != width:
            self._placed = place(self._columns, width - GUTTER)
            self._placed_for = width
        return self._placed

    # --- cursor ----------------------------------------------------------------------------------

    def watch_cursor_key(self, before: Hashable | None, after: Hashable | None) -> None:
        """Draw the two changed lines and post `Moved`."""
        for key in (before, after):
            index = self._index.get(key)
            if index is not None:
                self.refresh_line(index + self._head)
        if self.is_mounted:
            self.post_message(self.Moved(self, after))

    def watch_has_focus(self, value: bool) -> None:
        """Draw the cursor line again: its style depends on the focus."""
        super().watch_has_focus(value)
        index = self.cursor_index
        if index is not None:
            self.refresh_line(index + self._head)

    def move_to(self, key: Hashable) -> bool:
        """Put the cursor on a row and bring it into view; False if there is no such row."""
        if key not in self._index:
            return False
        self.cursor_key = key
        self._scroll_to_cursor()
        return True

    def _is_visible(self, index: int) -> bool:
        top = self.scroll_offset.y
        return top <= index < top + max(1, self.size.height - self._head)

    def _scroll_to_cursor(self) -> None:
        index = self.cursor_index
        room = max(1, self.size.height - self._head)
        if index is None:
            return
        top = self.scroll_offset.y
        if index < top:
            self.scroll_to(y=index, animate=False, force=True)
        elif index >= top + room:
            self.scroll_to(y=index - room + 1, animate=False, force=True)

    def action_move(self, step: int) -> None:
        """Move the cursor by rows."""
        if self._items:
            index = self.cursor_index or 0
            target = max(0, min(len(self._items) - 1, index + step))
            self.move_to(self._key(self._items[target]))

    def action_page(self, direction: int) -> None:
        """Move the cursor by a screen of rows."""
        self.action_move(direction * max(1, self.size.height - self._head - 1))

    def action_edge(self, index: int) -> None:
        """Move the cursor to the first or last row."""
        if self._items:
            self.move_to(self._key(self._items[index]))

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        if self.cursor_index is not None:
            self.post_message(self.Chosen(self, self.cursor_key))

    def action_shift(self, step: int) -> None:
        """Post `Shifted` for the row under the cursor."""
        message = self.Shifted(self, self.cursor_key)
        message.step = step
        self.post_message(message)

    # --- keys and mouse --------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Record the time of input; sort by the column of a pressed letter."""
        self.last_input_s = self._clock()
        for column in self._columns:
            if column.letter and event.character == column.letter:
                self.post_message(self.SortRequested(self, column.name))
                event.stop()
                return

    def on_click(self, event: events.Click) -> None:
        """Move the cursor, open on the second click, or sort by the header."""
        if event.y < self._head:
            name = self._column_at(event.x)
            if name:
                self.post_message(self.SortRequested(self, name))
            return
        self.last_input_s = self._clock()
        index = event.y - self._head + self.scroll_offset.y
        if not 0 <= index < len(self._items):
            return
        key = self._key(self._items[index])
        if key == self.cursor_key and event.chain >= 2:
            self.action_choose()
        self.cursor_key = key

    def _column_at(self, x: int) -> str | None:
        at = GUTTER
        for index, width in self._places():
            if at <= x <= at + width:
                return self._columns[index].name or None
            at += width + 1
        return None


def _changed_cells(
    y: int, before: Row | None, after: Row | None, places: Sequence[PlacedColumn], width: int
) -> list[Region]:
    """The part of a line from its first to its last changed cell, empty if it looks the same.

    One region per line, because Textual 8.2 sends a line from the left edge of the widget to the
    end of each region: two regions would send the left part twice.
    """
    if before is None or after is None or not _is_same_row(before, after):
        return [Region(0, y, width, 1)]
    start = end = 0
    at = GUTTER
    for index, room in places:
        old, new = before.cells[index], after.cells[index]
        if old is not new and not looks_alike(old, new, room):
            start = start or at
            end = at + room
        at += room + 1
    return [Region(start, y, end - start, 1)] if end else []


def _is_same_row(before: Row, after: Row) -> bool:
    """Whether two rows are equal except for their cells."""
    return (before.key, before.tone, before.mark) == (after.key, after.tone, after.mark)
