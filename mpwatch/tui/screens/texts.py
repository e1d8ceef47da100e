"""Screens of scrolling text, and the text of help: a finding, help, the plan of an injection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple, TypeVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import InjectionPlan
from mpwatch.tui.elements.header import header
from mpwatch.tui.elements.styled_text import Line, ScreenColumn, cell, headed, line, wrapped
from mpwatch.tui.hook_question import plan_lines
from mpwatch.tui.pages.findings import in_full
from mpwatch.tui.screens.base import LiveScreen, ProcessRequested
from mpwatch.tui.view_state import ViewState
from mpwatch.tui.widgets.line_view import LineView, ScrollingLines

T = TypeVar("T")

EVERYWHERE = (
    "Top line: job, mode, processes with the hook ready of those that can have it, hook events"
    " overwritten before they were read, and the cpu used by mpwatch and by its hooks.",
    "Green, yellow and red always come with a word or a letter: C critical, w warning, i info.",
    "A dash is a number that could not be read, never zero.",
    "Rows keep their order while keys are pressed; the cursor stays on its process.",
)
_KEY_WIDTH = 16
_READABLE = 100
"""Cells of the longest line of help, however wide the screen."""


class KeyHelp(NamedTuple):
    """Keys and their action."""

    keys: str
    words: str


def column_keys(columns: Sequence[ScreenColumn]) -> list[KeyHelp]:
    """The letters that sort by a column, in one line; empty if no column has one."""
    found = [column for column in columns if column.letter]
    if not found:
        return []
    letters = " ".join(column.letter for column in found)
    names = ", ".join(column.name for column in found)
    return [KeyHelp(letters, f"Sort by {names}; again: reverse the order")]


MOVING = (
    KeyHelp("up down  k j", "move the cursor; page up, page down, home g, end G"),
    KeyHelp("left right  h l", "fold and unfold in the tree; sideways in text"),
    KeyHelp("enter", "open what is under the cursor; a second click does the same"),
    KeyHelp("tab", "to the findings on top, the rows, or the text below if it is cut"),
)


class HelpText(NamedTuple):
    """The help of one screen."""

    title: str
    about: Sequence[str]
    """Paragraphs: a term, two spaces, what it means; or a sentence. They are wrapped here only."""
    keys: Sequence[KeyHelp]

    def lines(self, width: int) -> tuple[Line, ...]:
        """The whole help text, wrapped to the width."""
        width = min(width, _READABLE)
        lines: list[Line] = [line((f"mpwatch: {self.title}", "title")), cell("")]
        lines += _paragraphs(self.about, width)
        lines += [cell(""), line(("Keys", "title"))]
        for key in (*MOVING, *self.keys):
            lines += headed(f"  {key.keys:<{_KEY_WIDTH}} ", "accent", key.words, width)
        lines += [cell(""), line(("Everywhere", "title"))]
        lines += _paragraphs(EVERYWHERE, width)
        lines += [cell(""), cell("esc goes back", "dim")]
        return tuple(lines)


def _paragraphs(texts: Sequence[str], width: int) -> list[Line]:
    """Wrapped sentences; continuation lines are aligned with the text after the term."""
    lines: list[Line] = []
    for text in texts:
        if cell_len(text) <= width:
            lines.append(cell(text))
            continue
        words = text.lstrip()
        gap = words.find("  ") if words == text else 0
        head = text[: len(text) - len(words[gap:].lstrip())] if 0 <= gap <= _KEY_WIDTH else ""
        lines += (
            headed(head, "", text[len(head) :], width)
            if head
            else wrapped(text, width, indent="  ")
        )
    return lines


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

    def __init__(self, view_state: ViewState, finding: Finding) -> None:
        super().__init__()
        self.view_state = view_state
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

    def show_snapshot(self) -> None:
        """Draw the finding from the newest snapshot."""
        view = self.view_state.view
        if view is None or not self.size.width:
            return
        for finding in view.snapshot.findings:
            if finding.key == self.finding.key:
                self.finding = finding
        width = self.size.width
        self._header.show((header(view.snapshot, self.view_state.settings, width),))
        self._text.show((cell(""), *in_full(self.finding, view, width - 4)))

    def on_resize(self) -> None:
        """Wrap to the new width."""
        self.show_snapshot()

    @property
    def plain(self) -> str:
        """The text, to copy."""
        return self._text.plain

    def action_open_process(self) -> None:
        """Open the process of the finding."""
        if self.finding.process is not None:
            self.post_message(ProcessRequested(self.finding.process))


MARGIN = 5
"""Cells at the sides of the text, and its scrollbar."""
NARROW = 40


class TextScreen(Screen[T]):
    """A text that is wrapped to the width, above a line with the keys if there is one.

    Args:
        lines: The text, in lines of at most the given width.
    """

    KEYS: ClassVar[str] = ""

    def __init__(self, lines: Callable[[int], Sequence[Line]]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """The text, and the keys."""
        yield ScrollingLines(classes="sheet")
        if self.KEYS:
            yield (keys := LineView(classes="bar"))
            keys.show((cell(self.KEYS, "dim"),))

    def on_mount(self) -> None:
        """Focus the text."""
        self.query_one(ScrollingLines).focus()

    def on_resize(self) -> None:
        """Wrap the text to the new width."""
        self.draw()

    def draw(self) -> None:
        """Draw the text again."""
        self.query_one(ScrollingLines).show(self._lines(max(NARROW, self.size.width - MARGIN)))


class HelpScreen(TextScreen[None]):
    """The help text; the usual keys close it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss", "Back", id="help.back"),
    ]

    def __init__(self, help_text: HelpText) -> None:
        super().__init__(help_text.lines)

    def show_snapshot(self) -> None:
        """Draw nothing: help does not depend on the snapshot."""


class InjectionScreen(TextScreen[bool]):
    """The plan; closes with the answer, or without one on `esc`."""

    KEYS = " y inject   n do not   esc back without an answer   ? help"
    help_title = "the plan of an injection"
    help_lines = (
        "What an injection would do to each process of the job, and why a process is left out;"
        " nothing of it has been done yet. The same as text: mpwatch attach PID --dry-run.",
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Inject", id="injection.yes"),
        Binding("n", "answer(False)", "Do not inject", id="injection.no"),
        Binding("escape,q,d,enter", "back", "Back", id="injection.back"),
        Binding("question_mark", "app.help", show=False, id="injection.help"),
    ]

    def __init__(self, plan: InjectionPlan, blocked: Mapping[ProcessId, str]) -> None:
        super().__init__(partial(plan_lines, plan, blocked))

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)

    def action_back(self) -> None:
        """Close and leave the question open."""
        self.dismiss(None)
