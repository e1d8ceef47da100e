"""What all screens share: the base class, messages, the text for a small terminal."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot


class LiveScreen(Screen[None]):
    """A screen that draws the current snapshot on request and on resume."""

    help_title: ClassVar[str] = ""
    help_lines: ClassVar[tuple[str, ...]] = ()

    def show_snapshot(self) -> None:
        """Draw the current snapshot."""

    def on_screen_resume(self) -> None:
        """Draw again after another screen was active."""
        self.show_snapshot()


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


class SnapshotArrived(Message, bubble=False):
    """A new snapshot from the source; it replaces an older one that is still queued."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Replace an older queued snapshot."""
        return isinstance(message, SnapshotArrived)


class ProcessRequested(Message):
    """A request to open the screen of a process."""

    def __init__(self, process: ProcessId) -> None:
        super().__init__()
        self.process = process
