"""The loop that live, one-shot and headless observation share, over made-up collectors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise

import pytest
from msgspec.structs import replace

from mpwatch.collect.job.reader import ReadRequest
from mpwatch.model.events import HookStatus, Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, Frame, StackSample, StacksTaken, ThreadSample, TreeSample
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources import oneshot
from mpwatch.observe.sources.attach_schedule import Injection
from mpwatch.observe.sources.observer import EXITS_S, ObservationPlan, Observer
from mpwatch.observe.sources.on_demand import ValueReads
from mpwatch.observe.sources.oneshot import OneShotOptions
from mpwatch.observe.sources.source import TakeStacks
from mpwatch.observe.sources.stack_schedule import StackSchedule
from tests.builders.samples import MAIN, WORKER_0, sample, tree


def job(at_s: float) -> TreeSample:
    thread = ThreadSample(MAIN.pid, "python", "S", 1)
    return tree(at_s, *(
        replace(sample(each, at_s, threads=(thread,)), is_python=True) for each in (MAIN, WORKER_0)
    ))  # fmt: skip


@dataclass
class World:
    """A clock, and collectors that advance it in place of waiting."""

    root: ProcessId = MAIN
    now_s: float = 100.0
    ends_s: float = float("inf")
    read: Callable[[ReadRequest], TreeSample | None] = field(init=False)
    arriving: list[Input] = field(default_factory=list)
    asked: list[tuple[ProcessId, str]] = field(default_factory=list)
    has_taken: threading.Event = field(default_factory=threading.Event)
    """Set once stacks were taken from outside."""
    waited_s: list[float] = field(default_factory=list)
    has_changed: bool = False
    has_hooks: bool = False
    caught_up_s: float = float("-inf")
    """When hooks have sent all that they had made at their hello."""
    exited_s: float = float("-inf")
    """When the kernel has finished the exits of the processes that have ended."""
    is_closed: bool = False

    def __post_init__(self) -> None:
        self.read = lambda _: job(self.now_s) if self.now_s < self.ends_s else None

    def clock(self) -> float:
        return self.now_s

    @property
    def are_hooks_behind(self) -> bool:
        return self.now_s < self.caught_up_s

    def poll(self, timeout_s: float) -> list[Input]:
        self.waited_s.append(timeout_s)
        self.now_s += timeout_s + 1e-6
        arrived, self.arriving = self.arriving, []
        return arrived

    @property
    def exits(self) -> World:
        return self

    def is_about_to_report(self) -> bool:
        if self.now_s < self.exited_s:
            return True
        self.arriving.append(Ended(MAIN, self.now_s, signal=9))
        return False

    def ask_hook(self, process: ProcessId, what: str, frames: object = ()) -> None:
        self.asked.append((process, what))

    def take(self, process: ProcessId, *, native: bool, locals: bool) -> StacksTaken:
        self.has_taken.set()
        return StacksTaken(process, self.now_s, "py-spy")

    def close(self) -> None:
        self.is_closed = True


def observing(world: World, *, keep: list[Input] | None = None, **plan: float) -> Observer:
    return Observer(
        world,  # type: ignore[arg-type]
        ObservationPlan(1.0, lambda _: ReadRequest(), **plan),  # type: ignore[arg-type]
        StackSchedule(),
        keep=None if keep is None else keep.append,
        clock=world.clock,
    )


def run(
    observer: Observer, world: World, seconds: float, to: Callable[[Snapshot], None] | None = None
) -> None:
    end_s = world.now_s + seconds
    while world.now_s < end_s:
        observer.step(to)


def test_readings_settle_to_the_period_and_each_has_a_snapshot() -> None:
    world, shown = World(), list[Snapshot]()

    run(observing(world), world, 10.0, shown.append)

    gaps = [round(b.at_s - a.at_s, 1) for a, b in pairwise(shown)]
    assert gaps == [0.1, 0.2, 0.4, 0.8, *[1.0] * 8]


@pytest.mark.parametrize("exiting_s", [0.0, 0.5, 60.0])
def test_the_exits_of_the_last_processes_are_awaited_for_a_bounded_time(exiting_s: float) -> None:
    world = World(ends_s=101.0)
    world.exited_s = world.ends_s + exiting_s
    observer = observing(world)

    while not observer.is_ended:
        observer.step()

    ended = observer.snapshot().processes[0].ended
    if exiting_s < EXITS_S:
        assert ended is not None
        assert ended.signal == 9
    assert world.now_s < world.ends_s + min(exiting_s, EXITS_S) + 2.0


def test_every_input_is_kept_before_it_is_folded() -> None:
    world, kept = World(), list[Input]()
    observer = observing(world, keep=kept)
    observer.step()
    world.arriving = [HookStatus(MAIN, 100.05, "ready")]
    observer.poll(0.0)

    assert [type(each) for each in kept] == [TreeSample, HookStatus]
    assert observer.snapshot().processes[0].hook.state == "ready"


def test_hooks_are_asked_for_gauges_at_the_interval_of_the_plan() -> None:
    world = World()
    observer = observing(world, gauges_s=2.0)
    world.arriving = [HookStatus(MAIN, 100.0, "ready")]

    run(observer, world, 20.0)

    assert set(world.asked) == {(MAIN, "gauges")}
    assert 8 <= len(world.asked) <= 10


def test_requested_stacks_come_from_the_hook_where_it_answers_and_suffices() -> None:
    world = World()
    observer = observing(world)
    observer.step()
    world.arriving = [HookStatus(MAIN, 100.0, "ready")]
    observer.poll(0.0)
    observer.stacks.request(TakeStacks())
    observer.poll(0.0)
    assert (MAIN, "stacks") in world.asked

    world.asked.clear()
    observer.stacks.request(TakeStacks(MAIN, native=True))
    observer.poll(0.0)

    assert (MAIN, "stacks") not in world.asked
    observer.close()


def test_stacks_of_a_followed_process_are_shown_between_readings() -> None:
    world, shown = World(), list[Snapshot]()
    observer = observing(world)
    run(observer, world, 4.0)
    observer.stacks.follow(MAIN)
    frames = (Frame("work", "train.py", 3),)
    stack = StackSample(MAIN, MAIN.pid, "MainThread", frames, "hook", world.now_s)
    world.arriving = [StacksTaken(MAIN, world.now_s, "hook", (stack,))]

    observer.step(shown.append)

    assert shown[0].processes[0].threads[0].stack == frames
    observer.close()


def test_after_the_job_has_ended_snapshots_continue_and_nothing_is_read() -> None:
    world, shown = World(ends_s=105.0), list[Snapshot]()
    observer = observing(world)

    run(observer, world, 10.0, shown.append)

    assert observer.is_ended
    assert world.now_s - 3.0 < 110.0
    readings, observer.readings = observer.readings, 0
    run(observer, world, 5.0, shown.append)
    assert observer.readings == 0
    assert readings < len(shown)


def test_a_job_that_never_existed_has_ended_without_a_reading() -> None:
    world = World(ends_s=0.0)
    observer = observing(world)
    observer.step()

    assert observer.is_ended
    assert observer.readings == 0


def test_a_reading_that_fails_raises_and_the_next_one_keeps_its_time() -> None:
    world = World()
    observer = observing(world)
    run(observer, world, 5.0)
    working, world.read = world.read, lambda _: 1 / 0  # type: ignore[assignment,return-value]
    with pytest.raises(ZeroDivisionError):
        run(observer, world, 2.0)
    failed_s, before = world.now_s, observer.readings
    world.read = working

    run(observer, world, 0.9)
    assert observer.readings == before
    run(observer, world, 0.2)
    assert observer.readings == before + 1
    assert world.now_s > failed_s


def test_polls_are_rarer_in_a_calm_job() -> None:
    world = World()
    observer = observing(world)
    run(observer, world, 5.0)
    assert max(world.waited_s) == pytest.approx(0.1)

    run(observer, world, 40.0)

    assert max(world.waited_s) == pytest.approx(0.25)


def test_a_process_that_is_being_injected_is_not_touched_by_py_spy() -> None:
    world = World()
    injected: list[ProcessId] = []

    def inject(samples: object, report: object, *, again: bool = False) -> None:
        injected.extend(each.process for each in samples)  # type: ignore[attr-defined]

    observer = Observer(
        world,  # type: ignore[arg-type]
        ObservationPlan(1.0, lambda _: ReadRequest()),
        StackSchedule(),
        injection=Injection(inject, is_allowed=True),
        clock=world.clock,
    )
    observer.step()
    observer.stacks.follow(MAIN)
    run(observer, world, 1.5)
    assert not observer.is_taking
    assert not world.has_taken.is_set()

    run(observer, world, 1.5)
    assert world.has_taken.wait(30.0)

    assert set(injected) == {MAIN, WORKER_0}
    observer.close()
    assert world.is_closed


def test_after_a_detach_nothing_is_injected_until_that_is_asked_for() -> None:
    world = World()
    injected = threading.Event()

    def inject(samples: object, report: object, *, again: bool = False) -> None:
        injected.set()

    injection = Injection(inject, is_allowed=True)
    injection.forbid()
    observer = Observer(
        world,  # type: ignore[arg-type]
        ObservationPlan(1.0, lambda _: ReadRequest()),
        StackSchedule(),
        injection=injection,
        clock=world.clock,
    )
    observer.step()
    run(observer, world, 15.0)
    assert "mpwatch-inject" not in [thread.name for thread in threading.enumerate()]
    assert not injected.is_set()

    injection.allow()
    run(observer, world, 1.5)
    assert injected.wait(30.0)
    observer.close()


@pytest.mark.parametrize(
    ("behind_s", "least_s", "most_s"),
    [(0.0, 0.0, 0.0), (2.0, 2.0, 2.2), (9.0, 5.0, 5.2)],
    ids=["nothing is missing", "until it has arrived", "no longer than that"],
)
def test_what_hooks_have_announced_is_waited_for(
    behind_s: float, least_s: float, most_s: float
) -> None:
    """On a loaded machine a hello may arrive long before the records that it announces."""
    world = World(caught_up_s=100.0 + behind_s)

    observing(world).poll_hooks_for(5.0)

    assert least_s <= world.now_s - 100.0 <= most_s


@pytest.mark.parametrize("is_allowed", [True, False])
def test_values_are_read_only_where_the_plan_allows_it(
    is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Snapshot] = []

    def start_due(self: object, snapshot: Snapshot, history: object) -> set[ProcessId]:
        asked.append(snapshot)
        return set()

    monkeypatch.setattr(ValueReads, "start_due", start_due)
    world = World()

    run(observing(world, reads_values=is_allowed), world, 5.0, lambda _: None)

    assert bool(asked) is is_allowed


def test_a_dashboard_gets_its_first_snapshot_before_any_rule_runs() -> None:
    world, shown = World(), list[Snapshot]()
    observer = observing(world, first_bare=True)

    run(observer, world, 2.5, shown.append)

    # Waits are derived by what runs the rules.
    first, second, *later = shown
    assert (first.at_s, bool(first.waits.edges)) == (second.at_s, False)
    assert len({each.at_s for each in shown}) == len(shown) - 1
    assert all(each.account.processes for each in later)
    assert not first.account.processes


def test_a_failed_reading_is_shown_with_the_last_snapshot_until_one_succeeds() -> None:
    world, shown = World(), list[Snapshot]()
    reads = world.read
    observer = observing(world)
    observer.attempt_step(shown.append)

    def fail(_: ReadRequest) -> TreeSample | None:
        raise OSError(24, "Too many open files")

    world.read = fail
    before = len(shown)
    for _ in range(20):
        world.now_s += 1.0
        assert not observer.attempt_step(shown.append)
    assert len(shown) == before + 20
    assert "Too many open files" in shown[-1].problems[-1]
    assert shown[-1].processes == shown[0].processes

    world.read, world.now_s = reads, world.now_s + 1.0
    assert observer.attempt_step(shown.append)
    assert shown[-1].problems == shown[0].problems


def test_what_a_receiver_of_snapshots_raises_is_raised() -> None:
    def refuse(_: Snapshot) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        observing(World()).attempt_step(refuse)


def test_a_watch_outlives_failed_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    world, seen = World(), list[Snapshot]()
    reads, numbers = world.read, count()

    def sometimes(request: ReadRequest) -> TreeSample | None:
        if next(numbers) in (0, 2, 3):
            raise OSError(24, "Too many open files")
        return reads(request)

    world.read = sometimes
    monkeypatch.setattr(oneshot, "new_observer", lambda *_, **__: observing(world))

    last = oneshot.watch_for(MAIN, 600.0, OneShotOptions(), each=seen.append,
                             stop=lambda: len(seen) > 4)  # fmt: skip

    assert last is not None
    assert last.problems == ()
    assert any("Too many open files" in each for snapshot in seen for each in snapshot.problems)


@pytest.mark.parametrize("watches", [False, True])
def test_new_files_are_counted_in_a_watch_and_not_in_a_dump(
    monkeypatch: pytest.MonkeyPatch, watches: bool
) -> None:
    world, requests = World(), list[ReadRequest]()
    reads = world.read

    def note(request: ReadRequest) -> TreeSample | None:
        requests.append(request)
        return reads(request)

    world.read = note
    monkeypatch.setattr(oneshot, "new_observer", lambda *_, **__: observing(world))

    if watches:
        oneshot.watch_for(MAIN, 600.0, OneShotOptions(stacks=False), stop=lambda: True)
    else:
        oneshot.read_once(MAIN, OneShotOptions(stacks=False))

    assert len(requests) == 2
    assert {each.new_files for each in requests} == {watches}


def test_a_watch_that_can_read_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    def fail(_: ReadRequest) -> TreeSample | None:
        raise OSError(24, "Too many open files")

    world.read = fail
    monkeypatch.setattr(oneshot, "new_observer", lambda *_, **__: observing(world))

    with pytest.raises(OSError, match="Too many open files"):
        oneshot.watch_for(MAIN, 0.0, OneShotOptions())
