"""How much of its time each rank waits in collectives, and where it is in the rest.

In synchronous training a step takes equally long on all ranks: the slowest one waits least. What
the main thread does at random moments shows that of all ranks at once, by its state and system
call: a collective of gloo waits for a condition of its own process. Readings at a fixed interval
would find a rank whose steps take as long always at the same place of a step. No stack is needed.
Where stacks are taken, they tell such a wait from one for another thread, and have the line of the
rest.

A collective of NCCL returns at once, and its rank polls for the GPU later, also for its own
kernels: it is not seen as waiting here.
"""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev
from typing import NamedTuple

from mpwatch.collect.process import procfs
from mpwatch.collect.process.syscall_waits import names, parse_syscall
from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.distributed.ranks import (
    called_at,
    has_group,
    in_collective,
    waits_in_backward,
)
from mpwatch.diagnose.analysis.stack_patterns import collective_of, main_thread
from mpwatch.model.progress import BUCKET_S, RECENT_S, ProgressKind, ProgressSource
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.nodes.wire.summary import WAITS_ENOUGH

READINGS_LEAST = 40
READINGS_USUAL = 120
"""The share is that of so many readings, and of more until `WAITS_ENOUGH` are among them."""
LONG = 3.0
"""A wait counts as at most so many times the usual one: the others wait once for a rank that loads
the data set or saves a checkpoint, which is no slow step. So does the time between two waits."""
ALIKE_LEAST = 8
ALIKE = 0.08
"""So many waits are enough where they are alike: where the standard error of their mean is at most
this part of it. Of 960 made-up trainings of 200 steps of half a minute, of 2 to 8 equal ranks whose
times differ by a tenth to more than the whole, 5 were said to have a slow rank, all of 2 ranks. A
rank that needs 2.2 times as long was told after 8 steps where the times differ by a tenth, and
after 22 to 29 where they differ by a fifth."""
CHANGE_PERCENT = 10
"""A share is sent again when it has changed by this much."""
CHANGE = 0.15
"""A step time, by this part."""
LINES_KEPT = 16
LINE_LEAD = 1.25
"""Another line is told once it has so many times the stacks of the told one, and one more."""
STEPS_OVER_S = (60.0, RECENT_S)
STEPS_LEAST = 5
_STEPS: tuple[ProgressKind, ...] = ("batches", "collectives")

_CALLS = names(os.uname().machine)


class WaitSample(NamedTuple):
    """What a thread was doing at one moment."""

    waits: bool
    """Whether it waited for a condition of its own process, without a timeout."""
    ticks: int
    """Its cpu time so far."""


def wait_sample(pid: int, tid: int, proc: str = "/proc") -> WaitSample | None:
    """What a thread does now; `None` where it is stopped, has ended, or nothing may be read.

    Without the right to see its system call, where the kernel lets it sleep is read.
    """
    folder = f"{proc}/{pid}/task/{tid}"
    try:
        stat = procfs.parse_stat(procfs.read(f"{folder}/stat", 4096))
        if stat.state in "TtZX":
            return None
        ticks = stat.cpu_ticks
        if stat.state != "S":
            return WaitSample(False, ticks)
        try:
            call = parse_syscall(procfs.read(f"{folder}/syscall", 256))
        except PermissionError:
            return WaitSample(b"futex" in procfs.read(f"{folder}/wchan", 256), ticks)
    except (OSError, ValueError):
        return None
    is_futex = call is not None and _CALLS.get(call.number) == "futex"
    return WaitSample(call is not None and is_futex and not call.arguments[3], ticks)


@dataclass(slots=True)
class Turn:
    """Readings of one rank: those of its own work, then those of the wait that followed."""

    own: int = 0
    inside: int = 0


