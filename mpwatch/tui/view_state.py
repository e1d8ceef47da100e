"""The state shared by all screens: source, displayed snapshot, pause, filter, followed process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import MappingProxyType

from msgspec.structs import replace

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Playback, Snapshot
from mpwatch.observe.sources.source import (
    Command,
    Focus,
    Follow,
    Pause,
    Seek,
    SetSpeed,
    Source,
    StartRecording,
    Step,
    TakeStacks,
)
from mpwatch.tui.elements.header import ViewSettings
from mpwatch.tui.elements.page import KnownRows, SnapshotView, Variables
from mpwatch.tui.hook_question import HookQuestion
from mpwatch.tui.pages.stacks.flame import Sampled

SEEK_S = 10.0
"""How far the keys for moving through a recording go."""
SAMPLES_KEPT = 600
"""Stacks of the followed process: five minutes at twice a second."""


COMING_S = 5.0
"""Seconds after the first sample during which hooks are still being connected."""


class AskedPlayback:
    """The position and speed of a replay that the next key counts from.

    A replay follows a command later than it is given, and what it delivers before that has the
    position before: until then, keys count from what was asked for last.
    """

    def __init__(self) -> None:
        self._asked: Playback | None = None
        self._given = 0

    def of(self, shown: Playback) -> Playback:
        """What was asked for last; what is shown, once that is where it leads to."""
        if self._asked is None or shown.followed >= self._asked.followed:
            return shown
        return self._asked

    def note(self, command: Pause | Seek | SetSpeed | Step, shown: Playback) -> None:
        """Note a command, before it is given."""
        now = self.of(shown)
        match command:
            case Seek(at_s=at_s):
                now = replace(now, at_s=max(0.0, min(now.length_s, at_s)))
            case SetSpeed(factor=factor):
                now = replace(now, speed=factor)
            case Pause(paused=paused):
                now = replace(now, is_paused=paused)
            case Step():
                now = replace(now, is_paused=True)
        self._given += 1
        self._asked = replace(now, followed=self._given)


class ViewState:
    """The source, the displayed snapshot, and whether the display is paused.

    A live source continues to collect while the display is paused; the newest snapshot is kept
    here. A replay is paused at its source, so that it stays at the displayed position.

    Attributes:
        source: Where snapshots come from.
        settings: Title, pause, filter: the part that the status line shows.
        view: The displayed snapshot; `None` before the first.
        saved: A snapshot saved for comparison.
        follows: Whether the current process is followed.
        question: Whether to inject the hook; `None` if injection is not possible.
    """

    def __init__(
        self,
        source: Source,
        title: str,
        refresh_hz: float = 1.0,
        *,
        is_readonly: bool = False,
        question: HookQuestion | None = None,
        node: str = "",
    ) -> None:
        self.source = source
        self.question = question
        self.settings = ViewSettings(title, refresh_hz, is_readonly=is_readonly, node=node)
        self.view: SnapshotView | None = None
        self.saved: Snapshot | None = None
        self._waiting: Snapshot | None = None
        self.follows = True
        self._followed: ProcessId | None = None
        self._focused: ProcessId | None = None
        self._samples: deque[Sampled] = deque(maxlen=SAMPLES_KEPT)
        self._first_at_s: float | None = None
        self._asked: ProcessId | None = None
        self._variables: dict[tuple[ProcessId, int], Variables] = {}
        self._playback = AskedPlayback()

    def arrived(self, snapshot: Snapshot) -> bool:
        """Store a new snapshot; returns whether to display it."""
        self._keep_stack(snapshot)
        self._keep_variables(snapshot)
        self._note_lost(snapshot)
        if self.settings.is_paused and self.source.is_live and self.view is not None:
            self._waiting = snapshot
            return False
        rows = self.view.rows if self.view is not None else {}
        self.view = self._view_of(snapshot, rows)
        return True

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot, also while the display is paused; `None` before the first."""
        if self._waiting is not None:
            return self._waiting
        return self.view.snapshot if self.view is not None else None

    @property
    def playback(self) -> Playback | None:
        """Position and speed of a replay as asked for last; `None` of a running job."""
        shown = self.view.snapshot.playback if self.view is not None else None
        return None if shown is None else self._playback.of(shown)

    def toggle_pause(self) -> bool:
        """Pause, or resume with the newest snapshot; returns whether paused."""
        paused = not self.settings.is_paused
        self.settings = replace(self.settings, is_paused=paused)
        if not self.source.is_live:
            self.ask(Pause(paused))
        elif not paused and self._waiting is not None:
            self.view = self._view_of(self._waiting)
            self._waiting = None
        return paused

    def _view_of(self, snapshot: Snapshot, rows: KnownRows = MappingProxyType({})) -> SnapshotView:
        settings = self.settings
        return SnapshotView(
            snapshot,
            rows_before=rows,
            node=settings.node,
            is_readonly=settings.is_readonly,
            variables=self._variables,
        )

    def set_filter(self, wanted: str) -> None:
        """Show only rows that contain these words."""
        self.settings = replace(self.settings, filter=wanted)

    def record(self, path: str | None) -> str | None:
        """Start a recording, or end it with `None`; returns an error message or `None`."""
        problem = self.ask(StartRecording(path))
        if problem is None:
            self.settings = replace(self.settings, recording=path)
        return problem

    def ask(self, command: Command) -> str | None:
        """Send a command to the source; returns an error message or `None`."""
        if isinstance(command, TakeStacks) and command.locals and command.process is not None:
            self._asked = command.process
            self._variables = {}
        shown = self.playback
        if shown is not None and isinstance(command, Pause | Seek | SetSpeed | Step):
            self._playback.note(command, shown)
        return self.source.ask(command)

    def save_snapshot(self) -> None:
        """Save the displayed snapshot for comparison."""
        self.saved = self.view.snapshot if self.view else None

    # --- following one process -------------------------------------------------------------------

    @property
    def followed(self) -> ProcessId | None:
        """The process with periodic stack samples."""
        return self._followed

    @property
    def samples(self) -> Sequence[Sampled]:
        """Stacks of the followed process's main thread, oldest first."""
        return self._samples

    def follow(self, process: ProcessId | None) -> None:
        """Request periodic stack samples of this process only."""
        process = process if self.follows else None
        if process == self._followed or not self.source.is_live:
            return
        self._followed = process
        self._samples.clear()
        self.source.ask(Follow(process))

    def toggle_following(self) -> bool:
        """Stop following, or follow the current process again; returns whether it follows."""
        self.follows = not self.follows
        if not self.follows:
            self.follow(None)
        return self.follows

    def request_stacks_of(self, process: ProcessId | None) -> None:
        """Tell the source which process the cursor is on; none while the display is paused."""
        focused = None if self.settings.is_paused else process
        if self.source.is_live and focused != self._focused:
            self._focused = focused
            self.source.ask(Focus(focused))

    def _keep_stack(self, snapshot: Snapshot) -> None:
        process = snapshot.get(self._followed) if self._followed else None
        if process is None or process.is_gone or not process.threads:
            return
        thread = process.threads[0]
        if not thread.stack or thread.stack_at_s is None:
            return
        if not self._samples or thread.stack_at_s > self._samples[-1].at_s:
            self._samples.append(Sampled(thread.stack_at_s, thread.stack))

    def _keep_variables(self, snapshot: Snapshot) -> None:
        """Keep local variables: the next stack, half a second later, is without them."""
        process = snapshot.get(self._asked) if self._asked is not None else None
        if process is None:
            return
        for thread in process.threads:
            if any(frame.locals for frame in thread.stack):
                kept = Variables(thread.stack_at_s, thread.stack)
                self._variables[process.process, thread.tid] = kept

    def _note_lost(self, snapshot: Snapshot) -> None:
        """Record the count of hook records overwritten before the dashboard started."""
        if self._first_at_s is None or snapshot.at_s < self._first_at_s:
            self._first_at_s = snapshot.at_s
        if snapshot.at_s - self._first_at_s <= COMING_S:
            self.settings = replace(self.settings, lost_at_start=snapshot.lost)
