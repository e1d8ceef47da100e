"""A recording as a source of snapshots: the same screens and reports as on a running job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from mpwatch.model.snapshot import Playback, Snapshot
from mpwatch.observe.recording.file import Recording
from mpwatch.observe.recording.timeline import Course, Timeline
from mpwatch.observe.sources.source import (
    Command,
    Deliver,
    DeliveringThread,
    Focus,
    Follow,
    Pause,
    ReadAllocators,
    Seek,
    SetRefresh,
    SetSpeed,
    StartRecording,
    Step,
    TakeStacks,
)

FRAME_S = 0.25
"""Snapshots are delivered this often while it plays."""
SLOWEST, FASTEST = 0.01, 10_000.0
"""Limits of the speed; above some hundred, the machine decides how fast it really is."""


class ReplaySource:
    """Plays a recording on a thread of its own; see `mpwatch.observe.sources.source.Source`."""

    def __init__(
        self,
        path: str,
        *,
        speed: float = 1.0,
        is_paused: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the recording and fold its first reading.

        Raises:
            OSError: The file cannot be opened.
            NotARecording: The file is not a recording, or ends before the first reading.
        """
        self._recording = Recording(path)
        try:
            self._timeline = Timeline(self._recording)
            self._wish = _Wish(self._timeline.at_s, speed, is_paused)
            self._last = self._shown()
        except BaseException:
            self._recording.close()
            raise
        self._clock = clock
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = DeliveringThread[Snapshot](self._run, "mpwatch-replay")

    @property
    def is_live(self) -> bool:
        """Never: a recording can be sought."""
        return False

    def start(self, deliver: Deliver) -> None:
        """Begin to play; the first snapshot is delivered at once."""
        self._thread.start(deliver)

    def stop(self) -> None:
        """Stop playing and close the file."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join()
        self._recording.close()

    def ask(self, command: Command) -> str | None:
        """Execute a command of the user; see `Source.ask`."""
        match command:
            case TakeStacks():
                return "This is a recording: only the stacks taken then can be shown."
            case ReadAllocators():
                return "This is a recording: only the figures read then can be shown."
            case SetRefresh():
                return "This is a recording: it holds the readings that were taken then."
            case StartRecording(path=path):
                return None if path is None else "This is a recording already."
            case Seek() | SetSpeed() | Pause() | Step():
                with self._changed:
                    self._wish.change(command, self._timeline)
                    self._changed.notify()
            case Follow() | Focus():
                pass  # a recording has the stacks that were taken then
        return None

    def _run(self) -> None:
        last_s = self._clock()
        while not self._is_stopping:
            began_s = self._clock()
            with self._changed:
                self._wish.go_on(began_s - last_s)
                goal_s, steps = self._wish.taken()
            last_s = began_s
            self._thread.deliver(self._guarded(goal_s, steps, began_s + FRAME_S))
            last_s = self._rest(last_s)

    def _guarded(self, goal_s: float, steps: int, until_s: float) -> Snapshot:
        """Move and return what to show; after an error the last snapshot, paused, with the error.

        Seeking, stepping and playing keep working as far as the rest of the recording allows.
        """
        try:
            self._wind(goal_s, steps, until_s)
            with self._changed:
                self._wish.settle(self._timeline)
            self._last = self._shown()
        except Exception as error:  # noqa: BLE001 - the one boundary of the replaying thread
            with self._changed:
                self._wish.give_up(self._timeline)
            problem = f"Replaying failed near {goal_s:.1f} s: {type(error).__name__}: {error}"
            return replace(
                self._last,
                playback=self._playback(),
                problems=(*self._last.problems, f"{problem}. Seek elsewhere to continue."),
            )
        return self._last

    def _wind(self, goal_s: float, steps: int, until_s: float) -> None:
        """Move towards the goal; on a long way snapshots are delivered."""
        if steps:
            self._timeline.step(steps)
            return
        self._timeline.approach(goal_s)
        self._timeline.advance(goal_s, lambda: self._wish.is_new or self._clock() >= until_s)

    def _rest(self, last_s: float) -> float:
        """Wait for the next frame or command; time spent paused is not played later."""
        with self._changed:
            while not (self._is_stopping or self._wish.is_new or self._wish.is_seeking):
                left_s = last_s + FRAME_S - self._clock()
                if self._wish.is_paused:
                    self._changed.wait()
                    last_s = self._clock()
                elif left_s > 0:
                    self._changed.wait(left_s)
                else:
                    break
        return last_s

    def _shown(self) -> Snapshot:
        return replayed(
            self._timeline.snapshot(),
            self._timeline,
            self._recording,
            self._playback(),
        )

    def _playback(self) -> Playback:
        wish = self._wish
        return Playback(
            self._timeline.at_s,
            self._timeline.length_s,
            wish.speed,
            wish.is_paused,
            wish.followed,
        )


OnPart: TypeAlias = Callable[[float], None]
"""Called with the part of a recording that was read, 0 to 1."""


def replay_to_end(path: str, on_part: OnPart | None = None) -> Snapshot:
    """The job at the end of the recording, with the findings that were ever present.

    A finding that was present when its process exited is present; earlier ones are resolved. Which
    ones are kept: see `Course`.

    Raises:
        OSError: The file cannot be opened.
        NotARecording: The file is not a recording, or ends before the first reading.
    """
    return replay_course(path, on_part)[0]


def replay_course(path: str, on_part: OnPart | None = None) -> tuple[Snapshot, Course]:
    """As `replay_to_end`, with curves of numbers."""
    course = Course()
    with Recording(path) as recording:

        def take(snapshot: Snapshot) -> None:
            course.take(snapshot)
            if on_part is not None and recording.length_s:
                on_part((snapshot.at_s - recording.header.at_s) / recording.length_s)

        timeline = Timeline(recording, keeps=False, on_reading=take)
        timeline.advance(float("inf"))
        position = Playback(timeline.at_s, timeline.length_s, is_paused=True)
        end = replayed(timeline.conclusion(), timeline, recording, position)
        course.take(end)
    findings = course.findings(end)
    if course.left_out:
        problem = f"Only the most severe earlier findings are kept; left out: {course.left_out}."
        end = replace(end, problems=(*end.problems, problem))
    return replace(end, findings=findings), course


def replayed(
    snapshot: Snapshot, timeline: Timeline, recording: Recording, position: Playback
) -> Snapshot:
    """A snapshot of a recording, marked as a replay."""
    return replace(
        snapshot,
        mode="replay",
        playback=position,
        problems=(*snapshot.problems, *recording.problems, *timeline.problems),
    )


@dataclass
class _Wish:
    """The requested position and speed; guarded by the condition of the source."""

    goal_s: float
    speed: float
    is_paused: bool
    steps: int = 0
    is_seeking: bool = False
    """The goal was set by the user: it is not given up because folding takes long."""
    is_new: bool = True
    """A command was given that has not been followed."""
    given: int = 0
    """Commands so far."""
    followed: int = 0
    """How many of them are followed."""

    def change(self, command: Seek | SetSpeed | Pause | Step, timeline: Timeline) -> None:
        """Follow one command."""
        self.is_new = True
        self.given += 1
        match command:
            case Seek(at_s=at_s):
                self.goal_s = min(max(0.0, at_s), timeline.length_s)
                self.is_seeking, self.steps = True, 0
            case SetSpeed(factor=factor):
                self.speed = min(max(SLOWEST, factor), FASTEST)
            case Pause(paused=paused):
                if self.is_paused and not paused and self.goal_s >= timeline.length_s:
                    self.goal_s, self.is_seeking = 0.0, True
                self.is_paused = paused
            case Step(readings=readings):
                self.steps += readings
                self.is_paused = True

    def go_on(self, elapsed_s: float) -> None:
        """Move the goal by the time that was played."""
        if not (self.is_paused or self.is_seeking):
            self.goal_s += elapsed_s * self.speed

    def taken(self) -> tuple[float, int]:
        """The goal and the steps to do now."""
        steps, self.steps, self.is_new = self.steps, 0, False
        return self.goal_s, steps

    def give_up(self, timeline: Timeline) -> None:
        """Stay at the present position after an error; a newer command is still followed."""
        self.is_paused = True
        if not self.is_new:
            self.goal_s, self.is_seeking = timeline.at_s, False
            self.followed = self.given

    def settle(self, timeline: Timeline) -> None:
        """Compare with the position reached: a machine that is too slow plays more slowly."""
        if self.is_new:
            return
        if self.is_seeking and timeline.at_s < self.goal_s and not timeline.is_at_end:
            return
        self.is_seeking = False
        self.followed = self.given
        self.goal_s = timeline.at_s
        if timeline.is_at_end and timeline.at_s >= timeline.length_s:
            self.is_paused = True
