"""The injection plan, process by process."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from mpwatch.model.injection import InjectionPlan
from mpwatch.tui.elements.hook_question import plan_lines
from mpwatch.tui.widgets.line_view import ScrollingLines

BESIDE = 5
"""Cells at the sides of the text, and its scrollbar."""
NARROW = 40


class InjectionScreen(Screen[bool]):
    """The plan; closes with the answer, or without one on `esc`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Inject", id="injection.yes"),
        Binding("n", "answer(False)", "Do not inject", id="injection.no"),
        Binding("escape,q,d,enter", "back", "Back", id="injection.back"),
    ]

    def __init__(self, plan: InjectionPlan) -> None:
        super().__init__()
        self._plan = plan

    def compose(self) -> ComposeResult:
        """The text."""
        yield ScrollingLines(classes="sheet")

    def on_mount(self) -> None:
        """Focus the text."""
        self.query_one(ScrollingLines).focus()

    def on_resize(self) -> None:
        """Wrap the text to the new width."""
        text = self.query_one(ScrollingLines)
        text.show(plan_lines(self._plan, max(NARROW, self.size.width - BESIDE)))

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)

    def action_back(self) -> None:
        """Close and leave the question open."""
        self.dismiss(None)
