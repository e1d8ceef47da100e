"""The first page: findings on top, the process tree below, the host at the bottom."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.app import ComposeResult

from mpwatch.model.ids import ProcessId
from mpwatch.tui.elements.header import host_line, is_over, over_lines
from mpwatch.tui.elements.snapshot_view import SnapshotView
from mpwatch.tui.pages import findings, tree
from mpwatch.tui.pages.findings import FindingLine
from mpwatch.tui.pages.tree import TreeRow
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.live_table import LiveTable
from mpwatch.tui.widgets.page_view import PageView

TALL = 30
"""Minimum height at which the stack of the process under the cursor is shown as well."""


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

    def compose(self) -> ComposeResult:
        """Findings, then the tree as in any page, then the host."""
        yield self.health
        yield self.findings_table
        yield from super().compose()
        yield self.host

    def _draw(self) -> None:
        view = self._view
        if view is not None and self.size.width:
            self._draw_findings(view)
            self.host.show((host_line(view.snapshot, self.size.width),))
        super()._draw()

    def _draw_findings(self, view: SnapshotView) -> None:
        most = max(2, self.size.height // 6)
        found = findings.finding_lines(view.snapshot, most)
        lines = over_lines(view.snapshot)
        if not lines and not found and not is_over(view.snapshot):
            lines = (findings.health(view),)
        self.health.show(lines)
        height = min(len(found), most)
        if (
            self.findings_table.styles.height is None
            or self.findings_table.styles.height.value != height
        ):
            self.findings_table.styles.height = height
            self.findings_table.display = height > 0
        self.findings_table.show(
            found, lambda finding_line: findings.finding_line_row(finding_line, view)
        )

    def details_height(self, height: int) -> int:
        """Two lines; on tall screens room for a stack as well."""
        return 2 if height < TALL else min(16, height // 3)

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
