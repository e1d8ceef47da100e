"""The whole job: overview first, every other page under a digit."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.tui.pages import events, files, findings, flows, gpu, loader, shm, threads, tree, waits
from mpwatch.tui.screens.finding import FindingScreen
from mpwatch.tui.screens.pages import AnyPage, AnyView, PagesScreen
from mpwatch.tui.screens.process import ProcessScreen
from mpwatch.tui.view_state import Watch
from mpwatch.tui.widgets.overview import Overview
from mpwatch.tui.widgets.page_view import PageView


class Dashboard(PagesScreen):
    """Ten pages about the job; `0` and `esc` go back to the overview."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("E", "toggle_ended", "Hide or show ended processes", id="overview.ended"),
    ]

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch, PAGES)

    def make_view(self, page: AnyPage) -> AnyView:
        """Make the overview with its own widget, other pages as usual."""
        if page.name == "overview":
            return Overview(id="page-overview")
        return super().make_view(page)

    @property
    def overview(self) -> Overview:
        """The first page."""
        view = self.views["0"]
        assert isinstance(view, Overview)
        return view

    async def action_back(self) -> None:  # type: ignore[override]
        """Clear the filter, or go back to the overview."""
        if self.watch_state.viewing.filter or self._filter.display:
            super().action_back()
        else:
            await self.action_page("0")

    def action_toggle_ended(self) -> None:
        """Hide or show processes that have ended."""
        hidden = self.overview.toggle_ended()
        self.notify(f"Processes that have ended are {'hidden' if hidden else 'shown'}.", timeout=2)

    def look(self) -> None:
        """Follow the process under the cursor on pages with stacks; sample it in the tree."""
        page = self.view.page.name
        self.watch_state.follow(self.current_process if page == "threads" else None)
        self.watch_state.glance_at(self.current_process if page == "overview" else None)

    async def jump_to(self, process: ProcessId) -> None:
        """Show a process in the tree."""
        await self.open_page("0")
        self.overview.unfold_to(process)

    def on_page_view_opened(self, event: PageView.Opened) -> None:
        """Open the process of a row."""
        if event.process is not None:
            self.app.push_screen(ProcessScreen(self.watch_state, event.process))

    def on_overview_finding_opened(self, event: Overview.FindingOpened) -> None:
        """Open a finding."""
        event.stop()
        if isinstance(event.item, Finding):
            self.app.push_screen(FindingScreen(self.watch_state, event.item))


PAGES: tuple[Any, ...] = (
    tree.PAGE,
    threads.PAGE,
    shm.PAGE,
    files.PAGE,
    loader.PAGE,
    flows.PAGE,
    waits.PAGE,
    gpu.PAGE,
    events.PAGE,
    findings.PAGE,
)
