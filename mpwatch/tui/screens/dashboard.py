"""The screens of pages: dashboard, account of time, merged stacks, comparison, one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget

from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.observe.sources.source import TakeStacks
from mpwatch.tui.elements.header import host_line, is_over, over_lines
from mpwatch.tui.elements.page import SnapshotView, without_column
from mpwatch.tui.elements.styled_text import cut
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
from mpwatch.tui.pages.findings import FindingLine
from mpwatch.tui.pages.stacks import flame, merged, threads
from mpwatch.tui.pages.tree import TreeRow
from mpwatch.tui.screens.base import ABOVE_HINTS, AnyPage, AnyPageView, PagesScreen
from mpwatch.tui.screens.texts import FindingScreen
from mpwatch.tui.view_state import ViewState
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.live_table import LiveTable
from mpwatch.tui.widgets.page_view import PageView

TALL = 30
"""Minimum height at which the stack of the process under the cursor is shown at any rate."""
DETAILS_MOST = 16
"""Lines of the details on the overview, for most stacks."""


FINDINGS_MOST = 8
"""Lines of findings on the overview, where the tree leaves them."""


class Overview(PageView[TreeRow]):
    """The process tree with findings above it and the host below."""

    DEFAULT_CSS = """
    Overview > .health { height: auto; }
    Overview > .findings { height: auto; }
    Overview > .host { height: 1; }
    """

    class FindingOpened(PageView.Opened):
        """A finding on top of the page was opened."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, id: str | None = None
    ) -> None:
        super().__init__(tree.page(), clock=clock, id=id)
        self.health = LineView(classes="health")
        self.findings_table: LiveTable[FindingLine] = LiveTable(
            findings.FINDING_LINE_COLUMNS,
            lambda finding_line: finding_line.key,
            has_header=False,
            clock=clock,
            classes="findings",
        )
        self.host = LineView(classes="host bar")
        self._folded: frozenset[ProcessId] = frozenset()
        self._hides_ended = False
        self._findings_height = 0

    def compose(self) -> ComposeResult:
        """Findings, then the tree as in any page, then the host."""
        yield self.health
        yield self.findings_table
        yield from super().compose()
        yield self.host

    def _draw_around(self, view: SnapshotView) -> None:
        self._draw_findings(view)
        self.host.show((host_line(view.snapshot, self.size.width),))

    def _draw_findings(self, view: SnapshotView) -> None:
        most = max(2, self.size.height // 6, min(FINDINGS_MOST, self._unused_lines() - 2))
        found = findings.finding_lines(view.snapshot, most, self.size.width)
        lines = tuple(cut(each, self.size.width) for each in over_lines(view.snapshot))
        if not lines and not found and not is_over(view.snapshot):
            lines = (findings.health(view),)
        self.health.show(lines)
        height = min(len(found), max(most, findings.lines_of_first(found)))
        if height != self._findings_height or self.findings_table.styles.height is None:
            self._findings_height = height
            self.findings_table.styles.height = height
            self.findings_table.display = height > 0
        self.findings_table.show(
            found, lambda finding_line: findings.finding_line_row(finding_line, view)
        )

    def _unused_lines(self) -> int:
        """Lines of the page for findings and details: those that host, header and tree leave."""
        return self.size.height - 2 - self._room

    def details_height(self, height: int, spare: int) -> int:
        """Two lines, more on tall screens and where the tree leaves some: a finding, a stack."""
        least = 2 if height < TALL else min(DETAILS_MOST, height // 3)
        return max(least, min(spare, DETAILS_MOST))

    def other_lines(self) -> int:
        """Lines of the page above and below its table and details."""
        return len(self.health.lines) + self._findings_height + 1 + super().other_lines()

    # --- the tree --------------------------------------------------------------------------------

    def on_live_table_shifted(self, event: LiveTable.Shifted) -> None:
        """Fold with left, unfold with right; left on a folded or single row goes to its parent."""
        event.stop()
        node = self.table.current
        if node is None or event.table is not self.table:
            return
        process = node.process.process
        if event.step > 0:
            self._fold(self._folded - {process})
        elif node.children and not node.is_folded:
            self._fold(self._folded | {process})
        elif node.process.parent is not None:
            self.table.move_to(node.process.parent)

    def _fold(self, folded: frozenset[ProcessId]) -> None:
        if folded != self._folded:
            self._folded = folded
            self.page = tree.page(self._folded, self._hides_ended)
            self.redraw()

    def toggle_ended(self) -> bool:
        """Hide or show processes that have ended; returns whether they are hidden."""
        self._hides_ended = not self._hides_ended
        self.page = tree.page(self._folded, self._hides_ended)
        self.redraw()
        return self._hides_ended

    def unfold_to(self, process: ProcessId) -> bool:
        """Put the cursor on a process, unfolding its ancestors."""
        view = self._view
        above = view.by_id.get(process) if view else None
        hiding: set[ProcessId] = set()
        while view is not None and above is not None and above.parent is not None:
            hiding.add(above.parent)
            above = view.by_id.get(above.parent)
        self._fold(self._folded - hiding)
        return self.table.move_to(process)

    # --- the findings ----------------------------------------------------------------------------

    def on_live_table_moved(self, event: LiveTable.Moved) -> None:
        """Ignore cursor movement in the list of findings, which has no details."""
        if event.table is not self.table:
            # Otherwise Textual also calls the handler of the base class.
            event.prevent_default()
            event.stop()

    def on_live_table_chosen(self, event: LiveTable.Chosen) -> None:
        """Open a finding; the base class opens processes."""
        if event.table is self.table:
            return
        event.prevent_default()
        event.stop()
        finding_line = self.findings_table.current
        if finding_line is not None:
            self.post_message(
                self.FindingOpened(finding_line.finding.process, finding_line.finding)
            )


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

    hints = ABOVE_HINTS

    def __init__(self, view_state: ViewState) -> None:
        super().__init__(view_state, (account.PAGE,))

    def make_page_view(self, page: AnyPage) -> AnyPageView:
        """Make the page with its own widget, in which threads unfold."""
        return TimeView(id=f"page-{page.name}")


class MergedScreen(JobScreen):
    """Merged stacks of all processes."""

    hints = ABOVE_HINTS

    def __init__(self, view_state: ViewState) -> None:
        super().__init__(view_state, (merged.PAGE,))

    def on_mount(self) -> None:
        """Request the stacks of all processes."""
        self.view_state.ask(TakeStacks())


class CompareScreen(JobScreen):
    """The current snapshot against a saved one."""

    hints = ABOVE_HINTS

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "save_snapshot", "Save this snapshot", id="compare.keep"),
    ]

    def __init__(self, view_state: ViewState) -> None:
        super().__init__(view_state, (compare.page(lambda: view_state.saved),))

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

    hints = ABOVE_HINTS

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
    flame.page(tuple),
    events.PAGE,
    findings.PAGE,
)
"""A page that the dashboard has as well has the same digit."""
