"""The screen of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.tui.elements.page import without_column
from mpwatch.tui.elements.snapshot_view import SnapshotView
from mpwatch.tui.pages import events, files, findings, flows, process, shm, waits
from mpwatch.tui.pages.stacks import flame, threads
from mpwatch.tui.screens.pages import AnyPage, AnyPageView, PagesScreen
from mpwatch.tui.screens.texts import FindingScreen
from mpwatch.tui.view_state import ViewState
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.page_view import PageView


class ProcessScreen(PagesScreen):
    """The pages limited to one process, below lines with its identity and limits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("backspace", "back", "Back", show=False, id="process.back"),
    ]

    def __init__(self, view_state: ViewState, process_id: ProcessId) -> None:
        super().__init__(view_state, PAGES, first_digit=1)
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


PAGES: tuple[Any, ...] = (
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
