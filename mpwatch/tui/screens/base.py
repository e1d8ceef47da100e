"""What every screen that shows the job has in common."""

from __future__ import annotations

from typing import ClassVar

from textual.screen import Screen


class LiveScreen(Screen[None]):
    """A screen that draws the moment when told to, and again when it comes to the front."""

    help_title: ClassVar[str] = ""
    help_lines: ClassVar[tuple[str, ...]] = ()

    def show_moment(self) -> None:
        """Draw what is to be seen now."""

    def on_screen_resume(self) -> None:
        """Catch up with what happened while another screen was in front."""
        self.show_moment()
