"""A status of a few lines below the prompt, which stays in the scrollback after exit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from mpwatch.describe.findings import unresolved
from mpwatch.observe.sources.source import Source
from mpwatch.tui.elements.header import ViewSettings, header, host_line, is_over, over_lines
from mpwatch.tui.elements.page import Order, SnapshotView
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Span,
    cell,
    cut,
    drawn,
    line,
    place,
    width_of,
)
from mpwatch.tui.pages import findings, tree
from mpwatch.tui.screens.base import SnapshotArrived
from mpwatch.tui.termination import Termination
from mpwatch.tui.view_state import ViewState
from mpwatch.tui.widgets.line_view import LineView, TonedApp

LAST_PAINT_S = 0.1
"""Seconds for a last paint without the key hints before exit."""


class InlineApp(TonedApp[int]):
    """Redraws a few lines with each snapshot; ends with the job or on q.

    Args:
        source: Where snapshots come from; started on mount, stopped before the program ends.
        title: Name of the job until the first snapshot arrives.
        refresh_hz: How often snapshots are expected; shown in the status line.
        termination: Ends it on signals or a lost terminal.
    """

    CSS_PATH = "dashboard.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,enter", "quit", "Leave", id="quit"),
        Binding("space", "pause", "Pause or resume", id="pause"),
    ]

    def __init__(
        self,
        source: Source,
        *,
        title: str = "",
        refresh_hz: float = 1.0,
        termination: Termination | None = None,
    ) -> None:
        super().__init__()
        self._termination = termination or Termination()
        self.view_state = ViewState(source, title, refresh_hz)
        self.status = LineView(classes="inline")
        self.keys = LineView(classes="bar")

    def compose(self) -> ComposeResult:
        """The status and a line with both keys."""
        yield self.status
        yield self.keys

    def on_mount(self) -> None:
        """Start the source."""
        self.status.show((cell(f" mpwatch   {self.view_state.settings.title}   reads the job"),))
        self.keys.show((cell(" q leave, the status stays   space pause", "dim"),))
        self._termination.started(self)
        # Called on the source's thread, where only posting a message is safe.
        self.view_state.source.start(lambda found: self._deliver(SnapshotArrived(found)))

    def _deliver(self, message: SnapshotArrived) -> None:
        self.post_message(message)

    def on_unmount(self) -> None:
        """Stop the source before the program ends."""
        self.view_state.source.stop()

    def on_snapshot_arrived(self, message: SnapshotArrived) -> None:
        """Show the newest snapshot; the last one of an ended job stays on screen."""
        self._termination.check_terminal()
        if not self.view_state.arrived(message.snapshot):
            return
        self._draw()
        if is_over(message.snapshot) and message.snapshot.mode == "ended":
            self._leave()

    def on_resize(self) -> None:
        """Fit the lines to the new width."""
        self._draw()

    def _draw(self) -> None:
        view = self.view_state.view
        if view is not None:
            size = self.console.size
            lines = status_lines(view, self.view_state.settings, size.width, size.height)
            self.status.show(lines)

    def action_pause(self) -> None:
        """Pause or resume the display."""
        self.view_state.toggle_pause()
        self._draw()

    async def action_quit(self) -> None:
        """Exit and keep the status on screen, without the key hints."""
        self._leave()

    def action_help_quit(self) -> None:
        """Quit on ctrl+c."""
        self._leave()

    def _leave(self) -> None:
        self.keys.display = False
        self.set_timer(LAST_PAINT_S, lambda: self.exit(0))


def run_inline(
    source: Source,
    *,
    title: str,
    refresh_hz: float = 1.0,
    on_stuck: Callable[[], None] = lambda: None,
    needs_terminal: bool = False,
) -> int:
    """Show a few lines about a job until it ends or the user quits.

    Args:
        source: Not yet started; it is stopped before this returns.
        title: Name of the job until the first snapshot arrives.
        refresh_hz: How often the source samples.
        on_stuck: Called before a display that does not end in time is killed.
        needs_terminal: See `Termination`.

    Returns:
        An exit code: 128 + n after SIGTERM or SIGHUP.
    """
    termination = Termination(on_stuck, needs_terminal=needs_terminal)
    app = InlineApp(source, title=title, refresh_hz=refresh_hz, termination=termination)
    return termination.run(app, is_inline=True)


MOST_FINDINGS = 4
LEAST_ROWS = 3
MOST_ROWS = 8
"""Processes shown, those with findings first; the rest is counted."""


def status_lines(
    view: SnapshotView, settings: ViewSettings, width: int, height: int
) -> tuple[Line, ...]:
    """Status, findings, the most relevant processes, the host: top to bottom.

    Args:
        view: What to show.
        settings: Title, pause, filter.
        width: Cells of a line.
        height: Lines of the terminal; the status uses only part of them.
    """
    top = (header(view.snapshot, settings, width), *_finding_lines(view, width))
    rows = max(LEAST_ROWS, min(MOST_ROWS, height - len(top) - 5))
    bottom = host_line(view.snapshot, width)
    return (*top, *_processes(view, rows, width), bottom)


def _finding_lines(view: SnapshotView, width: int) -> tuple[Line, ...]:
    """The findings, or the exit status of the job, or the line for a healthy job."""
    over = over_lines(view.snapshot)
    found = findings.finding_lines(view.snapshot, MOST_FINDINGS, width)[:MOST_FINDINGS]
    rows = [findings.finding_line_row(finding_line, view) for finding_line in found]
    hidden = len(unresolved(view.snapshot)) - sum(not (b.is_advice or b.number) for b in found)
    lines = [*over, *(_row_line(findings.FINDING_LINE_COLUMNS, row, width) for row in rows)]
    if hidden > 0:
        lines.append(cell(f"  and {hidden} more findings", "dim"))
    if not lines and not is_over(view.snapshot):
        lines.append(findings.health(view))
    return tuple(cut(each, width) for each in lines)


def _processes(view: SnapshotView, most: int, width: int) -> tuple[Line, ...]:
    """The tree without ended processes, cut to `most` rows; the rest is counted."""
    found = [n for n in tree.nodes(view, Order()) if not n.process.is_gone]
    if not found:
        return ()
    shown = found if len(found) <= most else found[: most - 1]
    lines = [_heads(tree.COLUMNS, width)]
    lines += [_row_line(tree.COLUMNS, tree.PAGE.row(node, view), width) for node in shown]
    if len(found) > len(shown):
        lines.append(cell(f"  and {len(found) - len(shown)} more processes", "dim"))
    return tuple(lines)


def _heads(columns: Sequence[ScreenColumn], width: int) -> Line:
    """The names of the columns."""
    cells = tuple(cell(column.name, "dim") for column in columns)
    return _row_line(columns, Row("", cells), width)


def _row_line(columns: Sequence[ScreenColumn], row: Row, width: int) -> Line:
    """A row of a table as one line."""
    spans: list[Span] = [row.mark, Span(" ")]
    for number, (index, size) in enumerate(place(columns, width - 2)):
        content = cut(drawn(row.cells[index], size), size)
        blank = Span(" " * (size - width_of(content)))
        spans += [Span(" ")] if number else []
        spans += (*content, blank) if columns[index].align == "left" else (blank, *content)
    return cut(line(*spans), width)
