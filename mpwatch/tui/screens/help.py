"""Help about the previous screen: contents, and keys with the keymap applied."""

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
    """The help text; the usual keys close it."""

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
        """Focus the text."""
        self.query_one(ScrollingLines).focus()

    def on_resize(self) -> None:
        """Wrap the text to the new width."""
        text = self.query_one(ScrollingLines)
        text.show(self._manual.lines(max(NARROW, self.size.width - BESIDE)))

    def show_moment(self) -> None:
        """Draw nothing: help does not depend on the moment."""
