"""A recording folded up to any time, forwards and backwards; no thread and no clock.

A fold cannot run backwards, so its state is kept at key members: to go back, the last state before
is restored and folded from there. Snapshots depend on the inputs up to their time alone, not on the
seeking before: rules run once for each reading of the job, as live.
"""

from __future__ import annotations

import bisect
import math
import pickle
import zlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from mpwatch.diagnose.engine import Engine
from mpwatch.model.events import Input
from mpwatch.model.history import History
from mpwatch.model.samples import TreeSample
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.recording.codec import moment_of
from mpwatch.observe.recording.file import NotARecording, Recording
from mpwatch.observe.state.fold import Fold

KEEP_S = 30.0
"""Folds are kept at least this many seconds of recording apart."""
JUMP_S = 10.0
"""A kept fold this far ahead is restored instead of folding what is between again."""
KEPT_BYTES_LIMIT = 64 << 20
"""Above this every second kept fold is dropped, and fewer are kept from then on."""


T = TypeVar("T")


class Kept(NamedTuple):
    """The state as it was before the first input of a key member."""

    at_s: float
    member: int
    fold: bytes
    """The fold and the snapshot of the last reading, pickled and deflated. They never leave this
    process, so unpickling them is safe."""
    engine: Engine


class Timeline:
    """A position in a recording; all times are seconds since its beginning."""

    def __init__(
        self,
        recording: Recording,
        *,
        keeps: bool = True,
        on_reading: Callable[[Snapshot], None] | None = None,
    ) -> None:
        """Fold up to the first reading of the job.

        Args:
            recording: Stays open as long as this is used.
            keeps: Whether folds are kept, so that going back is quick.
            on_reading: Called with the snapshot after each reading of the job.

        Raises:
            NotARecording: It ends before the job was read once.
        """
        self._recording = recording
        self._fold = Fold()
        self._engine = Engine()
        self._last: Snapshot | None = None
        """The snapshot of the last reading."""
        self._is_at_reading = False
        """Whether the last input was a reading."""
        self._kept = [self._state(0.0, 0)]
        self._keep_s = KEEP_S
        self._keep_from_s = KEEP_S if keeps else math.inf
        self._readings_s: list[float] = []
        self._inputs = recording.numbered_inputs()
        self._next: tuple[int, Input] | None = next(self._inputs, None)
        self._member = 0
        self._folded_s = 0.0
        self._on_reading = on_reading
        self.problems: list[str] = []
        """What of the recording could not be folded, as sentences."""
        self.at_s = 0.0
        """The position."""
        while self._last is None:
            if not self._apply_reading():
                why = f" {self.problems[0]}" if self.problems else ""
                raise NotARecording(f"{recording.path} ends before the job was read once.{why}")
        self.at_s = self._folded_s

    @property
    def length_s(self) -> float:
        """The end of the recording."""
        return self._recording.length_s

    @property
    def is_at_end(self) -> bool:
        """Whether all inputs are folded."""
        return self._next is None

    def snapshot(self) -> Snapshot:
        """The job at this position."""
        assert self._last is not None
        if self._is_at_reading:
            return self._last
        return self._guarded(lambda: self._shown(self._engine.preview)) or self._last

    def conclusion(self) -> Snapshot:
        """As `snapshot`, at the end of the recording: every rule runs."""
        ask_all = partial(self._engine.preview, all_rules=True)
        return self._guarded(lambda: self._shown(ask_all)) or self.snapshot()

    def advance(self, to_s: float, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Fold forwards up to and including a time.

        Args:
            to_s: The time; one that has passed changes nothing.
            is_enough: Called after each input; stops early when it returns true.

        Returns:
            Whether it got there; `False` if it was stopped early.
        """
        while self._next is not None and self._moment(self._next[1]) <= to_s:
            self._apply_next()
            if is_enough():
                self.at_s = max(self.at_s, self._folded_s)
                return False
        self.at_s = max(self.at_s, min(to_s, self.length_s))
        return True

    def approach(self, to_s: float) -> None:
        """Restore the kept state from which `advance` reaches a time soonest, if that helps."""
        index = max(0, bisect.bisect_right(self._kept, to_s, key=_at) - 1)
        kept = self._kept[index]
        if self.at_s <= to_s and kept.at_s < self.at_s + JUMP_S:
            return
        self._fold, self._last, self._is_at_reading = pickle.loads(zlib.decompress(kept.fold))
        self._engine = kept.engine.copy()
        self._inputs = self._recording.numbered_inputs(kept.member)
        self._next = next(self._inputs, None)
        self._member = kept.member
        self._folded_s = self.at_s = kept.at_s
        if index == 0:
            self._apply_reading()
            self.at_s = self._folded_s

    def step(self, readings: int) -> None:
        """Move by a number of readings of the job, backwards if negative."""
        if readings >= 0:
            for _ in range(readings):
                self._apply_reading()
            self.at_s = max(self.at_s, self._folded_s)
            return
        passed = bisect.bisect_left(self._readings_s, self.at_s)
        to_s = self._readings_s[max(0, passed + readings)]
        self.approach(to_s)
        self.advance(to_s)

    def _apply_reading(self) -> bool:
        """Fold up to and including the next reading; `False` if there is none."""
        while self._next is not None:
            is_reading = isinstance(self._next[1], TreeSample)
            self._apply_next()
            if is_reading:
                return True
        return False

    def _apply_next(self) -> None:
        """Fold one input, and run the rules if it is a reading of the job."""
        assert self._next is not None
        member, each = self._next
        if member != self._member:
            self._member = member
            self._keep(member)
        self._folded_s = self._moment(each)
        self._is_at_reading = False
        self._guarded(lambda: self._fold.apply(each))
        if isinstance(each, TreeSample):
            if not self._readings_s or self._folded_s > self._readings_s[-1]:
                self._readings_s.append(self._folded_s)
            self._diagnose()
        self._next = next(self._inputs, None)

    def _diagnose(self) -> None:
        """Run the rules on a reading; findings count for later ones."""
        shown = self._guarded(lambda: self._shown(self._engine.diagnosed))
        if shown is not None:
            self._last, self._is_at_reading = shown, True
        if self._on_reading is not None and self._last is not None:
            self._on_reading(self._last)

    def _shown(self, diagnosed: Callable[[Snapshot, History], Snapshot]) -> Snapshot:
        return diagnosed(self._fold.snapshot(), self._fold.history())

    def _guarded(self, step: Callable[[], T]) -> T | None:
        """Do one step; an error becomes a problem, and the rest of the recording is played."""
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - a recording may come from another user
            problem = f"A part of the recording was left out: {type(error).__name__}: {error}"
            if problem not in self.problems:
                self.problems.append(problem)
            return None

    def _moment(self, each: Input) -> float:
        """The time of an input; notes and events may be a little older than it."""
        return max(self._folded_s, moment_of(each) - self._recording.header.at_s)

    def _keep(self, member: int) -> None:
        """Keep the fold at a key member, if the last one kept is far enough away."""
        at_s = self._folded_s
        if not self._recording.members[member].is_key or at_s < self._keep_from_s:
            return
        self._kept.append(self._state(at_s, member))
        if sum(len(kept.fold) for kept in self._kept) > KEPT_BYTES_LIMIT:
            self._kept = self._kept[::2]
            self._keep_s *= 2
        self._keep_from_s = at_s + self._keep_s

    def _state(self, at_s: float, member: int) -> Kept:
        """The present state, to be restored."""
        state = self._fold, self._last, self._is_at_reading
        pickled = zlib.compress(pickle.dumps(state, pickle.HIGHEST_PROTOCOL), 1)
        return Kept(at_s, member, pickled, self._engine.copy())


def _at(kept: Kept) -> float:
    return kept.at_s
