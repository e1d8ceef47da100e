"""What is being watched and how a person looks at it: the state all screens share."""

from __future__ import annotations

from dataclasses import replace

from mpwatch.model.commands import Command, Pause
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.source import Source
from mpwatch.tui.present.moment import Moment
from mpwatch.tui.present.status import Viewing


class Watch:
    """The source, the snapshot on screen, and whether it stands still.

    A live source goes on collecting while the screen is paused: the newest snapshot waits here. A
    replay is paused at its source, so that it does not run away from what is shown.

    Attributes:
        source: Where snapshots come from.
        viewing: Title, pause, filter: what the status line says about the view.
        moment: What is on screen; `None` before the first snapshot.
        marked: A snapshot kept for comparing.
    """

    def __init__(
        self, source: Source, title: str, refresh_hz: float = 1.0, *, is_readonly: bool = False
    ) -> None:
        self.source = source
        self.viewing = Viewing(title, refresh_hz, is_readonly=is_readonly)
        self.moment: Moment | None = None
        self.marked: Snapshot | None = None
        self._waiting: Snapshot | None = None

    def arrived(self, snapshot: Snapshot) -> bool:
        """Take a new snapshot; returns whether it is to be shown."""
        if self.viewing.is_paused and self.source.is_live and self.moment is not None:
            self._waiting = snapshot
            return False
        self.moment = Moment(snapshot)
        return True

    def toggle_pause(self) -> bool:
        """Hold the screen still, or let it go on with the newest snapshot; returns which."""
        paused = not self.viewing.is_paused
        self.viewing = replace(self.viewing, is_paused=paused)
        if not self.source.is_live:
            self.source.ask(Pause(paused))
        elif not paused and self._waiting is not None:
            self.moment = Moment(self._waiting)
            self._waiting = None
        return paused

    def set_filter(self, wanted: str) -> None:
        """Show only rows that hold these words."""
        self.viewing = replace(self.viewing, filter=wanted)

    def set_recording(self, path: str | None) -> None:
        """Remember what the status line says about recording."""
        self.viewing = replace(self.viewing, recording=path)

    def ask(self, command: Command) -> str | None:
        """Ask the source; returns why not, or `None`."""
        return self.source.ask(command)

    def mark(self) -> None:
        """Keep the moment on screen for comparing."""
        self.marked = self.moment.snapshot if self.moment else None
