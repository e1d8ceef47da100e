"""What is being watched and how a person looks at it: the state all screens share."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from mpwatch.model.commands import Command, Follow, Pause, StartRecording
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.source import Source
from mpwatch.tui.elements.header import Viewing
from mpwatch.tui.elements.snapshot_view import Moment
from mpwatch.tui.focus_stacks import Glance
from mpwatch.tui.hook_consent import HookQuestion
from mpwatch.tui.pages.flame import Sampled
from mpwatch.tui.source_lines import SourceLines

SAMPLES_KEPT = 600
"""Stacks of the followed process: five minutes at twice a second."""


COMING_S = 5.0
"""So long after the first reading hooks are still being met."""


class Watch:
    """The source, the snapshot on screen, and whether it stands still.

    A live source goes on collecting while the screen is paused: the newest snapshot waits here. A
    replay is paused at its source, so that it does not run away from what is shown.

    Attributes:
        source: Where snapshots come from.
        viewing: Title, pause, filter: what the status line says about the view.
        moment: What is on screen; `None` before the first snapshot.
        marked: A snapshot kept for comparing.
        sources: Lines of the program's files.
        follows: Whether the process in front of a person is followed.
        question: Whether to inject the hook; `None` where that cannot be.
    """

    def __init__(
        self,
        source: Source,
        title: str,
        refresh_hz: float = 1.0,
        *,
        is_readonly: bool = False,
        question: HookQuestion | None = None,
    ) -> None:
        self.source = source
        self.question = question
        self.viewing = Viewing(title, refresh_hz, is_readonly=is_readonly)
        self.moment: Moment | None = None
        self.marked: Snapshot | None = None
        self._waiting: Snapshot | None = None
        self.follows = True
        self.sources = SourceLines()
        self._followed: ProcessId | None = None
        self._glance = Glance()
        self._samples: deque[Sampled] = deque(maxlen=SAMPLES_KEPT)
        self._first_at_s: float | None = None

    def arrived(self, snapshot: Snapshot) -> bool:
        """Take a new snapshot; returns whether it is to be shown."""
        self._keep_stack(snapshot)
        self._note_lost(snapshot)
        if self.viewing.is_paused and self.source.is_live and self.moment is not None:
            self._waiting = snapshot
            return False
        rows = self.moment.rows if self.moment is not None else {}
        self.moment = Moment(snapshot, rows_before=rows)
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

    def record(self, path: str | None) -> str | None:
        """Begin to write a recording, or end it with `None`; returns why not, or `None`."""
        problem = self.ask(StartRecording(path))
        if problem is None:
            self.viewing = replace(self.viewing, recording=path)
        return problem

    def ask(self, command: Command) -> str | None:
        """Ask the source; returns why not, or `None`."""
        return self.source.ask(command)

    def mark(self) -> None:
        """Keep the moment on screen for comparing."""
        self.marked = self.moment.snapshot if self.moment else None

    # --- following one process -------------------------------------------------------------------

    @property
    def followed(self) -> ProcessId | None:
        """The process whose stacks are taken again and again."""
        return self._followed

    @property
    def samples(self) -> Sequence[Sampled]:
        """Stacks of the followed process's main thread, oldest first."""
        return self._samples

    def follow(self, process: ProcessId | None) -> None:
        """Have the stacks of this process taken again and again, and of no other."""
        process = process if self.follows else None
        if process == self._followed or not self.source.is_live:
            return
        self._followed = process
        self._samples.clear()
        self.source.ask(Follow(process))

    def toggle_following(self) -> bool:
        """Stop following, or follow again what is looked at; returns whether it follows."""
        self.follows = not self.follows
        if not self.follows:
            self.follow(None)
        return self.follows

    def glance_at(self, process: ProcessId | None) -> None:
        """Have stacks taken of what the cursor rests on, where that costs little."""
        if self.moment is None or not self.source.is_live or self.viewing.is_paused:
            return
        found = self.moment.by_id.get(process) if process else None
        command = self._glance.due(found, self.moment.snapshot.at_s)
        if command is not None:
            self.source.ask(command)

    def _keep_stack(self, snapshot: Snapshot) -> None:
        process = snapshot.get(self._followed) if self._followed else None
        if process is None or process.is_gone or not process.threads:
            return
        thread = process.threads[0]
        if not thread.stack or thread.stack_at_s is None:
            return
        if not self._samples or thread.stack_at_s > self._samples[-1].at_s:
            self._samples.append(Sampled(thread.stack_at_s, thread.stack))

    def _note_lost(self, snapshot: Snapshot) -> None:
        """What a hook's ring had overwritten before anybody watched was not lost to this person."""
        if self._first_at_s is None or snapshot.at_s < self._first_at_s:
            self._first_at_s = snapshot.at_s
        if snapshot.at_s - self._first_at_s <= COMING_S:
            lost = sum(process.hook.lost for process in snapshot.processes)
            self.viewing = replace(self.viewing, lost_before=lost)
