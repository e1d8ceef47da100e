"""One reading of a job, or a watch of limited length, in the thread of the caller."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from mpwatch.collect.job.reader import ReadRequest
from mpwatch.model.events import Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.attach_schedule import Inject
from mpwatch.observe.sources.collectors import Collectors, HookUse
from mpwatch.observe.sources.observer import ObservationPlan, Observer
from mpwatch.observe.sources.stack_schedule import (
    StackRequest,
    StackRounds,
    StackSchedule,
    has_ready_hook,
    python_processes,
)

HELLO_S = 0.3
"""How long hooks may take to send their hello; one that does not answer in 250 ms is silent."""
GAUGES_S = 0.1
"""How long hooks may take to send their gauges."""
CAUGHT_UP_S = 5.0
"""How long hooks may take to send what they have kept: most of it on a machine that is overloaded.
Until it has arrived, what was lost is not known."""
POLL_S = 0.02
"""Interval of polls: a child that lives for longer than this is always seen."""
STACKS_S = 2.0
"""How long the first round of stacks, or the last one, may last after the end of a watch."""
FILES_S = 0.5
"""How long the last source files and outputs may take to be read: milliseconds each, on a disk that
answers."""
VALUES_S = 3.0
"""How long values of names may take to be read: by a hook some milliseconds."""
BETWEEN_S = 0.1
"""Between the two readings that a cpu percentage needs."""
STACK_THREADS = 4
"""How many processes py-spy reads at the same time for a dump."""
PERIOD_S = 0.5


class OneShotOptions(Struct, frozen=True):
    """What to read."""

    stacks: bool = True
    native: bool = False
    locals: bool = False
    hook: HookUse = "use"
    values: bool = True
    """Read values of names where a finding asks for them."""


def read_once(
    root: ProcessId, options: OneShotOptions, *, inject: Inject | None = None
) -> Snapshot | None:
    """The whole job as it is now; `None` if it had exited before it could be read.

    There are two readings, because a cpu percentage needs two. The first begins to read the memory,
    which takes the kernel milliseconds for each process; the second has all the rest, of one time.
    """
    observer = new_observer(root, options, stack_threads=STACK_THREADS)
    try:
        began_s = time.monotonic()
        observer.read(
            ReadRequest(
                links_count=0,
                maps_count=0,
                memory_count=0,
                memory_ahead=True,
                gpu=False,
                new_files=False,
            )
        )
        if observer.is_ended:
            return None
        observer.load_rules()  # the kernel reads memory meanwhile, and there is a wait anyway
        _inject(observer, options, inject)
        if options.hook != "ignore" and _has_sockets(observer):
            observer.poll_for(HELLO_S)
            observer.ask_gauges()
            observer.poll_for(GAUGES_S)
        if options.stacks:
            take_all_stacks(observer, native=options.native, locals=options.locals)
        observer.poll_for(max(0.0, BETWEEN_S - (time.monotonic() - began_s)))
        return _concluded(observer, new_files=False)
    finally:
        observer.close()


def watch_for(
    root: ProcessId,
    seconds: float,
    options: OneShotOptions,
    *,
    inject: Inject | None = None,
    keep: Callable[[Input], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    each: Callable[[Snapshot], None] | None = None,
    period_s: float = PERIOD_S,
    diagnose: bool = True,
) -> Snapshot | None:
    """Watch a job for a while, or until it ends, and return its last state.

    Args:
        root: The job.
        seconds: How long.
        options: What to read.
        inject: Injects hooks, if the options want that.
        keep: Called with every input, for a recording.
        stop: Asked after each poll; ends the watch early when it returns true.
        each: Called with the snapshot after each reading.
        period_s: Interval of readings.
        diagnose: Whether snapshots have findings, for which rules run at each reading.

    Returns:
        The last state; `None` if the job was gone before it could be read.
    """
    observer = new_observer(root, options, period_s=period_s, diagnose=diagnose, keep=keep)
    if each is None and diagnose:
        each = _ignore  # a finding depends on the readings before the last one
    end_s = time.monotonic() + seconds
    try:
        observer.attempt_step(each, 0.0)
        while observer.readings == 0 and not observer.is_ended:
            if stop() or time.monotonic() >= end_s:
                observer.read(ReadRequest.everything())  # raises what is wrong
                break
            time.sleep(POLL_S)
            observer.attempt_step(each, POLL_S)
        if observer.readings == 0:
            return None
        _inject(observer, options, inject)
        has_stopped = stop()
        while not (observer.is_ended or has_stopped) and time.monotonic() < end_s:
            if not observer.attempt_step(each, end_s - time.monotonic()):
                time.sleep(POLL_S)
            has_stopped = stop()
        last_s = time.monotonic() + STACKS_S
        while observer.is_waiting_for_stacks and not has_stopped and time.monotonic() < last_s:
            if not observer.attempt_step(None, last_s - time.monotonic()):
                time.sleep(POLL_S)
        return _concluded(observer, diagnose=diagnose)
    finally:
        observer.close()


def _ignore(snapshot: Snapshot) -> None:
    pass


def new_observer(
    root: ProcessId,
    options: OneShotOptions,
    *,
    period_s: float = PERIOD_S,
    diagnose: bool = True,
    keep: Callable[[Input], None] | None = None,
    stack_threads: int = 1,
) -> Observer:
    """An observer of a job that reads as much as it can, for a caller that drives it."""
    plan = ObservationPlan(
        period_s,
        _request,
        poll_s=POLL_S,
        stack_threads=stack_threads,
        diagnoses=diagnose,
        reads_values=options.values,
    )
    stacks = StackSchedule(StackRounds() if options.stacks else None)
    collectors = Collectors(root, hooks=options.hook != "ignore")
    return Observer(collectors, plan, stacks, keep=keep)


def take_all_stacks(observer: Observer, *, native: bool = False, locals: bool = False) -> None:
    """Take the stacks of every Python process and wait for them.

    By its hook where that suffices and answers, else by py-spy.
    """
    snapshot, began_s = observer.snapshot(), time.monotonic()
    everyone = python_processes(snapshot)
    if not (native or locals):
        hooked = [process for process in everyone if has_ready_hook(snapshot, process)]
        observer.take([StackRequest(process) for process in hooked])
        end_s = time.monotonic() + HELLO_S
        while time.monotonic() < end_s and _without_stacks(observer, hooked, began_s):
            observer.poll(POLL_S)
        everyone = _without_stacks(observer, everyone, began_s)
    observer.take([StackRequest(each, native, locals) for each in everyone], outside=True)
    while observer.is_taking:
        observer.poll(POLL_S)
    observer.poll(0.0)


def _without_stacks(
    observer: Observer, processes: list[ProcessId], since_s: float
) -> list[ProcessId]:
    """Those of which no stack has arrived since then."""
    snapshot = observer.snapshot()
    taken = {
        process.process
        for process in snapshot.living()
        if any((thread.stack_at_s or 0.0) >= since_s for thread in process.threads)
    }
    return [process for process in processes if process not in taken]


def _request(reading: int) -> ReadRequest:
    """Everything, but for memory, which takes milliseconds for each process."""
    if reading == 0:
        return ReadRequest.everything()
    return ReadRequest(links_count=None, maps_count=None, memory_count=4)


def _inject(observer: Observer, options: OneShotOptions, inject: Inject | None) -> None:
    """Inject the hook where there is none, once hooks have had time to connect."""
    if options.hook == "inject" and inject is not None:
        observer.poll_for(HELLO_S)
        observer.inject(inject)


def _concluded(observer: Observer, *, diagnose: bool = True, new_files: bool = True) -> Snapshot:
    """The state now, after a last reading of everything: lists must not be older than the rest."""
    if not observer.is_ended:
        observer.attempt_read(ReadRequest.everything(new_files=new_files))
        observer.poll(0.0)
        observer.poll_hooks_for(CAUGHT_UP_S)
        observer.wait_for_files(FILES_S)
    if not diagnose:
        return observer.snapshot()
    found = observer.preview(all_rules=True)
    if not observer.is_ended and (asked := observer.read_values(found)):
        observer.wait_for_values(asked, VALUES_S)
        found = observer.preview(all_rules=True)
    return found


def _has_sockets(observer: Observer) -> bool:
    """Whether any process may have a hook: otherwise there is no hello to wait for."""
    observer.poll(0.0)
    return any(process.hook.state != "absent" for process in observer.snapshot().processes)
