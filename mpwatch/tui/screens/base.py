"""Base class of all screens that show the job."""

from __future__ import annotations

from typing import ClassVar

from textual.screen import Screen


class LiveScreen(Screen[None]):
    """A screen that draws the current moment on request and on resume."""

    help_title: ClassVar[str] = ""
    help_lines: ClassVar[tuple[str, ...]] = ()

    def show_moment(self) -> None:
        """Draw the current moment."""

    def on_screen_resume(self) -> None:
        """Draw again after another screen was active."""
        self.show_moment()
