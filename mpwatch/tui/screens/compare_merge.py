"""Pages opened beside the dashboard: merged stacks, and comparison of snapshots."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from mpwatch.model.commands import TakeStacks
from mpwatch.tui.pages import compare, merged
from mpwatch.tui.screens.pages import PagesScreen
from mpwatch.tui.screens.process import ProcessScreen
from mpwatch.tui.view_state import Watch
from mpwatch.tui.widgets.page_view import PageView


class MergedScreen(PagesScreen):
    """Merged stacks of all processes."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch, (merged.PAGE,), first_digit=1)

    def on_mount(self) -> None:
        """Request the stacks of all processes."""
        self.watch_state.ask(TakeStacks())

    def on_page_view_opened(self, event: PageView.Opened) -> None:
        """Open the first process of a group."""
        event.stop()
        if event.process is not None:
            self.app.push_screen(ProcessScreen(self.watch_state, event.process))


class CompareScreen(PagesScreen):
    """The current snapshot against a saved one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "keep", "Save this snapshot", id="compare.keep"),
    ]

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch, (compare.page(lambda: watch.marked),), first_digit=1)

    def action_keep(self) -> None:
        """Replace the saved snapshot by the displayed one."""
        self.watch_state.mark()
        self.show_moment()

    def on_page_view_opened(self, event: PageView.Opened) -> None:
        """Open a process."""
        event.stop()
        if event.process is not None:
            self.app.push_screen(ProcessScreen(self.watch_state, event.process))
