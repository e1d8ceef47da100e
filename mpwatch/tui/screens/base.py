"""Base class of all screens that show the job, and the text for a terminal that is too small."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static


class LiveScreen(Screen[None]):
    """A screen that draws the current moment on request and on resume."""

    help_title: ClassVar[str] = ""
    help_lines: ClassVar[tuple[str, ...]] = ()

    def show_moment(self) -> None:
        """Draw the current moment."""

    def on_screen_resume(self) -> None:
        """Draw again after another screen was active."""
        self.show_moment()


LEAST_WIDTH = 60
LEAST_HEIGHT = 15


class TooSmallScreen(Screen[None]):
    """One sentence; goes away by itself when the terminal grows."""

    DEFAULT_CSS = """
    TooSmallScreen { align: center middle; }
    TooSmallScreen > Static { width: auto; max-width: 100%; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        """The sentence."""
        yield Static(
            f"mpwatch needs {LEAST_WIDTH}x{LEAST_HEIGHT} characters; enlarge this terminal, "
            "or use: mpwatch dump PID",
            markup=False,
        )
