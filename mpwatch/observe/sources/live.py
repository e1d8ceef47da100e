"""A running job as a source of snapshots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mpwatch.collect.job.reader import ReadRequest
from mpwatch.diagnose.engine import Engine
from mpwatch.model.commands import (
    Command,
    Follow,
    InjectHook,
    Pause,
    ReadAllocators,
    Seek,
    SetRefresh,
    SetSpeed,
    StartRecording,
    Step,
    TakeStacks,
)
from mpwatch.model.events import HookStatus, Input
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import StacksTaken
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.recording.file import CannotRecord, RecordingWriter
from mpwatch.observe.sources.attach_schedule import AttachSchedule, Inject
from mpwatch.observe.sources.collectors import HookUse, Inbox, Intake
from mpwatch.observe.sources.poll_interval import CALM_LISTEN_S, LISTEN_S, Pace
from mpwatch.observe.sources.self_cost import OwnMeter
from mpwatch.observe.sources.source import Deliver
from mpwatch.observe.sources.stack_schedule import LookPlan, Request, StackThread
from mpwatch.observe.state.fold import Fold

GAUGES_S = 2.0
"""How often a hook is asked for its gauges."""
ENDED_REFRESH_S = 1.0
FILLING_TICKS = 6


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How to observe."""

    refresh_hz: float = 1.0
    hook: HookUse = "use"
    stacks: bool = True
    """Take stacks unasked: at first sight and of what stands still."""
    record: str | None = None


