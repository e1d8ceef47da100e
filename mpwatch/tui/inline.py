"""A status of a few lines below the prompt, which stays in the scrollback after exit."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType

from mpwatch.observe.sources.source import Source
from mpwatch.tui.elements.exit_status import is_over
from mpwatch.tui.elements.inline import status_lines
from mpwatch.tui.elements.styled_text import cell
from mpwatch.tui.messages import SnapshotArrived
from mpwatch.tui.termination import Termination
from mpwatch.tui.view_state import Watch
from mpwatch.tui.widgets.line_view import LineView

LAST_PAINT_S = 0.1
"""Seconds for a last paint without the key hints before exit."""


class InlineApp(App[int]):
    """Redraws a few lines with each snapshot; ends with the job, or when told to.

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
        self._termination = termination
        self.watch_state = Watch(source, title, refresh_hz)
        self.status = LineView(classes="inline")
        self.keys = LineView(classes="bar")

    def compose(self) -> ComposeResult:
        """The status and a line with both keys."""
        yield self.status
        yield self.keys

    def on_mount(self) -> None:
        """Start the source."""
        self.status.show((cell(f" mpwatch   {self.watch_state.viewing.title}   reads the job"),))
        self.keys.show((cell(" q leave, the status stays   space pause", "dim"),))
        if self._termination is not None:
            self._termination.started(self)
        # Called on the source's thread, where only posting a message is safe.
        self.watch_state.source.start(lambda found: self._deliver(SnapshotArrived(found)))

    def _deliver(self, message: SnapshotArrived) -> None:
        self.post_message(message)

    def on_unmount(self) -> None:
        """Stop the source before the program ends."""
        self.watch_state.source.stop()

    def on_snapshot_arrived(self, message: SnapshotArrived) -> None:
        """Show the newest snapshot; the last one of an ended job stays on screen."""
        if self._termination is not None:
            self._termination.look_at_terminal()
        if not self.watch_state.arrived(message.snapshot):
            return
        self._draw()
        if is_over(message.snapshot) and message.snapshot.mode == "ended":
            self._leave()

    def on_resize(self) -> None:
        """Fit the lines to the new width."""
        self._draw()

    def _draw(self) -> None:
        moment = self.watch_state.moment
        if moment is not None:
            size = self.console.size
            lines = status_lines(moment, self.watch_state.viewing, size.width, size.height)
            self.status.show(lines)

    def action_pause(self) -> None:
        """Pause or resume the display."""
        self.watch_state.toggle_pause()
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
) -> int:
    """Show a few lines about a job until it ends or the user quits.

    Args:
        source: Not yet started; it is stopped before this returns.
        title: Name of the job until the first snapshot arrives.
        refresh_hz: How often the source samples.
        on_stuck: Called before a display that does not end in time is killed.

    Returns:
        An exit code: 128 + n after SIGTERM or SIGHUP.
    """
    termination = Termination(on_stuck)
    app = InlineApp(source, title=title, refresh_hz=refresh_hz, termination=termination)
    with termination.watching():
        app.run(inline=True, inline_no_clear=True, mouse=False)
    if termination.exit_code is not None:
        return termination.exit_code
    return app.return_code or 0
