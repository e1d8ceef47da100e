"""One look at a job, or a short watch of it, without a thread: for dumps and diagnoses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mpwatch.collect.job.reader import ReadRequest
from mpwatch.diagnose.engine import Engine
from mpwatch.model.events import Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample, StacksTaken
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.attach_schedule import Inject
from mpwatch.observe.sources.collectors import HookUse, Inbox, Intake
from mpwatch.observe.sources.poll_interval import Pace
from mpwatch.observe.sources.stack_schedule import StackRounds, StackThread, take_each
from mpwatch.observe.state.fold import Fold

HELLO_S = 0.3
"""How long hooks may take to say hello; one that does not answer in 250 ms is silent."""
MOMENT_S = 0.02
"""How long a child has to live to be seen in any case."""
STACKS_S = 2.0
"""How long the last round of stacks may take."""
BETWEEN_S = 0.1
"""Between the two readings that a cpu percentage needs."""


@dataclass(frozen=True, slots=True)
class LookOptions:
    """What one look shall contain."""

    stacks: bool = True
    native: bool = False
    locals: bool = False
    hook: HookUse = "use"


class Watch:
    """Folds readings of one job in the caller's own thread."""

    def __init__(
        self,
        root: ProcessId,
        options: LookOptions,
        *,
        keep: Callable[[Input], None] | None = None,
        period_s: float = 0.5,
    ) -> None:
        self._options = options
        self._keep = keep
        self._intake = Intake(root, hooks=options.hook != "ignore")
        self._inbox = Inbox()
        self._rounds = StackRounds(StackThread(self._intake, self._inbox))
        self._pace = Pace(period_s)
        self.fold = Fold()
        self._engine = Engine()

    def read(self, wanted: ReadRequest) -> bool:
        """Read the tree; `False` once the whole job is gone."""
        began_s = time.monotonic()
        tree = self._intake.read(wanted)
        if tree is None:
            return False
        self.take(tree)
        self._pace.has_read(began_s, tree.cost_s)
        return True

    def take(self, each: Input) -> None:
        """Fold one input, and hand it on to be kept."""
        if self._keep is not None:
            self._keep(each)
        self.fold.apply(each)

    def diagnosed(self) -> Snapshot:
        """The job as it is now, with its findings, which count for later ones."""
        return self._engine.diagnosed(self.fold.snapshot(), self.fold.history())

    def conclusion(self) -> Snapshot:
        """As `diagnosed`, at the end of the watch: every rule is asked."""
        return self._engine.preview(self.fold.snapshot(), self.fold.history(), all_rules=True)

    def listen(self, seconds: float) -> None:
        """Take in what hooks say and processes that end, for so long."""
        end_s = time.monotonic() + seconds
        while self._hear(end_s - time.monotonic()):
            pass

    def wait(self, seconds: float, stop: Callable[[], bool]) -> None:
        """As `listen`, until it is time for the next reading, or to stop, at the latest so long."""
        end_s = time.monotonic() + seconds
        while self._hear(min(end_s - time.monotonic(), self._pace.left_s)) and not stop():
            pass

    def _hear(self, left_s: float) -> bool:
        """Listen for a moment; whether there is time left for another."""
        for each in (*self._intake.listen(max(0.0, min(MOMENT_S, left_s))), *self._inbox.drain()):
            self.take(each)
            if isinstance(each, StacksTaken):
                self._rounds.has_taken(each)
        if self._intake.has_changed:
            self._pace.has_changed()
        return left_s > 0

    def ask_hooks(self, what: str) -> None:
        """Ask every hook that answers for `gauges` or `stacks`."""
        if self._intake.hooks is None:
            return
        for process in self.fold.snapshot().living():
            if process.hook.state == "ready":
                self._intake.hooks.ask(process.process, what)

    def take_stacks(self) -> None:
        """Stacks of every Python process: by its hook where that suffices, else by py-spy."""
        began_s = time.monotonic()
        native, wants_locals = self._options.native, self._options.locals
        if not (native or wants_locals):
            self.ask_hooks("stacks")
            self.listen(HELLO_S)
        snapshot = self.fold.snapshot()
        bare = [
            process.process
            for process in snapshot.living()
            if process.sample.is_python
            and process.sample.state not in "ZX"
            and not any((thread.stack_at_s or 0.0) >= began_s for thread in process.threads)
        ]

        def one(process: ProcessId) -> StacksTaken:
            return self._intake.take(process, native=native, locals=wants_locals)

        for taken in take_each(one, bare):
            self.take(taken)

    def begin_stacks(self) -> None:
        """Have the stacks of every Python process taken; they come in while it listens."""
        now_s = time.monotonic()
        if self._rounds.is_due(now_s):
            self.ask_hooks("stacks")
            self._rounds.begin(self.fold.snapshot(), now_s)

    def finish_stacks(self) -> None:
        """Wait for the stacks that were asked for, and see that all were asked for once."""
        end_s = time.monotonic() + STACKS_S
        while not self._rounds.has_begun:
            self.listen(MOMENT_S)
            self.begin_stacks()
        while self._rounds.is_under_way and time.monotonic() < end_s:
            self.listen(MOMENT_S)

    def inject(self, inject: Inject) -> None:
        """Inject the hook into every process that has none."""
        samples: Iterable[ProcSample] = (
            process.sample
            for process in self.fold.snapshot().living()
            if process.hook.state == "absent"
        )
        inject(tuple(samples), self.take)

    def close(self) -> None:
        """Close all connections."""
        self._rounds.stop()
        self._intake.close()