class LiveSource:
    """Observes one job on a thread of its own; see `mpwatch.observe.sources.source.Source`."""

    def __init__(
        self,
        root: ProcessId,
        options: LiveOptions | None = None,
        *,
        inject: Inject | None = None,
        intake: Intake | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options or LiveOptions()
        self._intake = intake or Intake(root, hooks=self._options.hook != "ignore")
        self._inject = inject if self._options.hook != "ignore" else None
        self._may_inject = self._options.hook == "inject"
        self._clock = clock
        self._pace = Pace(1.0 / self._options.refresh_hz, clock)
        self._fold = Fold()
        self._engine = Engine()
        self._lock = threading.Lock()
        self._inbox = Inbox()
        self._stacks = StackThread(self._intake, self._inbox)
        self._plan = LookPlan()
        self._recorder: RecordingWriter | None = None
        self._schedule = AttachSchedule()
        self._gauges_asked_s: dict[ProcessId, float] = {}
        self._own = OwnMeter(clock)
        self._is_ended = False
        self._ticks = 0
        self._cost_s: float | None = None
        self._stopping = threading.Event()
        self._failure: str | None = None
        self._listen_s = 0.0
        self._thread = threading.Thread(target=self._run, name="mpwatch-observer", daemon=True)
        self._deliver: Deliver = _nowhere

    # --- the Source interface --------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        """Always."""
        return True

    def start(self, deliver: Deliver) -> None:
        """Begin observing; the first snapshot comes as soon as the tree has been read once."""
        self._deliver = deliver
        if self._options.record is not None:
            self._recorder = RecordingWriter(self._options.record, self._intake.root)
        self._stacks.start()
        self._thread.start()

    def stop(self) -> None:
        """End observing; a dump of stacks that has begun is not waited for."""
        self._stopping.set()
        self._stacks.stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=5.0)

    def ask(self, command: Command) -> str | None:
        """Do what a person asked for; see `Source.ask`."""
        match command:
            case TakeStacks(process=process, native=native, locals=locals):
                self._take_stacks(process, native, locals)
            case Follow(process=process):
                self._plan.followed = process
            case SetRefresh(hz=hz):
                self._pace.period_s = 1.0 / max(0.05, hz)
            case StartRecording(path=path):
                return self._switch_recording(path)
            case InjectHook():
                return self._begin_to_inject()
            case ReadAllocators(processes=processes):
                return self._read_allocators(processes)
            case Pause():
                return None
            case Seek() | SetSpeed() | Step():
                return "A running job cannot be sought; record it, then replay the file."
        return None

    # --- the observing thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._pace.left_s == 0.0:
                    began_s = self._clock()
                    self._guarded(self._tick)
                    self._pace.has_read(began_s, self._cost_s)
                is_calm = self._pace.is_calm and not self._intake.has_hooks
                self._listen_s = min(CALM_LISTEN_S if is_calm else LISTEN_S, self._pace.left_s)
                self._guarded(self._hear)
                if self._intake.has_changed and not self._is_ended:
                    self._pace.has_changed()
        finally:
            if self._recorder is not None:
                self._recorder.close()
            self._intake.close()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Do one step; what goes wrong in it is shown, and watching goes on."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the one boundary of the observing thread
            self._failure = f"watching failed for a moment: {type(error).__name__}: {error}"
            self._stopping.wait(LISTEN_S)

    def _hear(self) -> None:
        """Take in what is said between two readings, and look again at who is followed."""
        has_stacks = False
        heard = self._intake.listen(self._listen_s)
        finished = self._inbox.drain()
        for each in (*heard, *finished):
            self._apply(each)
            has_stacks = has_stacks or isinstance(each, StacksTaken)
        for each in finished:
            if isinstance(each, HookStatus):
                self._schedule.has_heard(each)
        if self._is_ended or self._ticks == 0 or self._plan.followed is None:
            return
        if self._plan.followed in self._schedule.awaited(self._clock()):
            return
        if self._plan.is_follow_due(self._clock()):
            with self._lock:
                snapshot = self._fold.snapshot()
            self._stacks_of(snapshot, Request(self._plan.followed))
        if has_stacks:
            self._deliver(self._current(self._engine.preview))

    def _tick(self) -> None:
        if not self._is_ended:
            self._read()
        snapshot = self._current(self._engine.diagnosed)
        if not self._is_ended:
            self._inject_where_due(snapshot)
            self._look(snapshot)
            self._ask_gauges(snapshot)
        self._deliver(snapshot)

    def _read(self) -> None:
        """Read the job once, or note that all of it is gone."""
        tree = self._intake.read(self._wanted())
        if tree is not None:
            self._cost_s = tree.cost_s
            self._apply(tree)
            return
        self._listen_s = 0.0
        self._hear()
        self._is_ended = True
        self._pace.period_s = max(self._pace.period_s, ENDED_REFRESH_S)

    def _wanted(self) -> ReadRequest:
        """The first readings fill in what later ones read in rotation; the very first is quick."""
        self._ticks += 1
        looked_at = self._plan.followed
        if 1 < self._ticks <= 1 + FILLING_TICKS:
            return ReadRequest(links_count=32, maps_count=16, memory_count=16, looked_at=looked_at)
        return ReadRequest(looked_at=looked_at)

    def _apply(self, input: Input) -> None:
        if self._recorder is not None:
            self._recorder.write(input)
        with self._lock:
            self._fold.apply(input)

    def _current(self, diagnosed: Callable[[Snapshot, History], Snapshot]) -> Snapshot:
        with self._lock:
            snapshot = diagnosed(self._fold.snapshot(), self._fold.history())
        problems = snapshot.problems
        if self._recorder is not None and self._recorder.problem is not None:
            problems = (*problems, self._recorder.problem)
        if self._failure is not None:
            problems = (*problems, self._failure)
        return replace(
            snapshot,
            mode="ended" if self._is_ended else "live",
            own=self._own.read(snapshot),
            problems=problems,
        )

    def _look(self, snapshot: Snapshot) -> None:
        if not self._options.stacks:
            return
        for process in self._plan.due(snapshot, self._schedule.awaited(snapshot.at_s)):
            self._stacks_of(snapshot, Request(process))

    def _stacks_of(self, snapshot: Snapshot, request: Request) -> None:
        """Through the hook where it answers and suffices, else from outside."""
        known = snapshot.get(request.process)
        is_ready = known is not None and known.hook.state == "ready"
        hooks = self._intake.hooks
        if is_ready and hooks is not None and not (request.native or request.locals):
            hooks.ask(request.process, "stacks")
        else:
            self._stacks.ask(request)

    def _take_stacks(self, process: ProcessId | None, native: bool, locals: bool) -> None:
        with self._lock:
            snapshot = self._fold.snapshot()
        for each in snapshot.living():
            if each.sample.is_python and process in (None, each.process):
                self._stacks_of(snapshot, Request(each.process, native, locals))

    def _read_allocators(self, processes: Sequence[ProcessId]) -> str | None:
        """Ask these hooks once; returns the first reason why one of them cannot be asked."""
        hooks = self._intake.hooks
        if hooks is None:
            return "Hooks are ignored (--no-hook), and only they can read the allocator's figures."
        refusals = [hooks.ask(process, "gauges", ("cuda",)) for process in processes]
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _ask_gauges(self, snapshot: Snapshot) -> None:
        if self._intake.hooks is None:
            return
        for process in snapshot.living():
            last_s = self._gauges_asked_s.get(process.process, 0.0)
            if process.hook.state == "ready" and snapshot.at_s - last_s >= GAUGES_S:
                self._gauges_asked_s[process.process] = snapshot.at_s
                self._intake.hooks.ask(process.process, "gauges")

    def _inject_where_due(self, snapshot: Snapshot) -> None:
        """Hand processes without a hook to the injector, on a thread of its own."""
        if self._inject is None or not self._may_inject:
            return
        for samples, again in zip(self._schedule.due(snapshot), (False, True), strict=True):
            if samples:
                threading.Thread(
                    target=self._inject,
                    args=(samples, self._inbox.put),
                    kwargs={"again": again},
                    name="mpwatch-inject",
                    daemon=True,
                ).start()

    def _begin_to_inject(self) -> str | None:
        """Have the hook injected from the next reading on; why not, or `None`."""
        if self._inject is None:
            return "Hooks are ignored (--no-hook); start mpwatch attach without it."
        self._schedule = AttachSchedule()  # a hook that was detached since is wanted again
        self._may_inject = True
        return None

    def _switch_recording(self, path: str | None) -> str | None:
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None
        if path is None:
            return None
        try:
            self._recorder = RecordingWriter(path, self._intake.root)
        except CannotRecord as error:
            return str(error)
        return None


def _nowhere(_snapshot: Snapshot) -> None:
    """Where snapshots go before `start`."""
