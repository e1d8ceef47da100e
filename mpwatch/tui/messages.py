"""What arrives from outside the screens, and what a screen asks the program for."""

from __future__ import annotations

from textual.message import Message

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot


class SnapshotArrived(Message, bubble=False):
    """A new snapshot from the source; while the last one waits to be handled, the newest wins."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Stand in for an older snapshot that nobody has looked at."""
        return isinstance(message, SnapshotArrived)


class ProcessAsked(Message):
    """A person wants to see a process, on a screen that knows no other screens."""

    def __init__(self, process: ProcessId) -> None:
        super().__init__()
        self.process = process