@dataclass(slots=True)
class RankWaits:
    """What the readings of one rank have found, and what of it is sent."""

    percent: int | None = None
    """Share of its time in which it waits in collectives; `None` with too few readings."""
    waits: int = 0
    """How many waits that is made of, at most `WAITS_ENOUGH`."""
    has_enough: bool = False
    """Whether these waits are enough for the share to be known."""
    line: str = ""
    """Where most stacks found it otherwise."""
    step_ms: int | None = None
    """Time from one batch, or else one collective, to the next, by the hook; `None` without."""
    step_of: str = ""
    """`batch` or `collective`."""
    thread: tuple[int, int] | None = None
    """The process and the thread to sample; `None` if it has ended or is not known."""
    _has_group: bool = False
    _turns: deque[Turn] = field(default_factory=lambda: deque(maxlen=READINGS_USUAL))
    _count: int = 0
    """Of all readings."""
    _was_inside: bool = False
    """Whether the last reading has found it waiting."""
    _ticks: int | None = None
    """Cpu time of the main thread at the last reading."""
    _waits_elsewhere: bool = False
    """See `RankHabit`."""
    _stack_s: float | None = None
    _lines: Counter[str] = field(default_factory=Counter)

    def see(
        self, process: Process, snapshot: Snapshot, progress: Sequence[ProgressSource] = ()
    ) -> None:
        """Note a snapshot: which thread to sample, and what stacks and the hook tell.

        Args:
            process: The rank.
            snapshot: The job.
            progress: What the hook of the rank has counted.
        """
        thread = main_thread(process)
        self.thread = None
        if thread is None or process.is_gone:
            return
        if process.role == "ray-worker" and thread.tid == process.pid:
            return  # the thread that trains is another one, and no stack has shown it yet
        self.thread = (process.pid, thread.tid)
        self._has_group = has_group(process)
        habit = snapshot.habits.get(process.process)
        self._waits_elsewhere = habit is not None and habit.waits_elsewhere
        self._note_stack(process, thread)
        self._note_share()
        self._note_step({each.kind: each for each in progress}, snapshot.at_s)

    def add(self, sample: WaitSample) -> None:
        """Add what the thread was found doing."""
        is_inside = sample.waits and self._has_group and not self._waits_elsewhere
        is_same = self._was_inside and sample.ticks == self._ticks
        note_reading(self._turns, is_inside=is_inside, is_same=is_same)
        self._was_inside, self._ticks = is_inside, sample.ticks
        self._count += 1

    def _note_stack(self, process: Process, thread: Thread) -> None:
        """Note whether a new stack shows another wait, and its line outside of collectives."""
        if not thread.stack or thread.stack_at_s is None or thread.stack_at_s == self._stack_s:
            return
        self._stack_s = thread.stack_at_s
        if _is_in_collective(process, thread):
            return
        line = called_at(process)
        if line:
            if line in self._lines or len(self._lines) < LINES_KEPT:
                self._lines[line] += 1
            if sum(self._lines.values()) > READINGS_USUAL:
                self._lines = Counter({each: n // 2 for each, n in self._lines.items() if n > 1})
            if self._lines:
                best = max(self._lines, key=self._lines.__getitem__)
                # Of two lines that are about as frequent, the one that was told stays.
                if self._lines[best] >= 1 + LINE_LEAD * self._lines.get(self.line, 0):
                    self.line = best

    def _note_share(self) -> None:
        if self._count < READINGS_LEAST:
            return
        found = share_of(self._turns)
        self.waits, self.has_enough = found.waits, found.has_enough
        percent = round(100 * found.share)
        if self.percent is None or abs(percent - self.percent) >= CHANGE_PERCENT:
            self.percent = percent

    def _note_step(self, own: Mapping[ProgressKind, ProgressSource], at_s: float) -> None:
        for kind in _STEPS:
            step_s = _step_s(own[kind], at_s) if kind in own else None
            if step_s is None:
                continue
            ms, of = round(1000 * step_s), "batch" if kind == "batches" else "collective"
            if self.step_of != of or abs(ms - (self.step_ms or 0)) > CHANGE * ms:
                self.step_ms, self.step_of = ms, of
            return


def note_reading(turns: deque[Turn], *, is_inside: bool, is_same: bool) -> None:
    """Add a reading to the last turn, or begin the next one with it.

    Args:
        turns: The turns so far.
        is_inside: Whether it waits in a collective.
        is_same: Whether it has not moved since the reading before.
    """
    if not turns or (turns[-1].inside and not (is_inside and is_same)):
        turns.append(Turn())
    turn = turns[-1]
    turn.own += not is_inside
    turn.inside += is_inside


class Share(NamedTuple):
    """How much of its time a rank waits in collectives."""

    share: float
    """0 to 1."""
    waits: int
    """How many waits it is made of, at most `WAITS_ENOUGH`."""
    has_enough: bool
    """Whether these are enough."""


def share_of(turns: Sequence[Turn]) -> Share:
    """The share of the newest readings in which a rank waited."""
    lengths: list[int] = []
    own: list[int] = []
    number = 0
    for turn in reversed(turns):
        if number >= READINGS_USUAL and len(lengths) >= WAITS_ENOUGH:
            break
        number += turn.own + turn.inside
        own += [turn.own] if turn.own else []
        lengths += [turn.inside] if turn.inside else []
    if not lengths:
        return Share(0.0, 0, has_enough=False)
    waited, worked = _without_long_ones(lengths), _without_long_ones(own)
    # The newest wait may have begun just now.
    are_alike = _are_alike(lengths[1:] if turns[-1].inside else lengths)
    has_enough = are_alike or len(lengths) >= WAITS_ENOUGH
    return Share(waited / (worked + waited), min(len(lengths), WAITS_ENOUGH), has_enough)


def _without_long_ones(lengths: Sequence[int]) -> float:
    """The sum of some lengths, none of which counts as more than `LONG` usual ones."""
    longest = LONG * median(lengths) if lengths else 0.0
    return sum(min(each, longest) for each in lengths)


def _are_alike(lengths: Sequence[int]) -> bool:
    """Whether the mean of so many lengths is known well enough."""
    if len(lengths) < ALIKE_LEAST:
        return False
    return pstdev(lengths) <= ALIKE * fmean(lengths) * math.sqrt(len(lengths))


def _is_in_collective(process: Process, thread: Thread) -> bool:
    """Whether the last stack of a rank shows a collective.

    Also where its main thread sleeps by now: that stack has not the line of the sleep.
    """
    is_shown = collective_of(own_frames(thread.stack)) is not None
    return is_shown or in_collective(process) is not None or waits_in_backward(thread.stack)


def _step_s(source: ProgressSource, at_s: float) -> float | None:
    """Seconds from one to the next, over the shortest of `STEPS_OVER_S` that has enough of them."""
    counts = source.all_recent()
    end = int(at_s // BUCKET_S)
    begin = int(source.since_s // BUCKET_S) + 1
    for over_s in STEPS_OVER_S:
        first = max(end - int(over_s // BUCKET_S), begin)
        count = sum(counts.between(first, end))
        if count >= STEPS_LEAST:
            return (end - first) * BUCKET_S / count
    return None