def look_once(
    root: ProcessId, options: LookOptions, *, inject: Inject | None = None
) -> Snapshot | None:
    """The whole job as it is now; `None` if it was gone before it could be read.

    There are two readings, because a cpu percentage needs two. The first begins to read the memory,
    which takes the kernel milliseconds a process; the second has all the rest, of one moment.
    """
    watch = Watch(root, options)
    try:
        began_s = time.monotonic()
        ahead = ReadRequest(
            links_count=0, maps_count=0, memory_count=0, memory_ahead=True, gpu=False
        )
        if not watch.read(ahead):
            return None
        if options.hook == "inject" and inject is not None:
            watch.listen(HELLO_S)
            watch.inject(inject)
        if options.hook != "ignore" and _has_sockets(watch):
            watch.listen(HELLO_S)
            watch.ask_hooks("gauges")
            watch.listen(0.1)
        if options.stacks:
            watch.take_stacks()
        watch.listen(max(0.0, BETWEEN_S - (time.monotonic() - began_s)))
        watch.read(ReadRequest.everything())
        watch.listen(0.0)
        return watch.conclusion()
    finally:
        watch.close()


def watch_for(
    root: ProcessId,
    seconds: float,
    options: LookOptions,
    *,
    inject: Inject | None = None,
    keep: Callable[[Input], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    each: Callable[[Snapshot], None] | None = None,
    period_s: float = 0.5,
    diagnose: bool = True,
) -> Snapshot | None:
    """Watch a job for a while, or until it ends, and return its last state.

    Args:
        root: The job.
        seconds: How long.
        options: What to look at.
        inject: Injects hooks, if the options want that.
        keep: Is handed every input, for a recording.
        stop: Ends the watch early when it says so.
        each: Is handed the snapshot after each reading.
        period_s: Seconds between readings.
        diagnose: Whether snapshots have findings, for which rules are asked at each reading.

    Returns:
        The last state; `None` if the job was gone before it could be read.
    """
    watch = Watch(root, options, keep=keep, period_s=period_s)
    end_s = time.monotonic() + seconds
    try:
        if not watch.read(ReadRequest.everything()):
            return None
        if options.hook == "inject" and inject is not None:
            watch.listen(HELLO_S)
            watch.inject(inject)
        while time.monotonic() < end_s:
            watch.ask_hooks("gauges")
            if options.stacks:
                watch.begin_stacks()
            if each is not None:
                each(watch.diagnosed() if diagnose else watch.fold.snapshot())
            watch.wait(end_s - time.monotonic(), stop)
            if stop() or not watch.read(
                ReadRequest(links_count=None, maps_count=None, memory_count=4)
            ):
                break
        else:
            if options.stacks:
                watch.finish_stacks()
        # What is told is the state now: lists of short-lived segments must not be old ones.
        watch.read(ReadRequest.everything())
        watch.listen(0.0)
        return watch.conclusion() if diagnose else watch.fold.snapshot()
    finally:
        watch.close()


def _has_sockets(watch: Watch) -> bool:
    """Whether any process may have a hook: otherwise there is no hello to wait for."""
    watch.listen(0.0)
    return any(process.hook.state != "absent" for process in watch.fold.snapshot().processes)
