"""One finding in full: evidence, cause, fix."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from mpwatch.model.findings import Finding
from mpwatch.tui.elements.header import header
from mpwatch.tui.elements.styled_text import cell
from mpwatch.tui.messages import ProcessAsked
from mpwatch.tui.pages.findings import in_full
from mpwatch.tui.screens.base import LiveScreen
from mpwatch.tui.view_state import Watch
from mpwatch.tui.widgets.line_view import LineView, ScrollingLines


class FindingScreen(LiveScreen):
    """Shows the current state of a finding, or its last state if no longer reported."""

    help_title = "a finding"
    help_lines = (
        "evidence  the observed values; there is no finding without evidence.",
        "fix       the change to make, with its trade-off.",
        "enter opens the process of the finding.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", key_display="esc", id="back"),
        Binding("enter", "open_process", "Open the process", id="finding.process"),
    ]

    def __init__(self, watch: Watch, finding: Finding) -> None:
        super().__init__()
        self.watch_state = watch
        self.finding = finding
        self._header = LineView(classes="bar")
        self._text = ScrollingLines(classes="sheet")

    def compose(self) -> ComposeResult:
        """Status line, the finding, the keys."""
        yield self._header
        yield self._text
        yield (keys := LineView(classes="bar"))
        keys.show((cell(" esc back   enter open the process   y copy   ? help", "dim"),))

    def on_mount(self) -> None:
        """Focus the text."""
        self._text.focus()

    def show_moment(self) -> None:
        """Draw the finding from the newest snapshot."""
        moment = self.watch_state.moment
        if moment is None or not self.size.width:
            return
        for finding in moment.snapshot.findings:
            if finding.key == self.finding.key:
                self.finding = finding
        width = self.size.width
        self._header.show((header(moment.snapshot, self.watch_state.viewing, width),))
        self._text.show((cell(""), *in_full(self.finding, moment, width - 4)))

    def on_resize(self) -> None:
        """Wrap to the new width."""
        self.show_moment()

    @property
    def plain(self) -> str:
        """The text, to copy."""
        return self._text.plain

    def action_open_process(self) -> None:
        """Open the process of the finding."""
        if self.finding.process is not None:
            self.post_message(ProcessAsked(self.finding.process))
