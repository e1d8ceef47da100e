"""What every screen that shows the job has in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from textual.screen import Screen

from mpwatch.tui.line_compositor import LineCompositor
from mpwatch.tui.widgets.line_canvas import gathered


class LiveScreen(Screen[None]):
    """A screen that draws the moment when told to, and again when it comes to the front."""

    help_title: ClassVar[str] = ""
    help_lines: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self._compositor = LineCompositor()

    def show_moment(self) -> None:
        """Draw what is to be seen now."""

    @contextmanager
    def painted_at_once(self) -> Iterator[None]:
        """Paint what is drawn meanwhile as soon as it is.

        Textual 8.2 has each widget send messages to itself and to its screen, which sets a timer:
        half a dozen wake-ups a second for a dashboard in which something moves each second.
        """
        with gathered() as found:
            yield
        if not found.canvases:
            return
        self._dirty_widgets.update(found.canvases)
        if not found.has_layout and not self.app._batch_count:
            self._on_timer_update()
        if self._dirty_widgets:
            self.check_idle()

    def on_screen_resume(self) -> None:
        """Catch up with what happened while another screen was in front."""
        self.show_moment()
