"""The screens of pages: dashboard, account of time, merged stacks, comparison, one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.observe.sources.source import TakeStacks
from mpwatch.tui.elements.page import without_column
from mpwatch.tui.elements.snapshot_view import SnapshotView
from mpwatch.tui.pages import (
    account,
    compare,
    events,
    files,
    findings,
    flows,
    gpu,
    loader,
    process,
    shm,
    tree,
    waits,
)
from mpwatch.tui.pages.account import TimeRow
from mpwatch.tui.pages.stacks import flame, merged, threads
from mpwatch.tui.screens.base import AnyPage, AnyPageView, PagesScreen
from mpwatch.tui.screens.texts import FindingScreen
from mpwatch.tui.view_state import ViewState
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.live_table import LiveTable
from mpwatch.tui.widgets.overview import Overview
from mpwatch.tui.widgets.page_view import PageView


class JobScreen(PagesScreen):
    """Pages about a job; `enter` opens the process of a row, the first one of a group."""

    def on_page_view_opened(self, event: PageView.Opened) -> None:
        """Open the process of a row."""
        event.stop()
        if event.process is not None:
            self.app.push_screen(ProcessScreen(self.view_state, event.process))


class Dashboard(JobScreen):
    """Ten pages about the job; `0` and `esc` go back to the overview."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("E", "toggle_ended", "Hide or show ended processes", id="overview.ended"),
    ]

    def __init__(self, view_state: ViewState) -> None:
        super().__init__(view_state, PAGES)

    def make_page_view(self, page: AnyPage) -> AnyPageView:
        """Make the overview with its own widget, other pages as usual."""
        if page.name == "overview":
            return Overview(id="page-overview")
        return super().make_page_view(page)

    @property
    def overview(self) -> Overview:
        """The first page."""
        page_view = self.page_views["0"]
        assert isinstance(page_view, Overview)
        return page_view

    async def action_back(self) -> None:  # type: ignore[override]
        """Clear the filter, or go back to the overview."""
        if self.view_state.settings.filter or self._filter.display:
            super().action_back()
        else:
            await self.action_page("0")

    def action_toggle_ended(self) -> None:
        """Hide or show processes that have ended."""
        hidden = self.overview.toggle_ended()
        self.notify(f"Processes that have ended are {'hidden' if hidden else 'shown'}.", timeout=2)

    def request_stacks(self) -> None:
        """Follow the process under the cursor on pages with stacks; sample it in the tree."""
        page = self.page_view.page.name
        self.view_state.follow(self.current_process if page == "threads" else None)
        self.view_state.request_stacks_of(self.current_process if page == "overview" else None)

    async def jump_to(self, process: ProcessId) -> None:
        """Show a process in the tree."""
        await self.open_page("0")
        self.overview.unfold_to(process)

    def on_overview_finding_opened(self, event: Overview.FindingOpened) -> None:
        """Open a finding."""
        event.stop()
        if isinstance(event.item, Finding):
            self.app.push_screen(FindingScreen(self.view_state, event.item))


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


class TimeScreen(JobScreen):
    """What each process and thread did with its time."""

    def __init__(self, view_state: ViewState) -> None:
        super().__init__(view_state, (account.PAGE,), first_digit=1)

    def make_page_view(self, page: AnyPage) -> AnyPageView:
        """Make the page with its own widget, in which threads unfold."""
        return TimeView(id=f"page-{page.name}")


class MergedScreen(JobScreen):
    """Merged stacks of all processes."""

    def __init__(self, view_state: ViewState) -> None:
        super().__init__(view_state, (merged.PAGE,), first_digit=1)

    def on_mount(self) -> None:
        """Request the stacks of all processes."""
        self.view_state.ask(TakeStacks())


class CompareScreen(JobScreen):
    """The current snapshot against a saved one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "save_snapshot", "Save this snapshot", id="compare.keep"),
    ]

    def __init__(self, view_state: ViewState) -> None:
        super().__init__(view_state, (compare.page(lambda: view_state.saved),), first_digit=1)

    def action_save_snapshot(self) -> None:
        """Replace the saved snapshot by the displayed one."""
        self.view_state.save_snapshot()
        self.show_snapshot()


class TimeView(PageView[TimeRow]):
    """The processes, and the threads of those that are unfolded."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(account.page(), id=id)
        self._unfolded: frozenset[ProcessId] = frozenset()

    def on_live_table_shifted(self, event: LiveTable.Shifted) -> None:
        """Unfold the threads of a process with right, fold them with left."""
        event.stop()
        row = self.table.current
        if row is None or event.table is not self.table:
            return
        process = row.process.process
        changed = self._unfolded | {process} if event.step > 0 else self._unfolded - {process}
        if changed != self._unfolded:
            self._unfolded = changed
            self.page = account.page(changed)
            self.redraw()
            self.select_process(process)


class ProcessScreen(PagesScreen):
    """The pages limited to one process, below lines with its identity and limits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("backspace", "back", "Back", show=False, id="process.back"),
    ]

    def __init__(self, view_state: ViewState, process_id: ProcessId) -> None:
        super().__init__(view_state, PROCESS_PAGES, first_digit=1)
        self.process_id = process_id
        self._head = LineView(id="process-head")

    def heads(self) -> Sequence[Widget]:
        """Identity and limits of the process."""
        return (self._head,)

    def scope_of(self, view: SnapshotView) -> SnapshotView:
        """The snapshot limited to this process."""
        return view.scoped(self.process_id)

    def show_snapshot(self) -> None:
        """Draw the head and the page."""
        view = self.view_state.view
        found = view.by_id.get(self.process_id) if view else None
        if view is not None and found is not None:
            self._head.show(process.head(view, found, self.size.width))
        super().show_snapshot()

    def make_page_view(self, page: AnyPage) -> AnyPageView:
        """Make the flame page from the samples taken while this screen is open."""
        if page.name == "flame":
            page = flame.page(lambda: self.view_state.samples)
        if page.name in ("threads", "events", "findings"):
            page = without_column(page, "PROCESS")
        return super().make_page_view(page)

    def request_stacks(self) -> None:
        """Follow the process this screen is about."""
        self.view_state.follow(self.process_id)
        self.view_state.request_stacks_of(None)

    @property
    def current_process(self) -> ProcessId | None:
        """The process this screen is about."""
        return self.process_id

    def on_page_view_opened(self, event: PageView.Opened) -> None:
        """Open a finding, or another process a row belongs to."""
        event.stop()
        if isinstance(event.item, Finding):
            self.app.push_screen(FindingScreen(self.view_state, event.item))
        elif event.process is not None and event.process != self.process_id:
            self.app.push_screen(ProcessScreen(self.view_state, event.process))


PROCESS_PAGES: tuple[Any, ...] = (
    threads.PAGE,
    shm.PAGE,
    files.PAGE,
    process.PAGE,
    flows.PAGE,
    waits.PAGE,
    events.PAGE,
    findings.PAGE,
    flame.page(tuple),
)
