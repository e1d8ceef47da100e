"""What is said where the terminal has no room for a screen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

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
