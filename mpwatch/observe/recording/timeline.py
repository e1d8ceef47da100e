"""A recording folded up to any time, or as a whole; no thread and no clock.

A fold cannot run backwards, so its state is kept at key members: to go back, the last state before
is restored and folded from there. Snapshots depend on the inputs up to their time alone, not on the
seeking before: rules run once for each reading of the job, as live. `Course` adds up the whole
recording: every finding that was ever present, and curves of numbers.
"""

from __future__ import annotations

import bisect
import itertools
import math
import pickle
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from mpwatch.describe.findings import effects_below_causes
from mpwatch.diagnose.engine import Engine
from mpwatch.model.events import Input
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History, Point
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import TreeSample
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.observe.recording.codec import moment_of
from mpwatch.observe.recording.file import NotARecording, Recording
from mpwatch.observe.state.fold import ENDED_KEPT, Fold

KEEP_S = 30.0
"""Folds are kept at least this many seconds of recording apart."""
JUMP_S = 10.0
"""A kept fold this far ahead is restored instead of folding what is between again."""
KEPT_BYTES_LIMIT = 64 << 20
"""Above this every second kept fold is dropped, and fewer are kept from then on."""


T = TypeVar("T")
DIED_WITH_IT_S = 6.0
"""A finding present this shortly before its process exited counts as present at the end."""
POINTS_LIMIT = 600
"""Points of one curve; when there are more, every second one is dropped."""


class KeptState(NamedTuple):
    """The state as it was before the first input of a key member."""

    at_s: float
    member: int
    state: bytes
    """The fold, the snapshot of the last reading and the memory of the engine, pickled and
    deflated. They never leave this process, so unpickling them is safe."""


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
        self._readings_s = array("d")
        """The times of all readings so far, for steps back: 0.7 MB for a day."""
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
        state = pickle.loads(zlib.decompress(kept.state))
        self._fold, memory, self._last, self._is_at_reading = state
        self._engine.restore(memory)
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
        shown = self._guarded(self._diagnosed)
        if shown is not None:
            self._last, self._is_at_reading = shown, True
        if self._on_reading is not None and self._last is not None:
            self._on_reading(self._last)

    def _diagnosed(self) -> Snapshot:
        snapshot = self._fold.snapshot()
        history = self._fold.history() if self._engine.is_due(snapshot) else History()
        return self._engine.diagnosed(snapshot, history)

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
        if sum(len(kept.state) for kept in self._kept) > KEPT_BYTES_LIMIT:
            self._kept = self._kept[::2]
            self._keep_s *= 2
        self._keep_from_s = at_s + self._keep_s

    def _state(self, at_s: float, member: int) -> KeptState:
        """The present state, to be restored."""
        # In one pickle: the account that the engine remembers is that of the snapshot.
        state = self._fold, self._engine.memory, self._last, self._is_at_reading
        return KeptState(
            at_s, member, zlib.compress(pickle.dumps(state, pickle.HIGHEST_PROTOCOL), 1)
        )


def _at(kept: KeptState) -> float:
    return kept.at_s


@dataclass
class Curve:
    """One number over time, thinned as it grows."""

    points: list[Point] = field(default_factory=list)
    _every: int = 1
    _skipped: int = 0

    def add(self, at_s: float, value: float | None) -> None:
        """Append a value; an unknown one is left out."""
        if value is None:
            return
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.points.append(Point(at_s, value))
        if len(self.points) > POINTS_LIMIT:
            self.points = self.points[::2]
            self._every *= 2


