"""Messages from the source to the application and from screens to the application."""

from __future__ import annotations

from textual.message import Message

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot


class SnapshotArrived(Message, bubble=False):
    """A new snapshot from the source; it replaces an older one that is still queued."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Replace an older queued snapshot."""
        return isinstance(message, SnapshotArrived)


class ProcessAsked(Message):
    """A request to open the screen of a process."""

    def __init__(self, process: ProcessId) -> None:
        super().__init__()
        self.process = process
