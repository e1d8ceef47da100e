"""What all screens share: base classes, messages, the text for a small terminal.

`PagesScreen` is the base of the screens that show pages: about the job, or about one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.tui.elements.header import Tab, TabRange, header, tab_line
from mpwatch.tui.elements.page import Page, SnapshotView
from mpwatch.tui.elements.styled_text import Line, cell
from mpwatch.tui.hook_question import blocked_in_c, question_line
from mpwatch.tui.view_state import ViewState
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.page_view import PageView

LEAST_WIDTH = 60
LEAST_HEIGHT = 15


class LiveScreen(Screen[None]):
    """A screen that draws the current snapshot on request and on resume."""

    help_title: ClassVar[str] = ""
    help_lines: ClassVar[tuple[str, ...]] = ()

    def show_snapshot(self) -> None:
        """Draw the current snapshot."""

    def on_screen_resume(self) -> None:
        """Draw again after another screen was active."""
        self.show_snapshot()


class TooSmallScreen(Screen[None]):
    """One sentence; goes away by itself when the terminal grows."""

    DEFAULT_CSS = """
    TooSmallScreen { align: center middle; }
    TooSmallScreen > Static { width: auto; max-width: 100%; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        """The sentence."""
        yield Static(
            f"mpwatch needs {LEAST_WIDTH}x{LEAST_HEIGHT} characters; enlarge this terminal, "
            "or use: mpwatch dump PID",
            markup=False,
        )


class SnapshotArrived(Message, bubble=False):
    """A new snapshot from the source; it replaces an older one that is still queued."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Replace an older queued snapshot."""
        return isinstance(message, SnapshotArrived)


class ProcessRequested(Message):
    """A request to open the screen of a process."""

    def __init__(self, process: ProcessId) -> None:
        super().__init__()
        self.process = process


class PageRequested(Message):
    """A request to go back to the dashboard and show its page of this digit."""

    def __init__(self, digit: str) -> None:
        super().__init__()
        self.digit = digit


HINTS = (("?", "help"), ("o", "output"), ("/", "filter"), ("space", "pause"), ("q", "quit"))
ABOVE_HINTS = (HINTS[0], ("esc", "back"), *HINTS[1:])
"""Of screens that are opened above the dashboard."""

REPLAY_HINTS = (("[ ]", "10 s"), (", .", "step"), ("+ -", "speed"))
"""Of all screens with pages in a replay, after help and the way back."""


def in_replay(hints: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The hints of a screen in a replay, which has no output of the job."""
    first = [each for each in hints if each[0] in ("?", "esc")]
    others = [each for each in hints if each not in first and each[0] != "o"]
    return (*first, *REPLAY_HINTS, *others)


AnyPage = Page[Any]
AnyPageView = PageView[Any]


class PagesScreen(LiveScreen):
    """Pages selected by digits; hidden pages are not drawn, unopened pages not created.

    A single page has no digit. Digits that a screen does not have are those of the dashboard.
    """

    hints: ClassVar[tuple[tuple[str, str], ...]] = HINTS
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(n), f"page('{n}')", f"Page {n}", show=False, id=f"page.{n}")
            for n in range(10)
        ),
        Binding("slash", "filter", "Filter rows", key_display="/", id="filter"),
        Binding(
            "less_than_sign",
            "sort(-1)",
            "Sort by previous column",
            key_display="<",
            id="sort.previous",
        ),
        Binding(
            "greater_than_sign", "sort(1)", "Sort by next column", key_display=">", id="sort.next"
        ),
        Binding("r", "reverse", "Reverse the order", id="sort.reverse"),
        # Priority bindings; the app's `check_action` allows them only while the question is shown.
        # They are declared here because the app binds the same keys and keeps one binding per key.
        Binding("y", "app.answer_hook(True)", show=False, priority=True, id="hook.yes"),
        Binding("enter", "app.confirm_hook", show=False, priority=True, id="hook.enter"),
        Binding("n", "app.answer_hook(False)", show=False, priority=True, id="hook.no"),
        Binding("d", "app.show_injection", show=False, priority=True, id="hook.details"),
        Binding("escape", "back", "Clear the filter, go back", key_display="esc", id="back"),
    ]

    def __init__(
        self, view_state: ViewState, pages: Sequence[AnyPage], first_digit: int = 0
    ) -> None:
        super().__init__()
        self.view_state = view_state
        digits = [str(first_digit + n) if len(pages) > 1 else "" for n in range(len(pages))]
        self.pages = dict(zip(digits, pages, strict=True))
        self.page_views: dict[str, AnyPageView] = {}
        self.current = digits[0]
        self._filter_words = ""
        tabs = [Tab(digit, page.title, page.short) for digit, page in self.pages.items()]
        self._header = LineView(id="header", classes="bar")
        self._body = Container(id="body")
        hints = self.hints if view_state.source.is_live else in_replay(self.hints)
        self._tabs = TabBar(tabs, hints, id="tabs")
        self._filter = Input(placeholder="words a row must contain, -word excludes", id="filter")
        self._filter.cursor_blink = False  # blinking costs two repaints a second

    def compose(self) -> ComposeResult:
        """Status line, page, filter input, bottom line."""
        yield self._header
        yield from self.heads()
        with self._body:
            yield self._page_view(self.current)
        yield self._filter
        yield self._tabs

    def on_mount(self) -> None:
        """Open the first page."""
        self._filter.display = False
        self._tabs.choose(self.current)
        self.page_view.main.focus()

    def on_screen_resume(self) -> None:
        """Filter by the words of this screen: those of another one may match nothing here."""
        # Textual then calls the handler of the base class, which draws.
        self.view_state.set_filter(self._filter_words)

    # --- what subclasses may change --------------------------------------------------------------

    def make_page_view(self, page: AnyPage) -> AnyPageView:
        """Make the widget of a page."""
        return PageView(page, id=f"page-{page.name}")

    def heads(self) -> Sequence[Widget]:
        """Widgets between the status line and the page."""
        return ()

    def scope_of(self, view: SnapshotView) -> SnapshotView:
        """The snapshot limited to the scope of this screen."""
        return view

    def top_line(self, view: SnapshotView) -> Line:
        """The status line, or the question whether to inject the hook."""
        question = self.view_state.question
        if question is not None and question.is_shown and question.plan is not None:
            return question_line(
                question.plan,
                self.size.width,
                enter_is_yes=question.enter_is_yes,
                blocked=blocked_in_c(view.snapshot),
            )
        return header(view.snapshot, self.view_state.settings, self.size.width)

    def request_stacks(self) -> None:
        """Request the stacks this screen shows; none by default."""
        self.view_state.follow(None)
        self.view_state.request_stacks_of(None)

    # --- drawing ---------------------------------------------------------------------------------

    @property
    def page_view(self) -> AnyPageView:
        """The page shown."""
        return self.page_views[self.current]

    @property
    def current_process(self) -> ProcessId | None:
        """The process under the cursor."""
        return self.page_view.current_process

    def _page_view(self, digit: str) -> AnyPageView:
        if digit not in self.page_views:
            self.page_views[digit] = self.make_page_view(self.pages[digit])
        return self.page_views[digit]

    def show_snapshot(self) -> None:
        """Draw the status line and the visible page."""
        view = self.view_state.view
        if view is None:
            words = f" mpwatch   {self.view_state.settings.title}   waiting for the first sample"
            self._header.show((cell(words),))
            return
        self._header.show((self.top_line(view),))
        before = self.page_view.main
        self.page_view.show(self.scope_of(view), self.view_state.settings.filter)
        if before.has_focus and before is not self.page_view.main:
            self.page_view.main.focus()
        self.request_stacks()

    def on_resize(self, event: events.Resize) -> None:
        """Fit the status line to the new width."""
        self.show_snapshot()

    # --- pages -----------------------------------------------------------------------------------

    async def action_page(self, digit: str) -> None:
        """Show another page, with the cursor on the same process if it is listed."""
        if digit in self.pages:
            await self.open_page(digit, self.current_process)
        else:
            self.post_message(PageRequested(digit))

    async def open_page(self, digit: str, process: ProcessId | None = None) -> None:
        """Show a page.

        Args:
            digit: Digit of the page; ignored if no page has it.
            process: The process to put the cursor on.
        """
        if digit not in self.pages or digit == self.current:
            return
        # Output is held until the page is mounted: a slow link would show a blank page first.
        with self.app.batch_update():
            self.page_view.display = False
            self.current = digit
            if digit not in self.page_views:
                await self._body.mount(self._page_view(digit))
            self.page_view.display = True
            self._tabs.choose(digit)
            # A new page has no rows before its layout.
            if self.page_view.page.opens_at_top:
                self.page_view.select_first()
            else:
                self.page_view.select_process(process)
            self.show_snapshot()
            self.page_view.main.focus()
        self.call_after_refresh(self._settle, self.page_view)

    def _settle(self, page_view: AnyPageView) -> None:
        """Request stacks for the process under the cursor of a new page."""
        if page_view is self.page_view:
            self.request_stacks()

    async def on_tab_bar_clicked(self, event: TabBar.Clicked) -> None:
        """Show the page that was clicked."""
        event.stop()
        await self.action_page(event.digit)

    # --- filter, order, back ---------------------------------------------------------------------

    def action_filter(self) -> None:
        """Ask for words to filter by."""
        self._filter.display = True
        self._filter.value = self.view_state.settings.filter
        self._filter.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        if self._filter.display:
            self._filter_words = event.value
            self.view_state.set_filter(event.value)
            self.show_snapshot()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the rows."""
        self._filter.display = False
        self.page_view.main.focus()

    def action_back(self) -> None:
        """Go one level back: filter input, filter, page, then screen."""
        if self._filter.display or self.view_state.settings.filter:
            self._filter.display = False
            self._filter_words = ""
            self.view_state.set_filter("")
            self.show_snapshot()
            self.page_view.main.focus()
        else:
            self.leave()

    def leave(self) -> None:
        """Go back to the previous screen."""
        self.dismiss()

    def action_sort(self, step: int) -> None:
        """Sort by another column."""
        self.page_view.sort_next(step)

    def action_reverse(self) -> None:
        """Turn the order around."""
        self.page_view.reverse()


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
