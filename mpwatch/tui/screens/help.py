"""Help about the screen it was opened on: what it shows, and its keys as they are mapped."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from mpwatch.tui.elements.help_text import Manual
from mpwatch.tui.widgets.line_view import ScrollingLines

BESIDE = 5
"""Cells at the sides of the text, and its scrollbar."""
NARROW = 40


class HelpScreen(Screen[None]):
    """Text; any of the usual keys leads back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss", "Back", id="help.back"),
    ]

    def __init__(self, manual: Manual) -> None:
        super().__init__()
        self._manual = manual

    def compose(self) -> ComposeResult:
        """The text."""
        yield ScrollingLines(classes="sheet")

    def on_mount(self) -> None:
        """Take the scrolling keys."""
        self.query_one(ScrollingLines).focus()

    def on_resize(self) -> None:
        """Break it into lines that fit."""
        text = self.query_one(ScrollingLines)
        text.show(self._manual.lines(max(NARROW, self.size.width - BESIDE)))

    def show_moment(self) -> None:
        """Help stands still."""
