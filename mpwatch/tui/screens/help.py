"""Help about the screen it was opened on: what it shows, and its keys as they are mapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from mpwatch.tui.present.cells import Line
from mpwatch.tui.widgets.line_view import ScrollingLines


class HelpScreen(Screen[None]):
    """Text; any of the usual keys leads back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss", "Back", id="help.back"),
    ]

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """The text."""
        yield ScrollingLines(classes="sheet")

    def on_mount(self) -> None:
        """Show it and take the scrolling keys."""
        text = self.query_one(ScrollingLines)
        text.show(self._lines)
        text.focus()

    def show_moment(self) -> None:
        """Help stands still."""
