"""One look at a job, or a short watch of it, without a thread: for dumps and diagnoses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mpwatch.collect.wanted import Wanted
from mpwatch.model.ids import ProcessId
from mpwatch.model.inputs import Input
from mpwatch.model.samples import ProcSample, StacksTaken
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.fold import Fold
from mpwatch.observe.intake import HookUse, Intake
from mpwatch.observe.live import Bring
from mpwatch.observe.looks import take_each

HELLO_S = 0.3
"""How long hooks may take to say hello; one that does not answer in 250 ms is silent."""
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
        self, root: ProcessId, options: LookOptions, *, keep: Callable[[Input], None] | None = None
    ) -> None:
        self._options = options
        self._keep = keep
        self._intake = Intake(root, hooks=options.hook != "ignore")
        self.fold = Fold()

    def read(self, wanted: Wanted) -> bool:
        """Read the tree; `False` once the whole job is gone."""
        tree = self._intake.read(wanted)
        if tree is not None:
            self.take(tree)
        return tree is not None

    def take(self, each: Input) -> None:
        """Fold one input, and hand it on to be kept."""
        if self._keep is not None:
            self._keep(each)
        self.fold.apply(each)

    def listen(self, seconds: float) -> None:
        """Take in what hooks say and processes that end, for so long."""
        end_s = time.monotonic() + seconds
        while True:
            left_s = end_s - time.monotonic()
            for each in self._intake.listen(max(0.0, min(0.05, left_s))):
                self.take(each)
            if left_s <= 0:
                return

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

    def bring_in(self, bring: Bring) -> None:
        """Bring the hook into every process that has none."""
        samples: Iterable[ProcSample] = (
            process.sample
            for process in self.fold.snapshot().living()
            if process.hook.state == "absent"
        )
        bring(tuple(samples), self.take)

    def close(self) -> None:
        """Close all connections."""
        self._intake.close()


def look_once(
    root: ProcessId, options: LookOptions, *, bring: Bring | None = None
) -> Snapshot | None:
    """The whole job as it is now; `None` if it was gone before it could be read.

    The first reading is only of what is cheap, so that a cpu percentage exists at the second.
    """
    watch = Watch(root, options)
    try:
        if not watch.read(Wanted(links_count=0, maps_count=0, memory_count=0, gpu=False)):
            return None
        began_s = time.monotonic()
        if options.hook == "bring" and bring is not None:
            watch.listen(HELLO_S)
            watch.bring_in(bring)
        if options.hook != "ignore" and _has_sockets(watch):
            watch.listen(HELLO_S)
            watch.ask_hooks("gauges")
            watch.listen(0.1)
        if options.stacks:
            watch.take_stacks()
        watch.listen(max(0.0, BETWEEN_S - (time.monotonic() - began_s)))
        watch.read(Wanted.everything())
        watch.listen(0.0)
        return watch.fold.snapshot()
    finally:
        watch.close()


def watch_for(
    root: ProcessId,
    seconds: float,
    options: LookOptions,
    *,
    bring: Bring | None = None,
    keep: Callable[[Input], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    each: Callable[[Snapshot], None] | None = None,
    period_s: float = 0.5,
) -> Snapshot | None:
    """Watch a job for a while, or until it ends, and return its last state.

    Args:
        root: The job.
        seconds: How long.
        options: What to look at.
        bring: Brings hooks in, if the options want that.
        keep: Is handed every input, for a recording.
        stop: Ends the watch early when it says so.
        each: Is handed the snapshot after each reading.
        period_s: Seconds between readings.

    Returns:
        The last state; `None` if the job was gone before it could be read.
    """
    watch = Watch(root, options, keep=keep)
    end_s = time.monotonic() + seconds
    stacks_at_s = 0.0
    try:
        if not watch.read(Wanted.everything()):
            return None
        watch.listen(HELLO_S)
        if options.hook == "bring" and bring is not None:
            watch.bring_in(bring)
        while True:
            watch.ask_hooks("gauges")
            if options.stacks and time.monotonic() - stacks_at_s >= 2.0:
                watch.take_stacks()
                stacks_at_s = time.monotonic()
            if each is not None:
                each(watch.fold.snapshot())
            left_s = end_s - time.monotonic()
            if left_s <= 0 or stop():
                break
            watch.listen(min(period_s, left_s))
            if not watch.read(Wanted(links_count=None, maps_count=None, memory_count=4)):
                watch.listen(0.0)
                return watch.fold.snapshot()
        # What is told is the state now: lists of short-lived segments must not be old ones.
        watch.read(Wanted.everything())
        return watch.fold.snapshot()
    finally:
        watch.close()


def _has_sockets(watch: Watch) -> bool:
    """Whether any process may have a hook: otherwise there is no hello to wait for."""
    watch.listen(0.0)
    return any(process.hook.state != "absent" for process in watch.fold.snapshot().processes)
