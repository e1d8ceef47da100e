"""The loop that observes one job: read on schedule, poll, request stacks, fold, hand out snapshots.

`live` drives it on a thread of its own, `oneshot` in the thread of its caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.collect.job.reader import ReadRequest
from mpwatch.collect.own_threads import OwnThreads
from mpwatch.collect.process.written_errors import ErrorReads
from mpwatch.model.events import HookStatus, Input
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import StacksTaken, ValuesRead
from mpwatch.model.sanitize import clean
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.attach_schedule import Inject, Injection
from mpwatch.observe.sources.collectors import Collectors, InputQueue
from mpwatch.observe.sources.on_demand import (
    NcclStatuses,
    SourceReads,
    ValueReads,
    WorkerServers,
)
from mpwatch.observe.sources.stack_schedule import (
    StackRequest,
    StackSchedule,
    StackThreads,
    has_ready_hook,
)
from mpwatch.observe.state.fold import Fold

if TYPE_CHECKING:
    from mpwatch.diagnose.engine import Engine

SOON_S = 0.1
"""First intervals, and those after a start or an exit; each is twice as long as the one before."""
POLL_S = 0.1
"""Interval of polls: hooks send at most ten times a second."""
CALM_POLL_S = 0.25
CALM_S = 30.0
"""After this long without a start or an exit, `CALM_POLL_S` is the interval of polls: each wake-up
costs a tenth of a millisecond of cpu, however little is done then."""
PATIENCE = 20
"""A reading that took t seconds of cpu is followed by an early one after this many times t."""
EXITS_S, EXITS_POLL_S = 2.0, 0.02
"""How long to wait for the last exits of a job: the kernel has to free the memory first."""
FAILURE_LIMIT = 200
"""Characters of a failure that are shown."""
ENDED_PERIOD_S = 1.0
"""Shortest interval of snapshots once the job has ended."""


class ReadInterval:
    """Says when the next reading is due.

    A child that lives for a quarter of a second falls between two readings a second apart, and with
    it everything that only a reading shows: what it was, its parent, its descriptors. So readings
    follow each other sooner after a start or an exit.
    """

    def __init__(self, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.period_s = period_s
        self._clock = clock
        self._gap_s = SOON_S
        self._began_s = float("-inf")
        self._affordable_s = 0.0
        self._due_s = float("-inf")
        self._changed_s = clock()

    @property
    def is_calm(self) -> bool:
        """Whether no process has started or exited for `CALM_S`."""
        return self._clock() - self._changed_s >= CALM_S

    @property
    def left_s(self) -> float:
        """Seconds until the next reading is due, 0 if it is."""
        return max(0.0, self._due_s - self._clock())

    def has_read(self, began_s: float, cost_s: float | None) -> None:
        """Note when a reading began, and its cpu time."""
        self._began_s = began_s
        self._affordable_s = PATIENCE * (cost_s or 0.0)
        early_s = began_s + min(self.period_s, max(self._gap_s, self._affordable_s))
        self._due_s = max(early_s, self._clock() + self.period_s / 4 if self._is_slow() else 0.0)
        self._gap_s = min(self.period_s, 2 * self._gap_s)

    def has_changed(self) -> None:
        """Note that a process has started or exited."""
        self._gap_s = SOON_S
        self._changed_s = self._clock()
        soon_s = self._began_s + min(self.period_s, max(SOON_S, self._affordable_s))
        self._due_s = min(self._due_s, soon_s)

    def _is_slow(self) -> bool:
        """Whether a reading takes about as long as the time between two of them."""
        return self._clock() - self._began_s > self.period_s / 2


class ObservationPlan(Struct, frozen=True):
    """How often an observer does what."""

    period_s: float
    """Interval of readings."""
    request: Callable[[int], ReadRequest]
    """What the first, second and so on reading contains."""
    gauges_s: float = 0.0
    """Interval at which each hook is asked for its gauges; 0 for every reading."""
    poll_s: float | None = None
    """Interval of polls; by how calm the job is if left out."""
    stack_threads: int = 1
    """How many processes py-spy reads at the same time."""
    diagnoses: bool = True
    """Whether snapshots have findings, for which rules run at each reading."""
    reads_values: bool = True
    """Whether values of names may be read where a finding asks for them."""
    first_bare: bool = False
    """Whether the snapshot of the first reading is delivered at once, then again with findings."""


class Observer:
    """Observes one job; used by one thread, but for `stacks` where that says otherwise."""

    def __init__(
        self,
        collectors: Collectors,
        plan: ObservationPlan,
        stacks: StackSchedule,
        *,
        keep: Callable[[Input], None] | None = None,
        injection: Injection | None = None,
        own_threads: OwnThreads | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an observer that has read nothing yet.

        Args:
            collectors: What reads the job; closed by `close`.
            plan: How often to do what.
            stacks: When to take stacks.
            keep: Called with every input before it is folded, for a recording.
            injection: Injects the hook into processes as they appear, if given.
            own_threads: Starts the threads on which other things are read.
            clock: Monotonic seconds.
        """
        self.stacks = stacks
        self.interval = ReadInterval(plan.period_s, clock)
        self.is_ended = False
        """Whether the root and all its descendants are gone."""
        self.readings = 0
        self.failure: str | None = None
        """What failed since the last complete reading."""
        self._collectors = collectors
        self._plan = plan
        self._keep = keep
        self._injection = injection
        self._clock = clock
        self._fold = Fold()
        self._numbers = History()
        """The history when the rules ran last."""
        self._queue = InputQueue()
        self._own_threads = own = own_threads or OwnThreads()
        self._threads = StackThreads(
            collectors, self._queue.put, threads=plan.stack_threads, own_threads=own
        )
        self._gauges_asked_s: dict[ProcessId, float] = {}
        self._worker_servers = WorkerServers(self._queue.put, threads=own)
        self._nccl = NcclStatuses(self._queue.put, threads=own)
        self._source = SourceReads(self._queue.put, own)
        self._errors = ErrorReads(self._queue.put, own)
        self._values = ValueReads(collectors, self._queue.put, own)

    # --- the loop --------------------------------------------------------------------------------

    def step(
        self, deliver: Callable[[Snapshot], None] | None = None, limit_s: float = float("inf")
    ) -> None:
        """Do one round of the loop: read the job if that is due, then poll once.

        Args:
            deliver: Called with a snapshot after each reading, also once the job has ended, and
                when stacks have arrived while a process is followed.
            limit_s: The longest that the poll may wait.
        """
        if self.interval.left_s == 0.0:
            began_s, cost_s = self._clock(), None
            try:
                if not self.is_ended:
                    cost_s = self._read_next()
                    self.failure = None
                if deliver is not None:
                    if self._plan.first_bare and self.readings == 1:
                        deliver(self.snapshot())
                        self.poll(POLL_S)  # leaves the interpreter to what paints it
                    snapshot = self.diagnosed() if self._plan.diagnoses else self.snapshot()
                    if not self.is_ended:
                        self.read_values(snapshot)
                    deliver(snapshot)
            finally:
                self.interval.has_read(began_s, cost_s)
        received = self.poll(min(self._poll_s(), self.interval.left_s, limit_s))
        is_following = self.stacks.followed is not None and not self.is_ended
        if deliver is not None and is_following and _has_stacks(received):
            deliver(self.preview())

    def attempt_step(
        self, deliver: Callable[[Snapshot], None] | None = None, limit_s: float = float("inf")
    ) -> bool:
        """As `step`, but a failure is shown instead of raised; returns whether all went well.

        The last snapshot is then delivered again with the failure: a screen that nothing reaches
        looks as if nothing happened. What `deliver` raises is raised.
        """
        is_delivering = False

        def hand_out(snapshot: Snapshot) -> None:
            nonlocal is_delivering
            is_delivering = True
            if deliver is not None:
                deliver(snapshot)
            is_delivering = False

        try:
            self.step(hand_out if deliver is not None else None, limit_s)
        except Exception as error:
            if is_delivering:
                raise
            self._note_failure(error)
            if deliver is not None and self.readings:
                deliver(self.snapshot())
            return False
        return True

    def attempt_read(self, request: ReadRequest) -> None:
        """As `read`, but a failure is noted instead of raised."""
        try:
            self.read(request)
        except Exception as error:  # noqa: BLE001 - what was read before is still of use
            self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        self.failure = clean(f"one reading failed: {type(error).__name__}: {error}", FAILURE_LIMIT)

    def read(self, request: ReadRequest) -> float | None:
        """Read the job; `is_ended` is set if all of it is gone.

        Returns:
            The cpu seconds of the reading, if they were measured.
        """
        tree = self._collectors.read(replace(request, followed=self.stacks.followed))
        if tree is None:
            # A process counts as gone once its exit has begun; its status comes with the end of it.
            end_s = self._clock() + EXITS_S
            self.poll(0.0)
            while self._collectors.exits.is_about_to_report() and self._clock() < end_s:
                self.poll(EXITS_POLL_S)
            self.is_ended = True
            self.interval.period_s = max(self.interval.period_s, ENDED_PERIOD_S)
            return None
        self.readings += 1
        self.apply(tree)
        return tree.cost_s

    def poll(self, timeout_s: float) -> list[Input]:
        """Fold what hooks, exits and other threads report; waits at most this long for the first.

        Stacks that are due between two readings are requested.
        """
        received = self._collectors.poll(timeout_s)
        finished = self._queue.drain()
        received += finished
        for each in received:
            self.apply(each)
            if isinstance(each, StacksTaken):
                self.stacks.received(each)
                self._source.received(each)
        if self._injection is not None:
            for each in finished:
                if isinstance(each, HookStatus):
                    self._injection.received(each)
        if self._collectors.has_changed and not self.is_ended:
            self.interval.has_changed()
        if self.readings and not self.is_ended:
            self._take_between()
        return received

    def poll_for(self, seconds: float) -> None:
        """Poll for this long."""
        end_s = self._clock() + seconds
        while (left_s := end_s - self._clock()) > 0:
            self.poll(min(self._poll_s(), left_s))
        self.poll(0.0)

    def poll_hooks_for(self, seconds: float) -> None:
        """Poll until hooks have sent what they had made at their hello, at most this long."""
        end_s = self._clock() + seconds
        while self._collectors.are_hooks_behind and (left_s := end_s - self._clock()) > 0:
            self.poll(min(self._poll_s(), left_s))

    def wait_for_files(self, limit_s: float) -> None:
        """Wait until source of the lines in all stacks and new tracebacks are read, so long each.

        Args:
            limit_s: Seconds.
        """
        self._source.start_due(self._fold.snapshot())
        self._errors.start_due(self._fold.snapshot(), now=True)
        self._source.wait(limit_s)
        self._errors.wait(limit_s)
        self.poll(0.0)

    def apply(self, input: Input) -> None:
        """Keep one input and fold it."""
        if self._keep is not None:
            self._keep(input)
        self._fold.apply(input)

    # --- what is known ---------------------------------------------------------------------------

    @cached_property
    def _engine(self) -> Engine:
        # The rules are imported after the first screen: they are a fifth of the imports before it.
        from mpwatch.diagnose.engine import Engine

        return Engine()

    def load_rules(self) -> None:
        """Import the rules now, where the observer would wait otherwise; takes 60 ms of cpu."""
        _ = self._engine

    def snapshot(self) -> Snapshot:
        """The job as it is now, without findings."""
        return self._told(self._fold.snapshot())

    def diagnosed(self) -> Snapshot:
        """The job as it is now with findings, which count for later ones."""
        snapshot = self.snapshot()
        if self._engine.is_due(snapshot):
            self._numbers = self._fold.history()
        return self._engine.diagnosed(snapshot, self._numbers)

    def preview(self, *, all_rules: bool = False) -> Snapshot:
        """As `diagnosed`, without an effect on later findings; see `Engine.preview`."""
        self._numbers = self._fold.history()
        return self._engine.preview(self.snapshot(), self._numbers, all_rules=all_rules)

    def _told(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot with what is wrong with this observer itself."""
        own = [each for each in (self._own_threads.problem, self.failure) if each is not None]
        return replace(snapshot, problems=(*snapshot.problems, *own)) if own else snapshot

    # --- hooks and stacks ------------------------------------------------------------------------

    def ask_gauges(self) -> None:
        """Ask the hooks that answer for their gauges, at the interval of the plan."""
        snapshot = self._fold.snapshot()
        before, self._gauges_asked_s = self._gauges_asked_s, {}
        for process in snapshot.living():
            last_s = before.get(process.process, float("-inf"))
            if process.hook.state == "ready" and snapshot.at_s - last_s >= self._plan.gauges_s:
                last_s = snapshot.at_s
                self._collectors.ask_hook(process.process, "gauges")
            self._gauges_asked_s[process.process] = last_s

    def read_values(self, snapshot: Snapshot) -> Set[ProcessId]:
        """Ask for the values that the findings of a snapshot want; returns the processes asked."""
        if not self._plan.reads_values:
            return frozenset()
        return self._values.start_due(snapshot, self._numbers)

    def wait_for_values(self, processes: Set[ProcessId], limit_s: float) -> None:
        """Poll until these processes have answered, at most this long."""
        waiting, end_s = set(processes), self._clock() + limit_s
        while waiting and (left_s := end_s - self._clock()) > 0:
            received = self.poll(min(self._poll_s(), left_s))
            waiting -= {each.process for each in received if isinstance(each, ValuesRead)}

    def read_allocators(self, processes: Sequence[ProcessId]) -> str | None:
        """Ask these hooks once for the figures of torch's allocator; may be called by any thread.

        Returns:
            The first reason why one of them cannot be asked, or `None`.
        """
        if self._collectors.hooks is None:
            return "Hooks are ignored here, and only they can read the allocator's figures."
        refusals = [self._collectors.hooks.ask(each, "gauges", ("cuda",)) for each in processes]
        return next((refusal for refusal in refusals if refusal is not None), None)

    def take(self, requests: Sequence[StackRequest], *, outside: bool = False) -> None:
        """Have stacks taken: by the hook where it answers and suffices, else by py-spy.

        Args:
            requests: Stacks of which processes.
            outside: Take all of them by py-spy.
        """
        if not requests:
            return
        snapshot = self._fold.snapshot()
        for request in requests:
            is_enough = not (outside or request.native or request.locals)
            if is_enough and has_ready_hook(snapshot, request.process):
                self._collectors.ask_hook(request.process, "stacks")
            else:
                self._threads.take(request)

    @property
    def is_taking(self) -> bool:
        """Whether py-spy is taking stacks."""
        return self._threads.is_busy

    @property
    def is_waiting_for_stacks(self) -> bool:
        """Whether the first round of stacks has not begun, or one has not ended."""
        return self.stacks.is_pending and not self.is_ended

    def inject(self, inject: Inject) -> None:
        """Inject the hook into every process without one; returns when that is done."""
        living = self._fold.snapshot().living()
        inject([each.sample for each in living if each.hook.state == "absent"], self.apply)

    def close(self) -> None:
        """Close all connections; stacks that are being taken are not waited for."""
        self._threads.stop()
        self._source.stop()
        self._collectors.close()

    def _read_next(self) -> float | None:
        """Read the job, then start what is due after a reading."""
        cost_s = self.read(self._plan.request(self.readings))
        if self.is_ended:
            return cost_s
        if self._injection is not None:
            self._injection.start_due(self._fold.snapshot(), self._queue.put)
        self.take(self.stacks.due(self._fold.snapshot(), self._excluded()))
        self.ask_gauges()
        self._worker_servers.start_due(self._fold.snapshot())
        self._nccl.start_due(self._fold.snapshot())
        self._source.start_due(self._fold.snapshot())
        self._errors.start_due(self._fold.snapshot())
        return cost_s

    def _take_between(self) -> None:
        now_s, excluded = self._clock(), self._excluded()
        if self.stacks.is_due_between(now_s, excluded):
            self.take(self.stacks.due_between(self._fold.snapshot(), now_s, excluded))

    def _excluded(self) -> frozenset[ProcessId]:
        """Processes that py-spy must not touch now."""
        if self._injection is None:
            return frozenset()
        return self._injection.under_way(self._clock())

    def _poll_s(self) -> float:
        if self._plan.poll_s is not None:
            return self._plan.poll_s
        is_calm = self.interval.is_calm and not self._collectors.has_hooks
        return CALM_POLL_S if is_calm else POLL_S


def _has_stacks(inputs: list[Input]) -> bool:
    return any(isinstance(each, StacksTaken) for each in inputs)
