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

import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from mpwatch.collect.process import procfs
from mpwatch.collect.process.syscall_waits import names, parse_syscall
from mpwatch.diagnose.analysis.distributed.ranks import (
    called_at,
    has_group,
    in_collective,
    waits_in_backward,
)
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.progress import BUCKET_S, ProgressKind, ProgressSource
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.nodes.wire.summary import WAITS_ENOUGH

READINGS_LEAST = 40
READINGS_USUAL = 120
"""The share is that of so many readings, and of more until `WAITS_ENOUGH` are among them."""
READINGS_KEPT = 1200
LONG = 3.0
"""A wait counts as at most so many times the usual one: the others wait once for a rank that loads
the data set or saves a checkpoint, which is no slow step."""
CHANGE_PERCENT = 10
"""A share is sent again when it has changed by this much."""
CHANGE = 0.15
"""A step time, by this part."""
LINES_KEPT = 16
LINE_LEAD = 1.25
"""Another line is told once it has so many times the stacks of the told one, and one more."""
SAMPLES_KEPT = 16
"""Within so many a stack that was taken has arrived."""
STEPS_OVER_S = 60.0
STEPS_LEAST = 5
_STEPS: tuple[ProgressKind, ...] = ("batches", "collectives")

_CALLS = names(os.uname().machine)
_OWN, _SAME_WAIT, _NEW_WAIT = range(3)


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
class RankWaits:
    """What the readings of one rank have found, and what of it is sent."""

    percent: int | None = None
    """Share of its time in which it waits in collectives; `None` with too few readings."""
    waits: int = 0
    """How many waits that is made of, at most `WAITS_ENOUGH`."""
    line: str = ""
    """Where most stacks found it otherwise."""
    step_ms: int | None = None
    """Time from one batch, or else one collective, to the next, by the hook; `None` without."""
    step_of: str = ""
    """`batch` or `collective`."""
    thread: tuple[int, int] | None = None
    """The process and the thread to sample; `None` if it has ended or is not known."""
    _has_group: bool = False
    _samples: deque[tuple[float, WaitSample]] = field(
        default_factory=lambda: deque(maxlen=SAMPLES_KEPT)
    )
    """The last ones, with their times."""
    _readings: deque[int] = field(default_factory=lambda: deque(maxlen=READINGS_KEPT))
    _ticks: int | None = None
    """Cpu time of the main thread at the last reading."""
    _waits_elsewhere: bool = False
    """Whether the last stack of such a wait was one for something else."""
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
        self._note_stack(process, thread)
        self._note_share()
        self._note_step({each.kind: each for each in progress}, snapshot.at_s)

    def add(self, sample: WaitSample, at_s: float) -> None:
        """Add what the thread was found doing, at a time of CLOCK_MONOTONIC."""
        self._samples.append((at_s, sample))
        is_inside = sample.waits and self._has_group and not self._waits_elsewhere
        was_inside = bool(self._readings) and self._readings[-1] != _OWN
        is_same = was_inside and sample.ticks == self._ticks
        self._readings.append(_OWN if not is_inside else _SAME_WAIT if is_same else _NEW_WAIT)
        self._ticks = sample.ticks

    def _note_stack(self, process: Process, thread: Thread) -> None:
        """Note whether a new stack shows another wait, and its line outside of collectives."""
        if not thread.stack or thread.stack_at_s is None or thread.stack_at_s == self._stack_s:
            return
        self._stack_s = thread.stack_at_s
        if _is_in_collective(process, thread):
            self._waits_elsewhere = False
            return
        self._waits_elsewhere |= self._waited_at(thread.stack_at_s)
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

    def _waited_at(self, at_s: float) -> bool:
        """Whether the thread was in one wait of the kind that collectives have at a moment."""
        before = [sample for sample_s, sample in self._samples if sample_s <= at_s][-1:]
        after = [sample for sample_s, sample in self._samples if sample_s > at_s][:1]
        both = [*before, *after]
        return len(both) == 2 and all(each.waits for each in both) and len(set(both)) == 1

    def _note_share(self) -> None:
        if len(self._readings) < READINGS_LEAST:
            return
        share, self.waits = share_of(self._readings)
        percent = round(100 * share)
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


def share_of(readings: Sequence[int]) -> tuple[float, int]:
    """The share of the newest readings in which a rank waited, 0 to 1, and how many waits."""
    lengths: list[int] = []
    own = inside = 0
    for number, each in enumerate(reversed(readings)):
        if number >= READINGS_USUAL and len(lengths) >= WAITS_ENOUGH:
            break
        own += each == _OWN
        inside += each != _OWN
        if each == _NEW_WAIT:
            lengths.append(inside)
            inside = 0
    lengths += [inside] if inside else []
    if not lengths:
        return 0.0, 0
    longest = LONG * median(lengths)
    waited = sum(min(each, longest) for each in lengths)
    return waited / (own + waited), min(len(lengths), WAITS_ENOUGH)


def _is_in_collective(process: Process, thread: Thread) -> bool:
    return in_collective(process) is not None or waits_in_backward(thread.stack)


def _step_s(source: ProgressSource, at_s: float) -> float | None:
    """Seconds from one to the next in the last `STEPS_OVER_S`; `None` of too few."""
    counts = source.all_recent()
    end = int(at_s // BUCKET_S)
    first = max(end - int(STEPS_OVER_S // BUCKET_S), int(source.since_s // BUCKET_S) + 1)
    count = sum(counts.between(first, end))
    return (end - first) * BUCKET_S / count if count >= STEPS_LEAST else None
