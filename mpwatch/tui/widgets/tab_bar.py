"""The bottom line with clickable page names."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from mpwatch.tui.elements.header import Tab, TabRange, tab_line
from mpwatch.tui.widgets.line_view import LineView


class TabBar(LineView):
    """Shows the pages and key hints; a click on a page opens it."""

    class Clicked(Message):
        """A page was clicked."""

        def __init__(self, digit: str) -> None:
            super().__init__()
            self.digit = digit

    def __init__(self, tabs: Sequence[Tab], hints: Sequence[tuple[str, str]], *, id: str) -> None:
        super().__init__(id=id, classes="bar")
        self._tabs = tabs
        self._hints = hints
        self._ranges: tuple[TabRange, ...] = ()
        self.current = ""

    def choose(self, digit: str) -> None:
        """Mark the page that is shown."""
        self.current = digit
        self._draw()

    def on_resize(self) -> None:
        """Fit the names to the new width."""
        self._draw()

    def _draw(self) -> None:
        content, self._ranges = tab_line(self._tabs, self.current, self._hints, self.size.width)
        self.show((content,))

    def on_click(self, event: events.Click) -> None:
        """Choose the page under the mouse."""
        for found in self._ranges:
            if found.start <= event.x < found.end:
                self.post_message(self.Clicked(found.digit))