class Course:
    """Adds up the snapshots after each reading, in order.

    Curves are kept of the processes that the snapshots still have, see `ENDED_KEPT`. Findings are
    kept of these as well, and of the other processes together the `ENDED_KEPT` most severe ones.
    """

    def __init__(self) -> None:
        self.processes: dict[tuple[ProcessId, str], Curve] = {}
        """By process and name of the number: `fds`, `private_bytes`, `shm_bytes`, `maps`."""
        self.host: dict[str, Curve] = {}
        """By name of the number: `/dev/shm bytes`, `cgroup memory bytes`."""
        self.left_out = 0
        """Earlier findings that are not kept."""
        self._seen: dict[object, tuple[Finding, float]] = {}
        self._prune_at = 2 * ENDED_KEPT
        """When so many findings are kept, those of processes that were dropped are counted."""

    def take(self, snapshot: Snapshot) -> None:
        """Add one snapshot."""
        for finding in snapshot.findings:
            if finding.resolved_s is None:
                self._seen[finding.key] = (finding, snapshot.at_s)
        if len(self._seen) > self._prune_at:
            self._prune(snapshot)
            self._prune_at = 2 * max(ENDED_KEPT, len(self._seen))
        for key in [key for key in self.processes if snapshot.get(key[0]) is None]:
            del self.processes[key]
        for process in snapshot.living():
            for name, read in _NUMBERS.items():
                key = (process.process, name)
                self.processes.setdefault(key, Curve()).add(snapshot.at_s, read(process))
        shm, cgroup = snapshot.host.shm, snapshot.host.cgroup
        used = shm.total_bytes - shm.free_bytes if shm else None
        self.host.setdefault("/dev/shm bytes", Curve()).add(snapshot.at_s, used)
        memory = cgroup.memory_bytes if cgroup else None
        self.host.setdefault("cgroup memory bytes", Curve()).add(snapshot.at_s, memory)

    def _prune(self, snapshot: Snapshot) -> None:
        """Drop earlier findings: the least severe ones, and of those the ones longest ago.

        `ENDED_KEPT` are kept of each process that the snapshot has, and of all others together.
        """
        groups: dict[ProcessId | None, list[tuple[Severity, float, object]]] = {}
        for key, (finding, last_s) in self._seen.items():
            if last_s < snapshot.at_s:
                concerned = (finding.process, *finding.others)
                group = next((each for each in concerned if snapshot.get(each) is not None), None)
                groups.setdefault(group, []).append((finding.severity, last_s, key))
        for ranked in groups.values():
            ranked.sort(key=itemgetter(0, 1))
            for _, _, key in ranked[: max(0, len(ranked) - ENDED_KEPT)]:
                del self._seen[key]
                self.left_out += 1

    def findings(self, end: Snapshot) -> tuple[Finding, ...]:
        """Every finding: present at the end or at the exit of the process first, then resolved."""
        self._prune(end)
        present = [finding for finding in end.findings if finding.resolved_s is None]
        keys = {finding.key for finding in present}
        held, passed = [], []
        for key, (finding, last_s) in self._seen.items():
            if key in keys:
                continue
            if _died_with_it(finding, last_s, end):
                held.append(replace(finding, eta_s=None))
            else:
                passed.append(replace(finding, resolved_s=last_s, eta_s=None))
        held.sort(key=_urgency)
        passed.sort(key=_urgency)
        return (*effects_below_causes(_merged(present, held)), *passed)


def _died_with_it(finding: Finding, last_s: float, end: Snapshot) -> bool:
    """Whether the process, or the whole job, exited while the finding was present."""
    process = end.get(finding.process)
    concerned: Iterable[Process] = end.processes if process is None else (process,)
    ends = [one.ended.at_s for one in concerned if one.ended is not None]
    all_ended = all(one.ended is not None for one in concerned)
    return all_ended and bool(ends) and max(ends) - last_s <= DIED_WITH_IT_S


def _merged(present: Sequence[Finding], held: Sequence[Finding]) -> list[Finding]:
    """Findings of the end in their order, with those of processes that have exited in between.

    A cause may be less severe than the effect that follows it, so each of the first counts as
    severe as the worst that follows.
    """
    from_here = list(itertools.accumulate((f.severity for f in reversed(present)), max))[::-1]
    ranked = [(-severity, f) for severity, f in zip(from_here, present, strict=True)]
    ranked += [(_urgency(finding), finding) for finding in held]
    return [finding for _, finding in sorted(ranked, key=lambda each: each[0])]


def _urgency(finding: Finding) -> int:
    return -finding.severity


_NUMBERS: dict[str, Callable[[Process], float | None]] = {
    "fds": lambda process: process.sample.fds.used if process.sample.fds else None,
    "maps": lambda process: process.sample.maps.used if process.sample.maps else None,
    "private_bytes": lambda process: process.private_bytes,
    "shm_bytes": lambda process: process.shm_bytes,
}
