"""The account of time with threads that unfold below their process."""

from __future__ import annotations

from mpwatch.model.ids import ProcessId
from mpwatch.tui.pages import account
from mpwatch.tui.pages.account import TimeRow
from mpwatch.tui.widgets.live_table import LiveTable
from mpwatch.tui.widgets.page_view import PageView


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
