"""A running job as a source of snapshots."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.collect.job.reader import ReadRequest
from mpwatch.collect.own_threads import OwnThreads
from mpwatch.model.events import Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import OwnCost, Snapshot
from mpwatch.observe.sources.attach_schedule import Inject, Injection
from mpwatch.observe.sources.collectors import Collectors, HookUse
from mpwatch.observe.sources.observer import POLL_S, ObservationPlan, Observer
from mpwatch.observe.sources.source import (
    Command,
    Deliver,
    DeliveringThread,
    Focus,
    Follow,
    InjectHook,
    Pause,
    ReadAllocators,
    Seek,
    SetRefresh,
    SetSpeed,
    StartRecording,
    Step,
    StopInjecting,
    TakeStacks,
)
from mpwatch.observe.sources.stack_schedule import SelectedStacks, StackSchedule

if TYPE_CHECKING:
    from mpwatch.observe.recording.file import RecordingWriter

GAUGES_S = 2.0
"""Interval at which a hook is asked for its gauges."""
FILLING_READINGS = 6
"""Readings after the first one that fill in what later ones read in rotation."""
OWN_COST_S = 0.25
"""Shortest time over which our own cpu use is measured."""


class LiveOptions(Struct, frozen=True):
    """How to observe."""

    refresh_hz: float = 1.0
    hook: HookUse = "use"
    stacks: bool = True
    """Take stacks without being asked: of new processes, and when the job stops."""
    samples_ranks: bool = False
    """Take stacks of ranks while they work; see `SelectedStacks`."""
    record: str | None = None
    values: bool = True
    """Read values of names where a finding asks for them."""


class LiveSource:
    """Observes one job on a thread of its own; see `mpwatch.observe.sources.source.Source`."""

    def __init__(
        self,
        root: ProcessId,
        options: LiveOptions | None = None,
        *,
        inject: Inject | None = None,
        collectors: Collectors | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options = options or LiveOptions()
        self._root = root
        own_threads = OwnThreads()
        self._injection: Injection | None = None
        if inject is not None and options.hook != "ignore":
            self._injection = Injection(
                inject, is_allowed=options.hook == "inject", threads=own_threads
            )
        self._recorder = Recorder()
        self._observer = Observer(
            collectors or Collectors(root, hooks=options.hook != "ignore"),
            ObservationPlan(
                1.0 / options.refresh_hz,
                _request,
                gauges_s=GAUGES_S,
                reads_values=options.values,
                first_bare=True,
            ),
            StackSchedule(
                SelectedStacks(samples_ranks=options.samples_ranks) if options.stacks else None
            ),
            keep=self._recorder.write,
            injection=self._injection,
            own_threads=own_threads,
            clock=clock,
        )
        self._own_cost = SelfCost(clock)
        self._stopping = threading.Event()
        self._failure: str | None = None
        self._thread = DeliveringThread[Snapshot](self._run, "mpwatch-observer")

    # --- the Source interface --------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        """Always."""
        return True

    def start(self, deliver: Deliver) -> None:
        """Begin observing; the first snapshot is delivered once the tree has been read."""
        if self._options.record is not None:
            self._recorder.begin(self._options.record, self._root)
        self._thread.start(deliver)

    def stop(self) -> None:
        """End observing; stacks that are being taken are not waited for."""
        self._stopping.set()
        self._thread.join(5.0)

    def ask(self, command: Command) -> str | None:
        """Execute a command of the user; see `Source.ask`."""
        match command:
            case TakeStacks():
                self._observer.stacks.request(command)
            case Follow(process=process):
                self._observer.stacks.follow(process)
            case Focus(process=process):
                self._observer.stacks.focus(process)
            case SetRefresh(hz=hz):
                self._observer.interval.period_s = 1.0 / max(0.05, hz)
            case StartRecording(path=path):
                return self._switch_recording(path)
            case InjectHook():
                if self._injection is None:
                    return "No hook is injected here; mpwatch attach on the machine of the job can."
                self._injection.allow()
            case StopInjecting():
                if self._injection is not None:
                    self._injection.forbid()
            case ReadAllocators(processes=processes):
                return self._observer.read_allocators(processes)
            case Pause():
                return None
            case Seek() | SetSpeed() | Step():
                return "A running job cannot be sought; record it, then replay the file."
        return None

    # --- the observing thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    has_read = self._observer.attempt_step(self._hand_out)
                    self._failure = None
                except Exception as error:  # noqa: BLE001 - the one boundary of this thread
                    self._failure = f"a snapshot was not shown: {type(error).__name__}: {error}"
                    has_read = False
                if not has_read:
                    self._stopping.wait(POLL_S)
        finally:
            self._recorder.end()
            self._observer.close()

    def _hand_out(self, snapshot: Snapshot) -> None:
        """Deliver a snapshot with the fields that only a live source has."""
        problems = (self._recorder.problem, self._failure)
        self._thread.deliver(
            replace(
                snapshot,
                mode="ended" if self._observer.is_ended else "live",
                own=self._own_cost.read(snapshot),
                problems=(*snapshot.problems, *(each for each in problems if each is not None)),
            )
        )

    def _switch_recording(self, path: str | None) -> str | None:
        self._recorder.end()
        if path is None:
            return None
        from mpwatch.observe.recording.file import CannotRecord

        try:
            self._recorder.begin(path, self._root)
        except CannotRecord as error:
            return str(error)
        return None


def _request(reading: int) -> ReadRequest:
    """The very first reading is quick; the next ones fill in what later ones read in rotation."""
    if 1 <= reading <= FILLING_READINGS:
        return ReadRequest(links_count=32, maps_count=16, memory_count=16)
    return ReadRequest()


class Recorder:
    """A recording that the user starts and ends while another thread writes to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writer: RecordingWriter | None = None

    @property
    def problem(self) -> str | None:
        """Why the recording is incomplete; `None` without a recording or a problem."""
        writer = self._writer
        return None if writer is None else writer.problem

    def begin(self, path: str, root: ProcessId) -> None:
        """Begin a recording.

        Raises:
            CannotRecord: The file exists already, or cannot be written.
        """
        # Imported for a recording only: it takes a twentieth of the time to the first screen.
        from mpwatch.observe.recording.file import RecordingWriter

        writer = RecordingWriter(path, root)
        with self._lock:
            self._writer = writer

    def write(self, input: Input) -> None:
        """Write one input, if there is a recording."""
        with self._lock:
            if self._writer is not None:
                self._writer.write(input)

    def end(self) -> None:
        """Close the recording, if there is one."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class SelfCost:
    """The cost of observing for this process and, as hooks report it, for the job."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: tuple[float, float] | None = None
        self._threads = Rate()
        self._calls = Rate()
        self._cost = OwnCost()

    def read(self, snapshot: Snapshot) -> OwnCost:
        """The cost since the last call; unchanged within `OWN_COST_S`."""
        now_s = self._clock()
        times = os.times()
        used_s = times.user + times.system + times.children_user + times.children_system
        if self._last is not None and now_s - self._last[0] < OWN_COST_S:
            return self._cost
        percent = None
        if self._last is not None:
            percent = 100 * (used_s - self._last[1]) / (now_s - self._last[0])
        self._last = (now_s, used_s)
        hooks = [(p.process, p.hook) for p in snapshot.living()]
        threads = {p: hook.own_cost_ns for p, hook in hooks if hook.own_cost_ns is not None}
        calls = {p: hook.own_calls_ns for p, hook in hooks if hook.own_calls_ns is not None}
        self._cost = OwnCost(
            cpu_percent=percent,
            rss_bytes=_own_rss_bytes(),
            target_ns_per_s=self._threads.of(snapshot.at_s, threads),
            calls_ns_per_s=self._calls.of(snapshot.at_s, calls),
        )
        return self._cost


class Rate:
    """Nanoseconds per second of a total that each hook reports."""

    def __init__(self) -> None:
        self._before: tuple[float, dict[ProcessId, int]] | None = None
        self._rate: float | None = None

    def of(self, at_s: float, totals: Mapping[ProcessId, int]) -> float | None:
        """The rate since the last call, over the processes that were there then.

        Args:
            at_s: The time of the totals.
            totals: Nanoseconds of each process so far.
        """
        before = self._before
        if not totals or (before is not None and at_s <= before[0]):
            return self._rate
        self._before = (at_s, dict(totals))
        if before is not None:
            grown = (max(0, each - before[1].get(p, each)) for p, each in totals.items())
            self._rate = sum(grown) / (at_s - before[0])
        return self._rate


def _own_rss_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError):
        return None
